/*
 * Hash table from communicator handles to records. Readers take no lock, writers take one.
 *
 * Open addressing with linear probing. A slot goes from empty to used to removed, and may be used
 * again. A writer stores the key last; a reader loads it first.
 */
#ifndef TRIBUTARY_COMM_TABLE_H
#define TRIBUTARY_COMM_TABLE_H

#include "communicators.h"

#define COMM_TABLE_EMPTY ((uintptr_t)0)
#define COMM_TABLE_REMOVED (~(uintptr_t)0)

typedef struct comm_table_slot {
    _Atomic uintptr_t key;
    _Atomic(comm_record *) record;
} comm_table_slot;

typedef struct comm_table {
    unsigned slots_log2;
    size_t taken; /* used or removed; only the writer reads it */
    comm_table_slot slots[];
} comm_table;

extern _Atomic(comm_table *) comm_table_current __attribute__((visibility("hidden")));

static inline size_t comm_table_first_slot(uintptr_t key, unsigned slots_log2) {
    return (size_t)(((uint64_t)key * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - slots_log2));
}

/* comm_table_find() from the slot `at` on, for the few keys that share a first slot. */
comm_record *comm_table_find_behind(comm_table *in, uintptr_t wanted, size_t at);

/* The record, or null. In a header: every collective begins with it. */
static inline comm_record *comm_table_find(MPI_Comm comm) {
    uintptr_t wanted = (uintptr_t)comm;
    /* Acquire pairs with the release in grow(): the copied slots are visible. */
    comm_table *in = atomic_load_explicit(&comm_table_current, memory_order_acquire);
    if (in == NULL || wanted == COMM_TABLE_EMPTY || wanted == COMM_TABLE_REMOVED) {
        return NULL;
    }
    size_t at = comm_table_first_slot(wanted, in->slots_log2);
    /* Acquire pairs with the release in put(): the record of this key is visible. */
    if (__builtin_expect(
            atomic_load_explicit(&in->slots[at].key, memory_order_acquire) == wanted, 1)) {
        return atomic_load_explicit(&in->slots[at].record, memory_order_relaxed);
    }
    return comm_table_find_behind(in, wanted, at);
}

/* Adds a record under its `comm`, which must not be in the table. False: out of memory. */
bool comm_table_insert(comm_record *record);

/* Removes a record, if it is in the table. */
void comm_table_remove(comm_record *record);

/* Calls `visit` on every record, which `visit` may remove. No other thread may use the table. */
void comm_table_visit(void (*visit)(comm_record *record));

#endif
