/*
 * Goes through elements of a datatype in the order of its type map, in parts that MPI can pack one by one: runs of
 * elements, and blocks of one that is long. A part is a long element itself where it can't be taken apart.
 */
#ifndef TRIBUTARY_WALK_H
#define TRIBUTARY_WALK_H

#include "staging.h"

/* What is done with each part of so many bytes. Returns an MPI error code, which ends the walk. */
typedef int walk_visitor(void *context, const staging_side *part, int64_t len_bytes);

/* Visits the elements in parts of about `part_bytes` at most. Returns an MPI error code. */
int walk(const staging_side *elements, int64_t part_bytes, walk_visitor *visit, void *context);

#endif
