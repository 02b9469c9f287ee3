"""Work: what torch.distributed waits for, and the watch over operations that take too long."""

import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from .._tributary import AbortedError

# How often deadlines are looked at: a timeout is noticed so much later at most.
LOOK_INTERVAL_S = 0.1
# Looks without an operation after which the watch's thread ends.
IDLE_LOOKS_MAX = 100


class TributaryWork(Work):
    """Operations that end together. Each has `wait(timeout)`, `done()`, `add_done_callback()` and `test()`, which
    raises what failed once it is done; the last of them is over last.

    `finish` is called once all are over well, and before anybody learns that they are. torch lets a class in
    Python answer `wait` and `get_future` alone: `is_completed` of what it hands out stays False.
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

    def get_future(self):
        """A future of the tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            over = torch.futures.Future()
            # An error that a callback raises is one in C++ too; one that is set as a result is not.
            self._future = over.then(lambda _: self._outcome())
        if self._operations:
            self._operations[-1].add_done_callback(lambda: (self._settle(), over.set_result(None)))
        else:
            self._settle()
            over.set_result(None)
        return self._future

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
            except BaseException as error:
                self._error = error
            self._is_settled = True


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


class Deadline:
    """Until when an operation is to be over."""

    def __init__(self, name, timeout_s):
        self.name, self.timeout_s, self.at = name, timeout_s, time.monotonic() + timeout_s
        self.is_over, self.has_passed = lambda: False, False

    def end(self):
        """The operation is over."""
        self.is_over = lambda: True

    def blame(self, error):
        """Raises `error`, or that the deadline has passed if that is why there is one."""
        if not self.has_passed:
            raise error
        raise dist.DistBackendError(
            f"{self.name} was not over after {self.timeout_s:g} s: some rank did not come to it, or is slow. The "
            "group was aborted at all ranks"
        ) from error


class Watch:
    """Aborts a communicator when one of its operations is not over in time."""

    def __init__(self, communicator):
        self._communicator = communicator
        self._deadlines, self._lock, self._has_thread = [], threading.Lock(), False

    def begin(self, name, timeout_s):
        """Takes an operation on."""
        deadline = Deadline(name, timeout_s)
        with self._lock:
            self._deadlines.append(deadline)
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="tributary-watch", daemon=True).start()
        return deadline

    def _run(self):
        idle = 0
        while True:
            time.sleep(LOOK_INTERVAL_S)
            with self._lock:
                self._deadlines = [deadline for deadline in self._deadlines if not deadline.is_over()]
                idle = 0 if self._deadlines else idle + 1
                if idle > IDLE_LOOKS_MAX:
                    self._has_thread = False
                    return
                now = time.monotonic()
                passed = [deadline for deadline in self._deadlines if deadline.at <= now]
            if passed:
                for deadline in passed:
                    deadline.has_passed = True
                    deadline.end()
                self._communicator.abort()
