/*
 * MPI_THREAD_MULTIPLE: every thread has a communicator of its own, and all work at once, with
 * blocking and nonblocking collectives.
 */
#include "check.h"

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 60, COUNT = 500 };

typedef struct {
    int index;
    MPI_Comm comm;
} job;

static void work_once(const job *j, int round) {
    check_case("thread %d round %d", j->index, round);
    long mine[COUNT];
    long sums[COUNT];
    long again[COUNT];
    for (int i = 0; i < COUNT; i++) {
        mine[i] = world.rank + i + j->index;
    }
    MPI_Request requests[2];
    int value = world.rank == round % world.ranks ? round + j->index : -1;
    MPI_Iallreduce(mine, sums, COUNT, MPI_LONG, MPI_SUM, j->comm, &requests[0]);
    MPI_Ibcast(&value, 1, MPI_INT, round % world.ranks, j->comm, &requests[1]);
    MPI_Allreduce(mine, again, COUNT, MPI_LONG, MPI_SUM, j->comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(j->comm);
    const long ranks = world.ranks;
    for (int i = 0; i < COUNT; i++) {
        const long expected = ranks * (ranks - 1) / 2 + ranks * (i + j->index);
        if (!check_equal(expected, sums[i], "nonblocking sum") ||
            !check_equal(expected, again[i], "blocking sum")) {
            break;
        }
    }
    check_equal(round + j->index, value, "broadcast");
}

static void *work(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        work_once(argument, round);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    job jobs[THREADS];
    check_start(argc, argv, "threads", MPI_THREAD_MULTIPLE);
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    check_case("thread level");
    if (!check_that(provided == MPI_THREAD_MULTIPLE, "this MPI gives thread level %d", provided)) {
        return check_finish();
    }
    for (int i = 0; i < THREADS; i++) {
        jobs[i].index = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
    }
    for (int i = 0; i < THREADS; i++) {
        check_that(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0, "no thread %d", i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        MPI_Comm_free(&jobs[i].comm);
    }
    return check_finish();
}
