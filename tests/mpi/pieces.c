/*
 * Long broadcasts of elements with gaps, of which every rank may have another datatype: all arrive, nothing else is
 * written to, and no rank needs memory for a copy of all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

/* Numbers in a vector: several pieces, and a part of one. Room for each is twice that. */
enum { NUMBERS = 4 * 1024 * 1024 + 1048, BLOCKS = 4, MARK = -7 };
/* A copy of the long vector, and what may be used beyond what is. */
#define LONG_BYTES ((size_t)192 << 20)
#define SPARE_BYTES ((size_t)96 << 20)

static int *numbers; /* with gaps: 2 * NUMBERS */

/* A datatype, and how many of it make NUMBERS numbers in every second place of `numbers`. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    int count;
    bool is_dense; /* NUMBERS in a row instead */
} layout;

static MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    return type;
}

static MPI_Datatype indexed(bool in_bytes, bool equal) {
    static int lengths[NUMBERS / 2];
    static int places[NUMBERS / 2];
    static MPI_Aint bytes[NUMBERS / 2];
    MPI_Datatype pairs;
    MPI_Datatype type;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pairs);
    for (int at = 0; at < NUMBERS / 2; at++) {
        lengths[at] = 1;
        bytes[at] = (MPI_Aint)sizeof(int) * 4 * at;
    }
    if (in_bytes && equal) {
        MPI_Type_create_hindexed_block(NUMBERS / 2, 1, bytes, pairs, &type);
    } else if (in_bytes) {
        MPI_Type_create_hindexed(NUMBERS / 2, lengths, bytes, pairs, &type);
    } else {
        static int once[2] = {1, 1};
        MPI_Datatype half;
        for (int at = 0; at < NUMBERS / 2; at++) {
            places[at] = 2 * at;
        }
        MPI_Type_indexed(NUMBERS / 2, lengths, places, MPI_INT, &half);
        MPI_Datatype both[2] = {half, half};
        MPI_Aint starts[2] = {0, (MPI_Aint)sizeof(int) * NUMBERS};
        MPI_Type_create_struct(2, once, starts, both, &type);
        MPI_Type_free(&half);
    }
    MPI_Type_free(&pairs);
    return committed(type);
}

static layout layout_of(int number) {
    MPI_Datatype inner;
    MPI_Datatype type;
    switch (number) {
    case 0:
        MPI_Type_vector(NUMBERS, 1, 2, MPI_INT, &type);
        return (layout){"a vector", committed(type), 1, false};
    case 1:
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
        return (layout){"many resized", committed(type), NUMBERS, false};
    case 2:
        MPI_Type_vector(NUMBERS / BLOCKS, 1, 2, MPI_INT, &inner);
        MPI_Type_create_hvector(BLOCKS, 1, (MPI_Aint)sizeof(int) * 2 * (NUMBERS / BLOCKS), inner, &type);
        MPI_Type_free(&inner);
        return (layout){"long vectors in a vector", committed(type), 1, false};
    case 3:
        return (layout){"offsets in bytes", indexed(true, false), 1, false};
    case 4:
        return (layout){"equal blocks", indexed(true, true), 1, false};
    case 5:
        return (layout){"a struct of indexed ones", indexed(false, false), 1, false};
    case 6:
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &inner);
        MPI_Type_contiguous(NUMBERS, inner, &type);
        MPI_Type_free(&inner);
        MPI_Type_dup(type, &inner);
        MPI_Type_free(&type);
        return (layout){"a duplicate of a row", committed(inner), 1, false};
    default:
        MPI_Type_contiguous(NUMBERS, MPI_INT, &type);
        return (layout){"a dense row", committed(type), 1, true};
    }
}
enum { LAYOUTS = 8 };

static int value(int round, int at) { return round * 1000003 + at; }

static void fill(const layout *of, bool is_root, int round) {
    for (int at = 0; at < 2 * NUMBERS; at++) {
        numbers[at] = MARK;
    }
    for (int at = 0; is_root && at < NUMBERS; at++) {
        numbers[of->is_dense ? at : 2 * at] = value(round, at);
    }
}

static void check(const layout *of, int round) {
    int wrong = 0;
    for (int at = 0; at < NUMBERS; at++) {
        wrong += numbers[of->is_dense ? at : 2 * at] != value(round, at);
        wrong += numbers[of->is_dense ? NUMBERS + at : 2 * at + 1] != MARK;
    }
    check_equal(0, wrong, of->name);
}

static void broadcast(int round) {
    int root = round % world.ranks;
    layout own = layout_of((round + 3 * world.rank) % LAYOUTS);
    check_case("round %d: %s", round, own.name);
    fill(&own, world.rank == root, round);
    check_equal(MPI_SUCCESS, MPI_Bcast(numbers, own.count, own.type, root, MPI_COMM_WORLD), "MPI_Bcast");
    check(&own, round);
    MPI_Type_free(&own.type);
}

static size_t used_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    check_that(file != NULL && fscanf(file, "%lu", &pages) == 1, "/proc/self/statm can't be read");
    fclose(file);
    return pages * 4096;
}

/* There is no memory for a copy. */
static void broadcast_without_memory(void) {
    size_t elements = LONG_BYTES / sizeof(double);
    MPI_Datatype type;
    double *vector = check_memory(2 * LONG_BYTES);
    check_case("no memory for a copy");
    for (size_t at = 0; at < elements; at++) {
        vector[2 * at] = world.rank == 0 ? (double)at : -1;
        vector[2 * at + 1] = MARK;
    }
    MPI_Type_vector((int)elements, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Barrier(MPI_COMM_WORLD);
    struct rlimit before;
    getrlimit(RLIMIT_AS, &before);
    struct rlimit tight = {used_bytes() + SPARE_BYTES, before.rlim_max};
    check_equal(0, setrlimit(RLIMIT_AS, &tight), "setrlimit");
    check_equal(MPI_SUCCESS, MPI_Bcast(vector, 1, type, 0, MPI_COMM_WORLD), "MPI_Bcast");
    setrlimit(RLIMIT_AS, &before);
    int wrong = 0;
    for (size_t at = 0; at < elements; at++) {
        wrong += vector[2 * at] != (double)at || vector[2 * at + 1] != MARK;
    }
    check_equal(0, wrong, "numbers");
    MPI_Type_free(&type);
    free(vector);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "pieces", MPI_THREAD_SINGLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    numbers = check_memory(sizeof *numbers * 2 * NUMBERS);
    for (int round = 0; round < LAYOUTS; round++) {
        broadcast(round);
    }
    free(numbers);
    broadcast_without_memory();
    if (world.rank == 0) {
        printf("calls %d\n", LAYOUTS + 2);
    }
    return check_finish();
}
