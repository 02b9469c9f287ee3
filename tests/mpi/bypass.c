/*
 * A part of the program reaches the MPI past the library, as code does that looks its functions up in the MPI's own
 * file, and completes requests that the library has made: the results are there, or MPI raises an error, and nothing
 * waits for ever.
 */
#include "check.h"
#include "init.h"

enum { ELEMENTS = 50, LONG_ELEMENTS = 70000, ROUNDS = 20, TAG = 3 };

static int mine[LONG_ELEMENTS];
static int sums[LONG_ELEMENTS];
static int more_sums[ELEMENTS];

static void check_sums(const int *got, int elements, const char *what) {
    long long ranks = world.ranks;
    check_equal(ranks * (ranks - 1) / 2, got[0], what);
    check_equal(ranks * (ranks - 1) / 2 + ranks * (elements - 1), got[elements - 1], what);
}

static void clear(void) {
    for (int at = 0; at < LONG_ELEMENTS; at++) {
        sums[at] = -1;
    }
    for (int at = 0; at < ELEMENTS; at++) {
        more_sums[at] = -1;
    }
}

static void wait_past(int elements) {
    MPI_Request request;
    clear();
    check_case("a wait past the library for %d elements", elements);
    MPI_Iallreduce(mine, sums, elements, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    check_equal(MPI_SUCCESS, plain.Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    check_sums(sums, elements, "MPI_Wait");
    check_equal(1, request == MPI_REQUEST_NULL, "the request is null");
}

static void test_past(void) {
    MPI_Request request;
    int done = 0;
    clear();
    check_case("tests past the library");
    MPI_Iallreduce(mine, sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    while (!done) {
        plain.Test(&request, &done, MPI_STATUS_IGNORE);
    }
    check_sums(sums, ELEMENTS, "MPI_Test");
}

/* Two collectives, one of them with a datatype with gaps, and a message round the ranks. */
static void wait_for_several_past(bool one_by_one) {
    MPI_Request requests[4];
    MPI_Datatype gaps;
    int from = -1;
    int spread[2 * ELEMENTS];
    clear();
    check_case("a wait past the library for several requests");
    MPI_Type_vector(ELEMENTS, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int at = 0; at < 2 * ELEMENTS; at++) {
        spread[at] = world.rank == 0 ? at : -1;
    }
    MPI_Iallreduce(mine, sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&from, 1, MPI_INT, (world.rank + world.ranks - 1) % world.ranks, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Ibcast(spread, 1, gaps, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&world.rank, 1, MPI_INT, (world.rank + 1) % world.ranks, TAG, MPI_COMM_WORLD, &requests[3]);
    if (one_by_one) {
        for (int left = 4; left > 0; left--) {
            int index;
            plain.Waitany(4, requests, &index, MPI_STATUS_IGNORE);
        }
    } else {
        plain.Waitall(4, requests, MPI_STATUSES_IGNORE);
    }
    check_sums(sums, ELEMENTS, "a sum");
    check_equal((world.rank + world.ranks - 1) % world.ranks, from, "a message");
    check_equal(2 * ELEMENTS - 2, spread[2 * ELEMENTS - 2], "a broadcast");
    check_equal(world.rank == 0 ? 1 : -1, spread[1], "a gap");
    MPI_Type_free(&gaps);
}

/* A wait past the library ends a start of the library's, and the request with it. */
static void wait_for_persistent_past(void) {
    MPI_Request request;
    clear();
    check_case("a wait past the library for a persistent operation");
    INIT(Allreduce)(mine, sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    check_equal(MPI_SUCCESS, plain.Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    check_sums(sums, ELEMENTS, "MPI_Wait");
    check_equal(1, request == MPI_REQUEST_NULL, "the request is null");
}

/* A start past the library can't do what the library alone can, and says so. */
static void start_past(void) {
    MPI_Request request;
    clear();
    check_case("a start past the library");
    INIT(Allreduce)(mine, more_sums, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    check_that(plain.Start(&request) != MPI_SUCCESS, "MPI_Start has said nothing");
    check_equal(-1, more_sums[0], "nothing is written");
    for (int round = 0; round < 3; round++) {
        clear();
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_sums(more_sums, ELEMENTS, "a start of the library's after that");
    }
    MPI_Request_free(&request);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "bypass", MPI_THREAD_SINGLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int at = 0; at < LONG_ELEMENTS; at++) {
        mine[at] = world.rank + at;
    }
    for (int round = 0; round < ROUNDS; round++) {
        wait_past(ELEMENTS);
        wait_past(LONG_ELEMENTS);
        test_past();
        wait_for_several_past(round % 2 == 0);
        wait_for_persistent_past();
        start_past();
    }
    return check_finish();
}
