/*
 * Hash table from MPI handles to what this library keeps for them. Readers take no lock, writers take one.
 *
 * Open addressing with linear probing. A slot goes from empty to used to removed, and may be used
 * again. A writer stores the key last; a reader loads it first.
 */
#ifndef TRIBUTARY_HANDLE_TABLE_H
#define TRIBUTARY_HANDLE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDLE_TABLE_EMPTY ((uintptr_t)0)
#define HANDLE_TABLE_REMOVED (~(uintptr_t)0)

typedef struct handle_table_slot {
    _Atomic uintptr_t key;
    _Atomic(void *) value;
} handle_table_slot;

typedef struct handle_table {
    unsigned slots_log2;
    size_t taken; /* used or removed; only the writer reads it */
    handle_table_slot slots[];
} handle_table;

static inline size_t handle_table_first_slot(uintptr_t key, unsigned slots_log2) {
    return (size_t)(((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - slots_log2));
}

/* handle_table_find() from the slot `at` on, for the few keys that share a first slot. */
void *handle_table_find_behind(handle_table *in, uintptr_t wanted, size_t at);

/* The value of a handle, or null. In a header: every collective begins with it. */
static inline void *handle_table_find(_Atomic(handle_table *) *where, uintptr_t wanted) {
    /* Acquire pairs with the release in grow(): the copied slots are visible. */
    handle_table *in = atomic_load_explicit(where, memory_order_acquire);
    if (in == NULL || wanted == HANDLE_TABLE_EMPTY || wanted == HANDLE_TABLE_REMOVED) {
        return NULL;
    }
    size_t at = handle_table_first_slot(wanted, in->slots_log2);
    /* Acquire pairs with the release in put(): the value of this key is visible. */
    if (__builtin_expect(
            atomic_load_explicit(&in->slots[at].key, memory_order_acquire) == wanted, 1)) {
        return atomic_load_explicit(&in->slots[at].value, memory_order_relaxed);
    }
    return handle_table_find_behind(in, wanted, at);
}

/* Adds the value of a handle that must not be in the table. False: out of memory. */
bool handle_table_insert(_Atomic(handle_table *) *where, uintptr_t key, void *value);

/* Removes a handle, if it is in the table with this value. */
void handle_table_remove(_Atomic(handle_table *) *where, uintptr_t key, const void *value);

/* Calls `visit` on every value, which `visit` may remove. No other thread may use the table. */
void handle_table_visit(_Atomic(handle_table *) *where, void (*visit)(void *value));

#endif
