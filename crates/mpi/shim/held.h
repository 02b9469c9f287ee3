/*
 * Handles that operations under way use. The program may free one meanwhile: MPI then keeps the object, because
 * its own operations hold it. It knows nothing of ours, so here the freeing is put off.
 */
#ifndef TRIBUTARY_HELD_H
#define TRIBUTARY_HELD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct held_handle {
    uintptr_t handle;
    size_t holds;
    bool is_freed; /* by the program */
} held_handle;

/* Of one kind of handle. Zeroes make an empty one. */
typedef struct held_handles {
    pthread_mutex_t changing;
    held_handle *list;
    size_t count;
    size_t room;
    atomic_size_t any; /* `count`, for a look without the lock */
} held_handles;

#define HELD_HANDLES_NONE {.changing = PTHREAD_MUTEX_INITIALIZER}

/* An operation begins to use the handle. False: out of memory. */
bool held_take(held_handles *of, uintptr_t handle);

/* It no longer does. True: the program has freed the handle, and now MPI is to free it. */
bool held_give(held_handles *of, uintptr_t handle);

/* The program frees the handle. True: operations use it, and the last one will free it. */
bool held_frees(held_handles *of, uintptr_t handle);

#endif
