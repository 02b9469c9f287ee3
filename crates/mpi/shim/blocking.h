/* Runs an offloaded operation to its end. In a header: a call more would cost measurable time. */
#ifndef TRIBUTARY_BLOCKING_H
#define TRIBUTARY_BLOCKING_H

#include "failure.h"
#include "pieces.h"
#include "staging.h"
#include "timing.h"

/* Runs an operation that needs no memory but the program's. */
static inline int run_as_it_is(comm_record *record, const tributary_operation *operation) {
    int outcome = tributary_run(record->core, operation);
    return __builtin_expect(outcome == 0, 1) ? MPI_SUCCESS : failure_raise(record, outcome);
}

/* run() without a clock. */
static inline int run_unmeasured(comm_record *record, tributary_operation *operation, staging *through) {
    if (staging_is_idle(through)) {
        return run_as_it_is(record, operation);
    }
    if (through->in_pieces) {
        return pieces_broadcast(record, operation, through);
    }
    int error = staging_load(through, false, operation);
    if (error != MPI_SUCCESS) {
        underlying.Comm_call_errhandler(record->comm, error);
        return error;
    }
    error = run_as_it_is(record, operation);
    if (error == MPI_SUCCESS) {
        error = staging_unload(through);
    }
    staging_free(through);
    return error;
}

/*
 * Runs an operation with the dense copy, the cuts or the pieces that it needs. Returns an MPI error code, for
 * which the error handler was called.
 */
static inline int run(comm_record *record, tributary_operation *operation, staging *through) {
    return timing_is_on ? timing_run(record, operation, through)
                        : run_unmeasured(record, operation, through);
}

#endif
