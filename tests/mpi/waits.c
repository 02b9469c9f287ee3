/*
 * Nonblocking collectives completed by every member of the MPI_Wait and MPI_Test families: alone,
 * several at once, mixed with messages, with null requests between them; and their statuses.
 */
#include <string.h>

#include "check.h"
#include "completion.h"

enum { BATCH = 8, ELEMENTS = 33, ROUNDS = 6, TAG = 5, RANKS_MAX = 64 };

/* The kinds of requests, by index in the array. */
typedef enum {
    IALLREDUCE, IREDUCE, IBCAST, IBARRIER, ISCAN, IEXSCAN, IALLGATHER, IREDUCE_SCATTER,
    NULL_REQUEST, ISEND, IRECV, KINDS
} kind;

typedef struct {
    kind kinds[BATCH];
    MPI_Request requests[BATCH];
    MPI_Status statuses[BATCH];
    bool done[BATCH];
    int source[BATCH][ELEMENTS];
    int target[BATCH][ELEMENTS];
    int counts[BATCH][RANKS_MAX]; /* of a reduce-scatter: ELEMENTS in all */
    int root[BATCH];
    int left; /* requests that are not completed yet */
} batch;

static int contribution(int at, int rank, int index) { return 1000 * at + 7 * rank + index; }

static int peer(int distance) { return (world.rank + distance + world.ranks) % world.ranks; }

/* Ints that each rank contributes to an allgather. */
static int gathered(void) { return ELEMENTS / world.ranks; }

/* Where a rank's block of a reduce-scatter begins: blocks of two lengths. */
static int dealt_until(int rank) { return ELEMENTS * rank / world.ranks; }

static void start_one(batch *all, int at, MPI_Comm comm) {
    MPI_Request *request = &all->requests[at];
    int *source = all->source[at];
    int *target = all->target[at];
    int root = all->root[at];
    switch (all->kinds[at]) {
    case IALLREDUCE:
        MPI_Iallreduce(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, request);
        break;
    case IREDUCE:
        MPI_Ireduce(source, target, ELEMENTS, MPI_INT, MPI_MAX, root, comm, request);
        break;
    case IBCAST:
        memcpy(target, source, sizeof all->target[at]);
        MPI_Ibcast(target, ELEMENTS, MPI_INT, root, comm, request);
        break;
    case IBARRIER:
        MPI_Ibarrier(comm, request);
        break;
    case ISCAN:
        MPI_Iscan(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, request);
        break;
    case IEXSCAN:
        MPI_Iexscan(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, request);
        break;
    case IALLGATHER:
        MPI_Iallgather(source, gathered(), MPI_INT, target, gathered(), MPI_INT, comm, request);
        break;
    case IREDUCE_SCATTER:
        for (int rank = 0; rank < world.ranks; rank++) {
            all->counts[at][rank] = dealt_until(rank + 1) - dealt_until(rank);
        }
        MPI_Ireduce_scatter(source, target, all->counts[at], MPI_INT, MPI_SUM, comm, request);
        break;
    case ISEND:
        MPI_Isend(source, ELEMENTS, MPI_INT, peer(1), TAG + at, comm, request);
        break;
    case IRECV:
        MPI_Irecv(target, ELEMENTS, MPI_INT, peer(-1), TAG + at - 1, comm, request);
        break;
    default:
        *request = MPI_REQUEST_NULL;
    }
}

/* The request after a send is the receive of the neighbour's message. */
static void choose_kinds(batch *all, uint64_t salt, bool mixed) {
    for (int at = 0; at < BATCH; at++) {
        uint64_t bits = check_hash(salt, (uint64_t)at, 0);
        bool follows_send = at > 0 && all->kinds[at - 1] == ISEND;
        all->kinds[at] = (kind)(bits % (mixed ? ISEND + 1 : NULL_REQUEST));
        if (follows_send) {
            all->kinds[at] = IRECV;
        } else if (all->kinds[at] == ISEND && at == BATCH - 1) {
            all->kinds[at] = IALLREDUCE;
        }
        all->root[at] = (int)((bits >> 16) % (uint64_t)world.ranks);
    }
}

static void start_all(batch *all, MPI_Comm comm) {
    all->left = 0;
    for (int at = 0; at < BATCH; at++) {
        for (int index = 0; index < ELEMENTS; index++) {
            all->source[at][index] = contribution(at, world.rank, index);
            all->target[at][index] = -1;
        }
        all->done[at] = all->kinds[at] == NULL_REQUEST;
        all->left += all->done[at] ? 0 : 1;
        start_one(all, at, comm);
    }
}

static int expected(const batch *all, int at, int index) {
    int sum = 0;
    int own = world.rank;
    switch (all->kinds[at]) {
    case ISCAN:
    case IEXSCAN:
        for (int rank = 0; rank < own + (all->kinds[at] == ISCAN); rank++) {
            sum += contribution(at, rank, index);
        }
        return all->kinds[at] == IEXSCAN && own == 0 ? -1 : sum;
    case IALLGATHER:
        return index < gathered() * world.ranks
                   ? contribution(at, index / gathered(), index % gathered())
                   : -1;
    case IREDUCE_SCATTER:
        for (int rank = 0; rank < world.ranks; rank++) {
            sum += contribution(at, rank, dealt_until(own) + index);
        }
        return index < dealt_until(own + 1) - dealt_until(own) ? sum : -1;
    case IALLREDUCE:
        for (int rank = 0; rank < world.ranks; rank++) {
            sum += contribution(at, rank, index);
        }
        return sum;
    case IREDUCE:
        return world.rank == all->root[at] ? contribution(at, world.ranks - 1, index) : -1;
    case IBCAST:
        return contribution(at, all->root[at], index);
    case IRECV:
        return contribution(at - 1, peer(-1), index);
    default:
        return -1;
    }
}

static void check_status(const batch *all, int at, const MPI_Status *status) {
    int cancelled = 1;
    int elements = -1;
    PMPI_Test_cancelled(status, &cancelled);
    check_equal(0, cancelled, "cancelled");
    if (all->kinds[at] == IRECV) {
        PMPI_Get_count(status, MPI_INT, &elements);
        check_equal(ELEMENTS, elements, "elements received");
        check_equal(peer(-1), status->MPI_SOURCE, "source");
        check_equal(TAG + at - 1, status->MPI_TAG, "tag");
    }
}

static void on_done(batch *all, int at, const MPI_Status *status) {
    if (!check_that(at >= 0 && at < BATCH, "index %d is outside the requests", at)) {
        return;
    }
    check_that(!all->done[at], "request %d is reported done twice", at);
    check_that(all->requests[at] == MPI_REQUEST_NULL, "request %d is done but not null", at);
    all->done[at] = true;
    all->left--;
    check_status(all, at, status);
    for (int index = 0; index < ELEMENTS; index++) {
        if (!check_equal(expected(all, at, index), all->target[at][index], "result")) {
            return;
        }
    }
}

static void on_one_done(void *owner, int at, const MPI_Status *status) { on_done(owner, at, status); }

static void on_all_done(void *owner) {
    batch *all = owner;
    for (int at = 0; at < BATCH; at++) {
        if (!all->done[at]) {
            on_done(all, at, &all->statuses[at]);
        }
    }
}

static void complete(batch *all, completion how) {
    completion_set left = {.count = BATCH, .requests = all->requests, .statuses = all->statuses,
                           .owner = all, .on_done = on_one_done, .on_all = on_all_done};
    while (all->done[left.one]) {
        left.one++;
    }
    completion_call(&left, how);
}

static void run_batch(completion how, bool mixed, int round, MPI_Comm comm) {
    static batch all;
    uint64_t salt = (uint64_t)(how * 2 + mixed) * ROUNDS + (uint64_t)round;
    check_case("%s %s round %d", completion_names[how], mixed ? "mixed with messages" : "alone", round);
    choose_kinds(&all, salt, mixed);
    if (world.rank == round % world.ranks) {
        check_sleep_us(500);
    }
    start_all(&all, comm);
    while (all.left > 0) {
        complete(&all, how);
    }
}

/* Arrays of null requests and empty ones: MPI 4.1, 3.7.3 to 3.7.5, inactive requests. */
static void check_empty(int count) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int index = 0;
    int flag = 0;
    int number = 0;
    check_case("%d null requests", count);
    check_equal(MPI_SUCCESS, MPI_Waitall(count, requests, statuses), "MPI_Waitall");
    MPI_Waitany(count, requests, &index, statuses);
    check_equal(MPI_UNDEFINED, index, "MPI_Waitany's index");
    MPI_Testany(count, requests, &index, &flag, statuses);
    check_equal(1, flag, "MPI_Testany's flag");
    check_equal(MPI_UNDEFINED, index, "MPI_Testany's index");
    MPI_Waitsome(count, requests, &number, &index, statuses);
    check_equal(MPI_UNDEFINED, number, "MPI_Waitsome's outcount");
    MPI_Testsome(count, requests, &number, &index, statuses);
    check_equal(MPI_UNDEFINED, number, "MPI_Testsome's outcount");
    MPI_Testall(count, requests, &flag, statuses);
    check_equal(1, flag, "MPI_Testall's flag");
}

static void check_null_request(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    int flag = 0;
    int count = -1;
    check_case("one null request");
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    check_equal(0, count, "count of the empty status");
    check_equal(MPI_ANY_SOURCE, status.MPI_SOURCE, "source of the empty status");
    check_equal(MPI_ANY_TAG, status.MPI_TAG, "tag of the empty status");
    MPI_Test(&request, &flag, &status);
    check_equal(1, flag, "MPI_Test's flag");
    flag = 0;
    MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status);
    check_equal(1, flag, "MPI_Request_get_status's flag");
}

/* Operations may complete in another order than they started. */
static void check_reverse_order(MPI_Comm comm) {
    enum { MANY = 40 };
    MPI_Request requests[MANY];
    long sums[MANY];
    long mine[MANY];
    check_case("%d operations waited for in reverse", MANY);
    for (int at = 0; at < MANY; at++) {
        mine[at] = at + world.rank;
        MPI_Iallreduce(&mine[at], &sums[at], 1, MPI_LONG, MPI_SUM, comm, &requests[at]);
    }
    long offset = (long)world.ranks * (world.ranks - 1) / 2;
    for (int at = MANY - 1; at >= 0; at--) {
        MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
        check_equal((long)at * world.ranks + offset, sums[at], "sum");
    }
}

/* A blocking operation may overtake outstanding nonblocking ones. */
static void check_blocking_between(MPI_Comm comm) {
    MPI_Request request;
    int one = 1;
    int early = 0;
    int late = 0;
    check_case("a blocking operation while another is outstanding");
    MPI_Iallreduce(&one, &early, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Allreduce(&world.rank, &late, 1, MPI_INT, MPI_MAX, comm);
    check_equal(world.ranks - 1, late, "the blocking maximum");
    MPI_Barrier(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(world.ranks, early, "the nonblocking sum");
}

int main(int argc, char **argv) {
    MPI_Comm second;
    check_start(argc, argv, "waits", MPI_THREAD_SINGLE);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    for (int how = 0; how < FAMILY; how++) {
        for (int round = 0; round < 2 * ROUNDS; round++) {
            run_batch((completion)how, round % 2 == 1, round / 2,
                      round % 3 == 0 ? second : MPI_COMM_WORLD);
        }
    }
    check_empty(2);
    check_empty(0);
    check_null_request();
    check_reverse_order(second);
    check_blocking_between(MPI_COMM_WORLD);
    MPI_Comm_free(&second);
    return check_finish();
}
