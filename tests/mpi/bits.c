/*
 * Float sums whose value depends on the order of addition, with ranks that arrive in an order of
 * their own each time. All ranks must get the same bits; run.py compares two runs as well.
 */
#include "check.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COUNT_MAX = 20000, ROUNDS = 4 };

static uint64_t hash_bytes(const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

/* Numbers of very different size: every other order of addition gives other bits. */
static double contribution(int rank, int i) {
    const uint64_t bits = check_hash(3, rank, i);
    const double fraction = (double)(bits >> 12) / 4503599627370496.0 - 0.5;
    const double scales[] = {1e-9, 1.0, 1e7, 1e12};
    return fraction * scales[bits & 3];
}

/* Not from the seed: what is shuffled must differ from run to run. */
static void arrive_whenever(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    check_sleep_us((long)((uint64_t)now.tv_nsec / 64 * (uint64_t)(world.rank + 1) % 2000));
}

static void sum_one(const char *name, MPI_Datatype type, size_t bytes, const void *mine, int count) {
    static char sum[COUNT_MAX * sizeof(double)];
    uint64_t first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        check_case("%s x %d, round %d", name, count, round);
        arrive_whenever();
        MPI_Allreduce(mine, sum, count, type, MPI_SUM, MPI_COMM_WORLD);
        uint64_t hash = hash_bytes(sum, bytes * (size_t)count);
        first = round == 0 ? hash : first;
        check_that(hash == first, "another arrival gave other bits");
        uint64_t least = 0;
        uint64_t most = 0;
        PMPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
        PMPI_Allreduce(&hash, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
        check_that(least == most, "ranks have different bits");
    }
    if (world.rank == 0) {
        printf("bits %s %d %016llx\n", name, count, (unsigned long long)first);
    }
}

int main(int argc, char **argv) {
    static double doubles[COUNT_MAX];
    static float floats[COUNT_MAX];
    const int counts[] = {1, 2, 100, 3000, COUNT_MAX};
    check_start(argc, argv, "bits", MPI_THREAD_SINGLE);
    for (int i = 0; i < COUNT_MAX; i++) {
        doubles[i] = contribution(world.rank, i);
        floats[i] = (float)doubles[i];
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        sum_one("double", MPI_DOUBLE, sizeof(double), doubles, counts[i]);
        sum_one("float", MPI_FLOAT, sizeof(float), floats, counts[i]);
    }
    return check_finish();
}
