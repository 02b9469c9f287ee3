/* Whether the shim is on, its communicators, and the macros that interpose functions. */
#ifndef TRIBUTARY_SHIM_H
#define TRIBUTARY_SHIM_H

#include "underlying.h"

/*
 * True between the end of MPI_Init and the start of MPI_Finalize, when the underlying MPI is the
 * expected one. While it is false every call goes straight to the underlying MPI.
 */
extern atomic_bool shim_is_on __attribute__((visibility("hidden")));

/* If false, the call must go straight to the underlying MPI. */
static inline bool shim_enter(void) {
    underlying_ensure();
    /* Acquire pairs with the release in start() of init.c: the tables are filled once this is set. */
    return __builtin_expect(atomic_load_explicit(&shim_is_on, memory_order_acquire), 1);
}

/* A private copy of MPI_COMM_SELF, on which no message arrives. */
extern MPI_Comm shim_self __attribute__((visibility("hidden")));

/* Lets the underlying MPI progress its messages while a rank waits for one of our operations. */
void shim_drive_mpi(void);

/* Marks a function that programs call instead of the underlying MPI's. */
#define INTERPOSED __attribute__((visibility("default")))

/*
 * Defines MPI_<name>. The body that follows runs only while the shim is on.
 *
 * The body is a function of its own, so that MPI_<name> consists of two jumps and leaves the arguments
 * in their registers. That matters if this library was preloaded under another MPI, where an argument
 * that is an int here may be a pointer.
 */
#define INTERPOSE(name, parameters, arguments)                                                     \
    INTERPOSE_AS(MPI_##name, name, parameters, arguments)

/* The same for MPIX_<name>. */
#define INTERPOSE_EXTENSION(name, parameters, arguments)                                           \
    INTERPOSE_AS(MPIX_##name, X_##name, parameters, arguments)

#define INTERPOSE_AS(function, name, parameters, arguments)                                        \
    static int shim_##name parameters;                                                             \
    INTERPOSED int function parameters {                                                           \
        return shim_enter() ? shim_##name arguments : underlying.name arguments;                   \
    }                                                                                              \
    static __attribute__((noinline)) int shim_##name parameters

#endif
