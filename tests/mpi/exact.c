/*
 * Exact sums of values from a file, of which each rank has a piece: sums and dot products, many sums at once, and accumulators that are
 * encoded, read again, merged, and added over all ranks. Each rank prints the bits of its results in one line; exact.py compares them.
 * Where TRIBUTARY_SUMS is `exact`, another line has those of an MPI_Allreduce, which are those of one number of ranks.
 *
 * With a time in seconds it computes for so long, again and again, and prints a line whenever the bits are others than before.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tributary_exact.h"

enum { SUMS = 3, COLUMNS = 8, LINE = 1024 };

/* A rank's piece of the values. */
typedef struct {
    const double *left, *right;
    const float *left_floats, *right_floats;
    uint64_t count;
} piece;

static char line[LINE];

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "exact.c: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void append(double value) {
    uint64_t bits;
    size_t length = strlen(line);
    memcpy(&bits, &value, sizeof bits);
    snprintf(line + length, LINE - length, " %016" PRIx64, bits);
}

static void *read_values(FILE *file, size_t bytes) {
    void *values = malloc(bytes);
    check(values != NULL && fread(values, 1, bytes, file) == bytes, "the file is too short");
    return values;
}

/* An accumulator of a piece, from two halves of which one has been sent as bytes. */
static tributary_exact *sum_of_halves(const double *values, size_t count) {
    unsigned char bytes[544];
    tributary_exact *sum = tributary_exact_new(TRIBUTARY_EXACT_DOUBLES);
    tributary_exact *other = tributary_exact_new(TRIBUTARY_EXACT_DOUBLES);
    size_t half = count / 2, length;
    check(tributary_exact_add_doubles(sum, values + half, count - half) == TRIBUTARY_EXACT_OK, "add");
    length = tributary_exact_encode(sum, bytes, sizeof bytes);
    check(length >= 8 && length <= sizeof bytes, "the encoding's length");
    check(tributary_exact_encode(sum, NULL, 0) == length, "the length without room");
    check(tributary_exact_decode(other, bytes, length - 1) == TRIBUTARY_EXACT_ENCODING, "a byte too few");
    check(tributary_exact_decode(other, bytes, length) == TRIBUTARY_EXACT_OK, "decode");
    tributary_exact_clear(sum);
    check(tributary_exact_add_doubles(sum, values, half) == TRIBUTARY_EXACT_OK, "add");
    check(tributary_exact_merge(sum, other) == TRIBUTARY_EXACT_OK, "merge");
    tributary_exact_free(other);
    return sum;
}

static void refuse(const double *values) {
    tributary_exact *floats = tributary_exact_new(TRIBUTARY_EXACT_FLOATS);
    tributary_exact *doubles = tributary_exact_new(TRIBUTARY_EXACT_DOUBLES);
    double result;
    check(tributary_exact_new(0) == NULL && tributary_exact_new(-1) == NULL && tributary_exact_new(260) == NULL,
          "a format that does not exist");
    check(tributary_exact_add_doubles(floats, values, 1) == TRIBUTARY_EXACT_FORMAT, "doubles in a sum of floats");
    check(tributary_exact_merge(floats, doubles) == TRIBUTARY_EXACT_FORMAT, "a merge of two formats");
    check(tributary_exact_value(floats) == 0.0, "a refused addition changed the sum");
    check(tributary_exact_arrays(7, values, NULL, 1, 1, MPI_COMM_WORLD, &result) == MPI_ERR_TYPE, "format 7");
    tributary_exact_free(floats);
    tributary_exact_free(doubles);
    tributary_exact_free(NULL);
}

static void append_results(const piece *it) {
    double result, results[SUMS];
    float result_float;
    tributary_exact *sum;

    check(tributary_exact_sum(it->left, it->count, MPI_COMM_WORLD, &result) == MPI_SUCCESS, "sum");
    append(result);
    check(tributary_exact_dot(it->left, it->right, it->count, MPI_COMM_WORLD, &result) == MPI_SUCCESS, "dot");
    append(result);
    check(tributary_exact_sum_float(it->left_floats, it->count, MPI_COMM_WORLD, &result_float) == MPI_SUCCESS, "sum");
    append(result_float);
    check(tributary_exact_dot_float(it->left_floats, it->right_floats, it->count, MPI_COMM_WORLD, &result_float) ==
              MPI_SUCCESS, "dot");
    append(result_float);
    check(tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLES, it->left, NULL, it->count / SUMS, SUMS, MPI_COMM_WORLD, results) ==
              MPI_SUCCESS, "sums");
    for (int at = 0; at < SUMS; at++) {
        append(results[at]);
    }
    check(tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLE_PRODUCTS, it->left, it->right, it->count / SUMS, SUMS,
                                 MPI_COMM_WORLD, results) == MPI_SUCCESS, "dots");
    for (int at = 0; at < SUMS; at++) {
        append(results[at]);
    }
    sum = sum_of_halves(it->left, it->count);
    check(tributary_exact_allreduce(sum, MPI_COMM_WORLD) == MPI_SUCCESS, "allreduce");
    append(tributary_exact_value(sum));
    tributary_exact_free(sum);
}

/* Ordinary sums of the program, a value of each rank in each. */
static void append_allreduce(const piece *it) {
    double results[COLUMNS];
    check(it->count >= COLUMNS, "the piece is too short");
    check(MPI_Allreduce(it->left, results, COLUMNS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "allreduce");
    for (int at = 0; at < COLUMNS; at++) {
        append(results[at]);
    }
}

/* Prints what a function computes, if it is something else than when it was last printed here. */
static void print_if_new(const char *name, void (*append_all)(const piece *), const piece *it, char *printed) {
    line[0] = '\0';
    append_all(it);
    if (strcmp(printed, line) != 0) {
        strcpy(printed, line);
        printf("%s%s\n", name, line);
        fflush(stdout);
    }
}

/* Rank 0 decides for all. */
static int is_time_left(double until) {
    int is_left = MPI_Wtime() < until;
    MPI_Bcast(&is_left, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return is_left;
}

int main(int argc, char **argv) {
    int rank, ranks;
    FILE *file;
    uint64_t count;
    double *left, *right;
    float *left_floats, *right_floats;
    const char *sums = getenv("TRIBUTARY_SUMS");
    static char bits[LINE], bits_of_mpi[LINE];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check((argc == 2 || argc == 3) && (file = fopen(argv[1], "rb")) != NULL, "exact FILE [SECONDS]");
    double until = MPI_Wtime() + (argc == 3 ? atof(argv[2]) : 0);
    check(fread(&count, sizeof count, 1, file) == 1, "the file is too short");
    left = read_values(file, count * sizeof *left);
    right = read_values(file, count * sizeof *right);
    left_floats = read_values(file, count * sizeof *left_floats);
    right_floats = read_values(file, count * sizeof *right_floats);
    fclose(file);

    /* Pieces of whole rows that differ in length. */
    uint64_t rows = count / SUMS, all = (uint64_t)ranks * ranks;
    uint64_t first = rows * rank * rank / all * SUMS, end = rows * (rank + 1) * (rank + 1) / all * SUMS;
    piece own = {left + first, right + first, left_floats + first, right_floats + first, end - first};

    do {
        print_if_new("bits", append_results, &own, bits);
        if (sums != NULL && strcmp(sums, "exact") == 0) {
            print_if_new("mpi", append_allreduce, &own, bits_of_mpi);
        }
    } while (is_time_left(until));
    refuse(left);
    free(left);
    free(right);
    free(left_floats);
    free(right_floats);
    MPI_Finalize();
    return 0;
}
