/*
 * MPI_Finalize calls the delete callbacks of MPI_COMM_SELF's attributes first, and there MPI is whole: operations
 * that were started before are waited for, persistent ones start once more, communicators, operators and
 * collectives are as ever.
 *
 * Prints how many calls the library must have seen; the runner compares the report, which is written later.
 */
#include <stdio.h>

#include "check.h"
#include "init.h"

enum { ELEMENTS = 65 };

static int mine[ELEMENTS];
static int started_sums[ELEMENTS];
static int idle_sums[ELEMENTS];
static int nonblocking_sums[ELEMENTS];
static MPI_Request started;     /* persistent, under way when MPI_Finalize begins */
static MPI_Request idle;        /* persistent, not yet started */
static MPI_Request nonblocking; /* under way */
static MPI_Comm copy;
static MPI_Op add;
static int exit_code = 1;
static bool is_called_back;

static void add_up(void *left, void *right, int *elements, MPI_Datatype *type) {
    (void)type;
    for (int at = 0; at < *elements; at++) {
        ((int *)right)[at] += ((int *)left)[at];
    }
}

static void check_sums(const int *got, const char *what) {
    for (int at = 0; at < ELEMENTS; at++) {
        check_equal((long long)world.ranks * (world.ranks - 1) / 2 + (long long)at * world.ranks, got[at], what);
    }
}

static void wait_and_free(MPI_Request *request, const int *sums, const char *what) {
    check_equal(MPI_SUCCESS, MPI_Wait(request, MPI_STATUS_IGNORE), what);
    check_sums(sums, what);
    check_equal(MPI_SUCCESS, MPI_Request_free(request), "MPI_Request_free");
    check_equal(1, *request == MPI_REQUEST_NULL, "the request is null");
}

/* Every kind of use that one collective inside MPI_Finalize may be. Seven calls that are counted. */
static void use_everything(void) {
    int sums[ELEMENTS] = {0};
    MPI_Comm late;
    wait_and_free(&started, started_sums, "a persistent operation that was started before");
    check_equal(MPI_SUCCESS, MPI_Start(&idle), "MPI_Start");
    wait_and_free(&idle, idle_sums, "a persistent operation started here");
    check_equal(MPI_SUCCESS, MPI_Wait(&nonblocking, MPI_STATUS_IGNORE), "MPI_Wait");
    check_sums(nonblocking_sums, "a nonblocking operation that was started before");
    MPI_Allreduce(mine, sums, ELEMENTS, MPI_INT, add, copy);
    check_sums(sums, "an operator and a communicator that were made before");
    MPI_Comm_dup(MPI_COMM_WORLD, &late);
    MPI_Iallreduce(MPI_IN_PLACE, mine, ELEMENTS, MPI_INT, MPI_SUM, late, &nonblocking);
    MPI_Wait(&nonblocking, MPI_STATUS_IGNORE);
    check_sums(mine, "a communicator that was made here");
    MPI_Barrier(late);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&late);
    MPI_Comm_free(&copy);
    MPI_Op_free(&add);
}

static int call_back(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    check_case("the delete callback of MPI_COMM_SELF");
    is_called_back = true;
    use_everything();
    if (world.rank == 0) {
        printf("calls %d\n", 7);
    }
    exit_code = check_sum_up();
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int key;
    check_start(argc, argv, "finalize", MPI_THREAD_SINGLE);
    for (int at = 0; at < ELEMENTS; at++) {
        mine[at] = world.rank + at;
    }
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_back, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Op_create(add_up, 1, &add);
    INIT(Allreduce)(mine, started_sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &started);
    INIT(Allreduce)(mine, idle_sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &idle);
    MPI_Start(&started);
    MPI_Iallreduce(mine, nonblocking_sums, ELEMENTS, MPI_INT, MPI_SUM, copy, &nonblocking);
    MPI_Finalize();
    if (!is_called_back) {
        fprintf(stderr, "FAIL finalize rank %d: MPI_Finalize called no callback\n", world.rank);
    }
    return exit_code;
}
