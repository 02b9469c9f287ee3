/*
 * Latency of a small MPI_Allreduce, beside the MPI's own function in the same run: with
 * the preload library the first goes through Tributary and the second does not. And of MPI_Start and
 * MPI_Wait of the persistent form.
 *
 * Blocks of the three alternate; medians over blocks are printed. The figures need a free core for each
 * rank. The program fails only if a sum is wrong.
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { BLOCKS = 101, CALLS = 200 };
typedef int (*allreduce)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

/* Microseconds per call, as the slowest rank saw it. */
static double block_us(allreduce call, int count) {
    double mine[8] = {world.rank + 1.0};
    double sum[8] = {0};
    double slowest = 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    int64_t started = check_now_ns();
    for (int at = 0; at < CALLS; at++) {
        call(mine, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    double elapsed = (double)(check_now_ns() - started) / 1000.0 / CALLS;
    double expected = world.ranks * (world.ranks + 1) / 2.0;
    check_that(sum[0] == expected, "sum: expected %g, got %g", expected, sum[0]);
    PMPI_Allreduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static MPI_Request persistent;

/* The buffers of `persistent`. */
static double persistent_mine;
static double persistent_sum;

/* In the place of MPI_Allreduce, for one element. */
static int start_and_wait(const void *mine, void *sum, int count, MPI_Datatype datatype, MPI_Op op,
                          MPI_Comm comm) {
    (void)count, (void)datatype, (void)op, (void)comm;
    persistent_mine = *(const double *)mine;
    MPI_Start(&persistent);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    *(double *)sum = persistent_sum;
    return MPI_SUCCESS;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    static double with[BLOCKS];
    static double without[BLOCKS];
    static double restarted[BLOCKS];
    check_start(argc, argv, "latency", MPI_THREAD_SINGLE);
    check_case("8-byte allreduce");
    MPI_Allreduce_init(&persistent_mine, &persistent_sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &persistent);
    block_us(MPI_Allreduce, 1); /* warm up */
    block_us(start_and_wait, 1);
    block_us(PMPI_Allreduce, 1);
    for (int block = 0; block < BLOCKS; block++) {
        with[block] = block_us(MPI_Allreduce, 1);
        restarted[block] = block_us(start_and_wait, 1);
        without[block] = block_us(PMPI_Allreduce, 1);
    }
    qsort(with, BLOCKS, sizeof *with, compare_doubles);
    qsort(without, BLOCKS, sizeof *without, compare_doubles);
    qsort(restarted, BLOCKS, sizeof *restarted, compare_doubles);
    if (world.rank == 0) {
        printf("latency of 8 bytes on %d ranks, median (quartiles) in us: MPI_Allreduce %.3f "
               "(%.3f to %.3f), PMPI_Allreduce %.3f (%.3f to %.3f), ratio %.2f\n",
               world.ranks, with[BLOCKS / 2], with[BLOCKS / 4], with[BLOCKS * 3 / 4],
               without[BLOCKS / 2], without[BLOCKS / 4], without[BLOCKS * 3 / 4],
               with[BLOCKS / 2] / without[BLOCKS / 2]);
        printf("MPI_Start and MPI_Wait: %.3f (%.3f to %.3f), ratio to MPI_Allreduce %.2f\n",
               restarted[BLOCKS / 2], restarted[BLOCKS / 4], restarted[BLOCKS * 3 / 4],
               restarted[BLOCKS / 2] / with[BLOCKS / 2]);
    }
    MPI_Request_free(&persistent);
    return check_finish();
}
