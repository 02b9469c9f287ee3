/*
 * Which MPI datatypes and operators the kernels know, and which operators MPI defines on the others.
 *
 * maps_fill() fills the tables once; after that they are read without locks. They hold predefined
 * handles only, and nothing that MPI_Type_* or MPI_Op_create made.
 */
#ifndef TRIBUTARY_MAPS_H
#define TRIBUTARY_MAPS_H

#include "underlying.h"

#include <stdint.h>

typedef struct datatype_entry {
    uintptr_t handle;
    uint8_t datatype;    /* TRIBUTARY_I8 ..., or 0: no kernel reduces it */
    uint16_t operators;  /* bit n set: TRIBUTARY operator n is defined on it by MPI */
    uint32_t size_bytes; /* of one element, without gaps; 0 when the type has gaps */
} datatype_entry;

/* Call after MPI is initialised, on one thread. */
void maps_fill(void);

typedef struct operator_entry {
    uintptr_t handle;
    uint32_t operator_;
} operator_entry;

/*
 * A predefined operator on a predefined datatype, if a kernel carries it out. Aligned so that a slot's address
 * takes one shift.
 */
typedef struct pair_entry {
    _Alignas(32) uintptr_t datatype_handle;
    uintptr_t operator_handle;
    uint32_t datatype;
    uint32_t operator_;
} pair_entry;

/* The tables are at most half full: about 90 datatypes, 12 operators, 400 pairs. */
#define MAPS_DATATYPE_SLOTS_LOG2 8
#define MAPS_OPERATOR_SLOTS_LOG2 5
#define MAPS_PAIR_SLOTS_LOG2 10

extern datatype_entry maps_datatypes[1u << MAPS_DATATYPE_SLOTS_LOG2]
    __attribute__((visibility("hidden")));
extern operator_entry maps_operators[1u << MAPS_OPERATOR_SLOTS_LOG2]
    __attribute__((visibility("hidden")));
extern pair_entry maps_pairs[1u << MAPS_PAIR_SLOTS_LOG2] __attribute__((visibility("hidden")));

/* Handles are addresses or small numbers; the multiplication spreads both. */
static inline uint32_t maps_slot_of(uintptr_t handle, unsigned slots_log2) {
    return (uint32_t)(((uint64_t)handle * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - slots_log2));
}

/* The slot that the handle has, or would get. */
static inline datatype_entry *maps_datatype_slot(uintptr_t handle) {
    uint32_t slot = maps_slot_of(handle, MAPS_DATATYPE_SLOTS_LOG2);
    while (maps_datatypes[slot].handle != handle && maps_datatypes[slot].handle != 0) {
        slot = (slot + 1) & ((1u << MAPS_DATATYPE_SLOTS_LOG2) - 1);
    }
    return &maps_datatypes[slot];
}

static inline operator_entry *maps_operator_slot(uintptr_t handle) {
    uint32_t slot = maps_slot_of(handle, MAPS_OPERATOR_SLOTS_LOG2);
    while (maps_operators[slot].handle != handle && maps_operators[slot].handle != 0) {
        slot = (slot + 1) & ((1u << MAPS_OPERATOR_SLOTS_LOG2) - 1);
    }
    return &maps_operators[slot];
}

/* Where a pair is looked for first. Handles of operators are shifted, for they differ in the same bits as those of datatypes. */
static inline uint32_t maps_first_pair_slot(uintptr_t datatype, uintptr_t operator_) {
    return maps_slot_of(datatype ^ operator_ << 16, MAPS_PAIR_SLOTS_LOG2);
}

static inline uint32_t maps_next_pair_slot(uint32_t slot) {
    return (slot + 1) & ((1u << MAPS_PAIR_SLOTS_LOG2) - 1);
}

/* The entry of a predefined datatype, or null. */
static inline const datatype_entry *maps_datatype(MPI_Datatype datatype) {
    const datatype_entry *entry = maps_datatype_slot((uintptr_t)datatype);
    return entry->handle != 0 ? entry : NULL;
}

/* The TRIBUTARY operator of a predefined operator, or 0. */
static inline uint32_t maps_operator(MPI_Op op) {
    return maps_operator_slot((uintptr_t)op)->operator_;
}

/* The pair of a predefined datatype and a predefined operator, or null: no kernel carries it out. */
static inline const pair_entry *maps_pair(MPI_Datatype datatype, MPI_Op op) {
    uintptr_t handle = (uintptr_t)datatype;
    for (uint32_t slot = maps_first_pair_slot(handle, (uintptr_t)op);;) {
        const pair_entry *entry = &maps_pairs[slot];
        bool is_it = entry->datatype_handle == handle && entry->operator_handle == (uintptr_t)op;
        /* No kernel's datatype is 0: that marks a slot without a pair, which two null handles match. */
        if (__builtin_expect(is_it, 1) || entry->datatype == 0) {
            return entry->datatype != 0 ? entry : NULL;
        }
        slot = maps_next_pair_slot(slot);
    }
}

#endif
