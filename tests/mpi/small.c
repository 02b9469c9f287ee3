/*
 * As little as a program can be: allreduces whose results are checked. Says how many were right.
 */
#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 20 };

int main(int argc, char **argv) {
    int rank = 0;
    int size = 0;
    int right = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) {
        long own = rank + round;
        long sum = 0;
        MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        right += sum == (long)size * (size - 1) / 2 + (long)size * round;
    }
    MPI_Finalize();
    if (rank == 0) {
        printf("%d of %d right\n", right, ROUNDS);
    }
    return right == ROUNDS ? 0 : 1;
}
