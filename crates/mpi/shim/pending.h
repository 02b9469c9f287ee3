/*
 * Nonblocking operations on their way.
 *
 * Each is a generalized request of the underlying MPI, so every rule about requests and statuses is
 * MPI's own. Someone has to call MPI_Grequest_complete when the operation is done, and that is
 * pending_progress(), called from the Wait and Test functions.
 */
#ifndef TRIBUTARY_PENDING_H
#define TRIBUTARY_PENDING_H

#include "communicators.h"
#include "staging.h"

extern atomic_long pending_count __attribute__((visibility("hidden")));

/*
 * True when an operation of this process is on its way. Relaxed: a thread that waits for a request
 * got its handle after the operation was counted, and so sees the count.
 */
static inline bool pending_any(void) {
    return __builtin_expect(atomic_load_explicit(&pending_count, memory_order_relaxed) != 0, 0);
}

/* Starts an operation and makes its request. Returns an MPI error code, already raised. */
int pending_start(comm_record *record, tributary_operation *operation, const staging *through,
                  MPI_Request *request);

/* Completes the requests whose operations are done. Any thread may call it. */
void pending_progress(void);

/* Lets a little time pass in a wait for requests, ours or MPI's; `is_first` in its first call. */
void pending_rest(bool is_first);

/* The tag in the status of a request that has failed; a valid one is never negative. */
#define PENDING_FAILED_TAG MPI_UNDEFINED

/*
 * To be called after every function of the MPI that looks at requests. If it has met a failed
 * operation of ours, calls that communicator's error handler and returns the error; else
 * MPI_SUCCESS.
 */
int pending_conclude(void);

/* Waits until nothing is on its way. */
void pending_drain(void);

#endif
