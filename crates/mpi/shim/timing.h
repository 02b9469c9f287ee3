/*
 * Measures how long blocking collectives take, if the report is to tell.
 *
 * Two readings of the clock enclose what the program waits for: the core's operation with its dense copies,
 * or the underlying MPI's function. The decision between them is outside, and so is the set-up of a
 * communicator. Operations that fail are left out. Nonblocking operations are only counted: the time
 * between start and completion is mostly the program's own.
 *
 * While nobody measures, an offloaded call of the fast path executes nothing of this: its record is not
 * marked for the fast path otherwise.
 */
#ifndef TRIBUTARY_TIMING_H
#define TRIBUTARY_TIMING_H

#include "communicators.h"
#include "staging.h"

#include <stdint.h>

/* Written before shim_is_on, once, at the end of MPI_Init. */
extern bool timing_is_on __attribute__((visibility("hidden")));

/* Begins to measure. */
void timing_begin(void);

/* Ends it, and forgets what was measured. The shim is off. */
void timing_end(void);

/* Nanoseconds on a clock that never goes back. */
uint64_t timing_now_ns(void);

/* run() of blocking.h between two readings of the clock. */
int timing_run(comm_record *record, tributary_operation *operation, staging *through);

/* Bytes of `count` elements of a datatype that the underlying MPI has taken. */
uint64_t timing_len_bytes(MPI_Count count, MPI_Datatype datatype);

/* The same at a rank that, on an intercommunicator, may have no part in the operation. */
static inline uint64_t timing_rooted_bytes(int root, MPI_Count count, MPI_Datatype datatype) {
    return root == MPI_PROC_NULL ? 0 : timing_len_bytes(count, datatype);
}

/* Counts a nonblocking operation. */
static inline void timing_leave_out(uint32_t collective) {
    if (timing_is_on) {
        tributary_count_not_measured(collective);
    }
}

/* Adds an operation of the underlying MPI. `root` is any number where the collective has none. */
void timing_add_passed(MPI_Comm comm, uint32_t collective, int root, uint64_t len_bytes,
                       uint64_t started_ns, uint64_t ended_ns);

/*
 * Defines timed_<name>(), which calls the underlying MPI's function and adds its time. `len_bytes` is
 * evaluated after a call that succeeded, when MPI has checked the arguments, among which is `comm`.
 */
#define TIMED(name, parameters, arguments, collective, root, len_bytes)                                  \
    static __attribute__((noinline, cold)) int timed_##name parameters {                           \
        uint64_t started_ns = timing_now_ns();                                                     \
        int error = underlying.name arguments;                                                     \
        uint64_t ended_ns = timing_now_ns();                                                       \
        if (error == MPI_SUCCESS) {                                                                \
            timing_add_passed(comm, collective, root, len_bytes, started_ns, ended_ns);            \
        }                                                                                          \
        return error;                                                                              \
    }

/* Calls the underlying MPI's function, timed if that is wanted. Both are tail calls. */
#define PASS_ON(name, arguments)                                                                   \
    (__builtin_expect(timing_is_on, 0) ? timed_##name arguments : underlying.name arguments)

#endif
