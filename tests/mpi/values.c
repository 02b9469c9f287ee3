#include "values.h"

#include <float.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "check.h"

#define ALL_OF_C (ARITHMETIC | BITWISE | LOGIC)
#define ALL_OF_FORTRAN (ARITHMETIC | BITWISE)

/* The outermost macro makes the name: in some MPIs the handle is a macro itself. */
#define ROW(name, handle, ctype, kind, operators)                                                  \
    {name, handle, {kind, sizeof(ctype)}, {OPAQUE, 0}, 0, sizeof(ctype), operators}
#define SCALAR(handle, ctype, kind, operators) ROW(#handle, handle, ctype, kind, operators)
#define C_SIGNED(handle, ctype) ROW(#handle, handle, ctype, SIGNED, ALL_OF_C)
#define C_UNSIGNED(handle, ctype) ROW(#handle, handle, ctype, UNSIGNED, ALL_OF_C)

typedef struct { float value; int at; } float_int;
typedef struct { double value; int at; } double_int;
typedef struct { long value; int at; } long_int;
typedef struct { int value; int at; } int_int;
typedef struct { short value; int at; } short_int;
typedef struct { long double value; int at; } long_double_int;
typedef struct { float value; float at; } float_float;
typedef struct { double value; double at; } double_double;

#define PAIR(handle, layout, kind, at_kind)                                                        \
    {#handle,                                                                                      \
     handle,                                                                                       \
     {kind, sizeof(((layout *)0)->value)},                                                         \
     {at_kind, sizeof(((layout *)0)->at)},                                                         \
     offsetof(layout, at),                                                                         \
     sizeof(layout),                                                                               \
     LOCATION}

#define COMPLEX_OF(handle, part)                                                                   \
    {#handle,                                                                                      \
     handle,                                                                                       \
     {FLOATING, sizeof(part)},                                                                     \
     {FLOATING, sizeof(part)},                                                                     \
     sizeof(part),                                                                                 \
     2 * sizeof(part),                                                                             \
     COMPLEX}

const value_type value_types[] = {
    C_SIGNED(MPI_SIGNED_CHAR, signed char),
    C_SIGNED(MPI_SHORT, short),
    C_SIGNED(MPI_INT, int),
    C_SIGNED(MPI_LONG, long),
    C_SIGNED(MPI_LONG_LONG_INT, long long),
    C_SIGNED(MPI_LONG_LONG, long long),
    C_UNSIGNED(MPI_UNSIGNED_CHAR, unsigned char),
    C_UNSIGNED(MPI_UNSIGNED_SHORT, unsigned short),
    C_UNSIGNED(MPI_UNSIGNED, unsigned),
    C_UNSIGNED(MPI_UNSIGNED_LONG, unsigned long),
    C_UNSIGNED(MPI_UNSIGNED_LONG_LONG, unsigned long long),
    C_SIGNED(MPI_INT8_T, int8_t),
    C_SIGNED(MPI_INT16_T, int16_t),
    C_SIGNED(MPI_INT32_T, int32_t),
    C_SIGNED(MPI_INT64_T, int64_t),
    C_UNSIGNED(MPI_UINT8_T, uint8_t),
    C_UNSIGNED(MPI_UINT16_T, uint16_t),
    C_UNSIGNED(MPI_UINT32_T, uint32_t),
    C_UNSIGNED(MPI_UINT64_T, uint64_t),
    SCALAR(MPI_AINT, MPI_Aint, SIGNED, ALL_OF_FORTRAN),
    SCALAR(MPI_OFFSET, MPI_Offset, SIGNED, ALL_OF_FORTRAN),
    SCALAR(MPI_COUNT, MPI_Count, SIGNED, ALL_OF_FORTRAN),
    SCALAR(MPI_FLOAT, float, FLOATING, ARITHMETIC),
    SCALAR(MPI_DOUBLE, double, FLOATING, ARITHMETIC),
    SCALAR(MPI_LONG_DOUBLE, long double, FLOATING, ARITHMETIC),
    SCALAR(MPI_C_BOOL, _Bool, BOOLEAN, LOGIC),
    SCALAR(MPI_BYTE, unsigned char, UNSIGNED, BITWISE),
    SCALAR(MPI_CHAR, char, OPAQUE, NO_OPERATORS),
    SCALAR(MPI_WCHAR, wchar_t, OPAQUE, NO_OPERATORS),
    SCALAR(MPI_PACKED, char, OPAQUE, NO_OPERATORS),
    PAIR(MPI_FLOAT_INT, float_int, FLOATING, SIGNED),
    PAIR(MPI_DOUBLE_INT, double_int, FLOATING, SIGNED),
    PAIR(MPI_LONG_INT, long_int, SIGNED, SIGNED),
    PAIR(MPI_2INT, int_int, SIGNED, SIGNED),
    PAIR(MPI_SHORT_INT, short_int, SIGNED, SIGNED),
    PAIR(MPI_LONG_DOUBLE_INT, long_double_int, FLOATING, SIGNED),
    /* Fortran's, as far as this MPI offers them to C. */
    SCALAR(MPI_INTEGER, int32_t, SIGNED, ALL_OF_FORTRAN),
    SCALAR(MPI_REAL, float, FLOATING, ARITHMETIC),
    SCALAR(MPI_DOUBLE_PRECISION, double, FLOATING, ARITHMETIC),
    SCALAR(MPI_LOGICAL, int32_t, LOGICAL, LOGIC),
    SCALAR(MPI_CHARACTER, char, OPAQUE, NO_OPERATORS),
    PAIR(MPI_2INTEGER, int_int, SIGNED, SIGNED),
    PAIR(MPI_2REAL, float_float, FLOATING, FLOATING),
    PAIR(MPI_2DOUBLE_PRECISION, double_double, FLOATING, FLOATING),
    COMPLEX_OF(MPI_C_FLOAT_COMPLEX, float),
    COMPLEX_OF(MPI_C_DOUBLE_COMPLEX, double),
    COMPLEX_OF(MPI_C_LONG_DOUBLE_COMPLEX, long double),
    COMPLEX_OF(MPI_CXX_FLOAT_COMPLEX, float),
    COMPLEX_OF(MPI_CXX_DOUBLE_COMPLEX, double),
    COMPLEX_OF(MPI_CXX_LONG_DOUBLE_COMPLEX, long double),
    COMPLEX_OF(MPI_COMPLEX, float),
    COMPLEX_OF(MPI_DOUBLE_COMPLEX, double),
#ifdef MPI_COMPLEX8
    COMPLEX_OF(MPI_COMPLEX8, float),
    COMPLEX_OF(MPI_COMPLEX16, double),
#endif
#ifdef MPI_INTEGER1
    SCALAR(MPI_INTEGER1, int8_t, SIGNED, ALL_OF_FORTRAN),
#endif
#ifdef MPI_INTEGER2
    SCALAR(MPI_INTEGER2, int16_t, SIGNED, ALL_OF_FORTRAN),
#endif
#ifdef MPI_INTEGER4
    SCALAR(MPI_INTEGER4, int32_t, SIGNED, ALL_OF_FORTRAN),
#endif
#ifdef MPI_INTEGER8
    SCALAR(MPI_INTEGER8, int64_t, SIGNED, ALL_OF_FORTRAN),
#endif
#ifdef MPI_REAL4
    SCALAR(MPI_REAL4, float, FLOATING, ARITHMETIC),
#endif
#ifdef MPI_REAL8
    SCALAR(MPI_REAL8, double, FLOATING, ARITHMETIC),
#endif
};
const size_t value_types_count = sizeof value_types / sizeof value_types[0];

const value_operator value_operators[] = {
    {"MPI_SUM", MPI_SUM, ARITHMETIC | COMPLEX}, {"MPI_PROD", MPI_PROD, ARITHMETIC | COMPLEX},
    {"MPI_MIN", MPI_MIN, ARITHMETIC},  {"MPI_MAX", MPI_MAX, ARITHMETIC},
    {"MPI_BAND", MPI_BAND, BITWISE},   {"MPI_BOR", MPI_BOR, BITWISE},
    {"MPI_BXOR", MPI_BXOR, BITWISE},   {"MPI_LAND", MPI_LAND, LOGIC},
    {"MPI_LOR", MPI_LOR, LOGIC},       {"MPI_LXOR", MPI_LXOR, LOGIC},
    {"MPI_MINLOC", MPI_MINLOC, LOCATION}, {"MPI_MAXLOC", MPI_MAXLOC, LOCATION},
};
const size_t value_operators_count = sizeof value_operators / sizeof value_operators[0];

/* One element; unsigned numbers are kept in the same bits. */
typedef struct {
    int64_t value;
    int64_t location;
} element;

bool value_type_exists(const value_type *type) {
    int bytes = 0;
    if (type->handle == MPI_DATATYPE_NULL) {
        return false;
    }
    if (PMPI_Type_size(type->handle, &bytes) != MPI_SUCCESS) {
        return false;
    }
    return (size_t)bytes == type->value.bytes + type->location.bytes;
}

/* An x87 long double is followed by 6 bytes of padding. */
enum { LONG_DOUBLE_BYTES = sizeof(long double) == 16 && LDBL_MANT_DIG == 64
                               ? 10
                               : sizeof(long double) };

static void store_scalar(scalar layout, int64_t value, unsigned char *at) {
    if (layout.kind == BOOLEAN) {
        *at = value != 0;
    } else if (layout.kind != FLOATING) {
        memcpy(at, &value, layout.bytes); /* little-endian: the low bytes come first */
    } else if (layout.bytes == sizeof(float)) {
        float number = (float)value;
        memcpy(at, &number, sizeof number);
    } else if (layout.bytes == sizeof(double)) {
        double number = (double)value;
        memcpy(at, &number, sizeof number);
    } else {
        long double number = (long double)value;
        memcpy(at, &number, LONG_DOUBLE_BYTES);
    }
}

static void store(const value_type *type, element value, unsigned char *at) {
    store_scalar(type->value, value.value, at);
    if (type->location.bytes > 0) {
        store_scalar(type->location, value.location, at + type->location_offset);
    }
}

static int64_t signed_bits(uint64_t bits, int width) {
    return (int64_t)(bits << (64 - width)) >> (64 - width);
}

static bool is_one_of(MPI_Op op, MPI_Op first, MPI_Op second) { return op == first || op == second; }

/* Sums of up to 15 of these fit; products of any number do, as at most three ranks give a 2. */
static int64_t arithmetic_contribution(const value_type *type, MPI_Op op, uint64_t bits, int rank,
                                       size_t index) {
    if (op == MPI_PROD) {
        int64_t sign = bits & 1 && type->value.kind != UNSIGNED ? -1 : 1;
        return (rank + index) % 5 == 0 && rank < 15 ? 2 * sign : sign;
    }
    int width = (int)(8 * type->value.bytes);
    if (type->value.kind == UNSIGNED) {
        /* Open MPI 5.0's vector code saturates unsigned sums of 8 and 16 bits: stay below the limit. */
        bool narrow = op == MPI_SUM && width <= 16;
        return (int64_t)(narrow ? bits & ((1ULL << (width - 4)) - 1) : bits);
    }
    if (type->value.kind == FLOATING) {
        return signed_bits(bits, 12);
    }
    if (type->handle == MPI_OFFSET) { /* Open MPI 5.0 compares it as if it were unsigned */
        return (int64_t)(bits >> 8);
    }
    return signed_bits(bits, op == MPI_SUM ? width - 4 : width);
}

/* A product's are powers of i, a few of them doubled; so products of any number fit. */
static element complex_contribution(MPI_Op op, uint64_t bits, int rank, size_t index) {
    if (op == MPI_SUM) {
        return (element){signed_bits(bits, 12), signed_bits(bits >> 12, 12)};
    }
    static const int64_t power[5] = {1, 0, -1, 0, 1};
    int64_t scale = (rank + index) % 5 == 0 && rank < 15 ? 2 : 1;
    return (element){scale * power[bits % 4], scale * power[(bits + 3) % 4]};
}

static element contribution(const value_type *type, MPI_Op op, uint64_t salt, int rank,
                            size_t index) {
    uint64_t bits = check_hash(salt, (uint64_t)rank, index);
    element made = {0, 0};
    if (type->operators == COMPLEX) {
        return complex_contribution(op, bits, rank, index);
    }
    if (is_one_of(op, MPI_MINLOC, MPI_MAXLOC)) {
        made.value = (int64_t)(bits % 4) - 2; /* ties must occur */
        made.location = (int64_t)(bits >> 8) % 1000;
    } else if (is_one_of(op, MPI_LAND, MPI_LOR) || op == MPI_LXOR) {
        bool simple = type->value.kind == BOOLEAN || type->value.kind == LOGICAL;
        int64_t any = signed_bits(bits | 1, (int)(8 * type->value.bytes));
        bool holds = (bits >> 20) % (op == MPI_LOR ? 6 : op == MPI_LAND ? 7 : 2) != 0;
        made.value = (op == MPI_LOR) != holds ? (simple ? 1 : any) : 0;
    } else if (is_one_of(op, MPI_BAND, MPI_BOR) || op == MPI_BXOR) {
        made.value = (int64_t)bits;
    } else {
        made.value = arithmetic_contribution(type, op, bits, rank, index);
    }
    return made;
}

static uint64_t truncated(const value_type *type, int64_t value) {
    size_t bytes = type->value.bytes;
    return bytes >= 8 ? (uint64_t)value : (uint64_t)value & ((1ULL << (8 * bytes)) - 1);
}

static bool less(const value_type *type, int64_t left, int64_t right) {
    if (type->value.kind == UNSIGNED) {
        return truncated(type, left) < truncated(type, right);
    }
    return left < right;
}

static element with_location(element left, element right, bool right_wins) {
    if (left.value == right.value) {
        return left.location <= right.location ? left : right;
    }
    return right_wins ? right : left;
}

static element combine(const value_type *type, MPI_Op op, element left, element right) {
    int64_t a = left.value;
    int64_t b = right.value;
    if (is_one_of(op, MPI_MINLOC, MPI_MAXLOC)) {
        return with_location(left, right, op == MPI_MINLOC ? b < a : a < b);
    }
    if (type->operators == COMPLEX) {
        int64_t c = left.location;
        int64_t d = right.location;
        return op == MPI_SUM ? (element){a + b, c + d} : (element){a * b - c * d, a * d + c * b};
    }
    if (op == MPI_SUM) { return (element){(int64_t)((uint64_t)a + (uint64_t)b), 0}; }
    if (op == MPI_PROD) { return (element){(int64_t)((uint64_t)a * (uint64_t)b), 0}; }
    if (op == MPI_MIN) { return less(type, b, a) ? right : left; }
    if (op == MPI_MAX) { return less(type, a, b) ? right : left; }
    if (op == MPI_BAND) { return (element){a & b, 0}; }
    if (op == MPI_BOR) { return (element){a | b, 0}; }
    if (op == MPI_BXOR) { return (element){a ^ b, 0}; }
    if (op == MPI_LAND) { return (element){a && b, 0}; }
    if (op == MPI_LOR) { return (element){a || b, 0}; }
    return (element){!a != !b, 0};
}

static element expected_at(const value_type *type, MPI_Op op, uint64_t salt, int ranks,
                           size_t index) {
    element all = contribution(type, op, salt, 0, index);
    for (int rank = 1; rank < ranks; rank++) {
        all = combine(type, op, all, contribution(type, op, salt, rank, index));
    }
    return all;
}

void values_fill(const value_type *type, const value_operator *op, uint64_t salt, int rank,
                 void *buffer, size_t count) {
    unsigned char *at = buffer;
    memset(at, 0, count * type->extent);
    for (size_t index = 0; index < count; index++, at += type->extent) {
        store(type, contribution(type, op->handle, salt, rank, index), at);
    }
}

/* The bytes of a scalar that hold its value. */
static size_t significant_bytes(scalar layout) {
    bool extended = layout.kind == FLOATING && layout.bytes == sizeof(long double);
    return extended ? LONG_DOUBLE_BYTES : layout.bytes;
}

static bool is_zero(const unsigned char *at, size_t bytes) {
    for (size_t index = 0; index < bytes; index++) {
        if (at[index] != 0) {
            return false;
        }
    }
    return true;
}

static bool scalar_equal(scalar layout, const unsigned char *expected, const unsigned char *got) {
    if (layout.kind == LOGICAL) { /* which number is .TRUE. is the Fortran compiler's choice */
        return is_zero(expected, layout.bytes) == is_zero(got, layout.bytes);
    }
    return memcmp(expected, got, significant_bytes(layout)) == 0;
}

static void describe_scalar(scalar layout, const unsigned char *at, char *text, size_t bytes) {
    size_t used = 0;
    if (layout.kind == FLOATING && layout.bytes == sizeof(float)) {
        float number;
        memcpy(&number, at, sizeof number);
        used = (size_t)snprintf(text, bytes, "%.9g ", (double)number);
    } else if (layout.kind == FLOATING && layout.bytes == sizeof(double)) {
        double number;
        memcpy(&number, at, sizeof number);
        used = (size_t)snprintf(text, bytes, "%.17g ", number);
    }
    used += (size_t)snprintf(text + used, bytes - used, "0x");
    for (size_t index = significant_bytes(layout); index-- > 0 && used + 3 < bytes;) {
        used += (size_t)snprintf(text + used, bytes - used, "%02x", at[index]);
    }
}

static void describe(const value_type *type, const unsigned char *at, char *text, size_t bytes) {
    describe_scalar(type->value, at, text, bytes);
    if (type->location.bytes > 0) {
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, bytes - used, " at ");
        describe_scalar(type->location, at + type->location_offset, text + used, bytes - used);
    }
}

/*
 * Equal parts of complex numbers. Which zero a product has there depends on the signs of what cancelled,
 * which whole numbers do not tell.
 */
static bool part_equal(scalar layout, const unsigned char *expected, const unsigned char *got) {
    unsigned char magnitude[sizeof(long double)];
    size_t bytes = significant_bytes(layout);
    memcpy(magnitude, got, bytes);
    magnitude[bytes - 1] &= 0x7f; /* the sign is the highest bit */
    return is_zero(expected, bytes) ? is_zero(magnitude, bytes)
                                    : scalar_equal(layout, expected, got);
}

static bool element_equal(const value_type *type, const unsigned char *expected,
                          const unsigned char *got) {
    if (type->operators == COMPLEX) {
        return part_equal(type->value, expected, got) &&
               part_equal(type->location, expected + type->location_offset,
                          got + type->location_offset);
    }
    return scalar_equal(type->value, expected, got) &&
           (type->location.bytes == 0 ||
            scalar_equal(type->location, expected + type->location_offset,
                         got + type->location_offset));
}

bool values_check(const value_type *type, const value_operator *op, uint64_t salt, int ranks,
                  const void *buffer, size_t count) {
    return values_check_block(type, op, salt, ranks, buffer, 0, count);
}

bool values_check_block(const value_type *type, const value_operator *op, uint64_t salt, int ranks,
                        const void *buffer, size_t first, size_t count) {
    const unsigned char *got = buffer;
    _Alignas(16) unsigned char expected[64];
    for (size_t index = first; index < first + count; index++, got += type->extent) {
        store(type, expected_at(type, op->handle, salt, ranks, index), expected);
        if (!element_equal(type, expected, got)) {
            char wanted[96];
            char found[96];
            describe(type, expected, wanted, sizeof wanted);
            describe(type, got, found, sizeof found);
            return check_that(false, "element %zu: expected %s, got %s", index, wanted, found);
        }
    }
    return check_that(true, "all elements");
}
