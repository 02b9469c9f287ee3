/*
 * A sample of combinations that are too many to run: which of them to run (--sample N takes every N-th,
 * and the seed says which is the first), and how many there are and were run.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "shapes.h"

/* The settings of a case: a communicator, in place or not, a number that no other case has. */
typedef struct {
    const shape *where;
    bool in_place;
    uint64_t salt;
} setting;

enum { SETTINGS = 2 * SHAPES };

/* Whether to run the case of this number. Counts it. */
bool sample_takes(uint64_t number);

/*
 * Whether to run the case `product` with its setting number `pick`, of SETTINGS, which becomes `one`.
 * Counts it, also on ranks outside its communicator; those are to leave it out.
 */
bool sample_takes_setting(const shape shapes[SHAPES], uint64_t product, uint64_t pick, setting *one);

/* "ran 12 of 340 combinations (--sample 28)" */
const char *sample_summary(void);

#endif
