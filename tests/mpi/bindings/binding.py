"""Makes the calls of binding.c from Python, by mpi4py, and checks every result.

Prints the number of collectives called, and a number that depends on every result. The vectors hold small
whole numbers, so that every order of reduction gives the same result.
"""

import sys

import numpy
from mpi4py import MPI

LENGTHS = (1, 3, 1000, 40000)
MODULUS = 1_000_000_007


class Checks:
    """Counts calls, checks results, and sums them up to one number."""

    def __init__(self):
        self.calls = self.made = self.failed = self.results = 0
        self.what = ""

    def called(self, what, counts=True):
        self.what = what
        self.calls += counts and RANK == 0

    def check(self, values, expected):
        values, expected = numpy.asarray(values).ravel(), numpy.asarray(expected).ravel()
        wrong = numpy.flatnonzero(values != expected)
        if len(wrong) and self.failed < 5:
            at = wrong[0]
            print(f"rank {RANK}: {self.what}, element {at}: {values[at]} instead of {expected[at]}")
        self.failed += len(wrong)
        self.made += len(values)
        weights = 1 + numpy.arange(len(values)) % 1009
        self.results = (self.results * 31 + int((values.astype(float) * weights).sum())) % MODULUS


def part(of, at):
    """The contribution of a rank to elements: 1 to 5."""
    return 1 + (of + 3 * at) % 5


def total(members, at):
    return sum((part(of, at) for of in range(members)), numpy.zeros_like(at))


def largest(at):
    return numpy.max([part(of, at) for of in range(RANKS)], axis=0)


def reductions(n):
    at, root = numpy.arange(1, n + 1), RANKS - 1
    mine = part(RANK, at).astype("i4")
    whole = numpy.empty_like(mine)
    CHECKS.called("MPI_Allreduce of integers")
    WORLD.Allreduce(mine, whole)
    CHECKS.check(whole, total(RANKS, at))
    numbers, sums = mine.astype("f8"), numpy.empty(n)
    CHECKS.called("MPI_Allreduce of reals, the largest")
    WORLD.Allreduce(numbers, sums, MPI.MAX)
    CHECKS.check(sums, largest(at))
    CHECKS.called("MPI_Allreduce in place")
    WORLD.Allreduce(MPI.IN_PLACE, numbers)
    CHECKS.check(numbers, total(RANKS, at))
    numbers[:] = mine
    for what in ("MPI_Reduce", "MPI_Reduce in place"):
        CHECKS.called(what)
        in_place = what.endswith("place")
        if in_place and RANK == root:
            sums[:] = numbers
            WORLD.Reduce(MPI.IN_PLACE, sums, MPI.SUM, root)
        else:
            WORLD.Reduce(numbers, sums if RANK == root else None, MPI.SUM, root)
        if RANK == root:
            CHECKS.check(sums, total(RANKS, at))


def other_types(n):
    at = numpy.arange(1, n + 1)
    complexes = part(RANK, at) - 1j * part(RANK, at + 1)
    whole = numpy.empty_like(complexes)
    CHECKS.called("MPI_Allreduce of complex numbers")
    WORLD.Allreduce(complexes, whole)
    CHECKS.check(whole.real, total(RANKS, at))
    CHECKS.check(whole.imag, -total(RANKS, at + 1))
    flags = part(RANK, at) != 5
    together = numpy.empty_like(flags)
    CHECKS.called("MPI_Allreduce of logicals")
    WORLD.Allreduce(flags, together, MPI.LAND)
    CHECKS.check(together, largest(at) != 5)
    pairs = numpy.column_stack([part(RANK, at), numpy.full(n, RANK)]).astype("i4")
    best = numpy.empty_like(pairs)
    CHECKS.called("MPI_Allreduce of pairs")
    WORLD.Allreduce([pairs, n, MPI.INT_INT], [best, n, MPI.INT_INT], MPI.MAXLOC)
    CHECKS.check(best[:, 0], largest(at))
    CHECKS.check(best[:, 1], numpy.argmax([part(of, at) for of in range(RANKS)], axis=0))
    wide = part(RANK, at).astype("i8") << 33
    wides = numpy.empty_like(wide)
    CHECKS.called("MPI_Allreduce of 8-byte integers")
    WORLD.Allreduce(wide, wides)
    CHECKS.check(wides >> 33, total(RANKS, at))
    narrow = part(RANK, at).astype("f4")
    narrows = numpy.empty_like(narrow)
    CHECKS.called("MPI_Allreduce of 4-byte reals")
    WORLD.Allreduce(narrow, narrows)
    CHECKS.check(narrows, total(RANKS, at))


def moves(n):
    at = numpy.arange(1, n + 1)
    vector = part(1, at) * 1.0 if RANK == 0 else numpy.zeros(n)
    CHECKS.called("MPI_Bcast")
    WORLD.Bcast(vector, 0)
    CHECKS.check(vector, part(1, at))
    vector[:] = part(2, at) if RANK == RANKS - 1 else 0
    absolute = MPI.DOUBLE.Create_hindexed([n], [MPI.Get_address(vector)]).Commit()
    CHECKS.called("MPI_Bcast from MPI_BOTTOM")
    WORLD.Bcast([MPI.BOTTOM, 1, absolute], RANKS - 1)
    absolute.Free()
    CHECKS.check(vector, part(2, at))
    CHECKS.called("MPI_Barrier")
    WORLD.Barrier()


def nonblocking(n):
    at = numpy.arange(1, n + 1)
    mine = part(RANK, at).astype("i4")
    whole, sums = numpy.empty_like(mine), numpy.empty_like(mine)
    CHECKS.called("MPI_Iallreduce")
    WORLD.Iallreduce(mine, whole).Wait()
    CHECKS.check(whole, total(RANKS, at))
    sent = part(3, at).astype("i4") if RANK == 0 else numpy.zeros(n, "i4")
    whole[:] = mine
    CHECKS.called("MPI_Ibcast")
    requests = [WORLD.Ibcast(sent, 0)]
    CHECKS.called("MPI_Ireduce")
    requests.append(WORLD.Ireduce(mine, sums if RANK == 0 else None, MPI.SUM, 0))
    CHECKS.called("MPI_Iallreduce in place")
    requests.append(WORLD.Iallreduce(MPI.IN_PLACE, whole))
    MPI.Request.Waitall(requests)
    CHECKS.check(sent, part(3, at))
    if RANK == 0:
        CHECKS.check(sums, total(RANKS, at))
    CHECKS.check(whole, total(RANKS, at))
    CHECKS.called("MPI_Ibarrier")
    request = WORLD.Ibarrier()
    while not request.Test():
        pass


def on_one_host(n):
    at = numpy.arange(1, n * RANKS + 1)
    mine = part(RANK, at).astype("i4")
    block, whole = numpy.empty(n, "i4"), numpy.empty(n * RANKS, "i4")
    CHECKS.called("MPI_Reduce_scatter_block")
    WORLD.Reduce_scatter_block(mine, block)
    CHECKS.check(block, total(RANKS, at[RANK * n:(RANK + 1) * n]))
    CHECKS.called("MPI_Allgather")
    WORLD.Allgather(mine[:n], whole)
    CHECKS.check(whole, [part(of, at[:n]) for of in range(RANKS)])
    CHECKS.called("MPI_Scan")
    WORLD.Scan(mine[:n], block)
    CHECKS.check(block, total(RANK + 1, at[:n]))
    CHECKS.called("MPI_Exscan")
    WORLD.Exscan(mine[:n], block)
    if RANK > 0:
        CHECKS.check(block, total(RANK, at[:n]))


def add(left, right, _datatype):
    into = numpy.frombuffer(right, "f8")
    into += numpy.frombuffer(left, "f8")


def own_operator(n):
    at = numpy.arange(1, n + 1)
    mine, whole = part(RANK, at) * 1.0, numpy.empty(n)
    operator = MPI.Op.Create(add, commute=True)
    CHECKS.called("MPI_Allreduce by an operator of the program")
    WORLD.Allreduce(mine, whole, operator)
    operator.Free()
    CHECKS.check(whole, total(RANKS, at))


def communicators(n):
    at = numpy.arange(1, n + 1)
    half = WORLD.Split(RANK % 2, RANK)
    mine = part(RANK, at).astype("i4")
    whole = numpy.empty_like(mine)
    CHECKS.called("MPI_Allreduce on a part of the world", counts=False)
    CHECKS.calls += half.Get_rank() == 0
    half.Allreduce(mine, whole)
    CHECKS.check(whole, sum(part(of, at) for of in range(RANK % 2, RANKS, 2)))
    half.Free()
    copy = WORLD.Dup()
    CHECKS.called("MPI_Barrier on a copy of the world")
    copy.Barrier()
    copy.Free()


def main():
    for n in LENGTHS:
        for group in (reductions, other_types, moves, nonblocking, on_one_host, own_operator,
                      communicators):
            group(n)
    # The last call counts itself.
    CHECKS.called("MPI_Allreduce")
    mine = numpy.array([CHECKS.calls, CHECKS.failed, CHECKS.made, CHECKS.results])
    sums = numpy.empty_like(mine)
    WORLD.Allreduce(mine, sums)
    calls, failed, made, results = sums
    if RANK == 0:
        print(f"calls {calls}\nresults {results}\nchecks {made}, {failed} failed", flush=True)
    return int(failed != 0)


WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.Get_rank(), WORLD.Get_size()
CHECKS = Checks()
sys.exit(main())
