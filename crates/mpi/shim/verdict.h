/* What the arguments of a call allow, before anybody looks at the communicator. */
#ifndef TRIBUTARY_VERDICT_H
#define TRIBUTARY_VERDICT_H

#include "tributary_core.h"

#include <stdbool.h>
#include <stdint.h>

/* One number, so that a call that is offloaded keeps it in a register. Other files use the functions below. */
typedef enum verdict {
    VERDICT_OFFLOAD,
    VERDICT_COMBINE,          /* offload it, if the core may call MPI to combine the elements */
    VERDICT_COMBINE_IN_ORDER, /* the same with an operator that does not commute */
    VERDICT_PASS,             /* the underlying MPI carries it out; the reason is added to this */
    VERDICT_END = VERDICT_PASS + TRIBUTARY_PASS_REASONS,
} verdict;

/* `reason` is one of TRIBUTARY_PASS_*. */
static inline verdict verdict_pass(uint32_t reason) {
    return (verdict)((uint32_t)VERDICT_PASS + reason);
}

static inline bool verdict_passes(verdict judged) {
    return judged >= VERDICT_PASS;
}

/* Why the underlying MPI carries a call out. */
static inline uint32_t verdict_reason(verdict judged) {
    return (uint32_t)judged - (uint32_t)VERDICT_PASS;
}

#endif
