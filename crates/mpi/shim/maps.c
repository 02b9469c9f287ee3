/*
 * The tables of datatypes and operators.
 *
 * MPI 4.1 section 6.9.2 (operators and kinds of datatypes) and 6.9.4 (pairs) define which operator
 * takes which datatype. Other combinations are left out even if an implementation allows them: it then
 * gives its own result, or raises its own error, as without this library.
 */
#include "maps.h"
#include "shim.h"
#include "tributary_core.h"

#include <stddef.h>

#define BIT(op) (1u << (op))
#define ARITHMETIC                                                                                 \
    (BIT(TRIBUTARY_SUM) | BIT(TRIBUTARY_PRODUCT) | BIT(TRIBUTARY_MIN) | BIT(TRIBUTARY_MAX))
#define BITWISE (BIT(TRIBUTARY_BIT_AND) | BIT(TRIBUTARY_BIT_OR) | BIT(TRIBUTARY_BIT_XOR))
#define LOGICAL                                                                                    \
    (BIT(TRIBUTARY_LOGICAL_AND) | BIT(TRIBUTARY_LOGICAL_OR) | BIT(TRIBUTARY_LOGICAL_XOR))
#define LOCATION (BIT(TRIBUTARY_MINLOC) | BIT(TRIBUTARY_MAXLOC))

#define COMPLEX (BIT(TRIBUTARY_SUM) | BIT(TRIBUTARY_PRODUCT))

#define C_INTEGER (ARITHMETIC | BITWISE | LOGICAL)
#define FORTRAN_INTEGER (ARITHMETIC | BITWISE)

datatype_entry maps_datatypes[1u << MAPS_DATATYPE_SLOTS_LOG2];
operator_entry maps_operators[1u << MAPS_OPERATOR_SLOTS_LOG2];
pair_entry maps_pairs[1u << MAPS_PAIR_SLOTS_LOG2];

/*
 * Whether the MPI at hand has handles that this version of MPICH was the first to have. MPICH aborts when
 * it is asked about a handle that it does not know, so nobody may ask. Every MPI with its ABI has those of
 * MPI 3.0. In Open MPI, a handle that it does not have is null; in the standard interface every MPI knows every
 * handle, and one without the datatype answers with an error.
 */
#ifdef SHIM_IS_MPICH
#define HAS_HANDLES_OF(major, minor) underlying_is_mpich_since(major, minor)
#else
#define HAS_HANDLES_OF(major, minor) true
#endif

static bool is_handle(MPI_Datatype datatype) {
    return (uintptr_t)datatype != 0 && datatype != MPI_DATATYPE_NULL;
}

#ifdef SHIM_IS_MPICH
/* MPICH's handle of a basic datatype holds its size; one of another kind (bits 30, 31) does not. */
static bool agrees_with_handle(MPI_Datatype datatype, int size_bytes) {
    uint32_t bits = (uint32_t)datatype;
    return bits >> 30 != 1 || (bits >> 8 & 0xff) == (uint32_t)size_bytes;
}
#else
static bool agrees_with_handle(MPI_Datatype datatype, int size_bytes) {
    (void)datatype, (void)size_bytes;
    return true;
}
#endif

/* Bytes of an element without gaps, or 0: the type has gaps, or this MPI does not have it. */
static uint32_t dense_size_bytes(MPI_Datatype datatype) {
    int size_bytes = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (!is_handle(datatype) || underlying.Type_size(datatype, &size_bytes) != MPI_SUCCESS ||
        underlying.Type_get_extent(datatype, &lower, &extent) != MPI_SUCCESS ||
        !agrees_with_handle(datatype, size_bytes)) {
        return 0;
    }
    return lower == 0 && extent == size_bytes && size_bytes > 0 ? (uint32_t)size_bytes : 0;
}

static void add(MPI_Datatype handle, uint32_t datatype, uint32_t mask) {
    uintptr_t key = (uintptr_t)handle;
    if (!is_handle(handle)) {
        return;
    }
    datatype_entry *entry = maps_datatype_slot(key);
    if (entry->handle == key) {
        return; /* two names of one handle */
    }
    entry->handle = key;
    entry->datatype = (uint8_t)datatype;
    entry->operators = (uint16_t)mask;
    entry->size_bytes = dense_size_bytes(handle);
}

/* A number whose width depends on the platform, such as `long` or Fortran's INTEGER. */
static void add_by_width(MPI_Datatype handle, uint32_t width8, uint32_t width16, uint32_t width32,
                         uint32_t width64, uint32_t mask) {
    uint32_t datatype = 0;
    switch (dense_size_bytes(handle)) {
    case 1: datatype = width8; break;
    case 2: datatype = width16; break;
    case 4: datatype = width32; break;
    case 8: datatype = width64; break;
    default: break;
    }
    add(handle, datatype, datatype != 0 ? mask : 0);
}

static void add_signed(MPI_Datatype handle, uint32_t mask) {
    add_by_width(handle, TRIBUTARY_I8, TRIBUTARY_I16, TRIBUTARY_I32, TRIBUTARY_I64, mask);
}

static void add_unsigned(MPI_Datatype handle, uint32_t mask) {
    add_by_width(handle, TRIBUTARY_U8, TRIBUTARY_U16, TRIBUTARY_U32, TRIBUTARY_U64, mask);
}

static void add_float(MPI_Datatype handle) {
    add_by_width(handle, 0, TRIBUTARY_F16, TRIBUTARY_F32, TRIBUTARY_F64, ARITHMETIC);
}

static void fill_c_numbers(void) {
    add_signed(MPI_SIGNED_CHAR, C_INTEGER);
    add_signed(MPI_SHORT, C_INTEGER);
    add_signed(MPI_INT, C_INTEGER);
    add_signed(MPI_LONG, C_INTEGER);
    add_signed(MPI_LONG_LONG_INT, C_INTEGER);
    add_signed(MPI_INT8_T, C_INTEGER);
    add_signed(MPI_INT16_T, C_INTEGER);
    add_signed(MPI_INT32_T, C_INTEGER);
    add_signed(MPI_INT64_T, C_INTEGER);
    add_unsigned(MPI_UNSIGNED_CHAR, C_INTEGER);
    add_unsigned(MPI_UNSIGNED_SHORT, C_INTEGER);
    add_unsigned(MPI_UNSIGNED, C_INTEGER);
    add_unsigned(MPI_UNSIGNED_LONG, C_INTEGER);
    add_unsigned(MPI_UNSIGNED_LONG_LONG, C_INTEGER);
    add_unsigned(MPI_UINT8_T, C_INTEGER);
    add_unsigned(MPI_UINT16_T, C_INTEGER);
    add_unsigned(MPI_UINT32_T, C_INTEGER);
    add_unsigned(MPI_UINT64_T, C_INTEGER);
    add_float(MPI_FLOAT);
    add_float(MPI_DOUBLE);
#if defined(MPIX_C_FLOAT16) && !defined(OPEN_MPI) /* Open MPI reduces it only on some machines */
    if (HAS_HANDLES_OF(3, 4)) {
        add_float(MPIX_C_FLOAT16);
    }
#endif
#ifdef MPIX_BFLOAT16
    if (HAS_HANDLES_OF(5, 0) && dense_size_bytes(MPIX_BFLOAT16) == 2) {
        add(MPIX_BFLOAT16, TRIBUTARY_BF16, ARITHMETIC);
    }
#endif
}

/* Logical results are 0 and 1 on any nonzero input, here as in both MPIs. */
static void fill_other_kinds(void) {
    add_unsigned(MPI_C_BOOL, LOGICAL);
    add_unsigned(MPI_CXX_BOOL, LOGICAL);
    add_unsigned(MPI_BYTE, BITWISE);
    add_signed(MPI_AINT, FORTRAN_INTEGER);
    add_signed(MPI_OFFSET, FORTRAN_INTEGER);
    add_signed(MPI_COUNT, FORTRAN_INTEGER);
}

static void fill_fortran(void) {
    add_signed(MPI_INTEGER, FORTRAN_INTEGER);
    add_float(MPI_REAL);
    add_float(MPI_DOUBLE_PRECISION);
    add_signed(MPI_LOGICAL, LOGICAL);
#ifdef MPI_INTEGER1
    add_signed(MPI_INTEGER1, FORTRAN_INTEGER);
    add_signed(MPI_INTEGER2, FORTRAN_INTEGER);
    add_signed(MPI_INTEGER4, FORTRAN_INTEGER);
    add_signed(MPI_INTEGER8, FORTRAN_INTEGER);
#endif
#ifdef MPI_LOGICAL1
    if (HAS_HANDLES_OF(5, 0)) {
        add_signed(MPI_LOGICAL1, LOGICAL);
        add_signed(MPI_LOGICAL2, LOGICAL);
        add_signed(MPI_LOGICAL4, LOGICAL);
        add_signed(MPI_LOGICAL8, LOGICAL);
    }
#endif
#ifdef MPI_REAL2
    if (HAS_HANDLES_OF(4, 3)) {
        add_float(MPI_REAL2);
    }
#endif
#ifdef MPI_REAL4
    add_float(MPI_REAL4);
    add_float(MPI_REAL8);
#endif
}

/* A pair is recognised by the extent of its C struct. */
static void add_pair(MPI_Datatype handle, uint32_t datatype, size_t expected_extent) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (is_handle(handle) &&
        underlying.Type_get_extent(handle, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
        (size_t)extent == expected_extent) {
        add(handle, datatype, LOCATION);
    }
}

/* Two floats of one width: a complex number, or a value and its index, both floats. */
static void add_two_floats(MPI_Datatype handle, uint32_t of_32, uint32_t of_64, uint32_t mask) {
    switch (dense_size_bytes(handle)) {
    case 8: add(handle, of_32, mask); break;
    case 16: add(handle, of_64, mask); break;
    default: break;
    }
}

static void add_complex(MPI_Datatype handle) {
    add_two_floats(handle, TRIBUTARY_F32_COMPLEX, TRIBUTARY_F64_COMPLEX, COMPLEX);
}

static void fill_complex(void) {
    add_complex(MPI_C_FLOAT_COMPLEX);
    add_complex(MPI_C_DOUBLE_COMPLEX);
    add_complex(MPI_CXX_FLOAT_COMPLEX);
    add_complex(MPI_CXX_DOUBLE_COMPLEX);
    add_complex(MPI_COMPLEX);
    add_complex(MPI_DOUBLE_COMPLEX);
#ifdef MPI_COMPLEX8
    add_complex(MPI_COMPLEX8);
    add_complex(MPI_COMPLEX16);
#endif
}

static void fill_pairs(void) {
    add_pair(MPI_SHORT_INT, TRIBUTARY_I16_INDEX, sizeof(struct { short value; int index; }));
    add_pair(MPI_2INT, TRIBUTARY_I32_INDEX, sizeof(struct { int value; int index; }));
    add_pair(MPI_LONG_INT, sizeof(long) == 8 ? TRIBUTARY_I64_INDEX : TRIBUTARY_I32_INDEX,
             sizeof(struct { long value; int index; }));
    add_pair(MPI_FLOAT_INT, TRIBUTARY_F32_INDEX, sizeof(struct { float value; int index; }));
    add_pair(MPI_DOUBLE_INT, TRIBUTARY_F64_INDEX, sizeof(struct { double value; int index; }));
    if (dense_size_bytes(MPI_INTEGER) == 4) {
        add_pair(MPI_2INTEGER, TRIBUTARY_I32_INDEX, 8);
    }
    add_two_floats(MPI_2REAL, TRIBUTARY_F32_FLOAT_INDEX, TRIBUTARY_F64_FLOAT_INDEX, LOCATION);
    add_two_floats(MPI_2DOUBLE_PRECISION, TRIBUTARY_F32_FLOAT_INDEX, TRIBUTARY_F64_FLOAT_INDEX,
                   LOCATION);
}

/* A type that no kernel knows, so that MPI combines its elements, if MPI has it in this size. */
static void add_combined(MPI_Datatype handle, uint32_t size_bytes, uint32_t mask) {
    if (dense_size_bytes(handle) == size_bytes) {
        add(handle, 0, mask);
    }
}

static void fill_combined(void) {
    struct padded { long double value; int index; };
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    add_combined(MPI_LONG_DOUBLE, sizeof(long double), ARITHMETIC);
    add_combined(MPI_C_LONG_DOUBLE_COMPLEX, 2 * sizeof(long double), COMPLEX);
    add_combined(MPI_CXX_LONG_DOUBLE_COMPLEX, 2 * sizeof(long double), COMPLEX);
    if (is_handle(MPI_LONG_DOUBLE_INT) &&
        underlying.Type_get_extent(MPI_LONG_DOUBLE_INT, &lower, &extent) == MPI_SUCCESS &&
        extent == (MPI_Aint)sizeof(struct padded)) {
        add(MPI_LONG_DOUBLE_INT, 0, LOCATION);
    }
#ifdef MPI_REAL16
    add_combined(MPI_REAL16, 16, ARITHMETIC);
#endif
#ifdef MPI_COMPLEX32
    add_combined(MPI_COMPLEX32, 32, COMPLEX);
#endif
#ifdef MPI_INTEGER16
    if (HAS_HANDLES_OF(5, 0)) {
        add_combined(MPI_INTEGER16, 16, FORTRAN_INTEGER);
    }
#endif
}

/* Types that are broadcast, but not reduced. Without an entry, every call would have to ask MPI. */
static void fill_unreduced(void) {
    add(MPI_CHAR, 0, 0);
    add(MPI_CHARACTER, 0, 0);
    add(MPI_WCHAR, 0, 0);
    add(MPI_PACKED, 0, 0);
}

static void add_operator(MPI_Op handle, uint32_t operator_) {
    if ((uintptr_t)handle == 0) {
        return; /* a null handle is the mark of an empty slot */
    }
    operator_entry *entry = maps_operator_slot((uintptr_t)handle);
    entry->handle = (uintptr_t)handle;
    entry->operator_ = operator_;
}

static void fill_operators(void) {
    add_operator(MPI_SUM, TRIBUTARY_SUM);
    add_operator(MPI_PROD, TRIBUTARY_PRODUCT);
    add_operator(MPI_MIN, TRIBUTARY_MIN);
    add_operator(MPI_MAX, TRIBUTARY_MAX);
    add_operator(MPI_MINLOC, TRIBUTARY_MINLOC);
    add_operator(MPI_MAXLOC, TRIBUTARY_MAXLOC);
    add_operator(MPI_BAND, TRIBUTARY_BIT_AND);
    add_operator(MPI_BOR, TRIBUTARY_BIT_OR);
    add_operator(MPI_BXOR, TRIBUTARY_BIT_XOR);
    add_operator(MPI_LAND, TRIBUTARY_LOGICAL_AND);
    add_operator(MPI_LOR, TRIBUTARY_LOGICAL_OR);
    add_operator(MPI_LXOR, TRIBUTARY_LOGICAL_XOR);
}

static void add_pair_of(const datatype_entry *datatype, const operator_entry *operator_) {
    uint32_t slot = maps_first_pair_slot(datatype->handle, operator_->handle);
    while (maps_pairs[slot].datatype != 0) {
        slot = maps_next_pair_slot(slot);
    }
    pair_entry *entry = &maps_pairs[slot];
    entry->datatype_handle = datatype->handle;
    entry->operator_handle = operator_->handle;
    entry->datatype = datatype->datatype;
    entry->operator_ = operator_->operator_;
}

/* After all datatypes and operators. */
static void fill_pairs_of_kernels(void) {
    for (size_t at = 0; at < sizeof maps_datatypes / sizeof *maps_datatypes; at++) {
        const datatype_entry *datatype = &maps_datatypes[at];
        for (size_t of = 0; of < sizeof maps_operators / sizeof *maps_operators; of++) {
            const operator_entry *operator_ = &maps_operators[of];
            bool is_defined = (datatype->operators >> operator_->operator_ & 1) != 0;
            if (datatype->datatype != 0 && operator_->operator_ != 0 && is_defined) {
                add_pair_of(datatype, operator_);
            }
        }
    }
}

/*
 * The communicators whose error handlers get errors that belong to no communicator. MPICH calls
 * MPI_COMM_SELF's if it was ever set, else MPI_COMM_WORLD's. So setting MPI_COMM_SELF's, even to its old
 * value, would change where the program's own errors go. A program of sessions alone has neither.
 */
#ifdef OPEN_MPI
enum { UNATTACHED = 2 };
#else
enum { UNATTACHED = 1 };
#endif

void maps_fill(void) {
    /* Some builds lack some types; asking for the size of such a type is an error. */
    MPI_Comm comms[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    MPI_Errhandler before[] = {MPI_ERRHANDLER_NULL, MPI_ERRHANDLER_NULL};
    int unattached = shim_has_predefined ? UNATTACHED : 0;
    for (int at = 0; at < unattached; at++) {
        underlying.Comm_get_errhandler(comms[at], &before[at]);
        underlying.Comm_set_errhandler(comms[at], MPI_ERRORS_RETURN);
    }
    fill_c_numbers();
    fill_other_kinds();
    fill_fortran();
    fill_complex();
    fill_pairs();
    fill_combined();
    fill_unreduced();
    fill_operators();
    fill_pairs_of_kernels();
    for (int at = 0; at < unattached; at++) {
        underlying.Comm_set_errhandler(comms[at], before[at]);
        underlying.Errhandler_free(&before[at]);
    }
}
