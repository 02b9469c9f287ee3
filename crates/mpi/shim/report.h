/* The end-of-run report: world rank 0 collects every process's counts and times. */
#ifndef TRIBUTARY_SHIM_REPORT_H
#define TRIBUTARY_SHIM_REPORT_H

#include "underlying.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Collective over the world: whether rank 0 was asked for a report. If that report is to tell times, or
 * rank 0 was asked for a trace, every rank begins to measure.
 */
bool report_is_wanted(void);

/* Whether collectives are counted that stay with the underlying MPI. Written before shim_is_on, once, at the end of MPI_Init. */
extern bool report_counts_others __attribute__((visibility("hidden")));

/* Collective over `comm`: the world, or the ranks that are left. Its rank 0 writes the report. */
void report_collect(MPI_Comm comm);

/* Writes the texts of `ranks` ranks. Returns 0, or 1 with a message. */
typedef int report_publisher(const char *texts, const size_t *len_bytes, size_t ranks);

/* Collective over `comm`, whose rank 0 publishes the texts of all ranks. `what` is for a message. */
void report_gather(MPI_Comm comm, const char *what, const char *text, size_t text_bytes,
                   report_publisher *publisher);

#endif
