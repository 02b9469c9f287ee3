/*
 * Collectives that are always the underlying MPI's: all-to-alls, gathers and scatters, blocking and nonblocking. Their results
 * must be as without the preload library, and the report counts them: rank 0 prints how often the ranks call each.
 */
#include <stdio.h>

#include "check.h"

enum { REPEATS = 3, NONBLOCKING = 2, RANKS_MAX = 64 };

static int counts[RANKS_MAX];
static int places[RANKS_MAX];
static int byte_places[RANKS_MAX];
static MPI_Datatype types[RANKS_MAX];
static int sent[RANKS_MAX];
static int received[RANKS_MAX];

static int value(int from, int to, int round) {
    return (int)(check_hash((uint64_t)from, (uint64_t)to, (uint64_t)round) & 0xffff);
}

/* What this rank sends to each, or to the root. */
static void prepare(int round) {
    for (int at = 0; at < world.ranks; at++) {
        sent[at] = value(world.rank, at, round);
        received[at] = -1;
    }
}

static void check_all_to_all(int round, const char *what) {
    for (int from = 0; from < world.ranks; from++) {
        check_equal(value(from, world.rank, round), received[from], what);
    }
}

static void check_gathered(int root, int round, const char *what) {
    for (int from = 0; world.rank == root && from < world.ranks; from++) {
        check_equal(value(from, 0, round), received[from], what);
    }
}

static void check_scattered(int root, int round, const char *what) {
    check_equal(value(root, world.rank, round), received[0], what);
}

static void run_blocking(int round) {
    MPI_Comm comm = MPI_COMM_WORLD;
    int root = round % world.ranks;
    check_case("blocking, round %d", round);
    prepare(round);
    MPI_Alltoall(sent, 1, MPI_INT, received, 1, MPI_INT, comm);
    check_all_to_all(round, "alltoall");
    prepare(round);
    MPI_Alltoallv(sent, counts, places, MPI_INT, received, counts, places, MPI_INT, comm);
    check_all_to_all(round, "alltoallv");
    prepare(round);
    MPI_Alltoallw(sent, counts, byte_places, types, received, counts, byte_places, types, comm);
    check_all_to_all(round, "alltoallw");
    prepare(round);
    MPI_Gather(sent, 1, MPI_INT, received, 1, MPI_INT, root, comm);
    check_gathered(root, round, "gather");
    prepare(round);
    MPI_Gatherv(sent, 1, MPI_INT, received, counts, places, MPI_INT, root, comm);
    check_gathered(root, round, "gatherv");
    prepare(round);
    MPI_Scatter(sent, 1, MPI_INT, received, 1, MPI_INT, root, comm);
    check_scattered(root, round, "scatter");
    prepare(round);
    MPI_Scatterv(sent, counts, places, MPI_INT, received, 1, MPI_INT, root, comm);
    check_scattered(root, round, "scatterv");
}

static void run_nonblocking(int round) {
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request request;
    int root = round % world.ranks;
    check_case("nonblocking, round %d", round);
    prepare(round);
    MPI_Ialltoall(sent, 1, MPI_INT, received, 1, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_all_to_all(round, "ialltoall");
    prepare(round);
    MPI_Ialltoallv(sent, counts, places, MPI_INT, received, counts, places, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_all_to_all(round, "ialltoallv");
    prepare(round);
    MPI_Ialltoallw(sent, counts, byte_places, types, received, counts, byte_places, types, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_all_to_all(round, "ialltoallw");
    prepare(round);
    MPI_Igather(sent, 1, MPI_INT, received, 1, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_gathered(root, round, "igather");
    prepare(round);
    MPI_Igatherv(sent, 1, MPI_INT, received, counts, places, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_gathered(root, round, "igatherv");
    prepare(round);
    MPI_Iscatter(sent, 1, MPI_INT, received, 1, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_scattered(root, round, "iscatter");
    prepare(round);
    MPI_Iscatterv(sent, counts, places, MPI_INT, received, 1, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_scattered(root, round, "iscatterv");
}

int main(int argc, char **argv) {
    static const char *const names[] = {"alltoall", "alltoallv", "alltoallw", "gather", "gatherv", "scatter", "scatterv"};
    check_start(argc, argv, "others", MPI_THREAD_SINGLE);
    if (world.ranks > RANKS_MAX) {
        fprintf(stderr, "others: %d ranks at most\n", RANKS_MAX);
        return 1;
    }
    for (int at = 0; at < world.ranks; at++) {
        counts[at] = 1;
        places[at] = at;
        byte_places[at] = at * (int)sizeof(int);
        types[at] = MPI_INT;
    }
    for (int round = 0; round < REPEATS; round++) {
        run_blocking(round);
    }
    for (int round = 0; round < NONBLOCKING; round++) {
        run_nonblocking(round);
    }
    /* Something is offloaded, as in every program that the report is of. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t at = 0; world.rank == 0 && at < sizeof names / sizeof names[0]; at++) {
        printf("others %s %d\n", names[at], world.ranks * (REPEATS + NONBLOCKING));
    }
    return check_finish();
}
