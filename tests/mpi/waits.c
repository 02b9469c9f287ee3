/*
 * Nonblocking collectives, completed by every member of the Wait and Test families, alone and mixed
 * with ordinary requests and null ones.
 */
#include "check.h"

#include <string.h>

enum { REQUESTS = 8, ROUNDS = 6, COUNT = 300, TAG = 7 };

typedef struct {
    MPI_Request requests[REQUESTS];
    long long sums[COUNT];
    long long mine[COUNT];
    int broadcast[COUNT];
    double reduced;
    double part;
    int received;
    int sent;
} work;

/* Four collectives, a send, a receive and two null requests. */
static void start(work *w, int round) {
    const int left = (world.rank + world.ranks - 1) % world.ranks;
    const int right = (world.rank + 1) % world.ranks;
    const int root = round % world.ranks;
    for (int i = 0; i < COUNT; i++) {
        w->mine[i] = (long long)check_hash(round, world.rank, i) >> 8;
        w->broadcast[i] = world.rank == root ? round * COUNT + i : -1;
    }
    w->part = world.rank + 1;
    w->reduced = -1;
    w->sent = 100 * round + world.rank;
    w->received = -1;
    MPI_Iallreduce(w->mine, w->sums, COUNT, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD,
                   &w->requests[0]);
    MPI_Irecv(&w->received, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &w->requests[1]);
    MPI_Ibcast(w->broadcast, COUNT, MPI_INT, root, MPI_COMM_WORLD, &w->requests[2]);
    w->requests[3] = MPI_REQUEST_NULL;
    MPI_Ireduce(&w->part, &w->reduced, 1, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD,
                &w->requests[4]);
    MPI_Isend(&w->sent, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &w->requests[5]);
    MPI_Ibarrier(MPI_COMM_WORLD, &w->requests[6]);
    w->requests[7] = MPI_REQUEST_NULL;
}

static void check_results(const work *w, int round) {
    const int left = (world.rank + world.ranks - 1) % world.ranks;
    const int root = round % world.ranks;
    for (int i = 0; i < COUNT; i++) {
        long long sum = 0;
        for (int rank = 0; rank < world.ranks; rank++) {
            sum += (long long)check_hash(round, rank, i) >> 8;
        }
        if (!check_equal(sum, w->sums[i], "sum") ||
            !check_equal(round * COUNT + i, w->broadcast[i], "broadcast")) {
            break;
        }
    }
    if (world.rank == root) {
        const int ranks = world.ranks;
        check_equal(ranks * (ranks + 1) / 2, (long long)w->reduced, "reduced");
    }
    check_equal(100 * round + left, w->received, "received");
    for (int i = 0; i < REQUESTS; i++) {
        check_that(w->requests[i] == MPI_REQUEST_NULL, "request %d is not null afterwards", i);
    }
}

static void by_wait(work *w) {
    for (int i = REQUESTS - 1; i >= 0; i--) {
        MPI_Wait(&w->requests[i], MPI_STATUS_IGNORE);
    }
}

static void by_waitall(work *w) {
    MPI_Status statuses[REQUESTS];
    MPI_Waitall(REQUESTS, w->requests, statuses);
    const int left = (world.rank + world.ranks - 1) % world.ranks;
    check_equal(left, statuses[1].MPI_SOURCE, "source of the receive");
    check_equal(TAG, statuses[1].MPI_TAG, "tag of the receive");
}

static void by_waitany(work *w) {
    int done[REQUESTS] = {0};
    for (int left = REQUESTS - 2; left > 0; left--) {
        int index = -1;
        MPI_Waitany(REQUESTS, w->requests, &index, MPI_STATUS_IGNORE);
        if (!check_that(index >= 0 && index < REQUESTS && !done[index], "Waitany gave %d", index)) {
            return;
        }
        done[index] = 1;
    }
    int index = 0;
    MPI_Waitany(REQUESTS, w->requests, &index, MPI_STATUS_IGNORE);
    check_equal(MPI_UNDEFINED, index, "Waitany on null requests");
}

static void by_waitsome(work *w) {
    int total = 0;
    for (;;) {
        int count = 0;
        int indices[REQUESTS];
        MPI_Waitsome(REQUESTS, w->requests, &count, indices, MPI_STATUSES_IGNORE);
        if (count == MPI_UNDEFINED) {
            break;
        }
        total += count;
    }
    check_equal(REQUESTS - 2, total, "completions of Waitsome");
}

static void by_test(work *w) {
    int left = REQUESTS;
    while (left > 0) {
        left = 0;
        for (int i = 0; i < REQUESTS; i++) {
            int flag = 0;
            MPI_Test(&w->requests[i], &flag, MPI_STATUS_IGNORE);
            left += !flag;
        }
    }
}

static void by_testall(work *w) {
    int flag = 0;
    while (!flag) {
        MPI_Testall(REQUESTS, w->requests, &flag, MPI_STATUSES_IGNORE);
    }
}

static void by_testany(work *w) {
    int total = 0;
    for (;;) {
        int flag = 0;
        int index = -1;
        MPI_Testany(REQUESTS, w->requests, &index, &flag, MPI_STATUS_IGNORE);
        if (flag && index == MPI_UNDEFINED) {
            break;
        }
        total += flag;
    }
    check_equal(REQUESTS - 2, total, "completions of Testany");
}

static void by_testsome(work *w) {
    int total = 0;
    while (total < REQUESTS - 2) {
        int count = 0;
        int indices[REQUESTS];
        MPI_Testsome(REQUESTS, w->requests, &count, indices, MPI_STATUSES_IGNORE);
        total += count == MPI_UNDEFINED ? REQUESTS : count;
    }
    check_equal(REQUESTS - 2, total, "completions of Testsome");
}

static void by_get_status(work *w) {
    for (int i = 0; i < REQUESTS; i++) {
        int flag = 0;
        while (!flag) {
            MPI_Request_get_status(w->requests[i], &flag, MPI_STATUS_IGNORE);
        }
    }
    by_waitall(w);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*complete)(work *);
    } ways[] = {
        {"Wait", by_wait},         {"Waitall", by_waitall},   {"Waitany", by_waitany},
        {"Waitsome", by_waitsome}, {"Test", by_test},         {"Testall", by_testall},
        {"Testany", by_testany},   {"Testsome", by_testsome}, {"Request_get_status", by_get_status},
    };
    check_start(argc, argv, "waits", MPI_THREAD_SINGLE);
    static work w;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            check_case("%s, round %d", ways[way].name, round);
            memset(&w, 0, sizeof w);
            if ((check_hash(round, world.rank, way) & 3) == 0) {
                check_sleep_us(500); /* not everybody at once */
            }
            start(&w, round);
            ways[way].complete(&w);
            check_results(&w, round);
        }
    }
    return check_finish();
}
