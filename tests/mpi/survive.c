/*
 * A rank is killed while the others wait for it in a collective (User Level Failure Mitigation, under
 * mpirun --with-ft ulfm): each of them gets MPI_ERR_PROC_FAILED or, once a rank has revoked the
 * communicator, MPI_ERR_REVOKED; and the communicator of the survivors works.
 *
 * Ends without MPI_Finalize: after a failure Open MPI 5.0.11 sometimes hangs there, also without the
 * preload library.
 */
#include <mpi.h>
#include <mpi-ext.h>

#include <signal.h>
#include <unistd.h>

#include "check.h"

enum { WAIT_US = 50000, ROUNDS = 5 };

static void check_sum(MPI_Comm comm, int ranks) {
    int one = 1;
    int sum = 0;
    check_equal(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
    check_equal(ranks, sum, "sum");
}

/* A rank that waits for the dead one gets the error. */
static void meet_failure(MPI_Comm comm) {
    int class = MPI_SUCCESS;
    int acknowledged = 0;
    check_case("a rank is killed under MPI_Allreduce");
    int one = 1;
    int sum = 0;
    PMPI_Error_class(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), &class);
    check_that(class == MPI_ERR_PROC_FAILED || class == MPI_ERR_REVOKED, "error class %d", class);
    if (class == MPI_ERR_PROC_FAILED) {
        check_equal(MPI_SUCCESS, MPIX_Comm_ack_failed(comm, world.ranks, &acknowledged),
                    "MPIX_Comm_ack_failed");
        check_equal(1, acknowledged, "failures acknowledged");
    }
    check_equal(MPI_SUCCESS, MPIX_Comm_revoke(comm), "MPIX_Comm_revoke");
}

int main(int argc, char **argv) {
    MPI_Comm comm;
    MPI_Comm survivors;
    check_start(argc, argv, "survive", MPI_THREAD_SINGLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check_case("before the failure");
    check_sum(comm, world.ranks);
    if (world.rank == world.ranks - 1) {
        check_sleep_us(WAIT_US);
        raise(SIGKILL);
    }
    meet_failure(comm);
    check_case("after the failure");
    check_equal(MPI_SUCCESS, MPIX_Comm_shrink(comm, &survivors), "MPIX_Comm_shrink");
    for (int round = 0; round < ROUNDS; round++) {
        check_sum(survivors, world.ranks - 1);
    }
    int exit_code = check_sum_up_on(survivors);
    MPI_Barrier(survivors); /* no rank ends before rank 0 has printed its line */
    _exit(exit_code);
}
