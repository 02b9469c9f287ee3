/*
 * A program that rounds upwards gets sums that are rounded so, from one host and from several. The variable ROUNDS
 * says whether "all" ranks do, or the "last" one alone: then no rank waits for ever. "flush" has the last one alone
 * make zeros of subnormal numbers: the ranks of a replicated group would get different sums.
 */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ELEMENTS = 500, ROUNDS = 3 };

/* As a library does that was linked with GCC's -ffast-math. */
static void flush_subnormals(void) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 1 << 15 | 1 << 6);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | UINT64_C(1) << 24));
#endif
}

int main(int argc, char **argv) {
    const char *who = getenv("ROUNDS");
    bool all = who == NULL || strcmp(who, "all") == 0;
    bool flush = who != NULL && strcmp(who, "flush") == 0;
    double source[ELEMENTS];
    double target[ELEMENTS];
    if (all) {
        fesetround(FE_UPWARD);
    }
    check_start(argc, argv, "rounding", MPI_THREAD_SINGLE);
    MPI_Comm copy;
    if (flush && world.rank == world.ranks - 1) {
        flush_subnormals();
    } else if (!all && world.rank == world.ranks - 1) {
        fesetround(FE_UPWARD);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int at = 0; at < ELEMENTS; at++) {
        /* The first host's ranks have numbers whose sum is exact. */
        source[at] = world.rank < 2 ? 1 - world.rank : flush ? ldexp(1, -1070) : ldexp(1, -60);
    }
    for (int round = 0; round < ROUNDS; round++) {
        check_case("round %d", round);
        memset(target, 0, sizeof target);
        MPI_Allreduce(source, target, ELEMENTS, MPI_DOUBLE, MPI_SUM, copy);
        int wrong = 0;
        for (int at = 0; at < ELEMENTS; at++) {
            wrong += all ? !(target[at] > 1) : !(target[at] >= 1);
        }
        check_equal(0, wrong, "sums");
        MPI_Barrier(copy);
    }
    MPI_Comm_free(&copy);
    return check_finish();
}
