/* Shared by the benchmarks of one node. */
#ifndef MEASURE_H
#define MEASURE_H

#include <time.h>

static inline double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

#endif
