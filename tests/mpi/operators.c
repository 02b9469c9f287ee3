/*
 * Operators of the program's own, and predefined ones whose order shows: every reduction, blocking and
 * not, in place and not, on communicators of every shape, against a loop over the ranks.
 *
 * The operators do not commute, except one; most are associative, so that any MPI must give the same
 * bits. Those that are not (sums and products of floats) are only compared bit by bit where this library
 * promises rank order: on one host, which TRIBUTARY_HOSTS says. --sample works as in collectives.c.
 */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sample.h"
#include "shapes.h"

enum { GUARD_BYTES = 64, BYTES_MAX = 1200000, RANKS_MAX = 32, PERMUTED = 250 };

/* What elements are and how two of them combine. */
typedef struct {
    const char *name;
    size_t bytes;
    /* `right` becomes `left` OP `right`. */
    void (*combine)(const void *left, void *right);
    void (*make)(void *element, uint64_t bits);
    bool (*same)(const void *wanted, const void *got); /* null: equal bytes */
    bool is_associative;
    MPI_Datatype type;
    MPI_Op op;
} algebra;

/* 2 x 2 matrices of integers that wrap. */
typedef struct { uint32_t at[4]; } matrix;

static void multiply_matrices(const void *left, void *right) {
    const uint32_t *a = ((const matrix *)left)->at;
    uint32_t *b = ((matrix *)right)->at;
    matrix product = {{a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                       a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]}};
    *(matrix *)right = product;
}

static void make_matrix(void *element, uint64_t bits) {
    matrix made = {{(uint32_t)bits | 1, (uint32_t)(bits >> 32), (uint32_t)(bits >> 16),
                    (uint32_t)(bits >> 48) | 1}};
    *(matrix *)element = made;
}

/* The hash of a string, and the factor by which it moves when another string comes behind it. */
typedef struct {
    uint64_t hash;
    uint64_t factor;
} piece;

static void concatenate(const void *left, void *right) {
    const piece *a = left;
    piece *b = right;
    *b = (piece){a->hash * b->factor + b->hash, a->factor * b->factor};
}

static void make_piece(void *element, uint64_t bits) {
    *(piece *)element = (piece){bits, 2 * (bits >> 7) + 1};
}

/* Permutations: elements longer than a cache line, and of no round length. */
typedef struct { int32_t of[PERMUTED]; } permutation;

static void compose(const void *left, void *right) {
    const permutation *first = left;
    permutation *second = right;
    permutation both;
    for (int at = 0; at < PERMUTED; at++) {
        both.of[at] = second->of[first->of[at]];
    }
    *second = both;
}

static void make_permutation(void *element, uint64_t bits) {
    int32_t *of = ((permutation *)element)->of;
    for (int at = 0; at < PERMUTED; at++) {
        of[at] = at;
    }
    for (int at = PERMUTED - 1; at > 0; at--) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        int other = (int)((bits >> 33) % (uint64_t)(at + 1));
        int32_t moved = of[at];
        of[at] = of[other];
        of[other] = moved;
    }
}

/* Needs the alignment that malloc() gives: the compiler may use instructions that fault without it. */
typedef struct { _Alignas(16) uint64_t words[2]; } __attribute__((may_alias)) aligned;

static void shift_and_add(const void *left, void *right) {
    const aligned *a = __builtin_assume_aligned(left, 16);
    aligned *b = __builtin_assume_aligned(right, 16);
    if (((uintptr_t)left | (uintptr_t)right) % 16 != 0) {
        fprintf(stderr, "operators: an operator got elements that are not aligned\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    b->words[0] = a->words[0] * b->words[1] + b->words[0];
    b->words[1] = a->words[1] * b->words[1];
}

static void make_aligned(void *element, uint64_t bits) {
    *(aligned *)element = (aligned){{bits, bits | 1}};
}

/* The largest of bytes, of the lowest rank: the one that commutes. */
static void larger_byte(const void *left, void *right) {
    if (*(const unsigned char *)left > *(unsigned char *)right) {
        *(unsigned char *)right = *(const unsigned char *)left;
    }
}

static void make_byte(void *element, uint64_t bits) { *(unsigned char *)element = (unsigned char)bits; }

/* A sum that rounds: its bits tell the order and the association. */
static void add_doubles(const void *left, void *right) { *(double *)right += *(const double *)left; }

static void make_double(void *element, uint64_t bits) {
    *(double *)element = ldexp((double)(int64_t)bits, (int)(bits % 61) - 90);
}

static void add_long_doubles(const void *left, void *right) {
    *(long double *)right += *(const long double *)left;
}

static void make_long_double(void *element, uint64_t bits) {
    long double made = ldexpl((long double)(int64_t)bits, (int)(bits % 61) - 90);
    size_t value_bytes = LDBL_MANT_DIG == 64 ? 10 : sizeof made; /* the rest is padding */
    memset(element, 0, sizeof made);
    memcpy(element, &made, value_bytes);
}

/* The padding of a long double may be anything. */
static bool same_long_double(const void *wanted, const void *got) {
    return *(const long double *)wanted == *(const long double *)got;
}

/* Products of complex numbers, of which some overflow, are infinite or are no numbers. */
static double special(uint64_t bits) {
    static const double values[8] = {0.0, -0.0, 1.5, -2.25, DBL_MAX, -INFINITY, INFINITY, NAN};
    return bits % 5 != 0 ? ldexp((double)(int64_t)bits, -62) : values[bits / 5 % 8];
}

static void multiply_doubles(const void *left, void *right) {
    double complex product = *(const double complex *)left * *(double complex *)right;
    memcpy(right, &product, sizeof product);
}

static void make_double_complex(void *element, uint64_t bits) {
    double parts[2] = {special(bits), special(bits * 0x9E3779B97F4A7C15u >> 3)};
    memcpy(element, parts, sizeof parts);
}

static void multiply_floats(const void *left, void *right) {
    float complex product = *(const float complex *)left * *(float complex *)right;
    memcpy(right, &product, sizeof product);
}

static void make_float_complex(void *element, uint64_t bits) {
    float parts[2] = {(float)special(bits), (float)special(bits * 0x9E3779B97F4A7C15u >> 3)};
    memcpy(element, parts, sizeof parts);
}

/* Numbers have the same bits; which NaN an operation makes is the processor's choice. */
static bool same_parts(const void *wanted, const void *got, size_t bytes) {
    for (int at = 0; at < 2; at++) {
        const char *left = (const char *)wanted + (size_t)at * bytes;
        const char *right = (const char *)got + (size_t)at * bytes;
        float singles[2];
        double doubles[2];
        memcpy(&singles[0], left, sizeof *singles);
        memcpy(&singles[1], right, sizeof *singles);
        memcpy(&doubles[0], left, bytes);
        memcpy(&doubles[1], right, bytes);
        bool both_nan = bytes == sizeof *singles ? isnan(singles[0]) && isnan(singles[1])
                                                 : isnan(doubles[0]) && isnan(doubles[1]);
        if (!both_nan && memcmp(left, right, bytes) != 0) {
            return false;
        }
    }
    return true;
}

static bool same_double_complex(const void *wanted, const void *got) {
    return same_parts(wanted, got, sizeof(double));
}

static bool same_float_complex(const void *wanted, const void *got) {
    return same_parts(wanted, got, sizeof(float));
}

/* MPI's form of each operator. `step` is the distance of elements, by the type's own account. */
#define USER_FUNCTION(name, combine)                                                               \
    static void name(void *in, void *inout, int *length, MPI_Datatype *type) {                     \
        MPI_Aint low;                                                                              \
        MPI_Aint step;                                                                             \
        int rank;                                                                                  \
        MPI_Type_get_extent(*type, &low, &step);                                                   \
        MPI_Comm_rank(MPI_COMM_WORLD, &rank); /* a function may call what does not communicate */  \
        for (int at = 0; at < *length; at++) {                                                     \
            combine((char *)in + at * step, (char *)inout + at * step);                            \
        }                                                                                          \
    }
USER_FUNCTION(user_matrices, multiply_matrices)
USER_FUNCTION(user_pieces, concatenate)
USER_FUNCTION(user_permutations, compose)
USER_FUNCTION(user_aligned, shift_and_add)
USER_FUNCTION(user_bytes, larger_byte)
USER_FUNCTION(user_doubles, add_doubles)

static MPI_Datatype row(int count, MPI_Datatype of) {
    MPI_Datatype made;
    MPI_Type_contiguous(count, of, &made);
    MPI_Type_commit(&made);
    return made;
}

/* The same numbers as a struct, in another order: dense, and made by no MPI_Type_contiguous. */
static MPI_Datatype two_words(void) {
    MPI_Datatype made;
    const int lengths[2] = {1, 1};
    const MPI_Aint places[2] = {offsetof(piece, factor), offsetof(piece, hash)};
    const MPI_Datatype types[2] = {MPI_UINT64_T, MPI_UINT64_T};
    MPI_Type_create_struct(2, lengths, places, types, &made);
    MPI_Type_commit(&made);
    return made;
}

static MPI_Op operator_of(MPI_User_function *function, int commutes) {
    MPI_Op made;
    MPI_Op_create(function, commutes, &made);
    return made;
}

enum { ALGEBRAS = 9 };

static void make_algebras(algebra all[ALGEBRAS]) {
    const algebra made[ALGEBRAS] = {
        {"matrices", sizeof(matrix), multiply_matrices, make_matrix, NULL, true,
         row(4, MPI_UINT32_T), operator_of(user_matrices, 0)},
        {"pieces", sizeof(piece), concatenate, make_piece, NULL, true, two_words(),
         operator_of(user_pieces, 0)},
        {"permutations", sizeof(permutation), compose, make_permutation, NULL, true,
         row(PERMUTED, MPI_INT32_T), operator_of(user_permutations, 0)},
        {"aligned", sizeof(aligned), shift_and_add, make_aligned, NULL, true,
         row(2, MPI_UINT64_T), operator_of(user_aligned, 0)},
        {"bytes", 1, larger_byte, make_byte, NULL, true, MPI_BYTE, operator_of(user_bytes, 1)},
        {"doubles", sizeof(double), add_doubles, make_double, NULL, false, MPI_DOUBLE,
         operator_of(user_doubles, 0)},
        {"long doubles", sizeof(long double), add_long_doubles, make_long_double, same_long_double,
         false, MPI_LONG_DOUBLE, MPI_SUM},
        {"double complex", sizeof(double complex), multiply_doubles, make_double_complex,
         same_double_complex, false, MPI_C_DOUBLE_COMPLEX, MPI_PROD},
        {"float complex", sizeof(float complex), multiply_floats, make_float_complex,
         same_float_complex, false, MPI_C_FLOAT_COMPLEX, MPI_PROD},
    };
    memcpy(all, made, sizeof made);
}

static void free_algebras(algebra all[ALGEBRAS]) {
    for (int at = 0; at < ALGEBRAS; at++) {
        int named = MPI_COMBINER_NAMED;
        int ignored[3];
        MPI_Type_get_envelope(all[at].type, &ignored[0], &ignored[1], &ignored[2], &named);
        if (named != MPI_COMBINER_NAMED) {
            MPI_Type_free(&all[at].type);
        }
        if (all[at].op != MPI_SUM && all[at].op != MPI_PROD) {
            MPI_Op_free(&all[at].op);
        }
    }
}

typedef enum {
    ALLREDUCE,
    REDUCE,
    SCAN,
    EXSCAN,
    SCATTER,
    SCATTER_BLOCK,
    IALLREDUCE,
    IREDUCE,
    ISCAN,
    KINDS
} kind;
static const char *const kind_names[] = {"Allreduce", "Reduce",         "Scan",
                                         "Exscan",    "Reduce_scatter", "Reduce_scatter_block",
                                         "Iallreduce", "Ireduce",       "Iscan"};

/* One reduction to run. */
typedef struct {
    kind what;
    const algebra *over;
    size_t count; /* elements that each rank contributes */
    int blocks[RANKS_MAX];
    int root;
    setting with;
} trial;

static char *source;
static char *target;
static char *expected;
static char *operand;
static bool keeps_rank_order;

static void fill(const trial *run, int rank, void *buffer) {
    char *at = buffer;
    for (size_t index = 0; index < run->count; index++, at += run->over->bytes) {
        run->over->make(at, check_hash(run->with.salt, (uint64_t)rank, index));
    }
}

/* The reduction of the contributions of the ranks below `ranks`, one after the other. */
static void reduce_serially(const trial *run, int ranks) {
    fill(run, 0, expected);
    for (int rank = 1; rank < ranks; rank++) {
        fill(run, rank, operand);
        for (size_t index = 0; index < run->count; index++) {
            run->over->combine(expected + index * run->over->bytes,
                               operand + index * run->over->bytes);
        }
        char *result = operand;
        operand = expected;
        expected = result;
    }
}

static int call(const trial *run, const void *from, void *into) {
    MPI_Datatype type = run->over->type;
    MPI_Op op = run->over->op;
    MPI_Comm comm = run->with.where->comm;
    MPI_Request request = MPI_REQUEST_NULL;
    int count = (int)run->count;
    int code = MPI_SUCCESS;
    switch (run->what) {
    case ALLREDUCE: return MPI_Allreduce(from, into, count, type, op, comm);
    case REDUCE: return MPI_Reduce(from, into, count, type, op, run->root, comm);
    case SCAN: return MPI_Scan(from, into, count, type, op, comm);
    case EXSCAN: return MPI_Exscan(from, into, count, type, op, comm);
    case SCATTER: return MPI_Reduce_scatter(from, into, run->blocks, type, op, comm);
    case SCATTER_BLOCK:
        return MPI_Reduce_scatter_block(from, into, run->blocks[0], type, op, comm);
    case IALLREDUCE: code = MPI_Iallreduce(from, into, count, type, op, comm, &request); break;
    case IREDUCE: code = MPI_Ireduce(from, into, count, type, op, run->root, comm, &request); break;
    default: code = MPI_Iscan(from, into, count, type, op, comm, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}

static bool is_scattered(const trial *run) {
    return run->what == SCATTER || run->what == SCATTER_BLOCK;
}

static bool is_rooted(const trial *run) { return run->what == REDUCE || run->what == IREDUCE; }

/* Blocks of different lengths, some of them empty, or all of one length. */
static void deal(trial *run) {
    size_t size = (size_t)run->with.where->size;
    size_t all = 0;
    for (size_t rank = 0; rank < size; rank++) {
        size_t even = run->count / size;
        size_t any = check_hash(run->with.salt, rank, 9) % (2 * even + 1);
        run->blocks[rank] = (int)(run->what == SCATTER_BLOCK ? even : any);
        all += (size_t)run->blocks[rank];
    }
    run->count = all;
}

/* How many elements of the result this rank has, from which on, and over how many ranks. */
static size_t result_of(const trial *run, size_t *first, int *ranks) {
    const shape *where = run->with.where;
    *first = 0;
    *ranks = where->size;
    if (run->what == SCAN || run->what == ISCAN || run->what == EXSCAN) {
        *ranks = where->rank + (run->what != EXSCAN);
        return *ranks > 0 ? run->count : 0;
    }
    if (is_rooted(run)) {
        return where->rank == run->root ? run->count : 0;
    }
    if (!is_scattered(run)) {
        return run->count;
    }
    for (int rank = 0; rank < where->rank; rank++) {
        *first += (size_t)run->blocks[rank];
    }
    return (size_t)run->blocks[where->rank];
}

/* Whether the bits of the result are known: by the algebra, or by the order that the library keeps. */
static bool bits_are_known(const trial *run) {
    bool may_pass = run->what >= IALLREDUCE && run->over->op != MPI_PROD;
    return run->over->is_associative || (keeps_rank_order && !may_pass);
}

static void check_result(const trial *run) {
    size_t first;
    int ranks;
    size_t bytes = run->over->bytes;
    size_t count = result_of(run, &first, &ranks);
    if (count > 0 && bits_are_known(run)) {
        reduce_serially(run, ranks);
        for (size_t at = 0; at < count; at++) {
            const char *wanted = expected + (first + at) * bytes;
            const char *got = target + at * bytes;
            bool same = run->over->same != NULL ? run->over->same(wanted, got)
                                                : memcmp(wanted, got, bytes) == 0;
            if (!check_that(same, "element %zu differs", first + at)) {
                break;
            }
        }
    }
}

/* MPICH 5.0.2 by itself ends the program there: "memcpy argument memory ranges overlap". */
static bool mpi_fails(const trial *run) {
    return run->what == SCATTER && run->with.in_place && !keeps_rank_order;
}

static void run_trial(trial run) {
    const shape *where = run.with.where;
    size_t size = (size_t)where->size;
    run.with.in_place = run.with.in_place && !mpi_fails(&run);
    if (is_scattered(&run)) {
        deal(&run);
    }
    run.root = is_rooted(&run) ? (int)(check_hash(run.with.salt, 3, 4) % size) : 0;
    bool in_place = run.with.in_place && (!is_rooted(&run) || where->rank == run.root);
    size_t bytes = run.count * run.over->bytes;
    check_case("MPI_%s of %s, count %zu on %s%s, root %d", kind_names[run.what], run.over->name,
               run.count, where->name, run.with.in_place ? " in place" : "", run.root);
    memset(target, CHECK_FILL, bytes + GUARD_BYTES);
    fill(&run, where->rank, in_place ? target : source);
    check_equal(MPI_SUCCESS, call(&run, in_place ? MPI_IN_PLACE : source, target), "return code");
    check_result(&run);
    check_filled((unsigned char *)target + bytes, GUARD_BYTES, "behind the receive buffer");
    if (!in_place) {
        fill(&run, where->rank, operand);
        check_that(memcmp(operand, source, bytes) == 0, "the send buffer was changed");
    }
}

/* Lengths in bytes: one element, a few, one piece, several pieces, more than a MiB. */
static const size_t lengths[] = {1, 300, 4000, 20000, 140000, BYTES_MAX};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static void run_all(const algebra algebras[ALGEBRAS], const shape shapes[SHAPES]) {
    uint64_t product = 0;
    for (int over = 0; over < ALGEBRAS; over++) {
        for (size_t at = 0; at < (size_t)LENGTHS * KINDS; at++) {
            trial run = {.over = &algebras[over], .what = (kind)(at % KINDS)};
            run.count = lengths[at / KINDS] / run.over->bytes;
            run.count += run.count == 0;
            product++;
            for (uint64_t pick = 0; pick < SETTINGS; pick++) {
                if (sample_takes_setting(shapes, product, pick, &run.with) &&
                    run.with.where->comm != MPI_COMM_NULL) {
                    run_trial(run);
                }
            }
        }
    }
}

/* Operators come and go, and their handles are used again: the library must not confuse them. */
static void run_short_lived(const shape *where) {
    for (int round = 0; round < 40; round++) {
        bool commutes = round % 2 == 0;
        algebra over = commutes ? (algebra){"bytes", 1, larger_byte, make_byte, NULL, true, MPI_BYTE,
                                            operator_of(user_bytes, 1)}
                                : (algebra){"pieces", sizeof(piece), concatenate, make_piece, NULL,
                                            true, two_words(), operator_of(user_pieces, 0)};
        run_trial((trial){.over = &over, .what = ALLREDUCE, .count = 5, .with = {where, false, 77}});
        MPI_Op_free(&over.op);
        if (!commutes) {
            MPI_Type_free(&over.type);
        }
    }
}

/* Ranks in turn on hosts that have several: hosts, each reduced by itself, are out of order. */
static void run_out_of_order(const algebra algebras[ALGEBRAS]) {
    shape where = {"ranks in turn", MPI_COMM_NULL, -1, 0};
    int half = (world.ranks + 1) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 2 * (world.rank % half) + world.rank / half, &where.comm);
    MPI_Comm_rank(where.comm, &where.rank);
    MPI_Comm_size(where.comm, &where.size);
    for (int over = 0; over < ALGEBRAS; over++) {
        for (int what = ALLREDUCE; what <= REDUCE; what++) {
            run_trial((trial){.over = &algebras[over], .what = (kind)what, .count = 90,
                              .with = {&where, what == REDUCE, 78}});
        }
    }
    MPI_Comm_free(&where.comm);
}

int main(int argc, char **argv) {
    shape shapes[SHAPES];
    algebra algebras[ALGEBRAS];
    check_start(argc, argv, "operators", MPI_THREAD_SINGLE);
    const char *hosts = getenv("TRIBUTARY_HOSTS");
    keeps_rank_order = hosts != NULL && strcmp(hosts, "1") == 0;
    source = check_memory(2 * BYTES_MAX + GUARD_BYTES);
    target = check_memory(2 * BYTES_MAX + GUARD_BYTES);
    expected = check_memory(2 * BYTES_MAX);
    operand = check_memory(2 * BYTES_MAX);
    make_algebras(algebras);
    shapes_make(shapes);
    run_all(algebras, shapes);
    run_short_lived(&shapes[0]);
    run_out_of_order(algebras);
    check_case("freeing operators, datatypes and communicators");
    shapes_free(shapes);
    free_algebras(algebras);
    if (world.rank == 0) {
        printf("operators: %s, %s\n", sample_summary(),
               keeps_rank_order ? "in rank order" : "in any association");
    }
    return check_finish();
}
