/*
 * Outstanding nonblocking operations.
 *
 * Each is a generalized request of the underlying MPI, which thus applies its own rules on requests and
 * statuses. When the operation is done, pending_progress() calls MPI_Grequest_complete; the Wait and
 * Test functions call pending_progress(), and so does the MPI itself (progress.h).
 */
#ifndef TRIBUTARY_PENDING_H
#define TRIBUTARY_PENDING_H

#include "communicators.h"
#include "staging.h"

/*
 * Operations that are outstanding, and this much more for each persistent request. One word, so that a Wait
 * in a program without either looks once.
 */
#define PENDING_PERSISTENT (1L << 32)
extern atomic_long pending_count __attribute__((visibility("hidden")));

/* Relaxed: a thread that waits for a request got its handle after the request was counted. */
static inline long pending_counted(void) {
    return atomic_load_explicit(&pending_count, memory_order_relaxed);
}

/* True if a request of this process may be ours. */
static inline bool pending_any(void) {
    return __builtin_expect(pending_counted() != 0, 0);
}

/* True if a nonblocking operation is outstanding. */
static inline bool pending_any_outstanding(void) {
    return pending_counted() % PENDING_PERSISTENT != 0;
}

/* True if a request may be a persistent one of ours. */
static inline bool pending_any_persistent(void) {
    return __builtin_expect(pending_counted() >= PENDING_PERSISTENT, 0);
}

/*
 * Starts an operation and makes its request. Returns an MPI error code, for which the error handler was
 * called.
 */
int pending_start(comm_record *record, tributary_operation *operation, const staging *through,
                  MPI_Request *request);

/*
 * Makes a request for an operation that was started already. The caller frees the operation and the memory
 * of `through` when the request is complete. Returns an MPI error code, for which the error handler was
 * called.
 */
int pending_stand_in(comm_record *record, tributary_request *operation, const staging *through,
                     MPI_Request *request);

/* Completes the requests whose operations are done. Any thread may call it. */
void pending_progress(void);

/* Pauses for a moment in a wait for requests, ours or MPI's; `is_first` in the wait's first call. */
void pending_rest(bool is_first);

/* The tag in the status of a request that has failed; a valid one is never negative. */
#define PENDING_FAILED_TAG MPI_UNDEFINED

/*
 * Call it after every function of the underlying MPI that completes or tests requests. If that function
 * met a failed operation of ours, this calls the communicator's error handler and returns the error; else
 * it returns MPI_SUCCESS.
 */
int pending_conclude(void);

/*
 * Waits for operations by the `extra` of their requests, and has MPI progress meanwhile. MPICH asks for that in a
 * wait for several requests.
 */
void pending_await(int count, void *extras[]);

/* Waits until no operation is outstanding. */
void pending_drain(void);

#endif
