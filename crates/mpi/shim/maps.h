/*
 * Which MPI datatypes and operators the aggregation nodes know.
 *
 * Filled once by maps_fill(), read without locks afterwards. Only predefined handles are in here:
 * what MPI_Type_* or MPI_Op_create make is never found.
 */
#ifndef TRIBUTARY_MAPS_H
#define TRIBUTARY_MAPS_H

#include "beneath.h"

#include <stdint.h>

typedef struct datatype_entry {
    uintptr_t handle;
    uint8_t datatype;    /* TRIBUTARY_I8 ..., or 0: can't be reduced */
    uint16_t operators;  /* bit n set: TRIBUTARY operator n is defined on it by MPI */
    uint32_t size_bytes; /* of one element, without gaps; 0 when the type has gaps */
} datatype_entry;

/* Call after MPI is initialised, on one thread. */
void maps_fill(void);

/* The entry of a predefined datatype, or null. */
const datatype_entry *maps_datatype(MPI_Datatype datatype);

/* The TRIBUTARY operator of a predefined operator, or 0. */
uint32_t maps_operator(MPI_Op op);

#endif
