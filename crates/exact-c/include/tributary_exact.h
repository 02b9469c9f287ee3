/*
 * Exact sums: the correctly rounded value of the real sum, whatever the order of the values, the number of ranks, and who has
 * which value. The book's page on exact sums says what is guaranteed.
 *
 * Link with -ltributary_exact_c. After <mpi.h> this header also has the sums over a communicator. They call the MPI that the program
 * uses, so a program need not run under Tributary.
 */
#ifndef TRIBUTARY_EXACT_H
#define TRIBUTARY_EXACT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is summed: values, or products of two. */
enum {
    TRIBUTARY_EXACT_FLOATS = 3,
    TRIBUTARY_EXACT_DOUBLES = 4,
    TRIBUTARY_EXACT_FLOAT_PRODUCTS = 5,
    TRIBUTARY_EXACT_DOUBLE_PRODUCTS = 6
};

/* What functions return. */
enum {
    TRIBUTARY_EXACT_OK = 0,
    TRIBUTARY_EXACT_FORMAT = 1,   /* the sum, or the library, does not take such values */
    TRIBUTARY_EXACT_OVERFLOW = 2, /* more than 2^76 values */
    TRIBUTARY_EXACT_ENCODING = 3  /* the bytes are no sum of this format */
};

/* A sum that the program keeps. One thread at a time may use it. */
typedef struct tributary_exact tributary_exact;

/* An empty sum; NULL if there is no such format. */
tributary_exact *tributary_exact_new(int format);
/* Frees a sum; does nothing with NULL. */
void tributary_exact_free(tributary_exact *sum);
void tributary_exact_clear(tributary_exact *sum);
/* The format that the sum was made with. */
int tributary_exact_format(const tributary_exact *sum);

int tributary_exact_add_floats(tributary_exact *sum, const float *values, size_t count);
int tributary_exact_add_doubles(tributary_exact *sum, const double *values, size_t count);
int tributary_exact_add_float_products(tributary_exact *sum, const float *left, const float *right, size_t count);
int tributary_exact_add_double_products(tributary_exact *sum, const double *left, const double *right, size_t count);
/* Adds another sum of the same format. The two may not be the same object. After an error nothing has changed. */
int tributary_exact_merge(tributary_exact *sum, const tributary_exact *other);
/* The sum, rounded to the format's values. */
double tributary_exact_value(const tributary_exact *sum);

/* How many bytes the sum's encoding has; they are written if there is room. 544 bytes are enough for any sum. */
size_t tributary_exact_encode(const tributary_exact *sum, unsigned char *bytes, size_t room);
/* The sum becomes the encoded one. After an error nothing has changed. */
int tributary_exact_decode(tributary_exact *sum, const unsigned char *bytes, size_t count);

/* A sum as integers. Those of many ranks may be added, each to the ones in the same place, by any reduction. */
size_t tributary_exact_integers(int format);
void tributary_exact_write_integers(const tributary_exact *sum, int64_t *integers);
int tributary_exact_read_integers(tributary_exact *sum, const int64_t *integers);
/* The same of many sums at once: value number `row * sums + sum` belongs to `sum`. `right` is used for products only. */
int tributary_exact_arrays_to_integers(int format, const void *left, const void *right, size_t rows, size_t sums,
                                       int64_t *integers);
int tributary_exact_values_of_integers(int format, const int64_t *integers, size_t sums, double *values);

#ifdef MPI_VERSION

/* Sums over a communicator. All ranks call them with the same format and number of sums; each has any number of rows. They return
 * MPI_SUCCESS, or an error of MPI. */

/* `results[sum]` becomes the sum of all values of all ranks that belong to `sum`. */
static inline int tributary_exact_arrays(int format, const void *left, const void *right, size_t rows, size_t sums,
                                         MPI_Comm comm, double *results) {
    size_t count = sums * tributary_exact_integers(format);
    int64_t *integers;
    int error = MPI_ERR_ARG;
    if (count == 0 && sums != 0) {
        return MPI_ERR_TYPE;
    }
    if (count > INT32_MAX) {
        return MPI_ERR_COUNT;
    }
    integers = (int64_t *)malloc((count + 1) * sizeof *integers);
    if (integers == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (tributary_exact_arrays_to_integers(format, left, right, rows, sums, integers) == TRIBUTARY_EXACT_OK) {
        error = MPI_Allreduce(MPI_IN_PLACE, integers, (int)count, MPI_INT64_T, MPI_SUM, comm);
    }
    if (error == MPI_SUCCESS &&
        tributary_exact_values_of_integers(format, integers, sums, results) != TRIBUTARY_EXACT_OK) {
        error = MPI_ERR_OTHER;
    }
    free(integers);
    return error;
}

/* The sum of all values of all ranks. */
static inline int tributary_exact_sum(const double *values, size_t count, MPI_Comm comm, double *result) {
    return tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLES, values, NULL, count, 1, comm, result);
}

/* The sum of the products of all pairs of values of all ranks. */
static inline int tributary_exact_dot(const double *left, const double *right, size_t count, MPI_Comm comm,
                                      double *result) {
    return tributary_exact_arrays(TRIBUTARY_EXACT_DOUBLE_PRODUCTS, left, right, count, 1, comm, result);
}

static inline int tributary_exact_sum_float(const float *values, size_t count, MPI_Comm comm, float *result) {
    double sum = 0.0;
    int error = tributary_exact_arrays(TRIBUTARY_EXACT_FLOATS, values, NULL, count, 1, comm, &sum);
    *result = (float)sum;
    return error;
}

static inline int tributary_exact_dot_float(const float *left, const float *right, size_t count, MPI_Comm comm,
                                            float *result) {
    double sum = 0.0;
    int error = tributary_exact_arrays(TRIBUTARY_EXACT_FLOAT_PRODUCTS, left, right, count, 1, comm, &sum);
    *result = (float)sum;
    return error;
}

/* Adds up the sums that the ranks have, and gives the result to all. The sums have one format. */
static inline int tributary_exact_allreduce(tributary_exact *sum, MPI_Comm comm) {
    int64_t integers[136];
    int error;
    size_t count = tributary_exact_integers(tributary_exact_format(sum));
    if (count > sizeof integers / sizeof *integers) {
        return MPI_ERR_INTERN;
    }
    tributary_exact_write_integers(sum, integers);
    error = MPI_Allreduce(MPI_IN_PLACE, integers, (int)count, MPI_INT64_T, MPI_SUM, comm);
    if (error == MPI_SUCCESS && tributary_exact_read_integers(sum, integers) != TRIBUTARY_EXACT_OK) {
        error = MPI_ERR_OTHER;
    }
    return error;
}

#endif /* MPI_VERSION */

#ifdef __cplusplus
}
#endif

#endif
