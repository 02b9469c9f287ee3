/*
 * A NaN at any one rank makes the minimum and the maximum a NaN at all ranks, on every path and for vectors of every
 * length; and in pairs it is taken before every number, with its index.
 */
#include <math.h>

#include "check.h"

enum { LONGEST = 40000 };

typedef struct {
    double value;
    int index;
} pair;

static double mine[LONGEST];
static double got[LONGEST];
static float mine_single[LONGEST];
static float got_single[LONGEST];

/* Every third element of the rank is a NaN. */
static void check_numbers(int with_nan, int elements, MPI_Op op) {
    int wrong = 0;
    double best = op == MPI_MIN ? 1 : world.ranks;
    for (int at = 0; at < elements; at++) {
        mine[at] = world.rank == with_nan && at % 3 == 0 ? NAN : world.rank + 1;
        mine_single[at] = (float)mine[at];
    }
    MPI_Allreduce(mine, got, elements, MPI_DOUBLE, op, MPI_COMM_WORLD);
    MPI_Allreduce(mine_single, got_single, elements, MPI_FLOAT, op, MPI_COMM_WORLD);
    for (int at = 0; at < elements; at++) {
        bool is_nan = at % 3 == 0;
        wrong += is_nan ? !isnan(got[at]) : got[at] != best;
        wrong += is_nan ? !isnan(got_single[at]) : got_single[at] != (float)best;
    }
    check_equal(0, wrong, op == MPI_MIN ? "MPI_MIN" : "MPI_MAX");
}

static void check_pairs(int with_nan, MPI_Op op) {
    pair own = {world.rank == with_nan || world.rank == with_nan + 1 ? NAN : world.rank, world.rank};
    pair best;
    MPI_Allreduce(&own, &best, 1, MPI_DOUBLE_INT, op, MPI_COMM_WORLD);
    check_equal(1, isnan(best.value), "a pair's value");
    check_equal(with_nan, best.index, "a pair's index");
}

int main(int argc, char **argv) {
    static const int lengths[] = {1, 7, 1000, LONGEST};
    check_start(argc, argv, "floats", MPI_THREAD_SINGLE);
    for (int with_nan = 0; with_nan < world.ranks; with_nan++) {
        for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
            check_case("NaN at rank %d, %d elements", with_nan, lengths[at]);
            check_numbers(with_nan, lengths[at], MPI_MIN);
            check_numbers(with_nan, lengths[at], MPI_MAX);
        }
        check_pairs(with_nan, MPI_MINLOC);
        check_pairs(with_nan, MPI_MAXLOC);
    }
    return check_finish();
}
