#include "sample.h"

#include <stdio.h>

#include "check.h"

static uint64_t cases_taken;
static uint64_t cases_possible;

static bool count(bool is_taken) {
    cases_possible++;
    cases_taken += is_taken;
    return is_taken;
}

bool sample_takes(uint64_t number) { return count(check_hash(number, 7, 8) % world.sample == 0); }

bool sample_takes_setting(const shape shapes[SHAPES], uint64_t product, uint64_t pick,
                          setting *one) {
    one->where = &shapes[pick / 2];
    one->in_place = pick % 2 == 1;
    one->salt = product * SETTINGS + pick;
    return count((check_hash(product, 1, 2) + pick) % world.sample == 0);
}

const char *sample_summary(void) {
    static char text[120];
    snprintf(text, sizeof text, "ran %llu of %llu combinations (--sample %llu)",
             (unsigned long long)cases_taken, (unsigned long long)cases_possible,
             (unsigned long long)world.sample);
    return text;
}
