/* Whether the shim is on, its communicators, and the macros that define its functions. */
#ifndef TRIBUTARY_SHIM_H
#define TRIBUTARY_SHIM_H

#include "dispatch.h"
#include "underlying.h"

/* A name that ends with that of the interface, which the compiler's command line gives. */
#define SHIM_PASTE(left, right) left##right
#define SHIM_NAME(left, right) SHIM_PASTE(left, right)

/*
 * True while the shim serves this MPI: from the end of MPI_Init to the start of MPI_Finalize, or as long as
 * sessions.c says.
 */
extern atomic_bool shim_is_on __attribute__((visibility("hidden")));

/* This interface, as the dispatcher knows it: dispatch_interface_openmpi, ... */
#define shim_interface SHIM_NAME(dispatch_interface_, SHIM_INTERFACE)

/* A private communicator of this process alone, on which no message arrives. */
extern MPI_Comm shim_self __attribute__((visibility("hidden")));

/* A private communicator of all processes that were started together, on which nobody ever sends. */
extern MPI_Comm shim_world __attribute__((visibility("hidden")));

/* Whether MPI is initialised by MPI_Init, and so has MPI_COMM_WORLD and MPI_COMM_SELF. */
extern bool shim_has_predefined __attribute__((visibility("hidden")));

/* The communicator whose error handler is to be called for an error that belongs to none. */
static inline MPI_Comm shim_comm_for_errors(void) {
    return shim_has_predefined ? MPI_COMM_WORLD : shim_self;
}

/*
 * Calls the error handler for an error that belongs to no communicator, and returns the error. While the shim is
 * off it has no communicator, and may not know the MPI's handles: then the error is returned alone.
 */
static inline int shim_raise(int error) {
    if (atomic_load_explicit(&shim_is_on, memory_order_acquire)) {
        underlying.Comm_call_errhandler(shim_comm_for_errors(), error);
    }
    return error;
}

/*
 * Makes the library's own communicators, shim_self and shim_world, in one of the two models of MPI. Returns
 * whether MPI has made both; else it has raised the error.
 */
typedef bool shim_maker(void);

/*
 * Turns the shim on, if it is off, serves this MPI, and all processes that were started together have this library.
 * `everybody` is a communicator of these. Collective over those that have it. Not for several threads at a time.
 */
void shim_open(MPI_Comm everybody, shim_maker *make_communicators);

/* Waits for operations whose requests the program has freed, reports, and frees everything. Collective as well. */
void shim_close(void);

/* Lets the underlying MPI progress its messages while a rank waits for one of our operations. */
void shim_drive_mpi(void);

/* Sections that list functions of this shim. */
#define SHIM_QUOTE(text) #text
#define SHIM_SECTION_OF(list, interface) SHIM_QUOTE(list##_##interface)
#define SHIM_SECTION(list, interface) SHIM_SECTION_OF(list, interface)

/*
 * Defines the shim's MPI_<name>, which runs while the shim is on. `number` says that dispatch/functions.h
 * has it too.
 */
#define INTERPOSE(name, parameters)                                                                \
    INTERPOSE_AS(DISPATCH_MPI_##name, name, parameters, false)

/* The same for MPIX_<name>. */
#define INTERPOSE_EXTENSION(name, parameters)                                                      \
    INTERPOSE_AS(DISPATCH_MPIX_##name, X_##name, parameters, false)

/* The same for a function that runs before the shim is on, too. */
#define INTERPOSE_ALWAYS(name, parameters)                                                         \
    INTERPOSE_AS(DISPATCH_MPI_##name, name, parameters, true)

#define INTERPOSE_AS(entry_number, name, parameters, always)                                       \
    static int shim_##name parameters;                                                             \
    DISPATCH_LISTED(SHIM_SECTION(functions, SHIM_INTERFACE))                                       \
    static const dispatch_entry entry_##name = {                                                   \
        .number = (entry_number),                                                                  \
        .is_always_on = (always),                                                                  \
        .function = (dispatch_function)shim_##name,                                                \
    };                                                                                             \
    static int shim_##name parameters

#endif
