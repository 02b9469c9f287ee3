/*
 * What the preload library costs a call that it doesn't offload.
 *
 * Each line compares MPI_X with PMPI_X, which goes around the library, in the same process and by
 * turns, so that a slow moment of the machine meets both. The calls do as little as they can: one
 * rank, one element. The smallest of many rounds is taken: it is the one least disturbed.
 *
 * Prints `name interposed_ns direct_ns cost_ns`. Without the library the cost is about zero.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 200
#define CALLS 2000

static MPI_Op user_op;
static MPI_Request null_request;

static void keep_first(void *in, void *inout, int *count, MPI_Datatype *datatype) {
    (void)in, (void)inout, (void)count, (void)datatype;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int value = 1;
static int result;

static void allreduce_interposed(void) {
    MPI_Allreduce(&value, &result, 1, MPI_INT, user_op, MPI_COMM_SELF);
}

static void allreduce_direct(void) {
    PMPI_Allreduce(&value, &result, 1, MPI_INT, user_op, MPI_COMM_SELF);
}

static void wait_interposed(void) {
    MPI_Wait(&null_request, MPI_STATUS_IGNORE);
}

static void wait_direct(void) {
    PMPI_Wait(&null_request, MPI_STATUS_IGNORE);
}

static void test_interposed(void) {
    int flag;
    MPI_Test(&null_request, &flag, MPI_STATUS_IGNORE);
}

static void test_direct(void) {
    int flag;
    PMPI_Test(&null_request, &flag, MPI_STATUS_IGNORE);
}

static double round_ns(void (*call)(void)) {
    double start = now_ns();
    for (int at = 0; at < CALLS; at++) {
        call();
    }
    return (now_ns() - start) / CALLS;
}

static void compare(const char *name, void (*interposed)(void), void (*direct)(void)) {
    double interposed_ns = 1e9;
    double direct_ns = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double ns = round_ns(interposed);
        interposed_ns = ns < interposed_ns ? ns : interposed_ns;
        ns = round_ns(direct);
        direct_ns = ns < direct_ns ? ns : direct_ns;
    }
    printf("%-24s %8.1f %8.1f %8.1f\n", name, interposed_ns, direct_ns, interposed_ns - direct_ns);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Op_create(keep_first, 1, &user_op);
    null_request = MPI_REQUEST_NULL;
    printf("%-24s %8s %8s %8s\n", "call", "MPI_ ns", "PMPI_ ns", "cost ns");
    compare("Allreduce, user operator", allreduce_interposed, allreduce_direct);
    compare("Wait, null request", wait_interposed, wait_direct);
    compare("Test, null request", test_interposed, test_direct);
    MPI_Op_free(&user_op);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
