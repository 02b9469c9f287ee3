/*
 * The overhead of interposing a call that is not offloaded: the difference between a call and its PMPI_
 * form, on a communicator of one rank with a user-defined operator, where the underlying MPI does next to
 * nothing; and MPI_Wait and MPI_Test on a null request.
 *
 * Blocks of the two alternate, so that a slow moment of the machine affects both. The figure is the
 * smallest of many blocks, which was disturbed least. The program fails only if a result is wrong;
 * preload.py has the limit.
 */
#include <stdio.h>

#include "check.h"

enum { BLOCKS = 400, CALLS = 2000 };

static void add(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    for (int at = 0; at < *length; at++) {
        ((double *)inout)[at] += ((double *)in)[at];
    }
}

static MPI_Op user_operator;
static double source = 1.5;
static double target;

static void interposed_allreduce(void) {
    MPI_Allreduce(&source, &target, 1, MPI_DOUBLE, user_operator, MPI_COMM_SELF);
}

static void plain_allreduce(void) {
    PMPI_Allreduce(&source, &target, 1, MPI_DOUBLE, user_operator, MPI_COMM_SELF);
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
    MPI_Op_create(add, 1, &user_operator);
    measure("MPI_Allreduce with a user operator", interposed_allreduce, plain_allreduce);
    check_that(target == source, "expected %g, got %g", source, target);
    measure("MPI_Wait on MPI_REQUEST_NULL", interposed_wait, plain_wait);
    measure("MPI_Test on MPI_REQUEST_NULL", interposed_test, plain_test);
    MPI_Op_free(&user_operator);
    return check_finish();
}
