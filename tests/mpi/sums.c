/*
 * With TRIBUTARY_SUMS=exact every sum of floats is the real sum, rounded once: blocking, nonblocking, persistent, in place, whole,
 * of ranks before, to one rank and in blocks. The sums are also added up in integers of 128 bits, which hold them exactly, and
 * rounded by the compiler's conversion. Prints a line with a hash of all results: it is the same wherever the ranks are.
 *
 * With SUMS=info the setting is left out, and a communicator asks for it by its info; one that is made like it has it too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "init.h"

enum { LONGEST = 5000, STEPS = 60, SHIFT = 40 };

typedef __int128 fixed; /* in units of 2^-SHIFT */

typedef struct {
    int step;
    int elements;
    int spread; /* binary places between the largest and the smallest value */
} vector;

static double mine[LONGEST], got[LONGEST];
static float mine_single[LONGEST], got_single[LONGEST];
static uint64_t hash = 14695981039346656037ULL;

static void add_to_hash(const void *bytes, size_t count) {
    for (size_t at = 0; at < count; at++) {
        hash = (hash ^ ((const unsigned char *)bytes)[at]) * 1099511628211ULL;
    }
}

/* The value of a rank, in units of 2^-SHIFT: `bits` significant bits, shifted by something within the spread. */
static fixed value_of(const vector *of, int rank, int at, int bits) {
    uint64_t random = check_hash((uint64_t)of->step, (uint64_t)rank, (uint64_t)at);
    uint64_t place = check_hash(random, 1, 2) % (uint64_t)(of->spread + 1);
    fixed value = (fixed)(random >> (64 - bits)) << place;
    return check_hash(random, 3, 4) % 2 == 0 ? value : -value;
}

static fixed sum_of(const vector *of, int ranks, int at, int bits) {
    fixed sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += value_of(of, rank, at, bits);
    }
    return sum;
}

static double rounded(fixed sum) {
    return (double)sum * (1.0 / (double)(1ULL << SHIFT));
}

static float rounded_single(fixed sum) {
    return (float)sum * (1.0F / (float)(1ULL << SHIFT));
}

static void fill(const vector *of) {
    for (int at = 0; at < of->elements; at++) {
        mine[at] = rounded(value_of(of, world.rank, at, 53));
        mine_single[at] = rounded_single(value_of(of, world.rank, at, 24));
    }
}

/* The elements from `first` on are the sums of the ranks below `ranks`. */
static void check_doubles(const vector *of, int ranks, int first, int elements, const char *what) {
    int wrong = 0;
    for (int at = 0; at < elements; at++) {
        double expected = rounded(sum_of(of, ranks, first + at, 53));
        wrong += memcmp(&expected, &got[at], sizeof expected) != 0;
    }
    check_equal(0, wrong, what);
    add_to_hash(got, (size_t)elements * sizeof *got);
}

static void check_floats(const vector *of, int ranks, int elements, const char *what) {
    int wrong = 0;
    for (int at = 0; at < elements; at++) {
        float expected = rounded_single(sum_of(of, ranks, at, 24));
        wrong += memcmp(&expected, &got_single[at], sizeof expected) != 0;
    }
    check_equal(0, wrong, what);
    add_to_hash(got_single, (size_t)elements * sizeof *got_single);
}

static MPI_Comm sums;

static MPI_Comm communicator(void) {
    const char *by = getenv("SUMS");
    MPI_Info info;
    MPI_Comm asked, made;
    if (by == NULL || strcmp(by, "info") != 0) {
        return MPI_COMM_WORLD;
    }
    MPI_Info_create(&info);
    MPI_Info_set(info, "tributary_sums", "exact");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &asked);
    MPI_Info_free(&info);
    MPI_Comm_dup(asked, &made);
    MPI_Comm_free(&asked);
    return made;
}

static void check_step(int step) {
    static const int lengths[] = {1, 2, 8, 100, 1024, LONGEST};
    vector of = {step, lengths[check_hash((uint64_t)step, 5, 6) % 6], step % 7 == 3 ? 60 : step % 5};
    int root = step % world.ranks;
    int before = world.rank + 1;
    MPI_Request requests[2];
    check_case("step %d: %d elements, %d binary places", step, of.elements, of.spread);
    fill(&of);
    MPI_Allreduce(mine, got, of.elements, MPI_DOUBLE, MPI_SUM, sums);
    check_doubles(&of, world.ranks, 0, of.elements, "allreduce");
    memcpy(got_single, mine_single, sizeof got_single);
    MPI_Allreduce(MPI_IN_PLACE, got_single, of.elements, MPI_FLOAT, MPI_SUM, sums);
    check_floats(&of, world.ranks, of.elements, "allreduce in place");
    if (of.elements % 2 == 0) {
        MPI_Iallreduce(mine, got, of.elements / 2, MPI_C_DOUBLE_COMPLEX, MPI_SUM, sums, &requests[0]);
        MPI_Iallreduce(mine_single, got_single, of.elements, MPI_FLOAT, MPI_SUM, sums, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check_doubles(&of, world.ranks, 0, of.elements, "complex numbers, nonblocking");
        check_floats(&of, world.ranks, of.elements, "nonblocking");
    }
    MPI_Reduce(mine, got, of.elements, MPI_DOUBLE, MPI_SUM, root, sums);
    if (world.rank == root) {
        check_doubles(&of, world.ranks, 0, of.elements, "reduce");
    }
    MPI_Scan(mine_single, got_single, of.elements, MPI_FLOAT, MPI_SUM, sums);
    check_floats(&of, before, of.elements, "scan");
    MPI_Exscan(mine, got, of.elements, MPI_DOUBLE, MPI_SUM, sums);
    if (world.rank > 0) {
        check_doubles(&of, world.rank, 0, of.elements, "exscan");
    }
    int block = of.elements / world.ranks;
    if (block > 0) {
        MPI_Reduce_scatter_block(mine, got, block, MPI_DOUBLE, MPI_SUM, sums);
        check_doubles(&of, world.ranks, world.rank * block, block, "reduce_scatter_block");
    }
    /* What is not a sum of floats goes its usual way. */
    double largest = world.rank;
    MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, sums);
    check_equal(world.ranks - 1, (long long)largest, "maximum");
}

static void check_persistent(void) {
    vector of = {STEPS, 64, 3};
    MPI_Request request;
    check_case("persistent");
    INIT(Allreduce)(mine, got, of.elements, MPI_DOUBLE, MPI_SUM, sums, MPI_INFO_NULL, &request);
    for (int start = 0; start < 5; start++) {
        of.step = STEPS + start;
        fill(&of);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_doubles(&of, world.ranks, 0, of.elements, "persistent allreduce");
    }
    MPI_Request_free(&request);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "sums", MPI_THREAD_SINGLE);
    sums = communicator();
    for (int step = 0; step < STEPS; step++) {
        check_step(step);
    }
    check_persistent();
    uint64_t *hashes = check_memory((size_t)world.ranks * sizeof *hashes);
    MPI_Gather(&hash, 1, MPI_UINT64_T, hashes, 1, MPI_UINT64_T, 0, sums);
    for (int rank = 0; world.rank == 0 && rank < world.ranks; rank++) {
        printf("bits rank %d of %d: %016llx\n", rank, world.ranks, (unsigned long long)hashes[rank]);
    }
    free(hashes);
    if (sums != MPI_COMM_WORLD) {
        MPI_Comm_free(&sums);
    }
    return check_finish();
}
