"""Goal: whatever comes as a buffer, a call works on it in place or raises; it never crashes or writes
elsewhere. Method: properties over shapes, types and strides on one rank, hostile DLPack capsules, and
buffers that are let go or resized while an operation is outstanding."""

import array
import ctypes
import gc
import weakref

import ml_dtypes
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ranks
import tributary

REFUSALS = (BufferError, TypeError, ValueError)


@pytest.fixture(scope="module")
def alone():
    """A communicator of one rank: what a collective does there is a copy."""
    return tributary.Communicator.connect("127.0.0.1:1", 0, 1)


KINDS = st.one_of(arrays.integer_dtypes(endianness="?"), arrays.unsigned_integer_dtypes(endianness="?"),
                  arrays.floating_dtypes(endianness="?"), arrays.complex_number_dtypes(endianness="?"),
                  arrays.boolean_dtypes(), arrays.byte_string_dtypes(), arrays.datetime64_dtypes(),
                  arrays.nested_dtypes(), st.just(numpy.dtype(ml_dtypes.bfloat16)),
                  st.just(numpy.dtype(ml_dtypes.float8_e4m3fn)), st.just(numpy.dtype(object)))


@st.composite
def views(draw):
    """An array, its base, and whether it is contiguous and writable: any stride, offset and byte order."""
    kind = draw(KINDS)
    base = numpy.zeros(draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), kind)
    view = base[draw(arrays.basic_indices(base.shape))] if base.ndim else base
    view = numpy.asarray(view)
    if draw(st.booleans()):
        view = view.T
    if draw(st.booleans()):
        view.flags.writeable = False
    return view


@settings(max_examples=400, deadline=None)
@given(source=views(), target=views(), op=st.sampled_from(list(tributary.Operator)))
def test_any_two_arrays_are_reduced_or_refused(alone, source, target, op):
    before = source.copy()
    try:
        alone.allreduce(source, target, op=op)
    except REFUSALS:
        return
    assert target.dtype == source.dtype and target.size == source.size
    assert target.flags.c_contiguous and source.flags.c_contiguous and target.flags.writeable
    assert target.tobytes() == before.tobytes()


@settings(max_examples=400, deadline=None)
@given(view=views())
def test_any_array_is_moved_or_refused(alone, view):
    before = view.copy() if view.dtype != object else view
    try:
        alone.allgather(None, view)
        alone.broadcast(view)
    except REFUSALS:
        assert not (view.flags.c_contiguous and view.flags.writeable and view.dtype.kind in "iufc"
                    and view.dtype.isnative and view.dtype.itemsize <= 8 and view.dtype.names is None)
        return
    assert view.dtype != object and view.tobytes() == before.tobytes()


@settings(max_examples=200, deadline=None)
@given(thing=st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.lists(st.floats()),
                       st.builds(lambda data: memoryview(data)[::2], st.binary(min_size=3)),
                       st.builds(lambda data: array.array("u", data), st.text(max_size=3))))
def test_things_that_are_no_writable_numbers_are_refused(alone, thing):
    with pytest.raises(REFUSALS):
        alone.allreduce(thing)


@pytest.mark.parametrize("source, target, error, words", [
    (numpy.ones(4), numpy.ones(5), ValueError, "source has 4 elements, target 5"),
    (numpy.ones(4), numpy.ones(4, "f4"), TypeError, "source has elements of f64, target of f32"),
    (numpy.ones(8)[::2], None, BufferError, "not contiguous"),
    (numpy.ones((3, 3)).T, None, BufferError, "not contiguous"),
    (numpy.frombuffer(bytes(8), "i4"), None, BufferError, "read-only"),
    (numpy.ones(4, ">f8"), None, TypeError, "moved but not combined"),
    (numpy.array(["a"]), None, TypeError, "moved but not combined"),
    (numpy.array([None]), None, TypeError, "Python objects"),
    (numpy.ones(2, "?"), None, TypeError, "sum is not defined on bool"),
    ([1, 2], None, TypeError, "a list has neither the buffer protocol nor __dlpack__"),
])
def test_a_refusal_says_why(alone, source, target, error, words):
    with pytest.raises(error, match=words):
        alone.allreduce(source, target)


def test_other_arguments_are_refused(alone):
    vector = numpy.ones(6)
    for call, words in [
        (lambda: alone.allreduce(vector, op="avg"), "there is no operator"),
        (lambda: alone.broadcast(vector, root=1), "root 1 is not a rank"),
        (lambda: alone.reduce(vector, root=7), "root 7 is not a rank"),
        (lambda: alone.reduce_scatter(vector, counts=[5]), "counts add up to 5"),
        (lambda: alone.reduce_scatter(vector, counts=[2**63, 2**63]), "2 numbers for 1"),
        (lambda: alone.reduce_scatter(vector, numpy.ones(5)), "block has 6"),
        (lambda: alone.allgather(numpy.ones(5), vector), "contribute 40 each"),
        (lambda: alone.ibarrier().wait(timeout=-1), "seconds"),
        (lambda: tributary.Communicator.connect("127.0.0.1:1", 0, 1, timeout=float("nan")), "seconds"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="not defined on f64"):
        alone.allreduce(vector, op="bit-or")
    with pytest.raises(BufferError, match="overlap"):
        alone.allreduce(vector[:4], vector[2:])


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Producer:
    """Lends 16 floats by DLPack as its fields say, which may be anything."""

    def __init__(self, name=b"dltensor", device=1, type_=(2, 32, 1), shape=(16,), strides=None, ndim=None):
        self.memory = (ctypes.c_float * 16)(*range(16))
        numbers = ctypes.c_int64 * max(1, len(shape))
        self.shape, self.strides = numbers(*shape), numbers(*(strides or ()))
        self.deleted = 0

        def delete(_):
            self.deleted += 1

        self.delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(delete)
        tensor = DlTensor(ctypes.addressof(self.memory), device, 0, len(shape) if ndim is None else ndim,
                          *type_, self.shape, self.strides if strides else None, 0)
        self.managed = Managed(tensor, None, ctypes.cast(self.delete, ctypes.c_void_p))
        self.name = name

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), self.name, None)


def test_dlpack_is_used_in_place_and_given_back(alone):
    for shape, strides in [((16,), None), ((4, 4), (4, 1)), ((2, 1, 8), (8, 99, 1)), ((), None)]:
        producer = Producer(shape=shape, strides=strides)
        target = numpy.zeros(16 if shape else 1, "f4")
        alone.allreduce(producer, target)
        assert target.tolist() == list(range(len(target)))
        assert producer.deleted == 1


@settings(max_examples=300, deadline=None)
@given(device=st.sampled_from([1, 2, 3, 10, -1]), bits=st.integers(0, 255), code=st.integers(0, 20),
       lanes=st.integers(0, 65535), shape=st.lists(st.integers(-2**63, 2**63 - 1), max_size=4),
       strides=st.one_of(st.none(), st.lists(st.integers(-4, 4), min_size=4, max_size=4)),
       ndim=st.one_of(st.none(), st.integers(-5, 0)))
def test_hostile_dlpack_is_refused(alone, device, bits, code, lanes, shape, strides, ndim):
    """Every one that does not fit its memory must be refused: the target has the 64 bytes that are there."""
    producer = Producer(device=device, type_=(code, bits, lanes), shape=shape,
                        strides=strides[:len(shape)] if strides else None, ndim=ndim)
    try:
        alone.allreduce(producer, numpy.zeros(16, "f4"))
    except REFUSALS:
        pass
    assert producer.deleted == 1


def test_capsules_of_something_else_are_refused(alone):
    class Liar:
        def __init__(self, answer):
            self.answer = answer

        def __dlpack__(self, **_):
            return self.answer

    for answer in (None, 7, Producer(name=b"tensor").__dlpack__(), Producer(name=None).__dlpack__()):
        with pytest.raises(TypeError, match="no capsule"):
            alone.allreduce(Liar(answer))
    used = Producer()
    capsule = used.__dlpack__()
    alone.broadcast(Liar(capsule))
    with pytest.raises(TypeError, match="no capsule"):
        alone.broadcast(Liar(capsule))


def freed_while_pending(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as both:
        results = []
        for number in range(50):
            target = numpy.zeros(10_000)
            request = both.iallreduce(numpy.full(10_000, float(number)), target)
            if number % 2:
                del target, request  # nobody will ask; the operation goes on
                gc.collect()
                junk = [numpy.full(10_000, -1.0) for _ in range(5)]
                del junk
            else:
                results.append((number, target))
        both.barrier()
        assert all((target == 2 * number).all() for number, target in results)


def test_buffers_live_while_an_operation_is_outstanding():
    ranks.run(freed_while_pending, 2)


def resized_while_pending(rank, size, address, go_on):
    with tributary.Communicator.connect(address, rank, size) as both:
        resizable, vector = bytearray(8), numpy.full(100_000, rank + 1)
        if rank == 1:
            ranks.await_file(go_on)
        requests = [both.iallreduce(vector), both.iallreduce(resizable)]
        alive = weakref.ref(vector)
        del vector
        gc.collect()
        if rank == 0:
            assert alive() is not None
            with pytest.raises(BufferError):
                resizable.extend(b"more")
            with pytest.raises(TimeoutError, match="not over after 0.01 s"):
                requests[0].wait(timeout=0.01)
            go_on.touch()
        for request in reversed(requests):
            request.wait()
        resizable.extend(b"more")
        gc.collect()
        assert alive() is None


def test_buffers_are_exported_until_an_operation_is_over_and_no_longer(tmp_path):
    ranks.run(resized_while_pending, 2, tmp_path / "go on")
