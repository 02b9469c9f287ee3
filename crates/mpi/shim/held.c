/* Handles that operations under way use. */
#include "held.h"

#include <stdlib.h>

/* The caller holds the lock. Null: nobody uses it. */
static held_handle *find(held_handles *of, uintptr_t handle) {
    for (size_t at = 0; at < of->count; at++) {
        if (of->list[at].handle == handle) {
            return &of->list[at];
        }
    }
    return NULL;
}

static held_handle *add(held_handles *of, uintptr_t handle) {
    if (of->count == of->room) {
        size_t room = of->room == 0 ? 16 : 2 * of->room;
        held_handle *grown = realloc(of->list, room * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        of->list = grown;
        of->room = room;
    }
    held_handle *entry = &of->list[of->count++];
    *entry = (held_handle){.handle = handle};
    atomic_store_explicit(&of->any, of->count, memory_order_relaxed);
    return entry;
}

bool held_take(held_handles *of, uintptr_t handle) {
    pthread_mutex_lock(&of->changing);
    held_handle *entry = find(of, handle);
    entry = entry != NULL ? entry : add(of, handle);
    if (entry != NULL) {
        entry->holds++;
    }
    pthread_mutex_unlock(&of->changing);
    return entry != NULL;
}

bool held_give(held_handles *of, uintptr_t handle) {
    pthread_mutex_lock(&of->changing);
    held_handle *entry = find(of, handle);
    bool is_last = entry != NULL && --entry->holds == 0;
    bool frees = is_last && entry->is_freed;
    if (is_last) {
        *entry = of->list[--of->count];
        atomic_store_explicit(&of->any, of->count, memory_order_relaxed);
    }
    pthread_mutex_unlock(&of->changing);
    return frees;
}

bool held_frees(held_handles *of, uintptr_t handle) {
    /* Relaxed: a thread that frees a handle has heard of the operation that it started with it. */
    if (atomic_load_explicit(&of->any, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&of->changing);
    held_handle *entry = find(of, handle);
    if (entry != NULL) {
        entry->is_freed = true;
    }
    pthread_mutex_unlock(&of->changing);
    return entry != NULL;
}
