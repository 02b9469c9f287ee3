/*
 * Revoked communicators (User Level Failure Mitigation): every collective on one ends with
 * MPI_ERR_REVOKED, once, through its error handler, also at ranks that are waiting in it; and the
 * communicator that MPIX_Comm_shrink makes of it works. Needs mpirun --with-ft ulfm: otherwise Open MPI
 * tells no other rank of a revocation, and only the cases in which every rank revokes are run.
 */
#include <mpi.h>
#include <mpi-ext.h>

#include "check.h"

enum { LONG = 300000, WAIT_US = 30000, TAG = 7 };

typedef enum {
    ALLREDUCE,
    LONG_ALLREDUCE,
    REDUCE,
    BCAST,
    BARRIER,
    IALLREDUCE,
    IREDUCE,
    IBCAST,
    IBARRIER,
    COLLECTIVES
} collective;

static const char *const names[COLLECTIVES] = {"Allreduce", "long Allreduce", "Reduce",
                                               "Bcast",     "Barrier",        "Iallreduce",
                                               "Ireduce",   "Ibcast",         "Ibarrier"};

static int handler_calls;
static int handler_class;
static bool revocations_travel;

static void count_error(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    handler_calls++;
    PMPI_Error_class(*code, &handler_class);
}

/* The last rank is the root of a reduction, rank 0 that of a broadcast: both need rank 0. */
static int call(collective which, MPI_Comm comm) {
    static long mine[LONG];
    static long sum[LONG];
    int last = world.ranks - 1;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    switch (which) {
    case ALLREDUCE:
        return MPI_Allreduce(mine, sum, 1, MPI_LONG, MPI_SUM, comm);
    case LONG_ALLREDUCE:
        return MPI_Allreduce(MPI_IN_PLACE, sum, LONG, MPI_LONG, MPI_SUM, comm);
    case REDUCE:
        return MPI_Reduce(mine, sum, 1, MPI_LONG, MPI_SUM, last, comm);
    case BCAST:
        return MPI_Bcast(sum, 1, MPI_LONG, 0, comm);
    case BARRIER:
        return MPI_Barrier(comm);
    case IALLREDUCE:
        code = MPI_Iallreduce(mine, sum, 1, MPI_LONG, MPI_SUM, comm, &request);
        break;
    case IREDUCE:
        code = MPI_Ireduce(mine, sum, 1, MPI_LONG, MPI_SUM, last, comm, &request);
        break;
    case IBCAST:
        code = MPI_Ibcast(sum, 1, MPI_LONG, 0, comm, &request);
        break;
    default:
        code = MPI_Ibarrier(comm, &request);
    }
    return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int class_of(int code) {
    int class = MPI_ERR_UNKNOWN;
    PMPI_Error_class(code, &class);
    return class;
}

static MPI_Comm fresh(MPI_Errhandler handler) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Barrier(comm); /* no rank revokes it before all have it */
    return comm;
}

/*
 * Every blocking collective on `comm`, which this rank knows to be revoked, is refused at once. (Open MPI
 * checks nonblocking ones only when the program waits for them.)
 */
static void check_refused(MPI_Comm comm) {
    int revoked = 0;
    MPIX_Comm_is_revoked(comm, &revoked);
    check_that(revoked != 0, "MPIX_Comm_is_revoked: 0");
    for (collective which = 0; which < IALLREDUCE; which++) {
        handler_calls = 0;
        int class = class_of(call(which, comm));
        check_that(class == MPI_ERR_REVOKED, "%s afterwards: class %d", names[which], class);
        check_equal(1, handler_calls, "calls of the error handler");
        check_equal(MPI_ERR_REVOKED, handler_class, "class given to the error handler");
    }
}

static void everybody_revokes(MPI_Errhandler handler) {
    check_case("every rank revokes");
    MPI_Comm comm = fresh(handler);
    check_equal(MPI_SUCCESS, MPIX_Comm_revoke(comm), "MPIX_Comm_revoke");
    check_refused(comm);
    check_equal(MPI_SUCCESS, MPIX_Comm_revoke(comm), "MPIX_Comm_revoke again");
    MPI_Comm_free(&comm);
}

/* Whether this rank must wait for rank 0 in the collective; a leaf of a reduction does not. */
static bool must_wait(collective which) {
    bool is_reduction = which == REDUCE || which == IREDUCE;
    return !is_reduction || world.rank == world.ranks - 1;
}

/* Rank 0 revokes while the others wait for it; with `freed_early`, it also leaves. */
static void revoke_while_others_wait(collective which, bool freed_early, MPI_Errhandler handler) {
    check_case("revoked under MPI_%s%s", names[which], freed_early ? ", freed at once" : "");
    MPI_Comm comm = fresh(handler);
    if (world.rank == 0) {
        check_sleep_us(WAIT_US);
        MPIX_Comm_revoke(comm);
        if (freed_early) {
            MPI_Comm_free(&comm);
            return;
        }
    } else {
        handler_calls = 0;
        int class = class_of(call(which, comm));
        if (must_wait(which)) {
            check_equal(MPI_ERR_REVOKED, class, "error class");
            check_equal(1, handler_calls, "calls of the error handler");
        } else {
            check_that(class == MPI_SUCCESS || class == MPI_ERR_REVOKED, "class %d", class);
            while (class == MPI_SUCCESS) { /* a barrier can't be left without rank 0 */
                class = class_of(MPI_Barrier(comm));
            }
        }
    }
    check_refused(comm);
    MPI_Comm_free(&comm);
}

/* The ranks learn of it in MPI_Recv; after that a broadcast's root refuses by itself. */
static void revoked_under_a_receive(MPI_Errhandler handler) {
    int word;
    check_case("revoked under MPI_Recv");
    MPI_Comm comm = fresh(handler);
    if (world.rank == 0) {
        check_sleep_us(WAIT_US);
        MPIX_Comm_revoke(comm);
    } else {
        int code = MPI_Recv(&word, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE);
        check_equal(MPI_ERR_REVOKED, class_of(code), "class of MPI_Recv");
        code = MPI_Bcast(&word, 1, MPI_INT, world.rank, comm);
        check_equal(MPI_ERR_REVOKED, class_of(code), "class of MPI_Bcast at its root");
    }
    check_refused(comm);
    MPI_Comm_free(&comm);
}

/* Revoking one communicator affects no other, nor the one that MPIX_Comm_shrink made of it. */
static void check_others_work(MPI_Errhandler handler) {
    check_case("communicators beside a revoked one");
    MPI_Comm shrunk = MPI_COMM_NULL;
    MPI_Comm comm = fresh(handler);
    MPI_Comm other = fresh(handler);
    MPIX_Comm_revoke(comm);
    check_equal(MPI_SUCCESS, MPIX_Comm_shrink(comm, &shrunk), "MPIX_Comm_shrink");
    MPI_Comm both[2] = {other, shrunk};
    for (int at = 0; at < 2; at++) {
        int mine = world.rank;
        int sum = -1;
        check_equal(MPI_SUCCESS,
                    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, both[at]), "MPI_Allreduce");
        check_equal(world.ranks * (world.ranks - 1) / 2, sum, "sum");
    }
    int flag = 6 | world.rank;
    check_equal(MPI_SUCCESS, MPIX_Comm_agree(shrunk, &flag), "MPIX_Comm_agree");
    check_equal(6, flag & 6, "what all ranks agree on");
    MPI_Comm_free(&shrunk);
    MPI_Comm_free(&other);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    MPI_Errhandler counting;
    int *travels = NULL;
    int found = 0;
    check_start(argc, argv, "revoke", MPI_THREAD_SINGLE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &travels, &found);
    revocations_travel = found != 0 && *travels != 0;
    MPI_Comm_create_errhandler(count_error, &counting);
    everybody_revokes(counting);
    for (collective which = 0; revocations_travel && which < COLLECTIVES; which++) {
        revoke_while_others_wait(which, false, counting);
        revoke_while_others_wait(which, true, counting);
    }
    if (revocations_travel) {
        revoked_under_a_receive(counting);
        check_others_work(counting);
    }
    MPI_Errhandler_free(&counting);
    return check_finish();
}
