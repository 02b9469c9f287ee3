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
    unsigned shift; /* 64 - slots_log2 */
    size_t taken; /* used or removed; only the writer reads it */
    handle_table_slot slots[];
} handle_table;

/* What every table is before something is put in: a reader then need not ask whether there is one. */
extern handle_table handle_table_none __attribute__((visibility("hidden")));

static inline size_t handle_table_first_slot(const handle_table *in, uintptr_t key) {
    return (size_t)(((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> in->shift);
}

/* Whether it marks a slot that holds no handle: HANDLE_TABLE_EMPTY or HANDLE_TABLE_REMOVED. */
static inline bool handle_table_is_mark(uintptr_t key) {
    return key + 1 <= 1;
}

/* handle_table_find() for handles that are not in the table, and for the few that share a first slot. */
void *handle_table_find_behind(_Atomic(handle_table *) *where, uintptr_t wanted);

/*
 * The value of a handle if it is in the slot where it is looked for first, as nearly all are; null says
 * nothing. Calls nothing, so a caller that calls nothing else either needs no stack.
 */
static inline void *handle_table_find_first(_Atomic(handle_table *) *where, uintptr_t wanted) {
    /* Acquire pairs with the release in grow(): the copied slots are visible. */
    handle_table *in = atomic_load_explicit(where, memory_order_acquire);
    if (handle_table_is_mark(wanted)) {
        return NULL;
    }
    handle_table_slot *slot = &in->slots[handle_table_first_slot(in, wanted)];
    /* Acquire pairs with the release in put(): the value of this key is visible. */
    bool is_there = atomic_load_explicit(&slot->key, memory_order_acquire) == wanted;
    return __builtin_expect(is_there, 1) ? atomic_load_explicit(&slot->value, memory_order_relaxed)
                                         : NULL;
}

/* The value of a handle, or null. In a header: every collective begins with it. */
static inline void *handle_table_find(_Atomic(handle_table *) *where, uintptr_t wanted) {
    void *value = handle_table_find_first(where, wanted);
    return __builtin_expect(value != NULL, 1) ? value : handle_table_find_behind(where, wanted);
}

/* Adds the value of a handle that must not be in the table. False: out of memory. */
bool handle_table_insert(_Atomic(handle_table *) *where, uintptr_t key, void *value);

/* Removes a handle, if it is in the table with this value. */
void handle_table_remove(_Atomic(handle_table *) *where, uintptr_t key, const void *value);

/* Calls `visit` on every value, which `visit` may remove. No other thread may use the table. */
void handle_table_visit(_Atomic(handle_table *) *where, void (*visit)(void *value));

#endif
