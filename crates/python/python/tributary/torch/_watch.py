"""The watch over a group's operations: one that takes too long ends the group, with a word on who has not come to it."""

import collections
import itertools
import logging
import os
import threading
import time

import torch.distributed as dist

from .._tributary import AbortedError, call_beside

# How often deadlines are looked at: a timeout is noticed so much later at most.
LOOK_INTERVAL_S = 0.1
# Looks without an operation after which the watch's thread ends.
IDLE_LOOKS_MAX = 100
# Operations that are kept for a dump.
KEPT = 20
# How long a rank that waits for an operation waits for the word on which rank was missing.
INQUIRY_S = 3

logger = logging.getLogger("tributary.torch")


class Forks:
    """How often this process was forked off. A group belongs to the process that made it."""

    count = 0

    @classmethod
    def note(cls):
        cls.count += 1


os.register_at_fork(after_in_child=Forks.note)


class Deadline:
    """Until when an operation is to be over."""

    __slots__ = ("_watch", "number", "name", "timeout_s", "at", "is_over", "check", "has_passed")

    def __init__(self, watch, number, name, timeout_s):
        self._watch, self.number, self.name, self.timeout_s = watch, number, name, timeout_s
        self.at = time.monotonic() + timeout_s
        # Of an operation that nobody waits in: whether it is over, and what is asked of it then. What is over at the same
        # time as its requests keeps them until the next look.
        self.is_over = self.check = None
        self.has_passed = False

    def end(self):
        """The operation is over."""
        self._watch.forget(self)

    def blame(self, error):
        """Raises `error`, or that the deadline has passed if that is why there is one."""
        if not self.has_passed:
            self._watch.tell()
            raise error
        raise dist.DistBackendError(
            f"{self.name} was not over after {self.timeout_s:g} s, when its timeout ended (timed out): "
            f"{self._watch.why()}. The group was aborted at all ranks") from error


class Watch:
    """Aborts a group when one of its operations is not over in time. `roll` learns who takes part in what.

    Every operation begins and ends here, so that takes no lock: what is shared are a counter, a dictionary and a queue, each of
    which changes in one step.
    """

    def __init__(self, label, abort, roll):
        self._label, self._abort, self._roll = label, abort, roll
        # By number.
        self._deadlines = {}
        self._lock, self._has_thread = threading.Lock(), False
        # Numbers are equal at all ranks: they call the same operations in the same order.
        self._numbers, self._last = itertools.count(1), collections.deque(maxlen=KEPT)
        self._why, self._is_explained = None, threading.Event()
        self._forks, self._process = Forks.count, os.getpid()

    def begin(self, name, timeout_s, tensors):
        """Takes an operation on."""
        if self._forks != Forks.count:
            # Not even a lock would be of use: a thread that is not here may have it.
            raise RuntimeError(f"the group belongs to process {self._process}, which forked this one")
        number = next(self._numbers)
        self._last.append((number, name, [getattr(part, "shape", None) for part in tensors]))
        deadline = self._deadlines[number] = Deadline(self, number, name, timeout_s)
        # After the deadline is there: the thread looks for one after it has said that it ends.
        if not self._has_thread:
            self._start()
        return deadline

    def forget(self, deadline):
        """An operation is over."""
        self._deadlines.pop(deadline.number, None)

    def _start(self):
        with self._lock:
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="tributary-watch", daemon=True).start()

    def _may_end(self):
        """Whether the thread is of no use: no operation has come meanwhile, or another thread looks after it."""
        self._has_thread = False
        if not self._deadlines:
            return True
        with self._lock:
            if self._has_thread:
                return True
            self._has_thread = True
        return False

    def tell(self):
        """Says in the group what this rank was in when another one gave the group up."""
        last = self._last[-1] if self._last else (0, "nothing", [])
        self._roll.tell(*last[:2])

    def why(self):
        """Why an operation was not over in time, as far as that is known."""
        self._is_explained.wait(INQUIRY_S)
        return self._why or "some rank did not come to it, or is slow"

    def _run(self):
        idle = 0
        while True:
            time.sleep(LOOK_INTERVAL_S)
            deadlines = list(self._deadlines.values())
            idle = 0 if deadlines else idle + 1
            if idle > IDLE_LOOKS_MAX:
                if self._may_end():
                    return
                idle = 0
            over = [deadline for deadline in deadlines if deadline.is_over is not None and deadline.is_over()]
            for deadline in over:
                self.forget(deadline)
            now = time.monotonic()
            passed = [deadline for deadline in deadlines if deadline.at <= now and deadline.number in self._deadlines]
            # What takes longer goes on beside this thread, in whose middle the process may end.
            if passed:
                call_beside(lambda: self._give_up(passed))
                return
            if over:
                self._look_whether_given_up(over[-1])

    def _look_whether_given_up(self, deadline):
        # Nobody may wait for the operation now. A group that was given up stays so: one look is enough.
        try:
            deadline.check()
        except AbortedError:
            call_beside(self.tell)
        except Exception:
            pass  # told where it is waited for

    def _give_up(self, passed):
        for deadline in passed:
            deadline.has_passed = True
            deadline.end()
        self._abort()
        first = passed[0]
        try:
            self._why = self._roll.call(first.number, first.name)
        finally:
            self._is_explained.set()
        lasting = {*self._deadlines, *(deadline.number for deadline in passed)}
        last = [f"{number} {name} of {plain(shapes) or 'nothing'}{', not over' if number in lasting else ''}"
                for number, name, shapes in self._last]
        logger.warning("%s was given up after %g s in %s: %s. The last operations here: %s", self._label,
                       first.timeout_s, first.name, self._why, "; ".join(last))


def plain(shapes):
    """Shapes as people read them; lists of tensors have none."""
    return [tuple(shape) for shape in shapes if shape is not None]
