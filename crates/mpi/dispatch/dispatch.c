/*
 * The exported functions. Each jumps to one target: first to a function that finds the MPI, later to the
 * MPI's own function, or to the shim's while the shim is on.
 *
 * So a call costs one jump more than without this library, and an MPI that the shims do not know gets
 * every call with its arguments untouched.
 */
#include "dispatch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

/* The MPI's own functions. */
static dispatch_function own[DISPATCH_COUNT];
static const dispatch_interface *interface;

static void resolve(void);

/*
 * Eight-byte integers stand for all parameters. A callee reads of them what it declares, so long as the
 * platform passes integers and pointers alike: 64-bit Linux does.
 */
_Static_assert(sizeof(long) == 8 && sizeof(void *) == 8, "this dispatcher is for 64-bit platforms");

#define PARAMETERS_0 void
#define PARAMETERS_1 long a
#define PARAMETERS_2 PARAMETERS_1, long b
#define PARAMETERS_3 PARAMETERS_2, long c
#define PARAMETERS_4 PARAMETERS_3, long d
#define PARAMETERS_5 PARAMETERS_4, long e
#define PARAMETERS_6 PARAMETERS_5, long f
#define PARAMETERS_7 PARAMETERS_6, long g
#define PARAMETERS_8 PARAMETERS_7, long h
#define PARAMETERS_9 PARAMETERS_8, long i
#define PARAMETERS_10 PARAMETERS_9, long j
#define ARGUMENTS_0
#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j

/* Acquire pairs with the release in aim(): what the target reads is filled. */
#define CALL(prefix, name, count)                                                                  \
    ((int (*)(PARAMETERS_##count))__atomic_load_n(&targets[DISPATCH_##prefix##_##name],            \
                                                  __ATOMIC_ACQUIRE))(ARGUMENTS_##count)

#define FIRST(prefix, name, count)                                                                 \
    static int first_##prefix##_##name(PARAMETERS_##count);
DISPATCH_FUNCTIONS(FIRST)
#undef FIRST

static dispatch_function targets[DISPATCH_COUNT] = {
#define FIRST(prefix, name, count)                                                                 \
    [DISPATCH_##prefix##_##name] = (dispatch_function)first_##prefix##_##name,
    DISPATCH_FUNCTIONS(FIRST)
#undef FIRST
};

#define DEFINE(prefix, name, count)                                                                \
    static int first_##prefix##_##name(PARAMETERS_##count) {                                       \
        resolve();                                                                                 \
        return CALL(prefix, name, count);                                                          \
    }                                                                                              \
    EXPORTED int prefix##_##name(PARAMETERS_##count) {                                             \
        return CALL(prefix, name, count);                                                          \
    }                                                                                              \
    EXPORTED int P##prefix##_##name(PARAMETERS_##count)                                            \
        __attribute__((alias(#prefix "_" #name)));
DISPATCH_FUNCTIONS(DEFINE)
#undef DEFINE

static const char *const own_names[DISPATCH_COUNT] = {
#define NAME(prefix, name, count) [DISPATCH_##prefix##_##name] = "P" #prefix "_" #name,
    DISPATCH_FUNCTIONS(NAME)
#undef NAME
};

static void aim(unsigned number, dispatch_function at) {
    __atomic_store_n(&targets[number], at, __ATOMIC_RELEASE);
}

void dispatch_turn_on(void) {
    for (const dispatch_entry *entry = interface->first; entry != interface->end; entry++) {
        aim(entry->number, entry->function);
    }
}

void dispatch_turn_off(void) {
    for (const dispatch_entry *entry = interface->first; entry != interface->end; entry++) {
        if (!entry->is_always_on) {
            aim(entry->number, own[entry->number]);
        }
    }
}

dispatch_function dispatch_own(unsigned number) {
    return own[number];
}

static dispatch_function stand_in(unsigned number) {
    for (const dispatch_entry *entry = interface->first_stand_in;
         entry != interface->end_of_stand_ins; entry++) {
        if (entry->number == number) {
            return entry->function;
        }
    }
    return interface->missing;
}

static void find_own_functions(void *library) {
    for (unsigned number = 0; number < DISPATCH_COUNT; number++) {
        void *address = dlsym(library, own_names[number]);
        own[number] = address != NULL ? (dispatch_function)address : stand_in(number);
    }
}

static void aim_at_first(void) {
    for (unsigned number = 0; number < DISPATCH_COUNT; number++) {
        aim(number, own[number]);
    }
    for (const dispatch_entry *entry = interface->first; entry != interface->end; entry++) {
        if (entry->is_always_on) {
            aim(entry->number, entry->function);
        }
    }
}

static void resolve(void) {
    static pthread_mutex_t resolving = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&resolving);
    if (interface == NULL) {
        loaded_mpi mpi = dispatch_find_mpi();
        if (mpi.library == NULL) {
            /* As the dynamic linker would: nothing could answer the program's call. */
            fprintf(stderr, "tributary: this program calls MPI, but has loaded no MPI library\n");
            _Exit(127);
        }
        interface = mpi.interface;
        find_own_functions(mpi.library);
        interface->open(mpi.library);
        aim_at_first();
    }
    pthread_mutex_unlock(&resolving);
}

void dispatch_warn(const char *problem) {
    static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                             "SLURM_PROCID"};
    for (size_t at = 0; at < sizeof rank_names / sizeof *rank_names; at++) {
        const char *rank = getenv(rank_names[at]);
        if (rank != NULL && rank[0] != '0') {
            return;
        }
    }
    fprintf(stderr, "tributary: %s; collectives go to the underlying MPI\n", problem);
}
