/* Sums a vector over all ranks a thousand times, checks the sums, and says how long a call took.
 *
 *     mpicc -O2 examples/allreduce.c -o allreduce
 *     mpirun -n 4 ./allreduce                              # the MPI alone
 *     tributary run -- mpirun -n 4 ./allreduce             # one host: in shared memory
 *     tributary run --hosts 2 -- mpirun -n 4 ./allreduce   # two hosts emulated: through a tree
 *
 * Nothing in here is Tributary's: the preloaded library catches MPI_Allreduce. */
#include <mpi.h>
#include <stdio.h>

enum { ELEMENTS = 16, CALLS = 1000 };

int main(int argc, char **argv) {
    int rank, size, wrong = 0;
    double mine[ELEMENTS], sum[ELEMENTS];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < ELEMENTS; i++) {
        mine[i] = rank + i;
    }
    double began = MPI_Wtime();
    for (int call = 0; call < CALLS; call++) {
        MPI_Allreduce(mine, sum, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    double took_us = (MPI_Wtime() - began) / CALLS * 1e6;
    for (int i = 0; i < ELEMENTS; i++) {
        /* 0 + 1 + ... + (size - 1), and i from each rank. */
        wrong += sum[i] != size * (size - 1) / 2.0 + (double)size * i;
    }
    if (wrong != 0) {
        fprintf(stderr, "rank %d: %d of %d sums are wrong\n", rank, wrong, ELEMENTS);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0) {
        printf("%d ranks: %d sums of %d doubles, %.1f us a call\n", size, CALLS, ELEMENTS, took_us);
    }
    MPI_Finalize();
    return 0;
}
