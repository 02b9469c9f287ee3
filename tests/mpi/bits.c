/*
 * Floating-point sums whose value depends on the order of the terms, with ranks that arrive in another
 * order every time. On one host every result must be that of additions in rank order, to the last bit;
 * elsewhere, and with plain MPI, it must be as close to the sum as any order of additions is. All ranks must
 * get the same bits of an allreduce; of a reduce-scatter and a scan each has its own, of which a sum is
 * printed. The runner compares repeats, and two runs.
 *
 * Delays do not depend on the seed, so that the two runs differ in timing only.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { COUNT_MAX = 20000, REPEATS = 3, RANKS_MAX = 32 };
static const int counts[] = {1, 3, 64, 1000, COUNT_MAX};

typedef enum { ALLREDUCE, REDUCE_SCATTER, SCAN, KINDS } kind;
static const char *const kind_names[] = {"allreduce", "reduce_scatter", "scan"};

static float singles[COUNT_MAX];
static double doubles[COUNT_MAX];
static _Alignas(double) unsigned char result[COUNT_MAX * sizeof(double)];

/* What a rank adds: numbers of very different magnitude, so that every order of addition rounds differently. */
static double awkward(uint64_t salt, int rank, int index) {
    uint64_t bits = check_hash(salt, (uint64_t)rank, (uint64_t)index);
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

/* Elements that each rank gets of a reduce-scatter: the first more than the others. */
static int *deal(int count) {
    static int blocks[RANKS_MAX];
    for (int rank = 0; rank < world.ranks; rank++) {
        blocks[rank] = count / world.ranks;
    }
    blocks[0] += count % world.ranks;
    return blocks;
}

static void sum(kind what, int count, bool wide, bool blocking) {
    MPI_Datatype type = wide ? MPI_DOUBLE : MPI_FLOAT;
    const void *source = wide ? (const void *)doubles : (const void *)singles;
    const int *blocks = deal(count);
    MPI_Comm all = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    if (what == ALLREDUCE && blocking) {
        MPI_Allreduce(source, result, count, type, MPI_SUM, all);
    } else if (what == ALLREDUCE) {
        MPI_Iallreduce(source, result, count, type, MPI_SUM, all, &request);
    } else if (what == REDUCE_SCATTER && blocking) {
        MPI_Reduce_scatter(source, result, blocks, type, MPI_SUM, all);
    } else if (what == REDUCE_SCATTER) {
        MPI_Ireduce_scatter(source, result, blocks, type, MPI_SUM, all, &request);
    } else if (blocking) {
        MPI_Scan(source, result, count, type, MPI_SUM, all);
    } else {
        MPI_Iscan(source, result, count, type, MPI_SUM, all, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A sum over ranks 0 to `ranks`, in rank order, with the rounding of its type. */
static double sum_in_order(uint64_t salt, int ranks, int index, bool wide) {
    double all = wide ? awkward(salt, 0, index) : (float)awkward(salt, 0, index);
    for (int rank = 1; rank < ranks; rank++) {
        double term = awkward(salt, rank, index);
        all = wide ? all + term : (float)all + (float)term;
    }
    return all;
}

/* How far two orders of the same additions may be apart. */
static double spread(uint64_t salt, int ranks, int index, bool wide) {
    double magnitude = 0;
    for (int rank = 0; rank < ranks; rank++) {
        magnitude += fabs(awkward(salt, rank, index));
    }
    return 2 * ranks * (wide ? DBL_EPSILON : (double)FLT_EPSILON) * magnitude;
}

static bool is_on_one_host(void) {
    const char *hosts = getenv("TRIBUTARY_HOSTS");
    return hosts != NULL && strcmp(hosts, "1") == 0;
}

/* Checks this rank's result: `count` elements of it, over ranks 0 to `ranks`, from element `first` on. */
static void check_sums(uint64_t salt, int ranks, int first, int count, bool wide) {
    for (int at = 0; at < count; at++) {
        double got = wide ? ((const double *)result)[at] : (double)((const float *)result)[at];
        double expected = sum_in_order(salt, ranks, first + at, wide);
        double allowed = is_on_one_host() ? 0 : spread(salt, ranks, first + at, wide);
        if (!check_that(fabs(got - expected) <= allowed, "element %d: expected %a, got %a", first + at, expected,
                        got)) {
            return;
        }
    }
}

static void check_result(kind what, uint64_t salt, int count, bool wide) {
    if (what == ALLREDUCE) {
        check_sums(salt, world.ranks, 0, count, wide);
    } else if (what == SCAN) {
        check_sums(salt, world.rank + 1, 0, count, wide);
    } else {
        const int *blocks = deal(count);
        int first = 0;
        for (int rank = 0; rank < world.rank; rank++) {
            first += blocks[rank];
        }
        check_sums(salt, world.ranks, first, blocks[world.rank], wide);
    }
}

/* One number for the bits of all ranks, each of which has its own. */
static uint64_t sum_of_ranks(uint64_t mine) {
    uint64_t part = mine * (2 * (uint64_t)world.rank + 1);
    uint64_t all = 0;
    PMPI_Allreduce(&part, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void run_case(kind what, int count, bool wide, bool blocking) {
    uint64_t salt = (uint64_t)count * 2 + wide;
    size_t length = (size_t)count * (wide ? sizeof(double) : sizeof(float));
    check_case("%s %s of %d %s", blocking ? "blocking" : "nonblocking", kind_names[what], count,
               wide ? "MPI_DOUBLE" : "MPI_FLOAT");
    for (int index = 0; index < count; index++) {
        doubles[index] = awkward(salt, world.rank, index);
        singles[index] = (float)doubles[index];
    }
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        memset(result, 0, length);
        shuffle_arrival();
        sum(what, count, wide, blocking);
        check_result(what, salt, count, wide);
        uint64_t bits = fingerprint(result, length);
        if (what == ALLREDUCE) {
            compare_ranks(bits);
        } else {
            bits = sum_of_ranks(bits);
        }
        if (world.rank == 0) {
            printf("bits %s:%d %s %s %016llx repeat %d\n", kind_names[what], count,
                   wide ? "double" : "float", blocking ? "blocking" : "nonblocking",
                   (unsigned long long)bits, repeat);
        }
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "bits", MPI_THREAD_SINGLE);
    for (size_t at = 0; at < sizeof counts / sizeof counts[0]; at++) {
        for (int form = 0; form < 4 * KINDS; form++) {
            run_case((kind)(form / 4), counts[at], form % 2 == 0, form / 2 % 2 == 0);
        }
    }
    return check_finish();
}
