/* Runs an offloaded operation to its end. In a header: a call more would cost measurable time. */
#ifndef TRIBUTARY_BLOCKING_H
#define TRIBUTARY_BLOCKING_H

#include "failure.h"
#include "pieces.h"
#include "staging.h"
#include "timing.h"

/* Returns an MPI error code, for which the error handler was called. */
static inline int run(comm_record *record, const tributary_operation *operation) {
    int outcome = tributary_run(record->core, operation);
    return __builtin_expect(outcome == 0, 1) ? MPI_SUCCESS : failure_raise(record, outcome);
}

/* The same for an operation that may need a dense copy or cuts; `through` is null if it needs none. */
static inline int run_through(comm_record *record, tributary_operation *operation, staging *through) {
    if (through == NULL || staging_is_idle(through)) {
        return run(record, operation);
    }
    if (through->in_pieces) {
        return pieces_broadcast(record, operation, through);
    }
    int error = staging_load(through, false, operation);
    if (error != MPI_SUCCESS) {
        underlying.Comm_call_errhandler(record->comm, error);
        return error;
    }
    error = run(record, operation);
    if (error == MPI_SUCCESS) {
        error = staging_unload(through);
    }
    staging_free(through);
    return error;
}

/* The same, timed if that is wanted. */
static inline int run_timed_or_not(comm_record *record, tributary_operation *operation,
                                   staging *through) {
    return timing_is_on ? timing_run(record, operation, through)
                        : run_through(record, operation, through);
}

#endif
