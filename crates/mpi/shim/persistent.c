/* Prepared operations behind persistent requests: made, started, completed and freed. */
#include "persistent.h"
#include "combining.h"
#include "failure.h"
#include "fault_tolerance.h"
#include "shim.h"
#include "timing.h"

#include <stdlib.h>

_Atomic(handle_table *) persistent_table = &handle_table_none;
_Atomic(handle_table *) persistent_passed_table = &handle_table_none;

static int raise_error(comm_record *record, int error) {
    underlying.Comm_call_errhandler(communicators_for_errors(record), error);
    return error;
}

static bool is_active(const persistent *of) {
    return of->is_direct || of->stand_in != MPI_REQUEST_NULL;
}

/* The status of a collective's request is empty (MPI 4.1 section 3.7.3). */
static void set_empty(MPI_Status *status) {
    if (status != MPI_STATUS_IGNORE) {
        underlying.Status_set_elements(status, MPI_BYTE, 0);
        underlying.Status_set_cancelled(status, 0);
        status->MPI_SOURCE = MPI_ANY_SOURCE;
        status->MPI_TAG = MPI_ANY_TAG;
    }
}

static void discard(persistent *of);
static void forget(persistent *of);

/* MPI asks for the status of the handle, in a wait or a test past this library. */
static int query(void *extra, MPI_Status *status) {
    persistent *of = extra;
    if (of->is_direct) {
        return persistent_conclude(of, TRIBUTARY_PENDING, status);
    }
    set_empty(status);
    return MPI_SUCCESS;
}

/* MPI frees the handle: we do, or a part of the program past this library. What is under way is left alone. */
static int release(void *extra) {
    persistent *of = extra;
    if (!of->is_discarded) {
        comm_record *record = of->record;
        forget(of);
        of->handle = MPI_REQUEST_NULL;
        if (!is_active(of)) {
            discard(of);
        }
        communicators_let_go(record);
    }
    return MPI_SUCCESS;
}

/* A collective can't be cancelled. */
static int cancel(void *extra, int complete) {
    (void)extra, (void)complete;
    return MPI_ERR_REQUEST;
}

static int make_handle(persistent *of) {
    int error = underlying.Grequest_start(query, release, cancel, of, &of->handle);
    return error == MPI_SUCCESS ? underlying.Grequest_complete(of->handle) : error;
}

/* Prepares the operation and makes the handle. On an error, what was made is left for discard(). */
static int prepare(persistent *of, tributary_operation *operation) {
    int error = staging_keep(&of->through, operation);
    if (error == MPI_SUCCESS) {
        error = make_handle(of);
    }
    if (error != MPI_SUCCESS) {
        return error;
    }
    if (!combining_hold(&operation->combiner)) {
        return MPI_ERR_NO_MEM;
    }
    of->combiner = operation->combiner;
    of->core = tributary_prepare(of->record->core, operation);
    if (of->core == NULL) {
        return failure_code(of->record, TRIBUTARY_FAILED);
    }
    bool is_kept = handle_table_insert(&persistent_table, (uintptr_t)of->handle, of);
    return is_kept ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static void discard(persistent *of) {
    of->is_discarded = true;
    if (of->core != NULL) {
        tributary_prepared_free(of->core);
    }
    combining_let_go(&of->combiner);
    if (of->handle != MPI_REQUEST_NULL) {
        underlying.Request_free(&of->handle);
    }
    staging_free(&of->through);
    free(of);
}

int persistent_make(comm_record *record, tributary_operation *operation, const staging *through,
                    MPI_Request *request) {
    persistent *of = calloc(1, sizeof *of);
    if (of == NULL) {
        return raise_error(record, MPI_ERR_NO_MEM);
    }
    of->record = record;
    of->collective = operation->collective;
    of->handle = MPI_REQUEST_NULL;
    of->stand_in = MPI_REQUEST_NULL;
    if (through != NULL && !staging_is_idle(through)) {
        of->through = *through;
    }
    int error = prepare(of, operation);
    if (error != MPI_SUCCESS) {
        discard(of);
        return raise_error(record, error);
    }
    of->is_plain = staging_is_idle(&of->through) && !fault_tolerance_is_on() && !timing_is_on;
    communicators_hold(record);
    atomic_fetch_add_explicit(&pending_count, PENDING_PERSISTENT, memory_order_relaxed);
    *request = of->handle;
    return MPI_SUCCESS;
}

int persistent_passed(int error, const MPI_Request *request) {
#ifndef OPEN_MPI
    if (error == MPI_SUCCESS) {
        uintptr_t key = (uintptr_t)*request;
        /* Without memory, its waits may fail as MPICH's do. */
        handle_table_insert(&persistent_passed_table, key, &persistent_passed_table);
    }
#else
    (void)request;
#endif
    return error;
}

/* What a start needs beside the core. Returns an MPI error code, for which the error handler was called. */
static int prepare_start(persistent *of) {
    if (is_active(of)) {
        return raise_error(of->record, MPI_ERR_REQUEST);
    }
    if (!staging_is_idle(&of->through)) {
        int error = staging_pack(&of->through);
        if (error != MPI_SUCCESS) {
            return raise_error(of->record, error);
        }
    }
    if (fault_tolerance_is_on() && communicators_is_revoked(of->record)) {
        tributary_communicator_give_up(of->record->core); /* so this operation fails as well */
    }
    timing_leave_out(of->collective);
    return MPI_SUCCESS;
}

static int start(persistent *of) {
    int error = prepare_start(of);
    if (error != MPI_SUCCESS) {
        return error;
    }
    of->is_direct = true;
    return tributary_prepared_start(of->core);
}

static __attribute__((noinline)) int start_any_kind(MPI_Request *request) {
    persistent *of = persistent_find(request);
    return of != NULL ? start(of) : underlying.Start(request);
}

INTERPOSE(Start, (MPI_Request *request)) {
    persistent *of = persistent_find_first(pending_counted(), request);
    bool is_ready = of != NULL && of->is_plain && !is_active(of);
    if (!is_ready) {
        return start_any_kind(request);
    }
    of->is_direct = true;
    return tributary_prepared_start(of->core);
}

INTERPOSE(Startall, (int count, MPI_Request requests[])) {
    if (!pending_any_persistent() || requests == NULL) {
        return underlying.Startall(count, requests);
    }
    for (int at = 0; at < count; at++) {
        persistent *of = persistent_find(&requests[at]);
        int error = of != NULL ? start(of) : underlying.Start(&requests[at]);
        if (error != MPI_SUCCESS) {
            return error;
        }
    }
    return count >= 0 ? MPI_SUCCESS : underlying.Startall(count, requests);
}

/* The state of a direct one. Ends one on a communicator that MPI knows to be revoked. */
static int poll(persistent *of) {
    int outcome = tributary_prepared_test(of->core);
    if (outcome == TRIBUTARY_PENDING && fault_tolerance_is_on() &&
        communicators_is_revoked(of->record)) {
        tributary_communicator_give_up(of->record->core);
        outcome = tributary_prepared_test(of->core);
    }
    return outcome;
}

/* Waits as MPI_Wait does: other operations of this process, ours and MPI's, make progress. */
static __attribute__((noinline)) int wait_long(persistent *of) {
    tributary_request *request = tributary_prepared_request(of->core);
    int outcome = TRIBUTARY_PENDING;
    for (bool is_first = true;; is_first = false) {
        pending_progress();
        shim_drive_mpi();
        outcome = poll(of);
        if (outcome != TRIBUTARY_PENDING) {
            return outcome;
        }
        tributary_rest(request, is_first);
    }
}

int persistent_conclude(persistent *of, int outcome, MPI_Status *status) {
    if (outcome == TRIBUTARY_PENDING) {
        outcome = wait_long(of);
    }
    of->is_direct = false;
    set_empty(status);
    if (outcome != TRIBUTARY_DONE) {
        return raise_error(of->record, failure_code(of->record, outcome));
    }
    if (staging_is_idle(&of->through)) {
        return MPI_SUCCESS;
    }
    int error = staging_unload(&of->through);
    return error == MPI_SUCCESS ? error : raise_error(of->record, error);
}

int persistent_test(persistent *of, int *flag, MPI_Status *status) {
    int outcome = poll(of);
    *flag = outcome != TRIBUTARY_PENDING;
    if (!*flag) {
        pending_progress();
        shim_drive_mpi();
        return MPI_SUCCESS;
    }
    return persistent_conclude(of, outcome, status);
}

/* From here on MPI's functions complete the start that is under way. */
static int stand_in(persistent *of) {
    tributary_request *operation = tributary_prepared_request(of->core);
    int error = pending_stand_in(of->record, operation, &of->through, &of->stand_in);
    of->is_direct = error != MPI_SUCCESS;
    return error;
}

MPI_Request *persistent_shown(MPI_Request *request, int *error) {
    persistent *of = persistent_find(request);
    *error = of != NULL && of->is_direct ? stand_in(of) : MPI_SUCCESS;
    if (*error != MPI_SUCCESS) {
        return NULL;
    }
    return of != NULL ? &of->stand_in : request;
}

static bool any_is_ours(int count, const MPI_Request requests[]) {
    for (int at = 0; pending_any_persistent() && requests != NULL && at < count; at++) {
        if (persistent_find(&requests[at]) != NULL) {
            return true;
        }
    }
    return false;
}

int persistent_open(persistent_array *array, int count, MPI_Request requests[]) {
    array->requests = requests;
    if (!any_is_ours(count, requests)) {
        return MPI_SUCCESS;
    }
    MPI_Request *shown = array->few;
    if ((size_t)count > sizeof array->few / sizeof *array->few) {
        shown = malloc((size_t)count * sizeof *shown);
        if (shown == NULL) {
            underlying.Comm_call_errhandler(shim_comm_for_errors(), MPI_ERR_NO_MEM);
            return MPI_ERR_NO_MEM;
        }
    }
    array->requests = shown;
    for (int at = 0; at < count; at++) {
        int error = MPI_SUCCESS;
        const MPI_Request *stands = persistent_shown(&requests[at], &error);
        if (stands == NULL) {
            persistent_shut(array, 0, requests);
            return error;
        }
        shown[at] = *stands;
    }
    return MPI_SUCCESS;
}

void persistent_shut(persistent_array *array, int count, MPI_Request requests[]) {
    if (array->requests == requests) {
        return;
    }
    for (int at = 0; at < count; at++) {
        persistent *of = persistent_find(&requests[at]);
        *(of != NULL ? &of->stand_in : &requests[at]) = array->requests[at];
    }
    if (array->requests != array->few) {
        free(array->requests);
    }
}

bool persistent_all_direct(int count, const MPI_Request requests[]) {
    bool any = false;
    for (int at = 0; pending_any_persistent() && requests != NULL && at < count; at++) {
        const persistent *of = persistent_find(&requests[at]);
        if (of != NULL ? !of->is_direct : requests[at] != MPI_REQUEST_NULL) {
            return false;
        }
        any |= of != NULL;
    }
    return any;
}

static void forget(persistent *of) {
    handle_table_remove(&persistent_table, (uintptr_t)of->handle, of);
    atomic_fetch_sub_explicit(&pending_count, PENDING_PERSISTENT, memory_order_relaxed);
}

INTERPOSE(Request_free, (MPI_Request *request)) {
    persistent *of = persistent_find(request);
    if (of == NULL) {
        if (persistent_any_passed() && request != NULL) {
            handle_table_remove(&persistent_passed_table, (uintptr_t)*request,
                                &persistent_passed_table);
        }
        return underlying.Request_free(request);
    }
    if (is_active(of)) {
        /* MPI 4.1 section 6.13 forbids it. */
        return raise_error(of->record, MPI_ERR_REQUEST);
    }
    comm_record *record = of->record;
    forget(of);
    *request = MPI_REQUEST_NULL;
    discard(of);
    communicators_let_go(record);
    return MPI_SUCCESS;
}

/* What is under way may still be written to, so its memory is left alone. */
static void give_up(void *value) {
    persistent *of = value;
    comm_record *record = of->record;
    forget(of);
    if (!is_active(of)) {
        discard(of);
    }
    communicators_let_go(record);
}

void persistent_close(void) {
    handle_table_visit(&persistent_table, give_up);
}
