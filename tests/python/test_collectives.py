"""Goal: every collective gives what NumPy gives, for all datatypes and operators, blocking or not.
Method: four processes on this machine; data by a seed, small integers so that sums are exact."""

import asyncio
import functools
import operator

import ml_dtypes
import numpy
import pytest

import ranks
import tributary

RANKS = 4
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
           ml_dtypes.bfloat16, "float32", "float64"]
INTEGERS = NUMBERS[:8]
COMPLEX = ["complex64", "complex128"]
# Lengths around the limits between methods: a cache line, a ring's piece, and beyond.
LENGTHS = [0, 1, 7, 1000, 70_001]
FOLDS = {"sum": numpy.add, "product": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum,
         "bit-and": numpy.bitwise_and, "bit-or": numpy.bitwise_or, "bit-xor": numpy.bitwise_xor,
         "logical-and": numpy.logical_and, "logical-or": numpy.logical_or,
         "logical-xor": numpy.logical_xor}


def defined():
    """Every pair of operator and datatype that MPI defines, but value-index pairs."""
    for name in FOLDS:
        arithmetic = name in ("sum", "product")
        yield from ((name, kind) for kind in INTEGERS)
        if arithmetic or name in ("min", "max"):
            yield from ((name, kind) for kind in NUMBERS[8:])
        if arithmetic:
            yield from ((name, kind) for kind in COMPLEX)


def vectors(kind, length, seed=0):
    """One vector of each rank, of values whose sums and products fit any datatype."""
    random = numpy.random.default_rng(seed)
    return [random.integers(0, 3, length).astype(kind) for _ in range(RANKS)]


def folded(name, given):
    return functools.reduce(FOLDS[name], given).astype(given[0].dtype)


def same(got, expected):
    numpy.testing.assert_array_equal(numpy.asarray(got).view("uint8"), numpy.asarray(expected).view("uint8"))


def allreduce_all(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        for number, (name, kind) in enumerate(defined()):
            length = LENGTHS[number % len(LENGTHS)]
            given = vectors(kind, length, number)
            expected = folded(name, given)
            target = numpy.zeros(length, kind)
            all_ranks.allreduce(given[rank], target, op=name)
            same(target, expected)
            all_ranks.allreduce(given[rank], op=tributary.Operator(name))
            same(given[rank], expected)


def test_allreduce_of_everything_that_is_defined():
    ranks.run(allreduce_all, RANKS)


def others_all(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        for number, kind in enumerate(NUMBERS * 2):
            for length in LENGTHS:
                root = (number + length) % size
                given = vectors(kind, length * size, number)
                total = folded("sum", given)
                result = numpy.zeros_like(total)
                all_ranks.reduce(given[rank], result if rank == root else None, root=root)
                same(result, total if rank == root else numpy.zeros_like(total))
                sent = given[root] if rank == root else numpy.zeros_like(total)
                all_ranks.broadcast(sent, root=root)
                same(sent, given[root])
                gathered = numpy.zeros((size, length * size), kind)
                all_ranks.allgather(given[rank], gathered)
                same(gathered, numpy.stack(given))
                block = numpy.zeros(length, kind)
                all_ranks.reduce_scatter(given[rank], block)
                same(block, total[rank * length:(rank + 1) * length])
                all_ranks.barrier()


def test_the_other_collectives():
    ranks.run(others_all, RANKS)


def in_place(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        for length in LENGTHS:
            given = vectors("int32", length * size, length)
            total = folded("sum", given)
            mine = given[rank].copy()
            all_ranks.reduce_scatter(mine)
            same(mine[:length], total[rank * length:(rank + 1) * length])
            gathered = numpy.zeros((size, length), "int32")
            gathered[rank] = rank + 1
            all_ranks.allgather(None, gathered)
            assert (gathered.T == numpy.arange(1, size + 1)).all()
            mine = given[rank].copy()
            all_ranks.reduce(mine, root=1)
            same(mine, total if rank == 1 else given[rank])
        counts = [0, 5, 1, 94]
        vector = numpy.arange(100.0) * (rank + 1)
        block = numpy.zeros(counts[rank])
        all_ranks.reduce_scatter(vector, block, counts=counts)
        first = sum(counts[:rank])
        same(block, 10 * numpy.arange(first, first + counts[rank], dtype=float))


def test_in_place_and_uneven_blocks():
    ranks.run(in_place, RANKS)


def pairs(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        for value in ("int16", "int32", "int64", "float32", "float64"):
            kind = numpy.dtype([("value", value), ("index", "int32")], align=True)
            mine = numpy.array([(rank % 3, rank), (-rank, rank)], kind)
            all_ranks.allreduce(mine, op="maxloc")
            assert mine.tolist() == [(2, 2), (0, 0)]


def test_values_with_their_index():
    ranks.run(pairs, RANKS)


def mixed(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        # More than can be under way at once, blocking ones in between, waited for out of order.
        buffers = [numpy.full(length, rank + 1, "int64") for length in LENGTHS * 10]
        requests = []
        for number, buffer in enumerate(buffers):
            if number % 7 == 3:
                all_ranks.barrier()
            requests.append(all_ranks.iallreduce(buffer))
        for request in reversed(requests):
            request.wait()
            assert request.test() and request.done()
        assert all((buffer == 10).all() for buffer in buffers)
        gathered, block = numpy.zeros(size, "int8"), numpy.zeros(1)
        sent = numpy.array([7.0 if rank == 2 else 0.0])
        total = numpy.array([1.0])
        for request in [all_ranks.iallgather(numpy.int8([rank]), gathered), all_ranks.ibarrier(),
                        all_ranks.ireduce_scatter(numpy.ones(size), block),
                        all_ranks.ibroadcast(sent, root=2), all_ranks.ireduce(total, root=3)]:
            request.wait(timeout=60)
        assert gathered.tolist() == [0, 1, 2, 3] and block[0] == 4 and sent[0] == 7
        assert total[0] == (4 if rank == 3 else 1)


def test_nonblocking():
    ranks.run(mixed, RANKS)


def in_coroutines(rank, size, address):
    async def reduce(all_ranks, value):
        vector = numpy.full(5000, value)
        await all_ranks.iallreduce(vector)
        return vector[0]

    async def work():
        with tributary.Communicator.connect(address, rank, size) as all_ranks:
            tasks = [asyncio.create_task(reduce(all_ranks, value)) for value in range(20)]
            assert await asyncio.gather(*tasks) == [4 * value for value in range(20)]
            request = all_ranks.ibarrier()
            await asyncio.wait_for(request, timeout=60)
            await request  # it is over, which is no reason not to ask again
            called = []
            request.add_done_callback(lambda: called.append(True))
            assert called == [True]

    asyncio.run(work())


def test_asyncio():
    ranks.run(in_coroutines, RANKS)


def parts(rank, size, address):
    with tributary.Communicator.connect(address, rank, size, label="world") as world:
        half = world.split(rank % 2, key=-rank)
        assert (half.size, half.rank, half.label) == (2, 1 - rank // 2, "world/split")
        value = numpy.array(rank)
        half.allreduce(value)
        assert value == (2 if rank % 2 == 0 else 4)
        assert world.split(-1 if rank else 0) is None or rank == 0
        assert repr(world) == f"<tributary.Communicator 'world': rank {rank} of 4>".replace("'", '"')
        assert world.is_on_one_host


def test_split():
    ranks.run(parts, RANKS)


def by_protocol(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        numbers = bytearray([rank] * 5)
        all_ranks.allreduce(numbers)
        assert numbers == bytes([6] * 5)
        view = memoryview(bytearray(32)).cast("d")
        view[1] = rank
        all_ranks.allreduce(view[1:3])
        assert view.tolist() == [0, 6, 0, 0]
        scalar = numpy.array(rank + 0.5)
        all_ranks.allreduce(scalar, op="max")
        assert scalar == 3.5
        flags = numpy.array([rank == 0, True])
        all_ranks.allreduce(flags, op="logical-and")
        assert flags.tolist() == [False, True]
        shifted = numpy.frombuffer(bytearray(17), "float32", count=4, offset=1)
        shifted[:] = rank
        all_ranks.allreduce(shifted)
        assert (shifted == 6).all()


def test_other_exporters():
    ranks.run(by_protocol, RANKS)


@pytest.mark.parametrize("name", [member.value for member in tributary.Operator])
def test_operators_are_those_of_numpy_or_of_pairs(name):
    assert name in FOLDS or name in ("minloc", "maxloc")
    assert operator.eq(tributary.Operator(name), name)
