"""Hostile values for exact.c, and the bits of their real sums, by fractions."""

import fractions
import math
import random
import struct
import sys

from harness.places import ROOT

CRATE = ROOT / "crates/exact-c"
COUNT = 3000
SUMS = 3
SEED = 45


def single(value):
    """A number as the nearest float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def hostile(generator, spread):
    """Values of many exponents, a part of which cancels."""
    values = [math.ldexp(generator.uniform(-1, 1), generator.randrange(-spread, spread)) for _ in range(COUNT)]
    values[: COUNT // 4] = [-value for value in values[COUNT // 4 : COUNT // 4 * 2]]
    return values


def vectors():
    generator = random.Random(SEED)
    left, right = hostile(generator, 400), hostile(generator, 400)
    left[7:11] = [sys.float_info.max, sys.float_info.max, -sys.float_info.max, -sys.float_info.max]
    right[7:11] = [5e-324] * 4
    floats = [[single(value) for value in hostile(generator, 50)] for _ in range(2)]
    return [left, right, *floats]


def rounded_to_single(number):
    """A fraction as the nearest float, of two the even one."""
    near = struct.unpack("<i", struct.pack("<f", abs(float(number))))[0]
    candidates = [struct.unpack("<f", struct.pack("<i", bits))[0] for bits in range(max(near - 1, 0), near + 2)]
    bits_of = {value: struct.unpack("<i", struct.pack("<f", value))[0] for value in candidates}
    best = min(candidates, key=lambda value: (abs(fractions.Fraction(value) - abs(number)), bits_of[value] & 1))
    return math.copysign(best, number)


def total(left, right=None):
    factors = right or [1] * len(left)
    return sum((fractions.Fraction(a) * fractions.Fraction(b) for a, b in zip(left, factors)), fractions.Fraction(0))


def expected(left, right, left_floats, right_floats):
    sums = [total(left[at::SUMS]) for at in range(SUMS)]
    dots = [total(left[at::SUMS], right[at::SUMS]) for at in range(SUMS)]
    results = [float(sum(sums)), float(sum(dots)), rounded_to_single(total(left_floats)),
               rounded_to_single(total(left_floats, right_floats)), *map(float, sums), *map(float, dots), float(sum(sums))]
    return "bits" + "".join(" " + struct.pack(">d", value).hex() for value in results)


def write(path, given):
    left, right, left_floats, right_floats = given
    path.write_bytes(struct.pack("=Q", COUNT) + struct.pack(f"={COUNT * 2}d", *left, *right)
                     + struct.pack(f"={COUNT * 2}f", *left_floats, *right_floats))
