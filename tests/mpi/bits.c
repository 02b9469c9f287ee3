/*
 * Floating-point sums whose value depends on the order of the terms, with ranks that arrive in another
 * order every time. All ranks must get the same bits; the runner compares repeats, and two runs.
 *
 * Delays do not depend on the seed, so that the two runs differ in timing only.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { COUNT_MAX = 20000, REPEATS = 3 };
static const int counts[] = {1, 3, 64, 1000, COUNT_MAX};

static float singles[COUNT_MAX];
static double doubles[COUNT_MAX];
static unsigned char result[COUNT_MAX * sizeof(double)];

/* Numbers of very different magnitude, so that every order of addition rounds differently. */
static double awkward(uint64_t salt, int index) {
    uint64_t bits = check_hash(salt, (uint64_t)world.rank, (uint64_t)index);
    double fraction = (double)(bits >> 11) / 9007199254740992.0 - 0.5;
    return fraction * (double)(1ULL << (bits % 40));
}

static void shuffle_arrival(void) {
    static uint64_t state;
    if (state == 0) {
        state = (uint64_t)check_now_ns() ^ ((uint64_t)getpid() << 32);
    }
    state = state * 6364136223846793005U + 1442695040888963407U;
    check_sleep_us((long)(state >> 33) % 3000);
}

static uint64_t fingerprint(const unsigned char *bytes, size_t length) { /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t at = 0; at < length; at++) {
        hash = (hash ^ bytes[at]) * 0x100000001b3U;
    }
    return hash;
}

/* Checks that all ranks have the same bits: compares them as integers, through the underlying MPI. */
static void compare_ranks(uint64_t mine) {
    uint64_t low = 0;
    uint64_t high = 0;
    PMPI_Allreduce(&mine, &low, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    PMPI_Allreduce(&mine, &high, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    check_that(low == high, "ranks hold different bits: %016llx to %016llx, here %016llx",
               (unsigned long long)low, (unsigned long long)high, (unsigned long long)mine);
}

static void sum(int count, bool wide, bool blocking) {
    MPI_Datatype type = wide ? MPI_DOUBLE : MPI_FLOAT;
    const void *source = wide ? (const void *)doubles : (const void *)singles;
    MPI_Request request = MPI_REQUEST_NULL;
    if (blocking) {
        MPI_Allreduce(source, result, count, type, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Iallreduce(source, result, count, type, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void run_case(int count, bool wide, bool blocking) {
    uint64_t salt = (uint64_t)count * 2 + wide;
    size_t length = (size_t)count * (wide ? sizeof(double) : sizeof(float));
    check_case("%s of %d %s", blocking ? "MPI_Allreduce" : "MPI_Iallreduce", count,
               wide ? "MPI_DOUBLE" : "MPI_FLOAT");
    for (int index = 0; index < count; index++) {
        doubles[index] = awkward(salt, index);
        singles[index] = (float)doubles[index];
    }
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        memset(result, 0, length);
        shuffle_arrival();
        sum(count, wide, blocking);
        uint64_t mine = fingerprint(result, length);
        compare_ranks(mine);
        if (world.rank == 0) {
            printf("bits %d %s %s %016llx repeat %d\n", count, wide ? "double" : "float",
                   blocking ? "blocking" : "nonblocking", (unsigned long long)mine, repeat);
        }
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "bits", MPI_THREAD_SINGLE);
    for (size_t at = 0; at < sizeof counts / sizeof counts[0]; at++) {
        for (int form = 0; form < 4; form++) {
            run_case(counts[at], form % 2 == 0, form / 2 == 0);
        }
    }
    return check_finish();
}
