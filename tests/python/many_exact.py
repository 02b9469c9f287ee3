#!/usr/bin/env python3
"""Compares exact sums of very many vectors with `math.fsum`, which is not ours: each element of an allreduce is a vector, of one
value from each rank, and so is each column of an `exact_sum`. The ranks share the comparing.

    python tests/python/many_exact.py --vectors 100_000_000
    TRIBUTARY_BETWEEN_HOSTS=tree tributary run --hosts 4 -- python tests/python/many_exact.py      a rank on each host

In a lab whose aggregators work in the kernel, which takes segments of up to 1 KiB, MPICH's launcher starts the ranks. A value that is
all over the range takes 35 integers, so that three elements fit:

    tributary lab run -- mpirun -n 2 python tests/python/many_exact.py --address 10.77.2.1:7000 --at-once 3

Vectors are near each other, all over the range, cancel but for a little, are subnormal, lie in the middle between two numbers, or
overflow on the way, by a seed.
"""

import argparse
import math
import multiprocessing
import os
import sys
import time

import numpy

import ranks
import tributary

LENGTH = 16384
KINDS = {"float64": numpy.float64, "float32": numpy.float32}


def near(random, shape, kind):
    return random.uniform(-1, 1, shape).astype(kind)


def wide(random, shape, kind):
    spread = 140 if kind is numpy.float32 else 1020  # no sum of doubles overflows
    with numpy.errstate(over="ignore"):
        values = numpy.ldexp(random.uniform(-1, 1, shape), random.integers(-spread, spread, shape)).astype(kind)
    return numpy.where(numpy.isfinite(values), values, kind(1))


def cancelling(random, shape, kind):
    """Pairs that leave one bit of one of them, or nothing, and values that lie far below."""
    digits = numpy.finfo(kind).nmant
    values = near(random, shape, kind)
    values[1::2] = -numpy.nextafter(values[::2], random.choice([-1, 0, 1], values[::2].shape).astype(kind)
                                    + values[::2])[: len(values[1::2])]
    below = numpy.ldexp(values, random.integers(-3 * digits, 1, shape)).astype(kind)
    return numpy.where(random.random(shape) < 0.2, below, values)


def subnormal(random, shape, kind):
    smallest = numpy.finfo(kind).smallest_subnormal
    return (random.integers(-(1 << 30), 1 << 30, shape) >> random.integers(0, 31, shape)).astype(kind) * smallest


def middle(random, shape, kind):
    """One and half of its last place, with something far below on either side, or nothing."""
    digits = numpy.finfo(kind).nmant
    values = random.choice([-1, 0, 1], shape) * numpy.ldexp(1.0, random.integers(-120, -2 * digits, shape))
    values[0] = 1 + numpy.ldexp(random.integers(0, 4, shape[1]).astype(float), -digits)
    values[-1] = random.choice([-0.5, 0.5], shape[1]) * 2.0**-digits
    return values.astype(kind)


def overflowing(random, shape, kind):
    """Values whose partial sums overflow; some whole sums do."""
    largest = numpy.finfo(kind).max
    factors = random.choice([-1, 1], shape) * (1 - random.integers(0, 3, shape) * 2.0**-10)
    return (largest * factors.astype(kind)).astype(kind)


GENERATORS = (near, wide, cancelling, subnormal, middle, overflowing)


def expected(rows, is_large):
    """The rounded sums of columns. Of large values, of those parts of them that overflow nowhere: none is so small that a bit
    of it would be lost."""
    kind = rows.dtype.type
    values = numpy.ldexp(rows, -4) if is_large and kind is numpy.float64 else rows
    sums = numpy.fromiter(map(math.fsum, zip(*values.tolist())), numpy.float64, rows.shape[1])
    if kind is numpy.float64:
        with numpy.errstate(over="ignore"):
            return numpy.ldexp(sums, 4) if is_large else sums
    # Where a sum as a double is in the middle between two floats, the rest of the real sum decides.
    is_tie = (sums.view(numpy.uint64) & 0x1FFFFFFF) == 0x10000000
    is_small = abs(sums) < 2.0**-125
    rest = numpy.zeros_like(sums)
    for at in numpy.flatnonzero(is_tie | is_small):
        rest[at] = math.fsum([*values[:, at].tolist(), -sums[at]])
    with numpy.errstate(over="ignore"):
        return numpy.where(rest == 0, sums, numpy.nextafter(sums, numpy.where(rest > 0, math.inf, -math.inf))).astype(kind)


def compare(rank, size, address, vectors, seed, at_once):
    random = numpy.random.default_rng(seed)
    with tributary.Communicator.connect(address, rank, size, sums="exact") as all_ranks:
        for first in range(0, vectors, LENGTH):
            block = first // LENGTH
            generate, kind = GENERATORS[block % len(GENERATORS)], list(KINDS.values())[block // len(GENERATORS) % 2]
            rows = generate(random, (size, LENGTH), kind)
            by_reduction = numpy.empty(LENGTH, kind)
            mine = numpy.ascontiguousarray(rows[rank])
            for begin in range(0, LENGTH, at_once):
                all_ranks.allreduce(mine[begin : begin + at_once], by_reduction[begin : begin + at_once])
            own = slice(rank * LENGTH // size, (rank + 1) * LENGTH // size)
            by_accumulators = all_ranks.exact_sum(numpy.ascontiguousarray(rows[rank : rank + 1, :256]), axis=0)
            real = expected(rows[:, own], generate is overflowing)
            for found, wanted in ((by_reduction[own], real), (by_accumulators[own], real[:256])):
                wrong = numpy.flatnonzero(found != wanted[: len(found)])
                assert not len(wrong), (f"seed {seed}, block {block} ({generate.__name__}, {kind.__name__}): the sum of "
                                        f"{[value.hex() for value in rows[:, own][:, wrong[0]].astype(float)]} is "
                                        f"{wanted[wrong[0]]!r}, found {found[wrong[0]]!r}")
            if rank == 0 and block % 256 == 0:
                print(f"{first:>12,} of {vectors:,} vectors", file=sys.stderr, flush=True)
    return len(range(0, vectors, LENGTH)) * LENGTH


def print_end(vectors, size, began_at):
    print(f"{vectors:,} vectors of {size} values: no difference, {time.monotonic() - began_at:.0f} s on {os.cpu_count()} cores")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=lambda text: int(float(text.replace("_", ""))), default=100_000_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=LENGTH, help="elements of an allreduce")
    parser.add_argument("--address", help="this process is a rank that MPICH's launcher started; rank 0 listens here")
    arguments = parser.parse_args()
    began_at, address = time.monotonic(), arguments.address or ranks.free_address()
    if arguments.address:
        rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        compare(rank, size, address, arguments.vectors, arguments.seed, arguments.at_once)
        if rank == 0:
            print_end(arguments.vectors, size, began_at)
        return
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=compare, args=(rank, arguments.ranks, address, arguments.vectors, arguments.seed, arguments.at_once))
                 for rank in range(arguments.ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)
    print_end(arguments.vectors, arguments.ranks, began_at)


if __name__ == "__main__":
    main()
