/*
 * A program that rounds upwards gets sums that are rounded so, from one host and from several. The variable ROUNDS
 * says whether "all" ranks do, or the "last" one alone: then no rank waits for ever.
 */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ELEMENTS = 500, ROUNDS = 3 };

int main(int argc, char **argv) {
    const char *who = getenv("ROUNDS");
    bool all = who == NULL || strcmp(who, "all") == 0;
    double source[ELEMENTS];
    double target[ELEMENTS];
    if (all) {
        fesetround(FE_UPWARD);
    }
    check_start(argc, argv, "rounding", MPI_THREAD_SINGLE);
    MPI_Comm copy;
    if (!all && world.rank == world.ranks - 1) {
        fesetround(FE_UPWARD);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int at = 0; at < ELEMENTS; at++) {
        /* The first host's ranks have numbers whose sum is exact. */
        source[at] = world.rank < 2 ? 1 - world.rank : ldexp(1, -60);
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
