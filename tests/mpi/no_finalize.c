/*
 * A job that ends without MPI_Finalize, with communicators that were not freed and an operation that
 * nobody waited for. It must end with this exit code and leave nothing behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    MPI_Comm second;
    MPI_Request request;
    int one = 1;
    int sum = 0;
    static int early;
    check_start(argc, argv, "no_finalize", MPI_THREAD_SINGLE);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, second);
    check_equal(world.ranks, sum, "sum");
    MPI_Iallreduce(&one, &early, 1, MPI_INT, MPI_SUM, second, &request);
    int exit_code = check_sum_up();
    fflush(NULL);
    /* Launchers report an error if only some ranks end without MPI_Finalize. */
    PMPI_Barrier(MPI_COMM_WORLD);
    _exit(exit_code);
}
