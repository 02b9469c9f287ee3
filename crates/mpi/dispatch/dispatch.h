/*
 * What the dispatcher and the shims for the three binary interfaces of MPI know of each other.
 *
 * The shim is compiled once for each interface, against its mpi.h. All of them are in one library, and
 * the dispatcher leads a process's calls to the shim for the MPI that the process has loaded.
 */
#ifndef TRIBUTARY_DISPATCH_H
#define TRIBUTARY_DISPATCH_H

#include "functions.h"

#include <stdbool.h>
#include <stddef.h>

/* DISPATCH_MPI_Init ... */
enum {
#define DISPATCH_NUMBER(prefix, name, parameters) DISPATCH_##prefix##_##name,
    DISPATCH_FUNCTIONS(DISPATCH_NUMBER)
#undef DISPATCH_NUMBER
        DISPATCH_COUNT,
};

/* A function of MPI, whatever its parameters. */
typedef int (*dispatch_function)(void);

/* One function of a shim. */
typedef struct dispatch_entry {
    unsigned number; /* DISPATCH_* */
    bool is_always_on; /* else only between dispatch_turn_on() and dispatch_turn_off() */
    dispatch_function function;
} dispatch_entry;

/* Puts an entry into a list that only the symbols of its bounds lead to. `used` alone does not keep it with
 * every linker. */
#if __has_attribute(retain)
#define DISPATCH_LISTED(list) __attribute__((section(list), used, retain))
#else
#define DISPATCH_LISTED(list) __attribute__((section(list), used))
#endif

/* The shim for one binary interface. */
typedef struct dispatch_interface {
    /* Looks up what the shim calls in `library`, a handle of dlopen() on the MPI. */
    void (*open)(void *library);
    /* For a function that the MPI at hand lacks, and for which nothing stands in: raises an error of MPI. */
    dispatch_function missing;
    const dispatch_entry *first; /* its functions, up to and without `end` */
    const dispatch_entry *end;
    const dispatch_entry *first_stand_in; /* for functions that the MPI at hand may lack */
    const dispatch_entry *end_of_stand_ins;
} dispatch_interface;

/* In libmpi.so.40: Open MPI 4 and 5. */
extern const dispatch_interface dispatch_interface_openmpi __attribute__((visibility("hidden")));
/* In libmpi.so.12: MPICH, Intel MPI, MVAPICH. */
extern const dispatch_interface dispatch_interface_mpich __attribute__((visibility("hidden")));
/* In libmpi_abi.so: the standard one of MPI 5. */
extern const dispatch_interface dispatch_interface_abi __attribute__((visibility("hidden")));

/*
 * The MPI's own function, or what stands in for it, or the interface's `missing`. Known when the interface is
 * opened.
 */
dispatch_function dispatch_own(unsigned number) __attribute__((visibility("hidden")));

/* From now on calls go to the shim, or again to the MPI alone. Not for several threads at a time. */
void dispatch_turn_on(void) __attribute__((visibility("hidden")));
void dispatch_turn_off(void) __attribute__((visibility("hidden")));

/*
 * Writes one line on standard error that says `problem` and that collectives go to the MPI. One rank of
 * the job does so: MPI may be unable to tell the rank, but the launcher's environment does.
 */
void dispatch_warn(const char *problem) __attribute__((visibility("hidden")));

/* For dispatch.c alone: the MPI that this process has loaded. */
typedef struct loaded_mpi {
    void *library;                       /* a handle of dlopen(); null: there is none */
    const dispatch_interface *interface; /* null: none of ours */
} loaded_mpi;

loaded_mpi dispatch_find_mpi(void) __attribute__((visibility("hidden")));

#endif
