/*
 * How long MPI_Init takes: the longest of all ranks, from the moment when the last of them calls it, in microseconds. The
 * library's part ends with it, so the first barrier is timed too: what was put off would be seen there.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* one machine's, so the ranks of a lab can compare */
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    double began = now_us();
    MPI_Init(&argc, &argv);
    double inited = now_us();
    MPI_Barrier(MPI_COMM_WORLD);
    double met = now_us();
    int rank = 0;
    double last_began = 0, last_inited = 0, last_met = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Reduce(&began, &last_began, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    PMPI_Reduce(&inited, &last_inited, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    PMPI_Reduce(&met, &last_met, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"init_us\": %.0f, \"barrier_us\": %.0f}\n", last_inited - last_began, last_met - last_inited);
    }
    MPI_Finalize();
    return 0;
}
