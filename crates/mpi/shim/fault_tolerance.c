/* Asks MPI what is revoked and who has failed. Interposes MPIX_Comm_revoke. */
#include "fault_tolerance.h"
#include "shim.h"
#include "timing.h"

#include <sched.h>

#if UNDERLYING_HAS_REVOCATION

/* How long MPI may take to notice a failure that an offloaded collective has met. */
#define NOTICE_NS_MAX UINT64_C(1000000000)

static bool is_on;
/* Open MPI 4 lacks all of these functions. */
static bool is_supported;

void fault_tolerance_open(void) {
    int *enabled = NULL;
    int found = 0;
    is_supported = UNDERLYING_HAS(X_Comm_shrink) && UNDERLYING_HAS(X_Comm_revoke) &&
                   UNDERLYING_HAS(X_Comm_is_revoked) && UNDERLYING_HAS(X_Comm_get_failed);
    /*
     * Where it is not supported, the attribute's number may mean something else. MPI_COMM_WORLD alone has it.
     */
    is_on = is_supported && shim_has_predefined &&
            underlying.Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &enabled, &found) == MPI_SUCCESS &&
            found != 0 && *enabled != 0;
}

bool fault_tolerance_is_on(void) {
    return is_on;
}

bool fault_tolerance_is_revoked(MPI_Comm comm) {
    int revoked = 0;
    return is_supported && underlying.X_Comm_is_revoked(comm, &revoked) == MPI_SUCCESS &&
           revoked != 0;
}

static bool has_failed_members(MPI_Comm comm) {
    MPI_Group failed;
    int size = 0;
    if (underlying.X_Comm_get_failed(comm, &failed) == MPI_SUCCESS) {
        underlying.Group_size(failed, &size);
        underlying.Group_free(&failed);
    }
    return size > 0;
}

int fault_tolerance_revoke(comm_record *record) {
    if (!atomic_load_explicit(&record->is_freed, memory_order_relaxed)) {
        underlying.X_Comm_revoke(record->comm);
    }
    communicators_revoked(record);
    return MPI_ERR_REVOKED;
}

int fault_tolerance_explain(comm_record *record) {
    if (!is_on || atomic_load_explicit(&record->is_freed, memory_order_relaxed)) {
        return MPI_SUCCESS;
    }
    uint64_t until_ns = timing_now_ns() + NOTICE_NS_MAX;
    do {
        if (fault_tolerance_is_revoked(record->comm)) {
            communicators_revoked(record);
            return MPI_ERR_REVOKED;
        }
        if (has_failed_members(record->comm)) {
            return MPI_ERR_PROC_FAILED;
        }
        shim_drive_mpi();
        sched_yield();
    } while (timing_now_ns() < until_ns);
    return MPI_SUCCESS;
}

MPI_Comm fault_tolerance_survivors(MPI_Comm comm) {
    MPI_Comm survivors = MPI_COMM_NULL;
    if (is_on && underlying.X_Comm_shrink(comm, &survivors) != MPI_SUCCESS) {
        return MPI_COMM_NULL;
    }
    return survivors;
}

/*
 * Revokes in MPI first: a thread of this process that waits in one of our operations then learns it
 * from its progress hook, and ranks that we tell find that MPI knows already.
 */
INTERPOSE_EXTENSION(Comm_revoke, (MPI_Comm comm)) {
    int error = underlying.X_Comm_revoke(comm);
    comm_record *record = error == MPI_SUCCESS ? communicators_find(comm) : NULL;
    if (record != NULL) {
        communicators_revoked(record);
        tributary_communicator_give_up(record->core);
    }
    return error;
}

#else

void fault_tolerance_open(void) {}

bool fault_tolerance_is_on(void) {
    return false;
}

bool fault_tolerance_is_revoked(MPI_Comm comm) {
    (void)comm;
    return false;
}

int fault_tolerance_revoke(comm_record *record) {
    (void)record;
    return MPI_ERR_OTHER; /* nothing gives a communicator up here */
}

int fault_tolerance_explain(comm_record *record) {
    (void)record;
    return MPI_SUCCESS;
}

MPI_Comm fault_tolerance_survivors(MPI_Comm comm) {
    (void)comm;
    return MPI_COMM_NULL;
}

#endif
