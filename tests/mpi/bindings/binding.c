/*
 * Calls every kind of collective from C and checks every result; binding.F90 and binding.py make the same
 * calls from other languages. Prints the number of collectives called, and a number that depends on every
 * result.
 *
 * Every vector holds small whole numbers, so that every order of reduction gives the same result.
 */
#include <complex.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;
static long calls, checks_made, checks_failed, results;
static const char *what;

static void fail(const char *why) {
    fprintf(stderr, "binding: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void *room(size_t elements, size_t bytes) {
    void *memory = calloc(elements, bytes);
    if (memory == NULL) {
        fail("out of memory");
    }
    return memory;
}

/* Counts one collective on the world, at one rank. */
static void called(const char *name) {
    what = name;
    calls += rank == 0;
}

static void check(double value, double expected, int at) {
    checks_made++;
    results = (results * 31 + (long)value + at) % 1000000007;
    if (value != expected) {
        if (checks_failed++ < 5) {
            printf("rank %d: %s, element %d: %g instead of %g\n", rank, what, at, value, expected);
        }
    }
}

/* The contribution of a rank to an element: 1 to 5. */
static int part(int of, int at) {
    return 1 + (of + 3 * at) % 5;
}

/* The sum of the contributions of the first `members` ranks. */
static int total(int members, int at) {
    int sum = 0;
    for (int of = 0; of < members; of++) {
        sum += part(of, at);
    }
    return sum;
}

/* The rank with the largest contribution, the lowest of them. */
static int largest_at(int at) {
    int best = 0;
    for (int of = 1; of < ranks; of++) {
        best = part(of, at) > part(best, at) ? of : best;
    }
    return best;
}

static void reductions(int n) {
    int *mine = room(n, sizeof *mine), *all = room(n, sizeof *all), root = ranks - 1;
    double *numbers = room(n, sizeof *numbers), *sums = room(n, sizeof *sums);
    for (int at = 0; at < n; at++) {
        numbers[at] = mine[at] = part(rank, at);
    }
    called("MPI_Allreduce of integers");
    MPI_Allreduce(mine, all, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(all[at], total(ranks, at), at);
    }
    called("MPI_Allreduce of reals, the largest");
    MPI_Allreduce(numbers, sums, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(sums[at], part(largest_at(at), at), at);
    }
    called("MPI_Allreduce in place");
    MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(numbers[at], total(ranks, at), at);
        numbers[at] = mine[at];
    }
    called("MPI_Reduce");
    MPI_Reduce(numbers, sums, n, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
    for (int at = 0; rank == root && at < n; at++) {
        check(sums[at], total(ranks, at), at);
    }
    called("MPI_Reduce in place");
    MPI_Reduce(rank == root ? MPI_IN_PLACE : numbers, rank == root ? numbers : sums, n, MPI_DOUBLE,
               MPI_SUM, root, MPI_COMM_WORLD);
    for (int at = 0; rank == root && at < n; at++) {
        check(numbers[at], total(ranks, at), at);
    }
    free(mine), free(all), free(numbers), free(sums);
}

static void complex_numbers(int n) {
    double complex *mine = room(n, sizeof *mine), *all = room(n, sizeof *all);
    for (int at = 0; at < n; at++) {
        mine[at] = part(rank, at) - I * part(rank, at + 1);
    }
    called("MPI_Allreduce of complex numbers");
    MPI_Allreduce(mine, all, n, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(creal(all[at]), total(ranks, at), at);
        check(cimag(all[at]), -total(ranks, at + 1), at);
    }
    free(mine), free(all);
}

static void logicals_and_pairs(int n) {
    _Bool *flags = room(n, sizeof *flags), *together = room(n, sizeof *together);
    struct { int value, index; } *pairs = room(n, sizeof *pairs), *best = room(n, sizeof *best);
    for (int at = 0; at < n; at++) {
        flags[at] = part(rank, at) != 5;
        pairs[at].value = part(rank, at);
        pairs[at].index = rank;
    }
    called("MPI_Allreduce of logicals");
    MPI_Allreduce(flags, together, n, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    called("MPI_Allreduce of pairs");
    MPI_Allreduce(pairs, best, n, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(together[at], part(largest_at(at), at) != 5, at);
        check(best[at].value, part(largest_at(at), at), at);
        check(best[at].index, largest_at(at), at);
    }
    free(flags), free(together), free(pairs), free(best);
}

static void widths(int n) {
    int64_t *wide = room(n, sizeof *wide), *wides = room(n, sizeof *wides);
    float *reals = room(n, sizeof *reals), *sums = room(n, sizeof *sums);
    for (int at = 0; at < n; at++) {
        wide[at] = (int64_t)part(rank, at) << 33;
        reals[at] = (float)part(rank, at);
    }
    called("MPI_Allreduce of 8-byte integers");
    MPI_Allreduce(wide, wides, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    called("MPI_Allreduce of 4-byte reals");
    MPI_Allreduce(reals, sums, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check((double)(wides[at] >> 33), total(ranks, at), at);
        check(sums[at], total(ranks, at), at);
    }
    free(wide), free(wides), free(reals), free(sums);
}

static void moves(int n) {
    double *vector = room(n, sizeof *vector);
    for (int at = 0; at < n; at++) {
        vector[at] = rank == 0 ? part(1, at) : 0;
    }
    called("MPI_Bcast");
    MPI_Bcast(vector, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(vector[at], part(1, at), at);
        vector[at] = rank == ranks - 1 ? part(2, at) : 0;
    }
    MPI_Aint address;
    MPI_Datatype absolute;
    MPI_Get_address(vector, &address);
    MPI_Type_create_hindexed(1, &n, &address, MPI_DOUBLE, &absolute);
    MPI_Type_commit(&absolute);
    called("MPI_Bcast from MPI_BOTTOM");
    MPI_Bcast(MPI_BOTTOM, 1, absolute, ranks - 1, MPI_COMM_WORLD);
    MPI_Type_free(&absolute);
    for (int at = 0; at < n; at++) {
        check(vector[at], part(2, at), at);
    }
    called("MPI_Barrier");
    MPI_Barrier(MPI_COMM_WORLD);
    free(vector);
}

static void nonblocking(int n) {
    int *mine = room(n, sizeof *mine), *all = room(n, sizeof *all);
    int *sums = room(n, sizeof *sums), *sent = room(n, sizeof *sent), done = 0;
    MPI_Request one, several[3];
    for (int at = 0; at < n; at++) {
        mine[at] = part(rank, at);
        sent[at] = rank == 0 ? part(3, at) : 0;
    }
    called("MPI_Iallreduce");
    MPI_Iallreduce(mine, all, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &one);
    MPI_Wait(&one, MPI_STATUS_IGNORE);
    for (int at = 0; at < n; at++) {
        check(all[at], total(ranks, at), at);
        all[at] = mine[at];
    }
    called("MPI_Ibcast");
    MPI_Ibcast(sent, n, MPI_INT, 0, MPI_COMM_WORLD, &several[0]);
    called("MPI_Ireduce");
    MPI_Ireduce(mine, sums, n, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &several[1]);
    called("MPI_Iallreduce in place");
    MPI_Iallreduce(MPI_IN_PLACE, all, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &several[2]);
    MPI_Waitall(3, several, MPI_STATUSES_IGNORE);
    for (int at = 0; at < n; at++) {
        check(sent[at], part(3, at), at);
        check(all[at], total(ranks, at), at);
        if (rank == 0) {
            check(sums[at], total(ranks, at), at);
        }
    }
    called("MPI_Ibarrier");
    MPI_Ibarrier(MPI_COMM_WORLD, &one);
    while (!done) {
        MPI_Test(&one, &done, MPI_STATUS_IGNORE);
    }
    free(mine), free(all), free(sums), free(sent);
}

static void scatters_and_scans(int n) {
    int *mine = room((size_t)n * ranks, sizeof *mine), *all = room((size_t)n * ranks, sizeof *all);
    int *block = room(n, sizeof *block);
    for (int at = 0; at < n * ranks; at++) {
        mine[at] = part(rank, at);
    }
    called("MPI_Reduce_scatter_block");
    MPI_Reduce_scatter_block(mine, block, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(block[at], total(ranks, rank * n + at), at);
    }
    called("MPI_Allgather");
    MPI_Allgather(mine, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD);
    for (int at = 0; at < n * ranks; at++) {
        check(all[at], part(at / n, at % n), at);
    }
    called("MPI_Scan");
    MPI_Scan(mine, block, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < n; at++) {
        check(block[at], total(rank + 1, at), at);
    }
    called("MPI_Exscan");
    MPI_Exscan(mine, block, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; rank > 0 && at < n; at++) {
        check(block[at], total(rank, at), at);
    }
    free(mine), free(all), free(block);
}

static void add(void *in, void *inout, int *length, MPI_Datatype *datatype) {
    if (*datatype != MPI_DOUBLE) {
        fail("the operator got another datatype");
    }
    for (int at = 0; at < *length; at++) {
        ((double *)inout)[at] += ((double *)in)[at];
    }
}

static void own_operator(int n) {
    double *mine = room(n, sizeof *mine), *all = room(n, sizeof *all);
    MPI_Op op;
    for (int at = 0; at < n; at++) {
        mine[at] = part(rank, at);
    }
    MPI_Op_create(add, 1, &op);
    called("MPI_Allreduce by an operator of the program");
    MPI_Allreduce(mine, all, n, MPI_DOUBLE, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    for (int at = 0; at < n; at++) {
        check(all[at], total(ranks, at), at);
    }
    free(mine), free(all);
}

static void communicators(int n) {
    int *mine = room(n, sizeof *mine), *all = room(n, sizeof *all), half_rank;
    MPI_Comm half, copy;
    for (int at = 0; at < n; at++) {
        mine[at] = part(rank, at);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_rank(half, &half_rank);
    what = "MPI_Allreduce on a part of the world";
    calls += half_rank == 0;
    MPI_Allreduce(mine, all, n, MPI_INT, MPI_SUM, half);
    for (int at = 0; at < n; at++) {
        int expected = 0;
        for (int of = rank % 2; of < ranks; of += 2) {
            expected += part(of, at);
        }
        check(all[at], expected, at);
    }
    MPI_Comm_free(&half);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    called("MPI_Barrier on a copy of the world");
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    free(mine), free(all);
}

int main(int argc, char **argv) {
    static const int lengths[] = {1, 3, 1000, 40000};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t round = 0; round < sizeof lengths / sizeof *lengths; round++) {
        int n = lengths[round];
        reductions(n);
        complex_numbers(n);
        logicals_and_pairs(n);
        widths(n);
        moves(n);
        nonblocking(n);
        scatters_and_scans(n);
        own_operator(n);
        communicators(n);
    }
    called("MPI_Allreduce"); /* the last one counts itself */
    long mine[4] = {calls, checks_failed, checks_made, results}, all[4];
    MPI_Allreduce(mine, all, 4, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("calls %ld\nresults %ld\nchecks %ld, %ld failed\n", all[0], all[3], all[2], all[1]);
    }
    MPI_Finalize();
    return all[1] != 0;
}
