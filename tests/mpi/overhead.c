/*
 * The overhead of interposing a call that is not offloaded: the difference between a call and the MPI's own
 * function, for a reduction without elements on a communicator of one rank, where the underlying MPI does next
 * to nothing; and for MPI_Wait and MPI_Test on a null request.
 *
 * Blocks of the two alternate, so that a slow moment of the machine affects both. The figure is the
 * smallest of many blocks, which was disturbed least. The program fails only if a result is wrong;
 * test_instructions.py has the limit.
 */
#include <stdio.h>

#include "check.h"

enum { BLOCKS = 400, CALLS = 2000 };

static double source = 1.5;
static double target;

static void interposed_allreduce(void) {
    MPI_Allreduce(&source, &target, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

static void plain_allreduce(void) {
    PMPI_Allreduce(&source, &target, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

static void interposed_wait(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void plain_wait(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void interposed_test(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    int flag;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

static void plain_test(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    int flag;
    PMPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

static double ns_per_call(void (*call)(void)) {
    int64_t started = check_now_ns();
    for (int at = 0; at < CALLS; at++) {
        call();
    }
    return (double)(check_now_ns() - started) / CALLS;
}

static void keep_smaller(double *smallest, double value) {
    *smallest = value < *smallest ? value : *smallest;
}

static void measure(const char *name, void (*interposed)(void), void (*plain)(void)) {
    double with = 1e9;
    double without = 1e9;
    for (int block = 0; block < BLOCKS; block++) {
        keep_smaller(&with, ns_per_call(interposed));
        keep_smaller(&without, ns_per_call(plain));
    }
    if (world.rank == 0) {
        printf("overhead %s: interposed %.1f ns, plain %.1f ns, difference %.1f ns\n", name, with,
               without, with - without);
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "overhead", MPI_THREAD_SINGLE);
    measure("MPI_Allreduce of no elements", interposed_allreduce, plain_allreduce);
    check_that(target == 0, "the target holds %g, and nobody wrote to it", target);
    measure("MPI_Wait on MPI_REQUEST_NULL", interposed_wait, plain_wait);
    measure("MPI_Test on MPI_REQUEST_NULL", interposed_test, plain_test);
    return check_finish();
}
