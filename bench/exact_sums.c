/*
 * Times MPI_Allreduce of random floats, on a communicator whose sums are ordered and on one whose sums are exact, in turns: for each type
 * and length a line with the microseconds a call on either, the medians over blocks of the slowest rank's. The arguments are lengths in
 * bytes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS = 2, BLOCKS = 15, WARM_UPS = 2 };
#define BLOCK_S 0.02

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double seconds_of(int calls, const void *mine, void *sum, int count, MPI_Datatype type, MPI_Comm comm) {
    double slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double started = MPI_Wtime();
    for (int call = 0; call < calls; call++) {
        MPI_Allreduce(mine, sum, count, type, MPI_SUM, comm);
    }
    double own = MPI_Wtime() - started;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void measure(const char *name, MPI_Datatype type, int element_bytes, long bytes, int rank, const MPI_Comm *comms) {
    int count = (int)(bytes / element_bytes);
    void *mine = malloc((size_t)bytes);
    void *sum = malloc((size_t)bytes);
    double blocks[COMMS][BLOCKS];
    for (int at = 0; at < count; at++) {
        double value = 2.0 * rand() / RAND_MAX - 1;
        if (element_bytes == 4) {
            ((float *)mine)[at] = (float)value;
        } else {
            ((double *)mine)[at] = value;
        }
    }
    int calls = 1;
    while (seconds_of(calls, mine, sum, count, type, comms[0]) < BLOCK_S && calls < 1 << 20) {
        calls *= 2;
    }
    for (int block = -WARM_UPS; block < BLOCKS; block++) {
        for (int at = 0; at < COMMS; at++) {
            /* Each block starts with the other communicator than the block before it. */
            int which = (at + (block & 1)) % COMMS;
            double us = seconds_of(calls, mine, sum, count, type, comms[which]) * 1e6 / calls;
            if (block >= 0) {
                blocks[which][block] = us;
            }
        }
    }
    for (int at = 0; at < COMMS; at++) {
        qsort(blocks[at], BLOCKS, sizeof *blocks[at], compare_doubles);
    }
    if (rank == 0) {
        printf("time %s %ld %.3f %.3f\n", name, bytes, blocks[0][BLOCKS / 2], blocks[1][BLOCKS / 2]);
        fflush(stdout);
    }
    free(mine);
    free(sum);
}

static MPI_Comm duplicate_with(const char *sums) {
    MPI_Info info;
    MPI_Comm comm;
    MPI_Info_create(&info);
    MPI_Info_set(info, "tributary_sums", sums);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    return comm;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    srand((unsigned)rank + 1);
    MPI_Comm comms[COMMS] = {duplicate_with("ordered"), duplicate_with("exact")};
    for (int at = 1; at < argc; at++) {
        measure("double", MPI_DOUBLE, 8, atol(argv[at]), rank, comms);
        measure("float", MPI_FLOAT, 4, atol(argv[at]), rank, comms);
    }
    for (int at = 0; at < COMMS; at++) {
        MPI_Comm_free(&comms[at]);
    }
    MPI_Finalize();
    return 0;
}
