/*
 * The predefined datatypes and operators, contributions for them, and the oracle: the expected result of a
 * reduction, computed in 64-bit integers.
 *
 * Contributions are whole numbers small enough that every type holds every partial result exactly,
 * so no order of reduction may change a bit. Unsigned types of 32 and 64 bits get full-width numbers,
 * which wrap.
 */
#ifndef VALUES_H
#define VALUES_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { SIGNED, UNSIGNED, FLOATING, BOOLEAN, LOGICAL, OPAQUE } scalar_kind;

typedef struct {
    scalar_kind kind;
    size_t bytes;
} scalar;

/* Operators that MPI defines on a type (MPI 4.1, 6.9.2), as a set. */
enum { NO_OPERATORS = 0, ARITHMETIC = 1, BITWISE = 2, LOGIC = 4, LOCATION = 8, COMPLEX = 16 };

typedef struct {
    const char *name;
    MPI_Datatype handle;
    scalar value;
    scalar location; /* of a complex number the imaginary part; bytes 0: not a pair */
    size_t location_offset;
    size_t extent;
    int operators;
} value_type;

typedef struct {
    const char *name;
    MPI_Op handle;
    int set; /* ARITHMETIC ... */
} value_operator;

extern const value_type value_types[];
extern const size_t value_types_count;
extern const value_operator value_operators[];
extern const size_t value_operators_count;

/* Whether the underlying MPI has this type, with the size that the oracle assumes. */
bool value_type_exists(const value_type *type);

/* Writes `count` contributions of `rank`; `salt` makes cases differ. */
void values_fill(const value_type *type, const value_operator *op, uint64_t salt, int rank,
                 void *buffer, size_t count);

/*
 * Checks `count` elements in `buffer` against the reduction over ranks 0 up to `ranks`.
 * Reports the first that differs, and stops there.
 */
bool values_check(const value_type *type, const value_operator *op, uint64_t salt, int ranks,
                  const void *buffer, size_t count);

/* The same for the elements from `first` on of that reduction. */
bool values_check_block(const value_type *type, const value_operator *op, uint64_t salt, int ranks,
                        const void *buffer, size_t first, size_t count);

#endif
