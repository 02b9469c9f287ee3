/*
 * A table that gets half full is copied into a new one. The old one is never freed, because readers may
 * be in it. Removed slots before an empty one become empty again, so a program that keeps making and
 * freeing what the handles stand for causes no copies.
 */
#include "handle_table.h"

#include <pthread.h>
#include <stdlib.h>

#define FIRST_SLOTS_LOG2 6

/* Counts as full, so that nothing is put in. */
handle_table handle_table_none = {.slots_log2 = 1, .shift = 63, .taken = 1, .slots = {{0}, {0}}};

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

void *handle_table_find_behind(_Atomic(handle_table *) *where, uintptr_t wanted) {
    /* Acquire pairs with the release in grow(): the copied slots are visible. */
    handle_table *in = atomic_load_explicit(where, memory_order_acquire);
    if (handle_table_is_mark(wanted)) {
        return NULL;
    }
    size_t mask = ((size_t)1 << in->slots_log2) - 1;
    size_t at = handle_table_first_slot(in, wanted);
    for (uintptr_t key = ~HANDLE_TABLE_EMPTY; key != HANDLE_TABLE_EMPTY;) {
        /* Acquire: as in handle_table_find_first(). */
        key = atomic_load_explicit(&in->slots[at].key, memory_order_acquire);
        if (key == wanted) {
            return atomic_load_explicit(&in->slots[at].value, memory_order_relaxed);
        }
        at = (at + 1) & mask;
    }
    return NULL;
}

/* Readers of other keys always skip this slot: they see it removed, or with this key. */
static void put(handle_table *in, uintptr_t key, void *value) {
    size_t mask = ((size_t)1 << in->slots_log2) - 1;
    size_t at = handle_table_first_slot(in, key);
    for (;;) {
        uintptr_t held = atomic_load_explicit(&in->slots[at].key, memory_order_relaxed);
        if (held == HANDLE_TABLE_EMPTY) {
            in->taken++;
            break;
        }
        if (held == HANDLE_TABLE_REMOVED) {
            break;
        }
        at = (at + 1) & mask;
    }
    atomic_store_explicit(&in->slots[at].value, value, memory_order_relaxed);
    atomic_store_explicit(&in->slots[at].key, key, memory_order_release);
}

static handle_table *grow(_Atomic(handle_table *) *where, handle_table *from) {
    size_t live = 0;
    size_t from_slots = (size_t)1 << from->slots_log2;
    for (size_t at = 0; at < from_slots; at++) {
        uintptr_t key = atomic_load_explicit(&from->slots[at].key, memory_order_relaxed);
        live += !handle_table_is_mark(key);
    }
    unsigned slots_log2 = FIRST_SLOTS_LOG2;
    while (live * 4 >= (size_t)1 << slots_log2) {
        slots_log2++;
    }
    handle_table *larger = calloc(1, sizeof *larger + (sizeof(handle_table_slot) << slots_log2));
    if (larger == NULL) {
        return NULL;
    }
    larger->slots_log2 = slots_log2;
    larger->shift = 64 - slots_log2;
    for (size_t at = 0; at < from_slots; at++) {
        uintptr_t key = atomic_load_explicit(&from->slots[at].key, memory_order_relaxed);
        if (!handle_table_is_mark(key)) {
            put(larger, key, atomic_load_explicit(&from->slots[at].value, memory_order_relaxed));
        }
    }
    /* Pairs with the acquire in handle_table_find_first(). */
    atomic_store_explicit(where, larger, memory_order_release);
    return larger;
}

bool handle_table_insert(_Atomic(handle_table *) *where, uintptr_t key, void *value) {
    pthread_mutex_lock(&writing);
    handle_table *in = atomic_load_explicit(where, memory_order_relaxed);
    if (in->taken * 2 >= (size_t)1 << in->slots_log2) {
        in = grow(where, in);
    }
    if (in != NULL) {
        put(in, key, value);
    }
    pthread_mutex_unlock(&writing);
    return in != NULL;
}

/* No probe goes past an empty slot, so removed slots right before it can become empty. */
static void clean_backwards(handle_table *in, size_t at) {
    size_t mask = ((size_t)1 << in->slots_log2) - 1;
    size_t next = (at + 1) & mask;
    if (atomic_load_explicit(&in->slots[next].key, memory_order_relaxed) != HANDLE_TABLE_EMPTY) {
        return;
    }
    while (atomic_load_explicit(&in->slots[at].key, memory_order_relaxed) == HANDLE_TABLE_REMOVED) {
        atomic_store_explicit(&in->slots[at].key, HANDLE_TABLE_EMPTY, memory_order_relaxed);
        in->taken--;
        at = (at - 1) & mask;
    }
}

void handle_table_remove(_Atomic(handle_table *) *where, uintptr_t key, const void *value) {
    pthread_mutex_lock(&writing);
    handle_table *in = atomic_load_explicit(where, memory_order_relaxed);
    size_t slots = (size_t)1 << in->slots_log2;
    size_t at = handle_table_first_slot(in, key);
    for (size_t probes = 0; probes < slots; probes++, at = (at + 1) & (slots - 1)) {
        uintptr_t held = atomic_load_explicit(&in->slots[at].key, memory_order_relaxed);
        if (held == HANDLE_TABLE_EMPTY) {
            break;
        }
        if (held == key &&
            atomic_load_explicit(&in->slots[at].value, memory_order_relaxed) == value) {
            /* Relaxed: only a thread that may no longer use this handle can miss the store. */
            atomic_store_explicit(&in->slots[at].key, HANDLE_TABLE_REMOVED, memory_order_relaxed);
            clean_backwards(in, at);
            break;
        }
    }
    pthread_mutex_unlock(&writing);
}

void handle_table_visit(_Atomic(handle_table *) *where, void (*visit)(void *value)) {
    handle_table *in = atomic_load_explicit(where, memory_order_acquire);
    size_t slots = (size_t)1 << in->slots_log2;
    for (size_t at = 0; at < slots; at++) {
        /* `visit` may remove the value; that empties slots, but moves none. */
        uintptr_t key = atomic_load_explicit(&in->slots[at].key, memory_order_relaxed);
        if (!handle_table_is_mark(key)) {
            visit(atomic_load_explicit(&in->slots[at].value, memory_order_relaxed));
        }
    }
}
