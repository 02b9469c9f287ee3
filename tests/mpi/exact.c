/*
 * Exact sums of values from a file, of which each rank has a piece: sums and dot products, many sums at once, and accumulators that are
 * encoded, read again, merged, and added over all ranks. Each rank prints the bits of its results in one line; exact.py compares them.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "tributary_exact.h"

enum { SUMS = 3, LINE = 1024 };

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

int main(int argc, char **argv) {
    int rank, ranks;
    FILE *file;
    uint64_t count;
    double *left, *right, result, results[SUMS];
    float *left_floats, *right_floats, result_float;
    tributary_exact *sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(argc == 2 && (file = fopen(argv[1], "rb")) != NULL, "exact FILE");
    check(fread(&count, sizeof count, 1, file) == 1, "the file is too short");
    left = read_values(file, count * sizeof *left);
    right = read_values(file, count * sizeof *right);
    left_floats = read_values(file, count * sizeof *left_floats);
    right_floats = read_values(file, count * sizeof *right_floats);
    fclose(file);

    /* Pieces of whole rows that differ in length. */
    uint64_t rows = count / SUMS, all = (uint64_t)ranks * ranks;
    uint64_t first = rows * rank * rank / all * SUMS, end = rows * (rank + 1) * (rank + 1) / all * SUMS;
    uint64_t own = end - first;

    check(tributary_exact_sum(left + first, own, MPI_COMM_WORLD, &result) == MPI_SUCCESS, "sum");
    append(result);
    check(tributary_exact_dot(left + first, right + first, own, MPI_COMM_WORLD, &result) == MPI_SUCCESS, "dot");
    append(result);
    check(tributary_exact_sum_float(left_floats + first, own, MPI_COMM_WORLD, &result_float) == MPI_SUCCESS, "sum");
    append(result_float);
    check(tributary_exact_dot_float(left_floats + first, right_floats + first, own, MPI_COMM_WORLD, &result_float) ==
              MPI_SUCCESS, "dot");
    append(result_float);
    check(tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLES, left + first, NULL, own / SUMS, SUMS, MPI_COMM_WORLD, results) ==
              MPI_SUCCESS, "sums");
    for (int at = 0; at < SUMS; at++) {
        append(results[at]);
    }
    check(tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLE_PRODUCTS, left + first, right + first, own / SUMS, SUMS,
                                 MPI_COMM_WORLD, results) == MPI_SUCCESS, "dots");
    for (int at = 0; at < SUMS; at++) {
        append(results[at]);
    }
    sum = sum_of_halves(left + first, own);
    check(tributary_exact_allreduce(sum, MPI_COMM_WORLD) == MPI_SUCCESS, "allreduce");
    append(tributary_exact_value(sum));
    tributary_exact_free(sum);
    refuse(left);
    printf("bits%s\n", line);
    free(left);
    free(right);
    free(left_floats);
    free(right_floats);
    MPI_Finalize();
    return 0;
}
