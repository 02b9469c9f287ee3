/*
 * Times MPI_Allreduce of random floats: for each type and length a line with the microseconds a call, the median over blocks
 * of the slowest rank's. The arguments are lengths in bytes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 15 };
#define BLOCK_S 0.02

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double seconds_of(int calls, const void *mine, void *sum, int count, MPI_Datatype type) {
    double slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double started = MPI_Wtime();
    for (int call = 0; call < calls; call++) {
        MPI_Allreduce(mine, sum, count, type, MPI_SUM, MPI_COMM_WORLD);
    }
    double own = MPI_Wtime() - started;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void measure(const char *name, MPI_Datatype type, int element_bytes, long bytes, int rank) {
    int count = (int)(bytes / element_bytes);
    void *mine = malloc((size_t)bytes);
    void *sum = malloc((size_t)bytes);
    double blocks[BLOCKS];
    for (int at = 0; at < count; at++) {
        double value = 2.0 * rand() / RAND_MAX - 1;
        if (element_bytes == 4) {
            ((float *)mine)[at] = (float)value;
        } else {
            ((double *)mine)[at] = value;
        }
    }
    int calls = 1;
    double taken = 0;
    while ((taken = seconds_of(calls, mine, sum, count, type)) < BLOCK_S && calls < 1 << 20) {
        calls *= 2;
    }
    for (int block = 0; block < BLOCKS; block++) {
        blocks[block] = seconds_of(calls, mine, sum, count, type) * 1e6 / calls;
    }
    qsort(blocks, BLOCKS, sizeof *blocks, compare_doubles);
    if (rank == 0) {
        printf("time %s %ld %.3f\n", name, bytes, blocks[BLOCKS / 2]);
        fflush(stdout);
    }
    free(mine);
    free(sum);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    srand((unsigned)rank + 1);
    for (int at = 1; at < argc; at++) {
        measure("double", MPI_DOUBLE, 8, atol(argv[at]), rank);
        measure("float", MPI_FLOAT, 4, atol(argv[at]), rank);
    }
    MPI_Finalize();
    return 0;
}
