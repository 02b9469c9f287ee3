/*
 * What interposing costs a call that is not offloaded: the difference between a call and its
 * PMPI_ form, on a communicator of one rank with an operator of the user's, where the MPI beneath
 * does next to nothing; and MPI_Wait on a null request, which any program calls often.
 *
 * The two are timed in turns and the median of the differences is given, so that a change of the
 * machine's speed hits both. Prints figures; it fails only when the calls are wrong.
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { TURNS = 401, CALLS = 2000 };

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

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static void measure(const char *name, void (*interposed)(void), void (*plain)(void)) {
    static double with[TURNS];
    static double without[TURNS];
    static double difference[TURNS];
    ns_per_call(interposed); /* warm up */
    ns_per_call(plain);
    for (int turn = 0; turn < TURNS; turn++) {
        bool first = turn % 2 == 0;
        double early = ns_per_call(first ? interposed : plain);
        double late = ns_per_call(first ? plain : interposed);
        with[turn] = first ? early : late;
        without[turn] = first ? late : early;
        difference[turn] = with[turn] - without[turn];
    }
    if (world.rank == 0) {
        printf("overhead %s: interposed %.1f ns, plain %.1f ns, difference %.1f ns per call\n", name,
               median(with, TURNS), median(without, TURNS), median(difference, TURNS));
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
