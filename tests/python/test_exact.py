"""Goal: exact sums have the bits of the real sum, rounded once, whatever the number of ranks and who has which element.
Method: the fractions of Python's library and `math.fsum` as the oracle; hostile values by a seed, cut in uneven pieces."""

import copy
import fractions
import functools
import math
import pickle
import sys

import numpy
import pytest

import many_exact
import ranks
import test_fabric
import tributary

INFINITY = float("inf")
LARGEST = {"float32": float(numpy.finfo("float32").max), "float64": float(numpy.finfo("float64").max)}


def rounded(number, kind):
    """A fraction as the nearest value of a type, of two the even one."""
    if kind == "float64":
        try:
            return number.numerator / number.denominator
        except OverflowError:
            return INFINITY if number > 0 else -INFINITY
    if abs(number) >= fractions.Fraction(2**25 - 1) * 2**103:
        return INFINITY if number > 0 else -INFINITY
    with numpy.errstate(over="ignore"):
        near = min(numpy.float32(float(number)), numpy.finfo("float32").max)
    near = max(near, -numpy.finfo("float32").max)
    others = [numpy.nextafter(near, numpy.float32(side)) for side in (-INFINITY, INFINITY)]
    candidates = [near, *(other for other in others if numpy.isfinite(other))]
    def distance(value):
        return abs(fractions.Fraction(float(value)) - number), int(value.view("uint32")) & 1
    return float(min(candidates, key=distance))


def sum_of(values):
    return sum((fractions.Fraction(float(value)) for value in values), fractions.Fraction(0))


def hostile(kind, length, seed):
    """Values of all exponents, most of which cancel, and subnormals; their partial sums overflow."""
    random = numpy.random.default_rng(seed)
    spread = 120 if kind == "float32" else 1000
    values = numpy.ldexp(random.uniform(-1, 1, length), random.integers(-spread, spread, length)).astype(kind)
    values[: length // 4] = -values[length // 4 : length // 4 * 2]
    values[::97] = numpy.finfo(kind).smallest_subnormal * 3
    values[5:9] = [LARGEST[kind], LARGEST[kind], -LARGEST[kind], -LARGEST[kind]]
    random.shuffle(values)
    return values


def factors(kind, length, seed):
    """Two vectors whose products cancel, and need twice the precision."""
    random = numpy.random.default_rng(seed)
    spread = 30 if kind == "float32" else 250
    left, right = (numpy.ldexp(random.uniform(-1, 1, length), random.integers(-spread, spread, length)).astype(kind)
                   for _ in range(2))
    left[: length // 3] = -left[length // 3 : length // 3 * 2]
    right[: length // 3] = right[length // 3 : length // 3 * 2]
    return left, right


def piece(values, rank, size):
    """What a rank has. Pieces differ in length; of many ranks some have nothing."""
    cuts = sorted((number * number * 7919 + size) % (len(values) + 1) for number in range(1, size))
    cuts = [0, *cuts, len(values)]
    return values[cuts[rank] : cuts[rank + 1]]


LENGTHS = [0, 1, 30, 2500, 9001]


def bits_of(all_ranks):
    rank, size = all_ranks.rank, all_ranks.size
    bits = []
    for kind in LARGEST:
        for length in LENGTHS:
            values = hostile(kind, max(length, 10), length)[:length]
            bits.append(all_ranks.exact_sum(piece(values, rank, size)).hex())
            left, right = factors(kind, length, length)
            bits.append(all_ranks.exact_dot(piece(left, rank, size), piece(right, rank, size)).hex())
        columns = hostile(kind, 3000, 77).reshape(600, 5)
        sums = all_ranks.exact_sum(piece(columns, rank, size), axis=0)
        assert sums.dtype == kind and sums.shape == (5,)
        bits += [float(value).hex() for value in sums]
    return bits


def everything(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        return bits_of(all_ranks)


@functools.cache
def expected():
    bits = []
    for kind in LARGEST:
        for length in LENGTHS:
            values = hostile(kind, max(length, 10), length)[:length]
            bits.append(rounded(sum_of(values), kind).hex())
            pairs = zip(*factors(kind, length, length))
            products = [fractions.Fraction(float(left)) * fractions.Fraction(float(right)) for left, right in pairs]
            bits.append(rounded(sum(products, fractions.Fraction(0)), kind).hex())
        columns = hostile(kind, 3000, 77).reshape(600, 5)
        bits += [rounded(sum_of(column), kind).hex() for column in columns.T]
    return bits


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_the_bits_are_those_of_the_real_sum_for_any_number_of_ranks(size):
    of_the_oracle = expected()
    for bits in ranks.run(everything, size):
        assert bits == of_the_oracle


@pytest.mark.parametrize("between", ["tree", "direct"])
@pytest.mark.parametrize("hosts, size", [(2, 4), (3, 7), (8, 8)])
def test_the_bits_are_those_of_the_real_sum_for_any_number_of_hosts(tmp_path, hosts, size, between):
    bits = tmp_path / "bits"
    test_fabric.execute(test_fabric.PROGRAM, "run", "--hosts", hosts, "--", sys.executable, test_fabric.JOB, "address",
                        "exact", size, TRIBUTARY_BETWEEN_HOSTS=between, BITS=str(bits))
    assert bits.read_text().splitlines() == [" ".join(expected())] * size


def test_exact_sums_of_a_communicator_and_an_external_receiver_are_refused(tmp_path):
    test_fabric.execute(test_fabric.PROGRAM, "run", "--hosts", 2, "--", sys.executable, test_fabric.JOB, "address", "refused", 2,
                        TRIBUTARY_BETWEEN_HOSTS="tree", TRIBUTARY_EXTERNAL_RECEIVER=str(tmp_path / "grant"))


def test_the_oracle_agrees_with_fsum_and_a_plain_sum_does_not():
    values = hostile("float64", 9001, 9001)
    finite = values[abs(values) < 1e300]
    assert math.fsum(finite) == rounded(sum_of(finite), "float64")
    assert math.fsum(finite) != finite.sum()


def reductions(rank, size, address):
    with tributary.Communicator.connect(address, rank, size, sums="exact") as all_ranks:
        part = all_ranks.split(rank % 2, label="half")
        for kind, length in (("float64", 3), ("float32", 700), ("float64", 2000)):
            vectors = [hostile(kind, max(length, 100), 10 * length + each)[:length] for each in range(size)]
            real = [sum_of(column) for column in zip(*vectors)]
            got = numpy.empty(length, kind)
            all_ranks.allreduce(vectors[rank], got)
            assert got.tolist() == [rounded(number, kind) for number in real]
            # Of fewer ranks, nonblocking, and a sum that the vector before tells nothing of.
            of_half = [sum_of(column) for column in zip(*vectors[rank % 2::2])]
            part.iallreduce(vectors[rank], got).wait()
            assert got.tolist() == [rounded(number, kind) for number in of_half]
            ones = numpy.ones(length, kind)
            all_ranks.allreduce(ones)
            assert ones.tolist() == [size] * length


@pytest.mark.parametrize("size", [1, 2, 4])
def test_reductions_are_exact_where_that_is_asked_for(size):
    ranks.run(reductions, size)


def test_a_word_for_sums_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match='"ordered" or "exact", not "fast"'):
        tributary.Communicator.connect(ranks.free_address(), 0, 1, sums="fast")


@pytest.mark.parametrize("size", [2, 5])
def test_sums_of_many_hostile_vectors_are_those_of_fsum(size):
    every_kind = 2 * len(many_exact.GENERATORS) * many_exact.LENGTH
    ranks.run(many_exact.compare, size, every_kind, 3, many_exact.LENGTH)


def special_values(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        def total(*values):
            return all_ranks.exact_sum(numpy.array(values[rank : rank + 1]))

        assert total(INFINITY, 1.0) == INFINITY and total(-INFINITY, LARGEST["float64"]) == -INFINITY
        assert math.isnan(total(INFINITY, -INFINITY)) and math.isnan(total(1.0, math.nan))
        assert math.copysign(1, total(-0.0, -0.0)) == -1 and math.copysign(1, total(-0.0, 0.0)) == 1
        assert math.copysign(1, total()) == 1 and total(-0.0).hex() == "-0x0.0p+0"
        assert total(LARGEST["float64"], LARGEST["float64"]) == INFINITY
        assert total(5e-324, -1e-323) == -5e-324


def test_infinities_nans_and_zeros_of_different_ranks():
    ranks.run(special_values, 2)


def axes(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        values = hostile("float64", 2 * 3 * 4 * 50, 3).reshape(2, 3, 4, 50)
        part = numpy.ascontiguousarray(numpy.array_split(values, size, axis=3)[rank])
        total = all_ranks.exact_sum(part, axis=-1)
        assert total.shape == (2, 3, 4)
        assert total.tolist() == [[[rounded(sum_of(row), "float64") for row in rows] for rows in block]
                                  for block in values]
        part = numpy.ascontiguousarray(numpy.array_split(values, size, axis=1)[rank])
        total = all_ranks.exact_sum(part, axis=1)
        assert total.shape == (2, 4, 50)
        assert total[1, 2, 7] == rounded(sum_of(values[1, :, 2, 7]), "float64")
        dot = all_ranks.exact_dot(part, part, axis=1)
        squares = [fractions.Fraction(value) ** 2 for value in values[0, :, 3, 9]]
        assert dot[0, 3, 9] == rounded(sum(squares), "float64")
        assert all_ranks.exact_sum(numpy.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
        assert all_ranks.exact_sum(numpy.zeros((3, 0)), axis=0).tolist() == []


def test_sums_along_an_axis():
    ranks.run(axes, 3)


def kept(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as all_ranks:
        values = piece(hostile("float64", 3000, 1), rank, size)
        sums = tributary.ExactSum()
        for part in numpy.array_split(values, 7):
            sums.add(part)
        whole = tributary.ExactSum()
        whole.add(memoryview(values))
        assert sums == whole and sums.encode() == whole.encode()
        sums.allreduce(all_ranks)
        left, right = factors("float32", 2000, 1)
        products = tributary.ExactSum("float32", products=True)
        products.add_products(piece(left, rank, size), piece(right, rank, size))
        products.allreduce(all_ranks)
        assert products.value() == all_ranks.exact_dot(piece(left, rank, size), piece(right, rank, size))
        return sums.encode(), products.encode()


def test_accumulators_are_kept_and_added_over_ranks():
    of_one = ranks.run(kept, 1)[0]
    assert ranks.run(kept, 4) == [of_one] * 4
    expected = rounded(sum_of(hostile("float64", 3000, 1)), "float64")
    assert tributary.ExactSum.decode(of_one[0]).value() == expected


def test_accumulators_are_merged_copied_and_read_again():
    values = hostile("float32", 900, 4)
    parts = [tributary.ExactSum("float32") for _ in range(3)]
    for part, own in zip(parts, numpy.array_split(values, 3)):
        part.add(own)
    total = copy.copy(parts[2])
    for part in (parts[0], parts[1]):
        total.merge(tributary.ExactSum.decode(part.encode()))
    assert float(total) == rounded(sum_of(values), "float32")
    assert pickle.loads(pickle.dumps(total)) == total and copy.deepcopy(total) == total
    assert total != parts[2]
    for refused, error in [(lambda: total.merge(tributary.ExactSum()), TypeError),
                           (lambda: total.add(numpy.zeros(3)), TypeError),
                           (lambda: total.add_products(values, values), TypeError),
                           (lambda: tributary.ExactSum(products=True).add(values), TypeError),
                           (lambda: tributary.ExactSum("float32", products=True).add_products(values, values[1:]), ValueError),
                           (lambda: tributary.ExactSum("int32"), ValueError),
                           (lambda: tributary.ExactSum.decode(b"12345678"), ValueError),
                           (lambda: tributary.ExactSum.decode(total.encode() + b"\0"), ValueError)]:
        with pytest.raises(error):
            refused()


def wrong(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as alone:
        doubles = numpy.zeros((4, 3))
        for refused, error in [(lambda: alone.exact_sum(numpy.zeros(3, "int64")), TypeError),
                               (lambda: alone.exact_sum(doubles.T), BufferError),
                               (lambda: alone.exact_sum(doubles, axis=2), ValueError),
                               (lambda: alone.exact_sum(doubles, axis=-3), ValueError),
                               (lambda: alone.exact_dot(doubles, doubles[:2]), ValueError),
                               (lambda: alone.exact_dot(doubles, doubles.reshape(3, 4), axis=0), ValueError),
                               (lambda: alone.exact_dot(doubles, doubles.astype("float32")), TypeError)]:
            with pytest.raises(error):
                refused()
        assert alone.exact_sum(doubles) == 0


def test_what_does_not_fit_is_refused():
    ranks.run(wrong, 1)
