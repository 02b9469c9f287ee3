/*
 * Collectives of known kinds, lengths and numbers, of which the report must tell the times. times.py reads
 * the lines "made COLLECTIVE BYTES CALLS GROUP LEAST_US" and compares the report with them: CALLS at all
 * ranks together, LEAST_US the time that they must have taken at all ranks together. GROUP says on which
 * path they may go:
 *
 *   world    any kind that is offloaded between hosts too, on all ranks
 *   host     the same on communicators of one host
 *   further  kinds that another rule may leave to the underlying MPI on several hosts
 *   passed   left to the underlying MPI
 *   started  nonblocking: not measured
 *
 * check_finish() calls an allreduce of 16 bytes, so none here has as many. Every rank contributes ones, and
 * the last result of each kind is checked: a measured call takes another way through the library.
 */
#include "check.h"

#include <stdio.h>
#include <string.h>

enum { LATE_MS = 30, LATE_AT_LEAST_MS = 15, ELEMENTS_MAX = 4096 };

static double source[ELEMENTS_MAX];
static double target[4 * ELEMENTS_MAX];

static void made(const char *collective, size_t bytes, int calls, const char *group, long least_us) {
    if (world.rank == 0) {
        printf("made %s %zu %d %s %ld\n", collective, bytes, calls * world.ranks, group, least_us);
    }
}

/* Checks elements of the target, which all are equal, and spoils them. */
static void check_target(int first, int count, double expected, const char *what) {
    int at = 0;
    while (at < count && target[first + at] == expected) {
        at++;
    }
    check_that(at == count, "%s: element %d: expected %a, got %a", what, first + at, expected,
               at < count ? target[first + at] : expected);
    memset(target, 0xff, sizeof target);
}

static void allreduces(void) {
    const struct {
        int elements;
        int calls;
    } each[] = {{1, 100}, {5, 20}, {512, 10}, {ELEMENTS_MAX, 5}};
    for (size_t at = 0; at < sizeof each / sizeof each[0]; at++) {
        for (int call = 0; call < each[at].calls; call++) {
            MPI_Allreduce(source, target, each[at].elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
        made("allreduce", each[at].elements * sizeof(double), each[at].calls, "world", 0);
        check_target(0, each[at].elements, world.ranks, "allreduce");
    }
}

static void others(void) {
    for (int call = 0; call < 7; call++) {
        int root = call % world.ranks;
        MPI_Bcast(world.rank == root ? source : target, 8, MPI_DOUBLE, root, MPI_COMM_WORLD);
        if (world.rank != root) {
            check_target(0, 8, 1.0, "bcast");
        }
    }
    made("bcast", 64, 7, "world", 0);
    for (int call = 0; call < 6; call++) {
        MPI_Reduce(source, target, 3, MPI_DOUBLE, MPI_SUM, call % world.ranks, MPI_COMM_WORLD);
        if (world.rank == call % world.ranks) {
            check_target(0, 3, world.ranks, "reduce");
        }
    }
    made("reduce", 24, 6, "world", 0);
    for (int call = 0; call < 21; call++) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    made("barrier", 0, 21, "world", 0);
}

/* Elements with gaps need a dense copy, the time of which counts. */
static void broadcast_with_gaps(void) {
    MPI_Datatype column;
    MPI_Type_vector(16, 1, 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (int call = 0; call < 3; call++) {
        MPI_Bcast(world.rank == 0 ? source : target, 1, column, 0, MPI_COMM_WORLD);
    }
    for (int at = 0; world.rank != 0 && at < 16; at++) {
        target[at] = target[2 * at];
    }
    if (world.rank != 0) {
        check_target(0, 16, 1.0, "bcast with gaps");
    }
    MPI_Type_free(&column);
    made("bcast", 128, 3, "world", 0);
}

static void further(void) {
    for (int call = 0; call < 4; call++) {
        MPI_Allgather(source, 2, MPI_DOUBLE, target, 2, MPI_DOUBLE, MPI_COMM_WORLD);
        check_target(0, 2 * world.ranks, 1.0, "allgather");
        memcpy(&target[4 * world.rank], source, 4 * sizeof(double));
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, target, 4, MPI_DOUBLE, MPI_COMM_WORLD);
        check_target(0, 4 * world.ranks, 1.0, "allgather in place");
    }
    made("allgather", 16, 4, "further", 0);
    made("allgather", 32, 4, "further", 0);
    int counts[64];
    int own = 1;
    for (int rank = 0; rank < world.ranks; rank++) {
        counts[rank] = rank == 0 ? 7 : own;
    }
    int all = 7 + (world.ranks - 1) * own;
    for (int call = 0; call < 5; call++) {
        MPI_Reduce_scatter_block(source, target, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        check_target(0, 16, world.ranks, "reduce_scatter_block");
        MPI_Reduce_scatter(source, target, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        check_target(0, counts[world.rank], world.ranks, "reduce_scatter");
        MPI_Scan(source, target, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        check_target(0, 1, world.rank + 1, "scan");
        MPI_Exscan(source, target, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (world.rank > 0) {
            check_target(0, 2, world.rank, "exscan");
        }
    }
    made("reduce_scatter", 16 * sizeof(double) * (size_t)world.ranks, 5, "further", 0);
    made("reduce_scatter", (size_t)all * sizeof(double), 5, "further", 0);
    made("scan", 8, 5, "further", 0);
    made("exscan", 16, 5, "further", 0);
}

/* Two ranks each, in blocks: on one host where every host has an even number of ranks. */
static void halves(void) {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, world.rank / 2, world.rank, &half);
    for (int call = 0; call < 9; call++) {
        MPI_Allreduce(source, target, 32, MPI_DOUBLE, MPI_SUM, half);
    }
    int members;
    MPI_Comm_size(half, &members);
    check_target(0, 32, members, "allreduce in a half");
    made("allreduce", 256, 9, "host", 0);
    MPI_Comm_free(&half);
}

/* An operator of the program on a datatype with gaps: never offloaded. */
static void add(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    for (int at = 0; at < *length; at++) {
        ((double *)inout)[2 * at] += ((double *)in)[2 * at];
    }
}

static MPI_Op operator_;
static MPI_Datatype gapped; /* one double, and as much room behind it */

static void make_passed(void) {
    MPI_Op_create(add, 1, &operator_);
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &gapped);
    MPI_Type_commit(&gapped);
}

static void passed(void) {
    for (int call = 0; call < 8; call++) {
        MPI_Allreduce(source, target, 128, gapped, operator_, MPI_COMM_WORLD);
    }
    made("allreduce", 1024, 8, "passed", 0);
    for (int call = 0; call < 2; call++) {
        MPI_Allreduce(source, target, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    made("allreduce", 0, 2, "passed", 0);
}

static void started(void) {
    for (int call = 0; call < 11; call++) {
        MPI_Request request;
        MPI_Iallreduce(source, target, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_target(0, 1, world.ranks, "nonblocking allreduce");
    }
    made("allreduce", 0, 11, "started", 0);
}

/* Every other rank waits for one that comes late, inside the collective. */
static void late(const char *group, MPI_Datatype type, MPI_Op op, int elements) {
    MPI_Barrier(MPI_COMM_WORLD);
    made("barrier", 0, 1, "world", 0);
    if (world.rank == 0) {
        check_sleep_us(LATE_MS * 1000L);
    }
    MPI_Allreduce(source, target, elements, type, op, MPI_COMM_WORLD);
    made("allreduce", (size_t)elements * sizeof(double), 1, group,
         LATE_AT_LEAST_MS * 1000L * (world.ranks - 1));
}

int main(int argc, char **argv) {
    check_start(argc, argv, "times", MPI_THREAD_SINGLE);
    for (int at = 0; at < ELEMENTS_MAX; at++) {
        source[at] = 1.0;
    }
    make_passed();
    allreduces();
    others();
    broadcast_with_gaps();
    further();
    halves();
    passed();
    started();
    late("world", MPI_DOUBLE, MPI_SUM, 1024);
    late("passed", gapped, operator_, 2048);
    MPI_Type_free(&gapped);
    MPI_Op_free(&operator_);
    return check_finish();
}
