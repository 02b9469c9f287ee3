/*
 * Calls one MPI collective in a loop, for tests/mpi/test_instructions.py, which runs it under callgrind.
 *
 * Arguments: allreduce|reduce|bcast|barrier, or persistent for MPI_Start and MPI_Wait of an allreduce, and
 * the number of calls. 8 bytes, float, sum.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    float mine[2] = {1, 2};
    float sum[2] = {0, 0};
    int rank = 0;
    if (argc != 3) {
        fprintf(stderr, "instructions: needs a collective and a number of calls\n");
        return 2;
    }
    int calls = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Request request = MPI_REQUEST_NULL;
    if (strcmp(argv[1], "persistent") == 0) {
        MPI_Allreduce_init(mine, sum, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    }
    for (int at = 0; at < calls; at++) {
        if (strcmp(argv[1], "allreduce") == 0) {
            MPI_Allreduce(mine, sum, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else if (strcmp(argv[1], "reduce") == 0) {
            MPI_Reduce(mine, sum, 2, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        } else if (strcmp(argv[1], "bcast") == 0) {
            MPI_Bcast(rank == 0 ? mine : sum, 2, MPI_FLOAT, 0, MPI_COMM_WORLD);
        } else if (strcmp(argv[1], "persistent") == 0) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    if (request != MPI_REQUEST_NULL) {
        MPI_Request_free(&request);
    }
    MPI_Finalize();
    return 0;
}
