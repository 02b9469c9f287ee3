/* State of the shim as a whole: is it on, and what does it hold of MPI's. */
#ifndef TRIBUTARY_SHIM_H
#define TRIBUTARY_SHIM_H

#include "underlying.h"

/*
 * True between the end of MPI_Init and the start of MPI_Finalize, when the underlying MPI is the
 * expected one. While it is false every call goes straight to the underlying MPI.
 */
extern atomic_bool shim_is_on __attribute__((visibility("hidden")));

/* When false, the call must go to the underlying MPI with nothing in between. */
static inline bool shim_enter(void) {
    underlying_ensure();
    /* Acquire pairs with the release in init.c: the tables are filled when this is set. */
    return __builtin_expect(atomic_load_explicit(&shim_is_on, memory_order_acquire), 1);
}

/* A private copy of MPI_COMM_SELF: nothing ever arrives on it. */
extern MPI_Comm shim_self __attribute__((visibility("hidden")));

/* Lets the underlying MPI progress its own messages while a rank waits for one of ours. */
void shim_drive_mpi(void);

/* Marks a function that programs call in place of the MPI's. */
#define INTERPOSED __attribute__((visibility("default")))

/*
 * Defines MPI_<name>; the body that follows runs only while the shim is on.
 *
 * The two are separate functions so that the outer one is nothing but two jumps. It then leaves the
 * arguments in their registers as they came, which matters when this library was preloaded under
 * another MPI: an argument that is an int here may be a pointer there.
 */
#define INTERPOSE(name, parameters, arguments)                                                     \
    INTERPOSE_AS(MPI_##name, name, parameters, arguments)

/* The same for MPIX_<name>. */
#define INTERPOSE_EXTENSION(name, parameters, arguments)                                           \
    INTERPOSE_AS(MPIX_##name, X_##name, parameters, arguments)

#define INTERPOSE_AS(function, name, parameters, arguments)                                        \
    static int shim_##name parameters;                                                             \
    INTERPOSED int function parameters {                                                           \
        return shim_enter() ? shim_##name arguments : underlying.name arguments;                      \
    }                                                                                              \
    static __attribute__((noinline)) int shim_##name parameters

#endif
