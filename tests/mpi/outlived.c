/*
 * A rank has forked a worker, such as a data loader, and is killed while the others wait for it in a collective. The worker
 * lives on with copies of the rank's descriptors. Each of the others gets an error while it does.
 *
 * The worker ends by itself: when it does, MPICH's launcher notices that the rank has died, and ends everything, whatever it has
 * not printed yet.
 *
 * Needs an MPI that lets the others live: MPICH under mpirun -disable-auto-cleanup, Open MPI under mpirun --with-ft ulfm. Ends
 * without MPI_Finalize, which may hang after a failure.
 */
#include <mpi.h>

#include <signal.h>
#include <unistd.h>

#include "check.h"

enum { WAIT_US = 300000, WORKER_LIVES_S = 5 };

/* The worker's number at rank 0. */
static int fork_worker(void) {
    int worker = 0;
    int victim = world.ranks - 1;
    if (world.rank == victim) {
        worker = fork();
        if (worker == 0) {
            sleep(WORKER_LIVES_S);
            _exit(0);
        }
        PMPI_Send(&worker, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    if (world.rank == 0) {
        PMPI_Recv(&worker, 1, MPI_INT, victim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return worker;
}

int main(int argc, char **argv) {
    MPI_Comm survivors;
    int one = 1;
    int sum = 0;
    check_start(argc, argv, "outlived", MPI_THREAD_SINGLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    PMPI_Comm_split(MPI_COMM_WORLD, world.rank < world.ranks - 1, world.rank, &survivors);
    check_case("before the failure");
    check_equal(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    check_equal(world.ranks, sum, "sum");
    int worker = fork_worker();
    if (world.rank == world.ranks - 1) {
        check_sleep_us(WAIT_US);
        raise(SIGKILL);
    }
    check_case("a rank is killed under MPI_Allreduce");
    int outcome = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_that(outcome != MPI_SUCCESS, "a sum without the killed rank: %d", sum);
    PMPI_Barrier(survivors);
    if (world.rank == 0) {
        check_equal(0, kill(worker, 0), "the worker lives until all have heard");
    }
    int exit_code = check_sum_up_on(survivors);
    PMPI_Barrier(survivors); /* no rank ends before rank 0 has printed its line */
    _exit(exit_code);
}
