/* How elements combine: `left OP right`, bit for bit as the process does it.
 *
 * Programs in the kernel have no floating-point registers, so sums of binary32 and binary64 are made
 * from integers: IEEE 754, round to nearest, ties to even, subnormals kept. Of two numbers that are
 * none the first one's payload stays; the sum of opposite infinities has the sign that this
 * processor's own has.
 */
#pragma once

#include "environment.h"

enum operator_code {
	OPERATOR_SUM = 1,
	OPERATOR_PRODUCT,
	OPERATOR_MIN,
	OPERATOR_MAX,
	OPERATOR_MINLOC,
	OPERATOR_MAXLOC,
	OPERATOR_BIT_AND,
	OPERATOR_BIT_OR,
	OPERATOR_BIT_XOR,
	OPERATOR_LOGICAL_AND,
	OPERATOR_LOGICAL_OR,
	OPERATOR_LOGICAL_XOR,
	OPERATOR_BARRIER,
};

enum datatype {
	DATATYPE_I8 = 1,
	DATATYPE_I16,
	DATATYPE_I32,
	DATATYPE_I64,
	DATATYPE_U8,
	DATATYPE_U16,
	DATATYPE_U32,
	DATATYPE_U64,
	DATATYPE_F16,
	DATATYPE_BF16,
	DATATYPE_F32,
	DATATYPE_F64,
	DATATYPE_I16_INDEX,
	DATATYPE_I32_INDEX,
	DATATYPE_I64_INDEX,
	DATATYPE_F32_INDEX,
	DATATYPE_F64_INDEX,
	DATATYPE_F32_COMPLEX,
	DATATYPE_F64_COMPLEX,
	DATATYPE_F32_FLOAT_INDEX,
	DATATYPE_F64_FLOAT_INDEX,
};

/* Sums of floats up to which a segment is folded here: more cost more than to wake the process.
 * docs/decisions/0041-hand-off.md says where the number comes from. */
#define FLOAT_SUMS_MAX 448

#if defined(__aarch64__) || defined(TARGET_aarch64)
#define DEFAULT_NAN_SIGN 0ull
#else
#define DEFAULT_NAN_SIGN 1ull
#endif

/* The layout of an IEEE 754 format in the lower bits of a word. */
struct format {
	u32 fraction_bits;
	u32 exponent_max;
};

#define BINARY32 ((struct format){ 23, 0xff })
#define BINARY64 ((struct format){ 52, 0x7ff })

INLINE u64 magnitude_mask(struct format format)
{
	return (((u64)format.exponent_max + 1) << format.fraction_bits) - 1;
}

INLINE u64 infinity(struct format format)
{
	return (u64)format.exponent_max << format.fraction_bits;
}

INLINE int is_nan(struct format format, u64 bits)
{
	return (bits & magnitude_mask(format)) > infinity(format);
}

/* Zeros above the highest one; the number is not zero. */
INLINE u32 leading_zeros(u64 number)
{
	u32 zeros = 0;

	if (!(number >> 32)) { zeros += 32; number <<= 32; }
	if (!(number >> 48)) { zeros += 16; number <<= 16; }
	if (!(number >> 56)) { zeros += 8; number <<= 8; }
	if (!(number >> 60)) { zeros += 4; number <<= 4; }
	if (!(number >> 62)) { zeros += 2; number <<= 2; }
	return zeros + !(number >> 63);
}

/* A shift to the right whose lowest bit says whether any one was lost. */
INLINE u64 shifted_right_sticky(u64 number, u32 by)
{
	if (by > 63)
		return number != 0;
	return number >> by | ((number & ((1ull << by) - 1)) != 0);
}

/* Bits kept below the fraction while adding: guard, round and sticky. */
#define EXTRA_BITS 3

/* Rounds a sum with extra bits and packs it. Below the hidden bit the exponent is 1. */
INLINE u64 rounded(struct format format, u64 sign, u32 exponent, u64 significand)
{
	u64 extra = significand & ((1u << EXTRA_BITS) - 1);
	u64 half = 1u << (EXTRA_BITS - 1);
	u64 bits;

	significand >>= EXTRA_BITS;
	significand += extra > half || (extra == half && (significand & 1));
	/* The hidden bit, or a carry out of the fraction, adds one to the exponent. */
	bits = ((u64)(exponent - 1) << format.fraction_bits) + significand;
	return sign | (bits > infinity(format) ? infinity(format) : bits);
}

/* `larger + smaller` of finite numbers, by magnitude. */
INLINE u64 sum_of_finite(struct format format, u64 larger, u64 smaller)
{
	u64 hidden = 1ull << format.fraction_bits;
	u64 sign_mask = magnitude_mask(format) + 1;
	u64 sign = larger & sign_mask;
	int subtracts = ((larger ^ smaller) & sign_mask) != 0;
	u32 exponent = (larger & magnitude_mask(format)) >> format.fraction_bits;
	u32 other_exponent = (smaller & magnitude_mask(format)) >> format.fraction_bits;
	u64 sum = (larger & (hidden - 1)) | (exponent ? hidden : 0);
	u64 other = (smaller & (hidden - 1)) | (other_exponent ? hidden : 0);
	u32 spare, room;

	exponent += !exponent;
	other_exponent += !other_exponent;
	sum <<= EXTRA_BITS;
	other = shifted_right_sticky(other << EXTRA_BITS, exponent - other_exponent);
	if (!subtracts) {
		sum += other;
		if (sum >= hidden << (EXTRA_BITS + 1)) {
			sum = shifted_right_sticky(sum, 1);
			exponent++;
		}
		return rounded(format, sign, exponent, sum);
	}
	sum -= other;
	if (!sum)
		return 0;
	spare = leading_zeros(sum) - (63 - EXTRA_BITS - format.fraction_bits);
	room = exponent - 1;
	if (spare > room)
		spare = room;
	return rounded(format, sign, exponent - spare, sum << (spare & 63));
}

INLINE u64 float_sum(struct format format, u64 left, u64 right)
{
	u64 mask = magnitude_mask(format);
	u64 quiet = 1ull << (format.fraction_bits - 1);

	if (is_nan(format, left))
		return left | quiet;
	if (is_nan(format, right))
		return right | quiet;
	if ((left & mask) == infinity(format)) {
		if (right == (left ^ (mask + 1)))
			return DEFAULT_NAN_SIGN * (mask + 1) | infinity(format) | quiet;
		return left;
	}
	if ((right & mask) == infinity(format))
		return right;
	if ((left & mask) < (right & mask))
		return sum_of_finite(format, right, left);
	return sum_of_finite(format, left, right);
}

/* Whether `left < right`: never of a NaN, and zeros are equal. */
INLINE int float_is_less(struct format format, u64 left, u64 right)
{
	u64 mask = magnitude_mask(format);
	int left_is_negative = (left & (mask + 1)) != 0;
	int right_is_negative = (right & (mask + 1)) != 0;

	if (is_nan(format, left) || is_nan(format, right))
		return 0;
	if (!((left | right) & mask))
		return 0;
	if (left_is_negative != right_is_negative)
		return left_is_negative;
	return left_is_negative ? left > right : left < right;
}

GLOBAL u64 binary32_sum(u64 left, u64 right)
{
	return float_sum(BINARY32, left, right);
}

GLOBAL u64 binary64_sum(u64 left, u64 right)
{
	return float_sum(BINARY64, left, right);
}

INLINE u64 float_element(u32 operator_code, u32 bits, u64 left, u64 right)
{
	struct format format = bits == 32 ? BINARY32 : BINARY64;

	switch (operator_code) {
	case OPERATOR_SUM:
		return bits == 32 ? binary32_sum(left, right) : binary64_sum(left, right);
	/* A NaN anywhere makes the result a NaN. */
	case OPERATOR_MIN:
		return is_nan(format, right) || float_is_less(format, right, left) ? right : left;
	default:
		return is_nan(format, right) || float_is_less(format, left, right) ? right : left;
	}
}

INLINE s64 sign_extended(u64 element, u32 bits)
{
	return (s64)(element << (64 - bits)) >> (64 - bits);
}

INLINE int integer_is_less(u64 left, u64 right, u32 bits, int is_signed)
{
	return is_signed ? sign_extended(left, bits) < sign_extended(right, bits) : left < right;
}

INLINE u64 integer_element(u32 operator_code, u32 bits, int is_signed, u64 left, u64 right)
{
	switch (operator_code) {
	case OPERATOR_SUM:
		return left + right;
	case OPERATOR_PRODUCT:
		return left * right;
	case OPERATOR_MIN:
		return integer_is_less(right, left, bits, is_signed) ? right : left;
	case OPERATOR_MAX:
		return integer_is_less(left, right, bits, is_signed) ? right : left;
	case OPERATOR_LOGICAL_AND:
		return left && right;
	case OPERATOR_LOGICAL_OR:
		return left || right;
	default:
		return !left != !right;
	}
}

/* Combines the integers of `bits` each in two words. */
INLINE u64 integer_word(u32 operator_code, u32 bits, int is_signed, u64 left, u64 right)
{
	u64 mask = ~0ull >> (64 - bits);
	u64 word = 0;
	u32 shift;

#pragma unroll
	for (shift = 0; shift < 64; shift += bits)
		word |= (integer_element(operator_code, bits, is_signed, left >> shift & mask,
					 right >> shift & mask) & mask) << shift;
	return word;
}

INLINE u64 float_word(u32 operator_code, u32 bits, u64 left, u64 right)
{
	if (bits == 64)
		return float_element(operator_code, bits, left, right);
	return float_element(operator_code, bits, left & 0xffffffff, right & 0xffffffff) |
	       float_element(operator_code, bits, left >> 32, right >> 32) << 32;
}

/* Combines the elements in two words of eight bytes. */
GLOBAL u64 combined_word(u32 operator_code, u32 datatype, u64 left, u64 right)
{
	switch (operator_code) {
	case OPERATOR_BIT_AND:
		return left & right;
	case OPERATOR_BIT_OR:
		return left | right;
	case OPERATOR_BIT_XOR:
		return left ^ right;
	}
	switch (datatype) {
	case DATATYPE_I8:
		return integer_word(operator_code, 8, 1, left, right);
	case DATATYPE_I16:
		return integer_word(operator_code, 16, 1, left, right);
	case DATATYPE_I32:
		return integer_word(operator_code, 32, 1, left, right);
	case DATATYPE_I64:
		return integer_word(operator_code, 64, 1, left, right);
	case DATATYPE_U8:
		return integer_word(operator_code, 8, 0, left, right);
	case DATATYPE_U16:
		return integer_word(operator_code, 16, 0, left, right);
	case DATATYPE_U32:
		return integer_word(operator_code, 32, 0, left, right);
	case DATATYPE_U64:
		return integer_word(operator_code, 64, 0, left, right);
	case DATATYPE_F32:
		return float_word(operator_code, 32, left, right);
	default:
		return float_word(operator_code, 64, left, right);
	}
}

INLINE int is_integer(u32 datatype)
{
	return datatype >= DATATYPE_I8 && datatype <= DATATYPE_U64;
}

INLINE int is_complex(u32 datatype)
{
	return datatype == DATATYPE_F32_COMPLEX || datatype == DATATYPE_F64_COMPLEX;
}

/* Whether elements are of a value and an index. */
INLINE int is_pair(u32 datatype)
{
	return datatype >= DATATYPE_I16_INDEX && datatype <= DATATYPE_F64_FLOAT_INDEX &&
	       !is_complex(datatype);
}

/* Whether an operator combines such elements. */
INLINE int is_defined(u32 operator_code, u32 datatype)
{
	if (datatype < DATATYPE_I8 || datatype > DATATYPE_F64_FLOAT_INDEX)
		return 0;
	switch (operator_code) {
	case OPERATOR_SUM:
	case OPERATOR_PRODUCT:
		return !is_pair(datatype);
	case OPERATOR_MIN:
	case OPERATOR_MAX:
		return !is_pair(datatype) && !is_complex(datatype);
	case OPERATOR_MINLOC:
	case OPERATOR_MAXLOC:
		return is_pair(datatype);
	default:
		return operator_code >= OPERATOR_BIT_AND && operator_code <= OPERATOR_LOGICAL_XOR &&
		       is_integer(datatype);
	}
}

/* Size of an element of a defined datatype. */
INLINE u32 element_bytes(u32 datatype)
{
	if (is_integer(datatype))
		return 1u << ((datatype - DATATYPE_I8) & 3);
	switch (datatype) {
	case DATATYPE_F16:
	case DATATYPE_BF16:
		return 2;
	case DATATYPE_F32:
		return 4;
	case DATATYPE_I64_INDEX:
	case DATATYPE_F64_INDEX:
	case DATATYPE_F64_COMPLEX:
	case DATATYPE_F64_FLOAT_INDEX:
		return 16;
	default:
		return 8;
	}
}

/* Whether contributions of so many elements, of so many children, are folded here; else by the process. */
INLINE int is_folded_here(u32 operator_code, u32 datatype, u32 elements, u32 children)
{
	if (operator_code == OPERATOR_BARRIER || is_integer(datatype))
		return 1;
	if (datatype != DATATYPE_F32 && datatype != DATATYPE_F64)
		return 0;
	switch (operator_code) {
	case OPERATOR_SUM:
		return elements * (children - 1) <= FLOAT_SUMS_MAX;
	case OPERATOR_MIN:
	case OPERATOR_MAX:
		return 1;
	default:
		return 0;
	}
}
