/* The list of nonblocking operations, and their generalized requests. */
#include "pending.h"
#include "combining.h"
#include "failure.h"
#include "fault_tolerance.h"
#include "progress.h"
#include "shim.h"
#include "timing.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct pending {
    struct pending *previous;
    struct pending *next;
    comm_record *record; /* has a hold until the operation is over */
    tributary_request *operation;
    MPI_Request request;
    int error; /* what MPI_Wait returns; not MPI_SUCCESS: the hold stays until release() */
    staging through;
    tributary_combiner combiner; /* held until the operation is over; none for a stand-in */
    atomic_bool is_over;
    bool is_stand_in; /* `operation` and the memory of `through` are the caller's */
} pending;

atomic_long pending_count;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static pending *first;
static atomic_long pending_failed; /* of `pending_count`: over, with an error that no call has returned */

/* What query() found in this thread since the last pending_conclude(). */
static __thread struct {
    int error;
    MPI_Comm comm;
} failure;

/*
 * The status of a collective's request is empty (MPI 4.1 section 3.7.3). An error is not returned here:
 * MPI would call the error handler of a communicator of its own choice.
 */
static int query(void *extra, MPI_Status *status) {
    pending *of = extra;
    underlying.Status_set_elements(status, MPI_BYTE, 0);
    underlying.Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = of->error == MPI_SUCCESS ? MPI_ANY_TAG : PENDING_FAILED_TAG;
    if (of->error != MPI_SUCCESS) {
        failure.error = of->error;
        failure.comm = communicators_for_errors(of->record);
    }
    return MPI_SUCCESS;
}

int pending_conclude(void) {
    int error = failure.error;
    if (error != MPI_SUCCESS) {
        failure.error = MPI_SUCCESS;
        underlying.Comm_call_errhandler(failure.comm, error);
    }
    return error;
}

/* MPI calls this once the request is complete and the program has freed it. */
static int release(void *extra) {
    pending *of = extra;
    if (of->error != MPI_SUCCESS) {
        communicators_let_go(of->record);
        atomic_fetch_sub_explicit(&pending_failed, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&pending_count, 1, memory_order_relaxed);
    }
    free(of);
    return MPI_SUCCESS;
}

/* A collective can't be cancelled; MPI forbids the attempt (MPI 4.1 section 6.12). */
static int cancel(void *extra, int complete) {
    (void)extra, (void)complete;
    return MPI_ERR_REQUEST;
}

static void link_in(pending *entry) {
    pthread_mutex_lock(&listing);
    entry->previous = NULL;
    entry->next = first;
    if (first != NULL) {
        first->previous = entry;
    }
    first = entry;
    atomic_fetch_add_explicit(&pending_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&listing);
}

static void link_out(pending *entry) {
    if (entry->previous != NULL) {
        entry->previous->next = entry->next;
    } else {
        first = entry->next;
    }
    if (entry->next != NULL) {
        entry->next->previous = entry->previous;
    }
}

int pending_start(comm_record *record, tributary_operation *operation, const staging *through,
                  MPI_Request *request) {
    pending *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        underlying.Comm_call_errhandler(record->comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    if (through != NULL && !staging_is_idle(through)) {
        entry->through = *through;
        int error = staging_load(&entry->through, true, operation);
        if (error != MPI_SUCCESS) {
            free(entry);
            underlying.Comm_call_errhandler(record->comm, error);
            return error;
        }
    }
    int error = progress_start_request(query, release, cancel, entry, &entry->request);
    if (error != MPI_SUCCESS) {
        staging_free(&entry->through);
        free(entry);
        return error;
    }
    bool is_held = combining_hold(&operation->combiner);
    entry->operation = is_held ? tributary_start(record->core, operation) : NULL;
    if (entry->operation == NULL) {
        int code = is_held ? failure_code(record, TRIBUTARY_FAILED) : MPI_ERR_NO_MEM;
        if (is_held) {
            combining_let_go(&operation->combiner);
        }
        staging_free(&entry->through);
        MPI_Request unused = entry->request;
        underlying.Grequest_complete(unused);
        underlying.Request_free(&unused); /* frees the entry */
        underlying.Comm_call_errhandler(record->comm, code);
        return code;
    }
    timing_leave_out(operation->collective);
    entry->combiner = operation->combiner;
    entry->record = record;
    communicators_hold(record);
    *request = entry->request;
    link_in(entry);
    return MPI_SUCCESS;
}

int pending_stand_in(comm_record *record, tributary_request *operation, const staging *through,
                     MPI_Request *request) {
    pending *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        underlying.Comm_call_errhandler(communicators_for_errors(record), MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    int error = progress_start_request(query, release, cancel, entry, &entry->request);
    if (error != MPI_SUCCESS) {
        free(entry);
        return error;
    }
    entry->is_stand_in = true;
    entry->operation = operation;
    entry->through = *through;
    entry->record = record;
    communicators_hold(record);
    *request = entry->request;
    link_in(entry);
    return MPI_SUCCESS;
}

/* The state of an operation. Ends one on a communicator that MPI knows to be revoked. */
static int test(pending *entry) {
    comm_record *record = entry->record;
    int outcome = tributary_test(entry->operation);
    if (outcome == TRIBUTARY_PENDING && fault_tolerance_is_on() &&
        communicators_is_revoked(record)) {
        tributary_communicator_give_up(record->core);
        outcome = tributary_test(entry->operation);
    }
    return outcome;
}

/* Completes one entry if the core says that it is over. The caller holds `listing`. */
static void finish_if_done(pending *entry) {
    int outcome = test(entry);
    if (outcome == TRIBUTARY_PENDING) {
        return;
    }
    if (outcome != TRIBUTARY_DONE) {
        entry->error = failure_code(entry->record, outcome);
    } else {
        entry->error = staging_unload(&entry->through);
    }
    if (!entry->is_stand_in) {
        staging_free(&entry->through);
        tributary_request_free(entry->operation);
    }
    combining_let_go(&entry->combiner);
    link_out(entry);
    /* Release: pairs with the Acquire in pending_await(); the result is written. */
    atomic_store_explicit(&entry->is_over, true, memory_order_release);
    bool has_failed = entry->error != MPI_SUCCESS;
    if (has_failed) {
        /* Stays counted until release(), so that the call that waits for it returns the error. */
        atomic_fetch_add_explicit(&pending_failed, 1, memory_order_relaxed);
    } else {
        communicators_let_go(entry->record);
    }
    /* Completing may free the entry: the program may have freed the request already. */
    underlying.Grequest_complete(entry->request);
    if (!has_failed) {
        atomic_fetch_sub_explicit(&pending_count, 1, memory_order_relaxed);
    }
}

void pending_progress(void) {
    /* If another thread is in here, it does this thread's work too. */
    if (pthread_mutex_trylock(&listing) != 0) {
        return;
    }
    pending *next = NULL;
    for (pending *entry = first; entry != NULL; entry = next) {
        next = entry->next;
        finish_if_done(entry);
    }
    pthread_mutex_unlock(&listing);
}

/*
 * Holds `listing` meanwhile, so that nobody frees the operation: for 50 us, or a 64th of a long wait but 2 ms at
 * most, and only if there are fewer cores than ranks. Other threads find it taken and rest without an operation to drive.
 */
void pending_rest(bool is_first) {
    if (pthread_mutex_trylock(&listing) != 0) {
        tributary_rest(NULL, is_first);
        return;
    }
    tributary_rest(first != NULL ? first->operation : NULL, is_first);
    pthread_mutex_unlock(&listing);
}

void pending_await(int count, void *extras[]) {
    for (int at = 0; at < count; at++) {
        pending *entry = extras[at];
        for (bool is_first = true; !atomic_load_explicit(&entry->is_over, memory_order_acquire); is_first = false) {
            pending_progress();
            progress_barred++;
            shim_drive_mpi();
            progress_barred--;
            pending_rest(is_first);
        }
    }
}

static bool any_under_way(void) {
    return pending_counted() % PENDING_PERSISTENT >
           atomic_load_explicit(&pending_failed, memory_order_relaxed);
}

void pending_drain(void) {
    for (bool is_first = true; any_under_way(); is_first = false) {
        pending_progress();
        shim_drive_mpi();
        pending_rest(is_first);
    }
}
