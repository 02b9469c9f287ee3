/*
 * Persistent collectives that are offloaded.
 *
 * The handle that the program has is a generalized request of the underlying MPI: it is the program's alone,
 * converts to Fortran, and MPI frees it. A table leads from it to the prepared
 * operation. MPI_Start, MPI_Wait and MPI_Test on it never call MPI. Functions of several requests show MPI
 * a stand-in for each of ours that is active, a generalized request, and MPI_REQUEST_NULL for each that is
 * inactive, because MPI treats that alike; so MPI applies its own rules to mixed arrays.
 *
 * For a part of the program that reaches the MPI past this library the handle is complete from the beginning. So a
 * wait or a test there asks its query function for the status, which waits for the operation. Then MPI frees the
 * request, as it does generalized ones, and a start of it is an error. So is a start of any such handle in MPI: it
 * must not seem to do what we alone can do.
 */
#ifndef TRIBUTARY_PERSISTENT_H
#define TRIBUTARY_PERSISTENT_H

#include "handle_table.h"
#include "pending.h"
#include "staging.h"

typedef struct persistent {
    comm_record *record; /* has a hold */
    tributary_prepared *core;
    uint32_t collective; /* TRIBUTARY_ALLREDUCE ... */
    MPI_Request handle;
    bool is_plain;        /* a start and its end need nothing but the core */
    bool is_direct;       /* active, without a stand-in */
    tributary_combiner combiner; /* held */
    bool is_discarded;    /* the handle is ours to free */
    MPI_Request stand_in; /* active with this stand-in, unless it is MPI_REQUEST_NULL */
    staging through;
} persistent;

extern _Atomic(handle_table *) persistent_table __attribute__((visibility("hidden")));

/*
 * What we keep for a request, if it is a persistent one of ours and found at once; null says nothing.
 * `counted` is pending_counted().
 */
static inline persistent *persistent_find_first(long counted, const MPI_Request *request) {
    return __builtin_expect(counted >= PENDING_PERSISTENT, 0) && request != NULL
               ? handle_table_find_first(&persistent_table, (uintptr_t)*request)
               : NULL;
}

/* What we keep for a request; null if it is not a persistent one of ours. */
static inline persistent *persistent_find(const MPI_Request *request) {
    return pending_any_persistent() && request != NULL
               ? handle_table_find(&persistent_table, (uintptr_t)*request)
               : NULL;
}

/*
 * Makes an inactive request for an operation on `record`. `through` is null if it needs no memory of ours.
 * Returns an MPI error code, for which the error handler was called.
 */
int persistent_make(comm_record *record, tributary_operation *operation, const staging *through,
                    MPI_Request *request);

/*
 * Persistent collectives that went to an MPI with MPICH's interface. While one is under way, MPI_Testall
 * returns an error (MPICH 4.0.2 and 5.0.2), and MPI_Test may never say that it is over (4.0.2); so they
 * are waited for by MPI_Wait. The values mean nothing.
 */
extern _Atomic(handle_table *) persistent_passed_table __attribute__((visibility("hidden")));

/* Call it with what the MPI returned for a persistent collective that went to it; returns that. */
int persistent_passed(int error, const MPI_Request *request);

/* Whether a request may only be waited for by MPI_Wait. */
static inline bool persistent_is_passed(MPI_Request request) {
    return handle_table_find(&persistent_passed_table, (uintptr_t)request) != NULL;
}

/* Whether that may hold for any. */
static inline bool persistent_any_passed(void) {
    /* Relaxed: a thread that waits for the request got its handle afterwards. */
    return atomic_load_explicit(&persistent_passed_table, memory_order_relaxed) != NULL;
}

/*
 * Ends a direct start, which has come to this outcome: waits on if it is TRIBUTARY_PENDING. Returns the
 * program's error.
 */
int persistent_conclude(persistent *of, int outcome, MPI_Status *status);

/* MPI_Wait on a request that is direct. In a header: a solver waits for one of a few bytes at a time. */
static inline int persistent_wait(persistent *of, MPI_Status *status) {
    int outcome = tributary_prepared_wait(of->core);
    if (__builtin_expect(outcome == TRIBUTARY_DONE && of->is_plain && status == MPI_STATUS_IGNORE, 1)) {
        of->is_direct = false;
        return MPI_SUCCESS;
    }
    return persistent_conclude(of, outcome, status);
}

/* MPI_Test on a request that is direct. */
int persistent_test(persistent *of, int *flag, MPI_Status *status);

/*
 * The request that stands for `*request` in MPI's functions: for one of ours its stand-in, or
 * MPI_REQUEST_NULL if it is inactive; else `request` itself. MPI may set it to MPI_REQUEST_NULL. Null: no
 * stand-in could be made; `*error` is the error, for which the error handler was called.
 */
MPI_Request *persistent_shown(MPI_Request *request, int *error);

/* The requests of a call as MPI is to see them. */
typedef struct persistent_array {
    MPI_Request *requests;
    MPI_Request few[16];
} persistent_array;

/* Fills in `requests`: the program's own if none is ours. Returns as persistent_make(). */
int persistent_open(persistent_array *array, int count, MPI_Request requests[]);

/* Takes over which requests MPI has completed, and frees memory. */
void persistent_shut(persistent_array *array, int count, MPI_Request requests[]);

/* Whether each request is direct, or null, and at least one is direct. */
bool persistent_all_direct(int count, const MPI_Request requests[]);

/* The program can't start any of them again. No other thread may be in MPI. */
void persistent_close(void);

#endif
