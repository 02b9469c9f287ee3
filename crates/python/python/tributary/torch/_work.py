"""Work: what torch.distributed waits for."""

import functools
import sys
import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup, Work

from .._tributary import AbortedError
from ._transfers import Receive, TransferTimeout


class TributaryWork(Work):
    """Operations that end together. Each has `wait(timeout)`, `done()`, `add_done_callback()` and `test()`, which
    raises what failed once it is done.

    `finish` is called once all are over well, and before anybody learns that they are.
    """

    def __init__(self, operations, result, finish):
        super().__init__()
        self._operations, self._result, self._finish = operations, result, finish
        self._lock, self._is_settled, self._error, self._future = threading.Lock(), False, None, None

    def wait(self, timeout=None):
        """Waits until all is over; raises what failed."""
        limit_s = timeout.total_seconds() if timeout else None
        for operation in self._operations:
            try:
                operation.wait(limit_s)
            except TimeoutError as error:
                raise dist.DistBackendError(str(error)) from None
            except Exception:
                break  # the first error is the one that is raised below
        self._settle()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self):
        """Whether all is over, well or not."""
        if not all(operation.done() for operation in self._operations):
            return False
        self._settle()
        return True

    def is_success(self):
        """Whether all is over, and well."""
        return self.is_completed() and self._error is None

    def exception(self):
        """What failed, or None."""
        return self._error

    def result(self):
        """The tensors."""
        return list(self._result)

    def synchronize(self):
        """As `wait`: there is no other stream."""
        self.wait()

    def source_rank(self):
        """From whom a tensor came that was received from any rank."""
        transfers = [transfer for operation in self._operations for transfer in getattr(operation, "transfers", [])]
        sources = [transfer.source for transfer in transfers if isinstance(transfer, Receive)]
        if len(sources) != 1:
            raise RuntimeError("source_rank() is for a tensor that is received from any rank")
        return sources[0]

    _source_rank = source_rank

    def get_future(self):
        """A future of the tensors."""
        if getattr(_asked, "is_on", False):
            _asked.work = self
            return _OVER
        with self._lock:
            is_new = self._future is None
            if is_new:
                over = torch.futures.Future()
                # An error that a callback raises is one in C++ too; one that is set as a result is not.
                self._future = over.then(lambda _: self._outcome())
        if is_new:
            self._when_over(lambda: over.set_result(None))
        # None before this one where a thread of C++ asks.
        if is_called_by_torch(sys._getframe().f_back):
            return self._typed_future()
        return self._future

    def _typed_future(self):
        # DDP's `join` takes the value of what it has waited for at once: that future has to be complete already.
        if self._is_settled and self._error is None and self._result and (over := typed_and_over(self._result)):
            return over
        return typed().after(self._future, self._result)

    def _when_over(self, action):
        """Calls `action` once every operation is over and settled."""
        left = [len(self._operations)]

        def count():
            with self._lock:
                left[0] -= 1
                if left[0] > 0:
                    return
            self._settle()
            action()

        if not self._operations:
            self._settle()
            action()
        for operation in self._operations:
            operation.add_done_callback(count)

    def _outcome(self):
        if self._error is not None:
            raise self._error
        return self._result

    def _settle(self):
        with self._lock:
            if self._is_settled:
                return
            try:
                for operation in self._operations:
                    operation.wait(None)  # over, or about to be
                    operation.test()
                self._finish()
            except TransferTimeout as error:
                self._error = dist.DistBackendError(str(error))
            except BaseException as error:
                self._error = error
            self._is_settled = True


# torch's own hooks in C++ take only a future whose type says that it is a list of tensors. A future of Python's has no
# such type; one of TorchScript has. Its callbacks run on threads of which there are few, so it is for hooks in C++
# alone: those wait for nothing.
TYPED = """
def tensors_of_operation(over: Future[int], tensors: List[Tensor]) -> List[Tensor]:
    torch.jit.wait(over)
    return tensors

def after(over: Future[int], tensors: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(tensors_of_operation, over, tensors)
"""


@functools.cache
def typed():
    """The functions of TYPED."""
    return torch.jit.CompilationUnit(TYPED)


def typed_and_over(tensors):
    """A future of that type which has its value from the start; None where this torch has no way to make one. One of
    TorchScript gets its value on another thread, for which nobody may wait where C++ asks: that thread may be the
    caller."""
    group = group_of_one()
    return group and group.broadcast(tensors, dist.BroadcastOptions()).get_future()


@functools.cache
def group_of_one():
    """torch's group for tests, which does nothing, and so is over at once; here as if all its ranks, one, had come."""
    try:
        options = FakeProcessGroup.Options()
        options.simulate_uniform_ranks = True
        return FakeProcessGroup._create_internal(0, 1, options)
    except AttributeError:
        return None  # a torch without it, or whose group has no results


def is_called_by_torch(caller):
    """Whether torch's code in C++ asks for a future: no code of Python that mentions it is next on the stack."""
    return caller is None or "get_future" not in caller.f_code.co_names


# torch hands out a Work in C++ that holds ours, and passes `wait` and `get_future` on alone. What else a program may
# ask is answered here: by the work behind it if it is ours, else as before.
_asked = threading.local()
_OVER = torch.futures.Future()
_OVER.set_result(None)


def work_behind(work):
    """The TributaryWork that a Work of C++ holds; None if it is another backend's."""
    if isinstance(work, TributaryWork):
        return work
    _asked.is_on, _asked.work = True, None
    try:
        work.get_future()
    except Exception:
        return None
    finally:
        _asked.is_on = False
    return _asked.work


def pass_on(name):
    """Has torch's Work ask ours for `name`."""
    of_torch = getattr(Work, name)

    def ask(work, *arguments):
        ours = work_behind(work)
        return of_torch(work, *arguments) if ours is None else getattr(ours, name)(*arguments)

    ask.__doc__, ask.__name__ = of_torch.__doc__, name
    setattr(Work, name, ask)


def pass_questions_on():
    """Has torch's Work ask ours for what torch itself does not pass on."""
    for name in ("is_completed", "is_success", "exception", "result", "synchronize", "source_rank", "_source_rank"):
        pass_on(name)


class Timed:
    """Requests of one communicator with a deadline, as one operation."""

    def __init__(self, requests, deadline):
        self._requests, self._deadline = requests, deadline

    def wait(self, timeout_s):
        try:
            # They are over in the order in which they were started.
            self._requests[-1].wait(timeout_s)
        except AbortedError as error:
            self._deadline.blame(error)

    def done(self):
        return self._requests[-1].done()

    def add_done_callback(self, callback):
        self._requests[-1].add_done_callback(callback)

    def test(self):
        try:
            for request in self._requests:
                request.test()
        except AbortedError as error:
            self._deadline.blame(error)
