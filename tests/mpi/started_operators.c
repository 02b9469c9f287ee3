/*
 * Operators of the program's own in nonblocking and persistent reductions, on short vectors: results in rank
 * order, though datatype and operator are freed before the operation is over, though a rank is in another call
 * of MPI when the others wait, and though MPI_Op_create_c made the operator. The function is only called on the
 * thread that is in MPI.
 *
 * Under Tributary the order shows in the result, for the operator is not associative; under plain MPI, which
 * may associate as it likes, it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "init.h"

enum { RANKS_MAX = 32, ROUNDS = 5, TAG = 3 };

typedef struct {
    uint64_t hash;
    uint64_t factor;
} piece;

static pthread_t main_thread;
static long calls_elsewhere;
static bool order_shows;

/* `right` becomes `left` OP `right`. */
static void join(const piece *left, piece *right) {
    uint64_t factor = order_shows ? 3 : right->factor;
    *right = (piece){left->hash * factor + right->hash, left->factor * right->factor};
}

static void join_all(void *in, void *inout, MPI_Count count) {
    calls_elsewhere += !pthread_equal(main_thread, pthread_self());
    for (MPI_Count at = 0; at < count; at++) {
        join((const piece *)in + at, (piece *)inout + at);
    }
}

static void user_join(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    join_all(in, inout, *count);
}

static void user_join_large(void *in, void *inout, MPI_Count *count, MPI_Datatype *type) {
    (void)type;
    join_all(in, inout, *count);
}

static MPI_Op small_operator(void) {
    MPI_Op op;
    MPI_Op_create(user_join, 0, &op);
    return op;
}

/* By MPI_Op_create_c. The library stands in where the MPI lacks it; without both, MPI_OP_NULL. */
static MPI_Op large_operator(void) {
    typedef int create(void (*)(void *, void *, MPI_Count *, MPI_Datatype *), int, MPI_Op *);
    create *by_count = (create *)dlsym(RTLD_DEFAULT, "MPI_Op_create_c");
    MPI_Op op = MPI_OP_NULL;
    if (by_count != NULL) {
        check_equal(MPI_SUCCESS, by_count(user_join_large, 0, &op), "MPI_Op_create_c");
    }
    return op;
}

static MPI_Datatype pieces(void) {
    MPI_Datatype type;
    const int lengths[2] = {1, 1};
    const MPI_Aint places[2] = {offsetof(piece, hash), offsetof(piece, factor)};
    const MPI_Datatype types[2] = {MPI_UINT64_T, MPI_UINT64_T};
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    return type;
}

typedef enum { ALLREDUCE, REDUCE, SCAN, EXSCAN, SCATTER, SCATTER_BLOCK, KINDS } kind;
static const char *const kind_names[] = {"allreduce", "reduce",         "scan",
                                         "exscan",    "reduce-scatter", "reduce-scatter-block"};

/* One reduction on a communicator. */
typedef struct {
    kind what;
    MPI_Comm comm;
    int rank;
    int ranks;
    int count; /* elements of a whole vector */
    int blocks[RANKS_MAX];
    bool in_place;
    uint64_t salt;
    piece *source;
    piece *target;
} trial;

static piece made(const trial *run, int rank, int at) {
    uint64_t bits = check_hash(run->salt, (uint64_t)rank, (uint64_t)at);
    return (piece){bits, 2 * (bits >> 7) + 1};
}

static void fill(const trial *run) {
    for (int at = 0; at < run->count; at++) {
        (run->in_place ? run->target : run->source)[at] = made(run, run->rank, at);
    }
}

static trial new_trial(kind what, MPI_Comm comm, int block, uint64_t salt) {
    trial run = {.what = what, .comm = comm, .salt = salt, .in_place = salt % 2 == 1};
    MPI_Comm_rank(comm, &run.rank);
    MPI_Comm_size(comm, &run.ranks);
    for (int rank = 0; rank < run.ranks; rank++) {
        run.blocks[rank] = what == SCATTER ? (block * rank) % (2 * block + 1) : block;
        run.count += run.blocks[rank];
    }
    run.in_place = run.in_place && (what != REDUCE || run.rank == 0);
    run.source = check_memory(sizeof *run.source * (size_t)run.count);
    run.target = check_memory(sizeof *run.target * (size_t)run.count);
    return run;
}

static void free_trial(trial *run) {
    free(run->source);
    free(run->target);
}

static MPI_Request start(const trial *run, MPI_Datatype type, MPI_Op op) {
    const void *from = run->in_place ? MPI_IN_PLACE : run->source;
    void *into = run->target;
    int n = run->count;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (run->what) {
    case ALLREDUCE: MPI_Iallreduce(from, into, n, type, op, run->comm, &request); break;
    case REDUCE: MPI_Ireduce(from, into, n, type, op, 0, run->comm, &request); break;
    case SCAN: MPI_Iscan(from, into, n, type, op, run->comm, &request); break;
    case EXSCAN: MPI_Iexscan(from, into, n, type, op, run->comm, &request); break;
    case SCATTER:
        MPI_Ireduce_scatter(from, into, run->blocks, type, op, run->comm, &request);
        break;
    default:
        MPI_Ireduce_scatter_block(from, into, run->blocks[0], type, op, run->comm, &request);
    }
    return request;
}

#define PERSISTENT run->comm, MPI_INFO_NULL, &request

static MPI_Request make_persistent(const trial *run, MPI_Datatype type, MPI_Op op) {
    const void *from = run->in_place ? MPI_IN_PLACE : run->source;
    void *into = run->target;
    int n = run->count;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (run->what) {
    case ALLREDUCE: INIT(Allreduce)(from, into, n, type, op, PERSISTENT); break;
    case REDUCE: INIT(Reduce)(from, into, n, type, op, 0, PERSISTENT); break;
    case SCAN: INIT(Scan)(from, into, n, type, op, PERSISTENT); break;
    case EXSCAN: INIT(Exscan)(from, into, n, type, op, PERSISTENT); break;
    case SCATTER: INIT(Reduce_scatter)(from, into, run->blocks, type, op, PERSISTENT); break;
    default: INIT(Reduce_scatter_block)(from, into, run->blocks[0], type, op, PERSISTENT);
    }
    return request;
}

/* The result of the ranks below `ranks`, one after the other. */
static piece expected(const trial *run, int ranks, int at) {
    piece result = made(run, 0, at);
    for (int rank = 1; rank < ranks; rank++) {
        piece right = made(run, rank, at);
        join(&result, &right);
        result = right;
    }
    return result;
}

static void check_result(const trial *run) {
    bool is_prefix = run->what == SCAN || run->what == EXSCAN;
    int ranks = is_prefix ? run->rank + (run->what == SCAN) : run->ranks;
    int first = 0;
    int count = run->what == REDUCE && run->rank != 0 ? 0 : run->count;
    if (run->what >= SCATTER) {
        for (int rank = 0; rank < run->rank; rank++) {
            first += run->blocks[rank];
        }
        count = run->blocks[run->rank];
    }
    for (int at = 0; at < count && ranks > 0; at++) {
        piece wanted = expected(run, ranks, first + at);
        if (!check_that(memcmp(&wanted, &run->target[at], sizeof wanted) == 0, "element %d differs",
                        first + at)) {
            break;
        }
    }
}

/* Both handles are freed at once. A test before the wait must not hurt. */
static void run_nonblocking(kind what, MPI_Comm comm, int block, uint64_t salt, MPI_Op op) {
    MPI_Datatype type = pieces();
    int flag = 0;
    trial run = new_trial(what, comm, block, salt);
    check_case("nonblocking %s, %d elements, salt %d", kind_names[what], run.count, (int)salt);
    fill(&run);
    MPI_Request request = start(&run, type, op);
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    check_that(type == MPI_DATATYPE_NULL && op == MPI_OP_NULL, "the handles are null");
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_result(&run);
    free_trial(&run);
}

/* Values change from start to start; completed by MPI_Wait, MPI_Test and MPI_Waitall in turn. */
static void run_persistent(kind what, MPI_Comm comm, int block, uint64_t salt) {
    MPI_Datatype type = pieces();
    MPI_Op op = small_operator();
    trial run = new_trial(what, comm, block, salt);
    MPI_Request request = make_persistent(&run, type, op);
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    for (int round = 0; round < ROUNDS; round++) {
        int flag = 0;
        check_case("persistent %s, %d elements, round %d", kind_names[what], run.count, round);
        run.salt = salt + 10 * (uint64_t)round;
        fill(&run);
        MPI_Start(&request);
        if (round % 3 == 0) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (round % 3 == 1) {
            while (!flag) {
                MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
                check_sleep_us(20); /* there may be fewer cores than ranks */
            }
        } else {
            MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
        }
        check_result(&run);
    }
    MPI_Request_free(&request);
    free_trial(&run);
}

/* Rank 0 is in MPI_Recv for a message that comes only when the others have their results. */
static void run_while_receiving(void) {
    int last = world.ranks - 1;
    int message = 0;
    MPI_Datatype type = pieces();
    MPI_Op op = small_operator();
    trial run = new_trial(ALLREDUCE, MPI_COMM_WORLD, 3, 77);
    check_case("a rank in MPI_Recv while others wait");
    fill(&run);
    MPI_Request request = start(&run, type, op);
    if (world.rank == 0 && last > 0) {
        MPI_Recv(&message, 1, MPI_INT, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_equal(9, message, "message");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_result(&run);
    if (world.rank == last && last > 0) {
        message = 9;
        MPI_Send(&message, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    free_trial(&run);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

/* Several at a time, with one operator and one datatype; waited for in the opposite order. */
static void run_several(MPI_Comm comm) {
    MPI_Datatype type = pieces();
    MPI_Op op = small_operator();
    trial runs[KINDS];
    MPI_Request requests[KINDS];
    check_case("one of every kind at a time");
    for (int what = 0; what < KINDS; what++) {
        runs[what] = new_trial((kind)what, comm, 2, 30 + (uint64_t)what);
        fill(&runs[what]);
        requests[what] = start(&runs[what], type, op);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    for (int what = KINDS - 1; what >= 0; what--) {
        MPI_Wait(&requests[what], MPI_STATUS_IGNORE);
        check_result(&runs[what]);
        free_trial(&runs[what]);
    }
}

static void run_all(MPI_Comm comm) {
    const int blocks[] = {1, 7, 16}; /* whole vectors go through the tree of three hosts, too */
    for (int what = 0; what < KINDS; what++) {
        for (size_t at = 0; at < sizeof blocks / sizeof *blocks; at++) {
            uint64_t salt = 2 * (uint64_t)what + at;
            MPI_Op large = large_operator();
            run_nonblocking((kind)what, comm, blocks[at], salt, small_operator());
            if (large != MPI_OP_NULL) {
                run_nonblocking((kind)what, comm, blocks[at], salt + 1, large);
            }
            run_persistent((kind)what, comm, blocks[at], salt);
        }
    }
    run_several(comm);
}

int main(int argc, char **argv) {
    MPI_Comm in_turn;
    check_start(argc, argv, "started_operators", MPI_THREAD_SINGLE);
    main_thread = pthread_self();
    order_shows = getenv("TRIBUTARY_HOSTS") != NULL;
    int half = (world.ranks + 1) / 2;
    run_all(MPI_COMM_WORLD);
    run_while_receiving();
    /* Ranks in turn on hosts that have several: hosts, each reduced by itself, would be out of order. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, 2 * (world.rank % half) + world.rank / half, &in_turn);
    run_all(in_turn);
    MPI_Comm_free(&in_turn);
    check_equal(0, calls_elsewhere, "calls of the function on another thread");
    return check_finish();
}
