/*
 * Records which blocking collectives this rank calls, if TRIBUTARY_TRACE asks for it. The core keeps the
 * record and bounds it. Operations are measured anyway then (timing.h), so a program that is not traced
 * executes nothing of this.
 */
#ifndef TRIBUTARY_TRACE_H
#define TRIBUTARY_TRACE_H

#include "communicators.h"

#include <stdbool.h>
#include <stdint.h>

/* Written before shim_is_on, once, at the end of MPI_Init. */
extern bool trace_is_on __attribute__((visibility("hidden")));

/* Two readings of the clock around an operation. */
typedef struct trace_span {
    uint64_t started_ns;
    uint64_t ended_ns;
} trace_span;

/* Begins to record. */
void trace_begin(void);

/* Adds an operation that the core has run. */
void trace_add(comm_record *record, const tributary_operation *operation, trace_span span);

/* Adds an operation of the underlying MPI, to which this rank has contributed `len_bytes`, by the communicator's number. */
void trace_add_passed(uint32_t number, uint32_t collective, int root, uint64_t len_bytes,
                      trace_span span);

/* Gathers the records of all ranks of `comm`, whose rank 0 writes them, and ends recording. */
void trace_collect(MPI_Comm comm);

#endif
