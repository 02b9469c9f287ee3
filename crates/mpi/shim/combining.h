/*
 * Reductions whose elements only the underlying MPI can combine: operators that the program made, and
 * predefined ones on datatypes that no kernel knows, such as MPI_LONG_DOUBLE. The core calls back, and
 * MPI_Reduce_local combines.
 */
#ifndef TRIBUTARY_COMBINING_H
#define TRIBUTARY_COMBINING_H

#include "underlying.h"
#include "verdict.h"

/* What is known of an operator on the elements of a datatype. */
typedef struct combining_elements {
    verdict judged; /* VERDICT_COMBINE, VERDICT_COMBINE_IN_ORDER or VERDICT_PASS */
    uint32_t bytes; /* from one element to the next */
} combining_elements;

/* Called while the shim turns on, which is the same moment of the program at all ranks. */
void combining_open(void);

/* Judges by what is equal on all ranks. `op` is not null; `datatype` may be anything. */
combining_elements combining_judge(MPI_Datatype datatype, MPI_Op op);

/* Calls MPI_Reduce_local; `context` is a datatype and an operator. Returns an MPI error code. */
int combining_call(void *const context[2], const void *left, void *right, uint64_t elements);

/*
 * Keep the datatype and the operator of an operation that outlives the call which starts it, though the program
 * frees them; do nothing without a combiner. False: out of memory.
 */
bool combining_hold(const tributary_combiner *combiner);
void combining_let_go(const tributary_combiner *combiner);

#endif
