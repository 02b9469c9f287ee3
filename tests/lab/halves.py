#!/usr/bin/env python3
"""One rank of exact sums of 16-bit floats, started by MPICH's launcher: halves.py ADDRESS SECONDS.

Computes for so long, compares with the real sums, and prints the bits of the last ones in one line. Rank 0 listens at the address.
"""

import os
import sys
import time

import ml_dtypes
import numpy

import tributary

LENGTH = 96
# The digits of a type, and the exponent of its least number.
TYPES = {numpy.float16: (11, -24), ml_dtypes.bfloat16: (8, -133)}


def rows_of(kind, ranks):
    """What each rank contributes, of many exponents; a part of it cancels but for its last place."""
    draw = numpy.random.default_rng(ranks)
    rows = numpy.ldexp(draw.uniform(-1, 1, (ranks, LENGTH)), draw.integers(-20, 12, (ranks, LENGTH))).astype(kind)
    part = LENGTH // 3
    nearly = numpy.nextafter(rows[: ranks // 2 * 2 : 2, :part], kind(0))
    rows[1::2, :part] = -nearly
    return rows


def rounded(sums, digits, least):
    """Real sums, of two nearest numbers the even one."""
    _, exponents = numpy.frexp(sums)
    places = numpy.maximum(exponents - digits, least)
    return numpy.ldexp(numpy.rint(numpy.ldexp(sums, -places)), places)


def main():
    address, seconds = sys.argv[1], float(sys.argv[2])
    rank, ranks = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    until = time.monotonic() + seconds
    # Sums of so few doubles of so few digits are exact, in any order.
    cases = [(rows, rounded(rows.astype(numpy.float64).sum(axis=0), *digits))
             for rows, digits in ((rows_of(kind, ranks), digits) for kind, digits in TYPES.items())]
    with tributary.Communicator.connect(address, rank, ranks, sums="exact") as world:
        goes_on = numpy.ones(1, numpy.int32)
        while goes_on[0]:
            bits = []
            for rows, wanted in cases:
                found = numpy.empty(LENGTH, rows.dtype)
                world.allreduce(rows[rank], found)
                wrong = numpy.flatnonzero(found.astype(numpy.float64) != wanted)
                assert not len(wrong), f"{rows.dtype}: {found[wrong[0]]}, not {wanted[wrong[0]]}, of {rows[:, wrong[0]]}"
                bits.append(found.tobytes().hex())
            goes_on[0] = time.monotonic() < until
            world.allreduce(goes_on, op="min")
    # One call: lines of ranks must not mix.
    os.write(1, f"bits {' '.join(bits)}\n".encode())


if __name__ == "__main__":
    main()
