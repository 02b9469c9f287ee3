"""The watch over a group's operations: one that takes too long ends the group, with a word on who has not come to it."""

import collections
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


class Deadline:
    """Until when an operation is to be over."""

    def __init__(self, watch, number, name, timeout_s):
        self._watch, self.number, self.name, self.timeout_s = watch, number, name, timeout_s
        self.at = time.monotonic() + timeout_s
        # What is over at the same time as its requests keeps them until the next look.
        self.is_over, self.check = lambda: False, lambda: None
        self.has_passed = False

    def end(self):
        """The operation is over."""
        self.is_over = lambda: True

    def blame(self, error):
        """Raises `error`, or that the deadline has passed if that is why there is one."""
        if not self.has_passed:
            self._watch.tell()
            raise error
        raise dist.DistBackendError(
            f"{self.name} was not over after {self.timeout_s:g} s, when its timeout ended (timed out): "
            f"{self._watch.why()}. The group was aborted at all ranks") from error


class Watch:
    """Aborts a group when one of its operations is not over in time. `roll` learns who takes part in what."""

    def __init__(self, label, abort, roll):
        self._label, self._abort, self._roll = label, abort, roll
        self._deadlines, self._lock, self._has_thread = [], threading.Lock(), False
        # Numbers are equal at all ranks: they call the same operations in the same order.
        self._number, self._last = 0, collections.deque(maxlen=KEPT)
        self._why, self._is_explained = None, threading.Event()
        self._process = os.getpid()

    def begin(self, name, timeout_s, tensors):
        """Takes an operation on."""
        if self._process != os.getpid():
            # Not even the lock is of use: a thread that is not here may have it.
            raise RuntimeError(f"the group belongs to process {self._process}, which forked this one")
        with self._lock:
            self._number += 1
            deadline = Deadline(self, self._number, name, timeout_s)
            self._last.append((self._number, name, [tuple(part.shape) for part in tensors if hasattr(part, "shape")]))
            self._deadlines.append(deadline)
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="tributary-watch", daemon=True).start()
        return deadline

    def tell(self):
        """Says in the group what this rank was in when another one gave the group up."""
        with self._lock:
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
            with self._lock:
                lasting, over = [], None
                for deadline in self._deadlines:
                    if deadline.is_over():
                        over = deadline
                    else:
                        lasting.append(deadline)
                self._deadlines = lasting
                idle = 0 if self._deadlines else idle + 1
                if idle > IDLE_LOOKS_MAX:
                    self._has_thread = False
                    return
                now = time.monotonic()
                passed = [deadline for deadline in self._deadlines if deadline.at <= now]
            # What takes longer goes on beside this thread, in whose middle the process may end.
            if passed:
                call_beside(lambda: self._give_up(passed))
                return
            if over:
                self._look_whether_given_up(over)

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
        lasting = {deadline.number for deadline in [*self._deadlines, *passed]}
        last = [f"{number} {name} of {shapes or 'nothing'}{', not over' if number in lasting else ''}"
                for number, name, shapes in self._last]
        logger.warning("%s was given up after %g s in %s: %s. The last operations here: %s", self._label,
                       first.timeout_s, first.name, self._why, "; ".join(last))
