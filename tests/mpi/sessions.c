/*
 * The sessions model, in a program that never calls MPI_Init, or calls it later: collectives on communicators
 * made by MPI_Comm_create_from_group give what they must, before and after there is one of all processes, in
 * sessions that overlap. No time without any session passes: Open MPI 5.0.11 by itself crashes in the next
 * MPI_Session_init, and MPICH 5.0.2 by itself waits for ever in the next MPI_Comm_create_from_group, unless all
 * processes come at once.
 *
 * The variable SESSIONS holds words: "init" ends with MPI_Init, "whole" makes groups of all processes only (MPICH
 * 4.0.2 aborts with others).
 *
 * Prints how many calls the library must have seen; the runner compares the report.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ELEMENTS = 33 };

static bool is_asked(const char *word) {
    const char *words = getenv("SESSIONS");
    return words != NULL && strstr(words, word) != NULL;
}

/* Calls of which this rank is the one that the report counts. */
static long long calls;

static MPI_Comm communicator_of(MPI_Session session, const char *processes, const char *tag) {
    MPI_Group group;
    MPI_Comm comm;
    check_equal(MPI_SUCCESS, MPI_Group_from_session_pset(session, processes, &group), processes);
    check_equal(MPI_SUCCESS,
                MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm), tag);
    MPI_Group_free(&group);
    return comm;
}

static MPI_Session begin_session(void) {
    MPI_Session session;
    check_equal(MPI_SUCCESS, MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session),
                "MPI_Session_init");
    return session;
}

static void check_sums(const long *got, int ranks, const char *what) {
    for (long at = 0; at < ELEMENTS; at++) {
        check_equal((long)ranks * (ranks - 1) / 2 + at * ranks, got[at], what);
    }
}

/* One call of every form; five in all. */
static void use(MPI_Comm comm, bool is_seen) {
    int ranks;
    int rank;
    long mine[ELEMENTS];
    long sums[ELEMENTS] = {0};
    long from_last[ELEMENTS];
    MPI_Request request;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, &rank);
    for (int at = 0; at < ELEMENTS; at++) {
        mine[at] = rank + at;
        from_last[at] = rank == ranks - 1 ? 1000 + at : -1;
    }
    MPI_Allreduce(mine, sums, ELEMENTS, MPI_LONG, MPI_SUM, comm);
    check_sums(sums, ranks, "MPI_Allreduce");
    MPI_Iallreduce(MPI_IN_PLACE, mine, ELEMENTS, MPI_LONG, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums(mine, ranks, "MPI_Iallreduce in place");
    MPI_Bcast(from_last, ELEMENTS, MPI_LONG, ranks - 1, comm);
    check_equal(1000 + ELEMENTS - 1, from_last[ELEMENTS - 1], "MPI_Bcast");
    MPI_Barrier(comm);
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    calls += is_seen && rank == 0 ? 5 : 0;
}

static void find_out_ranks(MPI_Comm comm) {
    MPI_Comm_rank(comm, &world.rank);
    MPI_Comm_size(comm, &world.ranks);
}

/* A communicator of all but the last process, if there are several; else null. */
static MPI_Comm all_but_last(MPI_Session session) {
    MPI_Group all;
    MPI_Group some;
    MPI_Comm comm = MPI_COMM_NULL;
    int ranks;
    int rank;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
    MPI_Group_size(all, &ranks);
    MPI_Group_rank(all, &rank);
    int last = ranks - 1;
    MPI_Group_excl(all, 1, &last, &some);
    if (ranks > 1 && rank != last) {
        MPI_Comm_create_from_group(some, "all but the last", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return comm;
}

static void add_up(void *left, void *right, int *elements, MPI_Datatype *type) {
    (void)type;
    for (int at = 0; at < *elements; at++) {
        ((int *)right)[at] += ((int *)left)[at];
    }
}

/*
 * What a rank makes by itself, even ranks before the first communicator of all processes, and odd ones after it. An
 * operator that has the handle of one that was freed is not that one.
 */
typedef struct {
    MPI_Op add;
    MPI_Op add_again;
    MPI_Datatype pair;
} local_things;

static void make_local_things(local_things *made) {
    MPI_Op freed;
    MPI_Op_create(add_up, 0, &freed);
    MPI_Op_free(&freed);
    MPI_Op_create(add_up, 1, &made->add);
    MPI_Op_create(add_up, 1, &made->add_again);
    MPI_Type_contiguous(2, MPI_INT, &made->pair);
    MPI_Type_commit(&made->pair);
}

/* Three calls. */
static void use_local_things(MPI_Comm all, local_things *made) {
    int mine[2] = {1, 2};
    int sums[2] = {0, 0};
    MPI_Allreduce(mine, sums, 2, MPI_INT, made->add, all);
    check_equal(2LL * world.ranks, sums[1], "an operator of the program");
    MPI_Allreduce(mine, sums, 2, MPI_INT, made->add_again, all);
    check_equal(world.ranks, sums[0], "another one");
    MPI_Bcast(mine, 1, made->pair, 0, all);
    calls += world.rank == 0 ? 3 : 0;
    MPI_Op_free(&made->add);
    MPI_Op_free(&made->add_again);
    MPI_Type_free(&made->pair);
}

static int number_in(MPI_Session session) {
    MPI_Group group;
    int number;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Group_rank(group, &number);
    MPI_Group_free(&group);
    return number;
}

/* A smaller communicator is there first: MPI alone serves it, until there is one of all processes. */
static void check_smaller_first(void) {
    check_case("a communicator of some processes first");
    MPI_Session session = begin_session();
    local_things made;
    bool is_early = number_in(session) % 2 == 0;
    if (is_early) {
        make_local_things(&made);
    }
    MPI_Comm some = is_asked("whole") ? MPI_COMM_NULL : all_but_last(session);
    if (some != MPI_COMM_NULL) {
        use(some, false);
    }
    MPI_Comm all = communicator_of(session, "mpi://WORLD", "all after some");
    find_out_ranks(all);
    if (!is_early) {
        make_local_things(&made);
    }
    use_local_things(all, &made);
    use(all, true);
    if (some != MPI_COMM_NULL) {
        use(some, true);
        MPI_Comm_free(&some);
    }
    MPI_Comm_free(&all);
    MPI_Session_finalize(&session);
}

/* The first session to begin ends first; communicators come from both, and from other communicators. */
static void check_overlap(void) {
    check_case("two sessions that overlap");
    MPI_Session first = begin_session();
    MPI_Comm all = communicator_of(first, "mpi://WORLD", "all of the first");
    MPI_Session second = begin_session();
    MPI_Comm again = communicator_of(second, "mpi://WORLD", "all of the second");
    MPI_Comm self = communicator_of(second, "mpi://SELF", "one process");
    MPI_Comm half;
    use(all, true);
    use(again, true);
    use(self, true);
    MPI_Comm_split(all, world.rank % 2, 0, &half);
    use(half, true);
    MPI_Comm_free(&half);
    MPI_Comm_free(&all);
    MPI_Session_finalize(&first);
    check_equal(1, first == MPI_SESSION_NULL, "the handle is null");
    use(again, true);
    MPI_Comm_free(&self);
    MPI_Comm_free(&again);
    MPI_Session_finalize(&second);
}

static void tell_calls(MPI_Comm comm) {
    long long all_calls = 0;
    PMPI_Allreduce(&calls, &all_calls, 1, MPI_LONG_LONG, MPI_SUM, comm);
    if (world.rank == 0) {
        printf("calls %lld\n", all_calls);
    }
}

/* MPI_Init while a session is open, which ends before MPI_Finalize. */
static int finish_with_init(int argc, char **argv, MPI_Session *session) {
    check_case("MPI_Init after sessions");
    MPI_Comm all = communicator_of(*session, "mpi://WORLD", "all before MPI_Init");
    use(all, true);
    MPI_Init(&argc, &argv);
    use(MPI_COMM_WORLD, true);
    use(all, true);
    MPI_Comm_free(&all);
    MPI_Session_finalize(session);
    use(MPI_COMM_WORLD, true);
    tell_calls(MPI_COMM_WORLD);
    return check_finish();
}

/* Without MPI_Init: the report comes with the last session. */
static int finish_with_session(MPI_Session *session) {
    MPI_Comm all = communicator_of(*session, "mpi://WORLD", "all at last");
    use(all, true);
    tell_calls(all);
    int exit_code = check_sum_up_on(all);
    check_case("MPI_Session_finalize");
    MPI_Comm_free(&all);
    MPI_Session_finalize(session);
    return exit_code;
}

int main(int argc, char **argv) {
    check_start_without_mpi(argc, argv, "sessions");
    MPI_Session session = begin_session();
    check_smaller_first();
    check_overlap();
    return is_asked("init") ? finish_with_init(argc, argv, &session) : finish_with_session(&session);
}
