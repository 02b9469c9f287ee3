"""Collectives in aggregation trees: inside a host through shared memory, between hosts through a tree of
aggregation nodes or over direct links.

**Buffers.** Every argument called `source`, `target` or `buffer` is memory that is used in place: an object with
the buffer protocol (NumPy arrays, `bytearray`, `array.array`, `memoryview`) or with `__dlpack__` (tensors of
PyTorch, JAX and others, in the processor's memory). Arrays of `ml_dtypes.bfloat16` are taken too. It must be
contiguous in C order, of this machine's byte order and, where something is written to it, writable. Its shape is
of no importance, the number of its elements is.

**Datatypes.** Reductions take signed and unsigned integers of 8 to 64 bits, float16, bfloat16, float32, float64,
complex64, complex128, bool (but for sum and product), and for minloc and maxloc structured arrays of a value
(int16, int32, int64, float32, float64) and an int32 index, aligned as C does. Broadcast and allgather move
anything that is no Python object.

**Agreement.** All ranks call the same operations with the same element types, lengths, operators and roots, in
the same order. As with MPI, nobody checks that across ranks.
"""

import enum
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, Self, TypeAlias

from typing_extensions import Buffer

__version__: str

class SupportsDlpack(Protocol):
    def __dlpack__(self) -> Any: ...

Memory: TypeAlias = Buffer | SupportsDlpack

class TributaryError(RuntimeError):
    """What went wrong in an operation or in setting a communicator up. The base of the others."""

class SetUpError(TributaryError):
    """A communicator could not be made: which ranks are missing, which setting is not allowed, or why the
    manager refused. All ranks that were reached get the same message."""

class RankLostError(TributaryError):
    """A process on this host ended in the middle of a collective."""

    rank: int
    """Which, in the communicator."""

class HostLostError(TributaryError):
    """A host, or the aggregation tree, was lost."""

    host: str | None
    """On or near which, if that is known."""

class AbortedError(TributaryError):
    """A rank has given the communicator up: it called `abort`, was interrupted, or closed or dropped the
    communicator with operations outstanding."""

class Operator(enum.StrEnum):
    """How elements combine, as MPI defines it. `op` takes the values too, as text.

    Integers wrap. Bitwise and logical operators take integers and bool, minloc and maxloc value-index pairs.
    """

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    MINLOC = "minloc"
    MAXLOC = "maxloc"
    BIT_AND = "bit-and"
    BIT_OR = "bit-or"
    BIT_XOR = "bit-xor"
    LOGICAL_AND = "logical-and"
    LOGICAL_OR = "logical-or"
    LOGICAL_XOR = "logical-xor"

class Request:
    """A nonblocking operation. Its buffers stay exported until it is over, whether this object lives or not;
    until then nobody may write to them, or read from the target.

    `await request` waits for it in a coroutine of asyncio.
    """

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the operation is over; other threads run meanwhile.

        `timeout` is in seconds. After a TimeoutError the operation is still outstanding. An interrupt
        (KeyboardInterrupt) that comes while this call carries the operation itself gives the communicator up.

        Raises TimeoutError, RankLostError, HostLostError, AbortedError.
        """

    def test(self) -> bool:
        """Whether the operation is over. Raises what it raised, if it failed."""

    def done(self) -> bool:
        """Whether the operation is over, well or not. Never raises."""

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Calls `callback` once the operation is over: at once if it is, else on another thread."""

    def __await__(self) -> Generator[Any, None, None]: ...

class Communicator:
    """Ranks that run collectives together.

    Settings come from the environment, as for MPI programs: TRIBUTARY_MANAGER names the manager of the
    aggregation nodes, and `tributary config` lists the others. Blocking and nonblocking operations queue up
    together. Every method that runs an operation lets other threads run, and raises RankLostError,
    HostLostError or AbortedError if it fails; the communicator is then of no further use.
    """

    @staticmethod
    def connect(
        address: str, rank: int, size: int, *, timeout: float = 60.0, label: str | None = None,
        sums: str | None = None,
    ) -> Communicator:
        """Meets the other ranks at `address` ("HOST:PORT"), at which rank 0 listens. Collective.

        Waits for `timeout` seconds at most in each exchange. `label` names the communicator in the report and
        in errors. The address belongs on a network that the job's users trust. `sums` says how reductions add floats,
        "ordered" or "exact", as rank 0 passes it; by default TRIBUTARY_SUMS does, and in a part of a communicator that one's.

        Raises SetUpError, which says which ranks are missing.
        """

    @staticmethod
    def from_store(
        store: Any,
        rank: int,
        size: int,
        *,
        prefix: str = "tributary",
        label: str = "store",
        parent: Communicator | None = None,
        sums: str | None = None,
    ) -> Communicator:
        """Meets the other ranks through a store of torch.distributed. Collective.

        `prefix` is this communicator's own in the store; one that is closed leaves it free for the next. `parent`
        is a communicator that has these ranks among its own: the new one shares its place at the manager. Either
        all ranks pass it or none does. Waits as long as the store does.

        Raises SetUpError.
        """

    @staticmethod
    def from_mpi(communicator: Any, *, label: str = "mpi", sums: str | None = None) -> Communicator:
        """The ranks of a communicator of mpi4py. Collective. Raises SetUpError."""

    @staticmethod
    def from_exchange(
        exchange: Any,
        rank: int,
        size: int,
        *,
        label: str = "exchange",
        parent: Communicator | None = None,
        computes_beside: bool = False,
        sums: str | None = None,
    ) -> Communicator:
        """Meets the other ranks through any object with `allgather(bytes) -> bytes`, which gives every rank
        the bytes of all, of equal lengths, in rank order. Collective. `parent` is as in `from_store`. Ranks that
        compute while operations are outstanding say so by `computes_beside`: waits then leave their core to
        others soon, unless TRIBUTARY_WAIT says how to wait. With a parent it is as there.

        Raises SetUpError, whose cause is what the object raised.
        """

    def split(
        self, color: int, key: int = 0, *, label: str | None = None, sums: str | None = None
    ) -> Communicator | None:
        """Parts the ranks: those with the same `color` get a communicator, ordered by `key` and then by rank;
        those with a negative one get None. Collective. Raises SetUpError."""

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def label(self) -> str:
        """Its name in the report and in errors."""

    @property
    def is_on_one_host(self) -> bool:
        """Whether all ranks are on one host."""

    def host_address(self) -> str:
        """The address at which ranks of other hosts reach this one. Raises SetUpError if nothing tells it."""

    def host_ports(self) -> list[int]:
        """The ports at which a listener for ranks of other hosts may be, to be tried in this order; 0 lets the system
        choose."""

    def allreduce(self, source: Memory, target: Memory | None = None, op: str = "sum") -> None:
        """Reduces every rank's vector element by element, and gives the result to all.

        `source` and `target` have n elements of one type each. Without a target the result replaces the source.

        Raises BufferError for memory that is read-only, not contiguous or overlapping, TypeError for elements
        that differ or on which `op` is not defined, ValueError for lengths that differ.
        """

    def iallreduce(self, source: Memory, target: Memory | None = None, op: str = "sum") -> Request:
        """`allreduce`, nonblocking."""

    def reduce(
        self, source: Memory, target: Memory | None = None, op: str = "sum", root: int = 0
    ) -> None:
        """Reduces every rank's vector element by element, and gives the result to `root`.

        `source` and, at the root, `target` have n elements of one type each. Without a target the result
        replaces the root's source. Other ranks' targets are not looked at. Raises as `allreduce`.
        """

    def ireduce(
        self, source: Memory, target: Memory | None = None, op: str = "sum", root: int = 0
    ) -> Request:
        """`reduce`, nonblocking."""

    def broadcast(self, buffer: Memory, root: int = 0) -> None:
        """Gives all ranks the content of `root`'s buffer: n bytes of any elements. The root's may be read-only.

        Raises BufferError for memory that is read-only or not contiguous, ValueError if there is no such root.
        """

    def ibroadcast(self, buffer: Memory, root: int = 0) -> Request:
        """`broadcast`, nonblocking."""

    def barrier(self) -> None:
        """Waits until every rank has come to it."""

    def ibarrier(self) -> Request:
        """`barrier`, nonblocking."""

    def allgather(self, source: Memory | None, target: Memory) -> None:
        """Gives all ranks everyone's vector, in rank order.

        `source` has n elements of any type, `target` size * n of the same, such as an array of shape (size, n).
        None as the source takes this rank's own part of the target. Raises as `allreduce`.
        """

    def iallgather(self, source: Memory | None, target: Memory) -> Request:
        """`allgather`, nonblocking."""

    def reduce_scatter(
        self,
        source: Memory,
        target: Memory | None = None,
        op: str = "sum",
        counts: Sequence[int] | None = None,
    ) -> None:
        """Reduces every rank's vector element by element, and gives each rank its block of the result.

        `source` has as many elements as all blocks together, `target` those of this rank's block. Block i has
        `counts[i]` elements; without counts all have as many, n / size. Without a target the block replaces the
        first elements of the source, and the rest of it is of no use. Raises as `allreduce`.
        """

    def ireduce_scatter(
        self,
        source: Memory,
        target: Memory | None = None,
        op: str = "sum",
        counts: Sequence[int] | None = None,
    ) -> Request:
        """`reduce_scatter`, nonblocking."""

    def exact_sum(self, array: Memory, axis: int | None = None) -> Any:
        """The correctly rounded sum of all elements that the ranks have together: the same bits for any number of
        ranks, any distribution of the elements and any path.

        `array` has elements of float32 or float64, and any length at each rank. With an `axis` elements along it are
        summed, and the result is a NumPy array of the sums, whose shape is the same at all ranks. Without one it is a
        float.

        Raises BufferError for memory that is not contiguous, TypeError for other elements.
        """

    def exact_dot(self, left: Memory, right: Memory, axis: int | None = None) -> Any:
        """The correctly rounded sum of the products of two arrays' elements, over all ranks, as `exact_sum`.

        `left` and `right` are of one shape. Raises ValueError if they are not.
        """

    def abort(self) -> None:
        """Gives the communicator up at all ranks: operations that wait on it, and all later ones, raise
        AbortedError. Not collective."""

    def close(self) -> None:
        """Leaves the communicator. Not collective. Operations that are outstanding are given up: wait for them
        first. Closing twice does nothing; a `with` block closes too."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

class ExactSum:
    """An exact sum: the real sum of all values that were added, which is rounded only when it is read.

    It does not depend on the order of additions and merges. `dtype` is "float32" or "float64". With
    `products` it sums products of two such values, and takes pairs of arrays.
    """

    def __init__(self, dtype: str = "float64", *, products: bool = False) -> None: ...
    @staticmethod
    def decode(data: bytes) -> ExactSum:
        """Reads what `encode` has written, on this machine or another one. Raises ValueError if the bytes are not a sum."""

    def add(self, source: Memory) -> None:
        """Adds all values of an array. Raises TypeError if its elements are of another type."""

    def add_products(self, left: Memory, right: Memory) -> None:
        """Adds the products of two arrays' values. Raises TypeError if their elements are of another type, ValueError for
        lengths that differ.
        """

    def merge(self, other: ExactSum) -> None:
        """Adds another sum of the same kind. Raises TypeError if it is of another one."""

    def allreduce(self, communicator: Communicator) -> None:
        """Adds up the sums that the ranks have, and gives the result to all. Collective: all ranks call it, with sums of
        one kind. Raises as `Communicator.allreduce`.
        """

    def value(self) -> float:
        """The sum rounded to nearest, ties to even."""

    def encode(self) -> bytes:
        """The sum as bytes, as the book's page on exact sums describes them. Equal sums have equal bytes."""

    def __float__(self) -> float: ...
    def __eq__(self, other: object) -> bool: ...

def report() -> dict[str, Any]:
    """What this process has counted until now: totals `in_host`, `in_tree` and `direct`, and each
    communicator's collectives, which its rank 0 counts. See the book's page on the report."""
