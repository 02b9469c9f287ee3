/* The end-of-run report: world rank 0 collects every process's counts and times. */
#ifndef TRIBUTARY_SHIM_REPORT_H
#define TRIBUTARY_SHIM_REPORT_H

#include "underlying.h"

#include <stdbool.h>

/*
 * Collective over the world: whether rank 0 was asked for a report. If that report is to tell times, every
 * rank begins to measure.
 */
bool report_is_wanted(void);

/* Collective over `comm`: the world, or the ranks that are left. Its rank 0 writes the report. */
void report_collect(MPI_Comm comm);

#endif
