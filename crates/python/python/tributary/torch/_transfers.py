"""Tensors from rank to rank: which send meets which receive, until when, and what becomes of them when a rank ends.

The sender offers a transfer, the receiver takes the offer once there is a receive for it, and only then the payload
goes. So nothing is kept for a receiver that has not come, and a transfer takes a round trip more than its payload.
A long payload on the same host does not go at all: the receiver reads it where the sender has it, and has it once the
sender has said that its tensor was still offered.
"""

import ctypes
import threading
import time

from .._tributary import AbortedError, RankLostError, call_beside
from ._links import DATA, GIVEN, OFFER, READ, REFUSE, TAKE, WITHDRAW, GivenUpError, LinkLostError
from ._mesh import Mesh
from ._peer_memory import READ_MIN


class TransferTimeout(Exception):
    """Transfers were not over in time."""


class Send:
    """A tensor for another rank. It lies in one piece."""

    def __init__(self, rank, tag, tensor):
        self.rank, self.tag, self.tensor = rank, tag, tensor
        self.batch, self.number, self.is_under_way = None, None, False


class Receive:
    """A tensor from another rank, or from any if `rank` is None. It lies in one piece. What comes may be shorter
    unless it `is_exact`."""

    def __init__(self, rank, tag, tensor, is_exact=True):
        self.rank, self.tag, self.tensor, self.is_exact = rank, tag, tensor, is_exact
        self.batch, self.source, self.length, self.was_read = None, None, None, False

    def fits(self, length):
        """Whether so many bytes can be received."""
        return length == length_of(self.tensor) or not self.is_exact and length < length_of(self.tensor)


class Batch:
    """Transfers that end together: when all are over, or the first has failed. An operation for a `TributaryWork`."""

    def __init__(self, name, transfers, limit_s, is_collective):
        self.name, self.transfers, self.limit_s, self.is_collective = name, transfers, limit_s, is_collective
        self.deadline, self.left = time.monotonic() + limit_s, len(transfers)
        self._error, self._callbacks, self._lock, self._over = None, [], threading.Lock(), threading.Event()
        for transfer in transfers:
            transfer.batch = self

    @property
    def is_over(self):
        """Whether it has ended, well or not."""
        return self._over.is_set()

    def end(self, error=None):
        """All is over, or `error` has happened."""
        with self._lock:
            if self._over.is_set():
                return
            self._error = error
            self._over.set()
            callbacks = self._callbacks
        for callback in callbacks:
            call_beside(callback)

    def add_done_callback(self, callback):
        """Calls `callback` once it is over: at once if it is, else on another thread."""
        with self._lock:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout_s):
        """Waits until it is over. Raises TimeoutError if it is not, and nothing else."""
        if not self._over.wait(timeout_s):
            raise TimeoutError(f"{self.name} is not over after {timeout_s:g} s (timed out)")

    def done(self):
        """Whether it is over."""
        return self._over.is_set()

    def test(self):
        """Raises what failed."""
        if self._error is not None:
            raise self._error


class Transfers:
    """One group's transfers at one rank. Setting it up is collective. `abort` gives the group up, when a collective has
    taken too long: its ranks no longer agree on what comes next."""

    def __init__(self, group, abort):
        self._abort = abort
        self._label, self._own, self._size = group.label, group.rank, group.size
        self._mesh = Mesh(group, self._handle, self._handle_lost, self._look_at_time) if group.size > 1 else None
        # A name of this group that no other has, alike at all ranks.
        self.session = self._mesh.session if self._mesh else ""
        # Of the mesh's thread alone. Offers and receives wait for each other in the order in which they came.
        self._batches, self._sends, self._receives, self._offers, self._taken = [], {}, [], [], {}
        # By rank, the receive whose payload has come in part.
        self._arriving, self._next = {}, 0

    def begin(self, name, transfers, limit_s, is_collective=False):
        """Starts transfers that end together."""
        for transfer in transfers:
            if transfer.rank == self._own:
                raise ValueError(f"{name}: rank {self._own} can't exchange tensors with itself")
            if transfer.rank is not None and not 0 <= transfer.rank < self._size:
                raise ValueError(f"{self._label} has no rank {transfer.rank}: it has {self._size}")
        batch = Batch(name, transfers, limit_s, is_collective)
        if not transfers:
            batch.end()
        else:
            self._mesh.post(lambda: self._begin(batch))
        return batch

    def close(self, is_aborted=False):
        """Ends what is outstanding, and leaves."""
        if self._mesh is None:
            return
        try:
            self._mesh.post(self._give_up)
        except RuntimeError:
            return  # closed before, or a parent's
        self._mesh.leave(is_aborted)

    # On the mesh's thread.

    def _give_up(self):
        for batch in list(self._batches):
            self._end(batch, AbortedError(f"{batch.name} was given up: this rank has closed {self._label}"))

    def _begin(self, batch):
        self._batches.append(batch)
        for transfer in batch.transfers:
            if batch.is_over:
                return
            if isinstance(transfer, Send):
                self._offer(transfer)
                continue
            self._receives.append(transfer)
            self._match(transfer.tag)
            if transfer in self._receives:
                self._see_senders(transfer)

    def _see_senders(self, receive):
        """Ends a receive if nobody is left to send. A connection to each who may tells when that is so."""
        senders = [rank for rank in range(self._size) if rank != self._own] if receive.rank is None else [receive.rank]
        if not any([self._mesh.reach(rank) for rank in senders]):
            self._end(receive.batch, self._error_of(senders[-1], self._mesh.lost[senders[-1]]))

    def _offer(self, send):
        if send.rank in self._mesh.lost:
            self._end(send.batch, self._error_of(send.rank, self._mesh.lost[send.rank]))
            return
        send.number = self._next
        self._next += 1
        self._sends[send.number] = send
        self._mesh.put(send.rank, OFFER, send.tag, send.number, length_of(send.tensor), send.tensor.data_ptr())

    def _match(self, tag):
        """Brings offers with a tag and receives for it together."""
        for receive in [receive for receive in self._receives if receive.tag == tag]:
            if receive not in self._receives:
                continue  # it ended with another one of its batch
            offer = next((offer for offer in self._offers
                          if offer[1] == tag and receive.rank in (None, offer[0])), None)
            if offer is None:
                continue
            self._offers.remove(offer)
            self._receives.remove(receive)
            source, _, number, length, address = offer
            receive.source, receive.length = source, length
            if not receive.fits(length):
                self._mesh.put(source, REFUSE, number=number, length=length_of(receive.tensor))
                self._end(receive.batch, ValueError(
                    f"rank {source} of {self._label} sends {length} bytes, where {receive.batch.name} is to get "
                    f"{length_of(receive.tensor)}"))
                continue
            self._taken[source, number] = receive
            receive.was_read = self._read(receive, address)
            self._mesh.put(source, READ if receive.was_read else TAKE, number=number)

    def _read(self, receive, address):
        """Reads a long payload where the sender has it. Whether all of it is here."""
        if receive.length < READ_MIN or not self._mesh.can_read(receive.source):
            return False
        return self._mesh.read(receive.source, address, receive.tensor.data_ptr(), receive.length)

    def _handle(self, rank, kind, tag, number, length, address):
        if kind == OFFER:
            self._offers.append((rank, tag, number, length, address))
            self._match(tag)
        elif kind == WITHDRAW:
            self._offers = [offer for offer in self._offers if (offer[0], offer[2]) != (rank, number)]
            receive = self._taken.pop((rank, number), None)
            if receive is not None and not receive.batch.is_over:
                # It waits for another one.
                self._receives.insert(0, receive)
                self._match(receive.tag)
        elif kind == DATA:
            return self._place_for(rank, number, length)
        elif kind == GIVEN:
            receive = self._taken.get((rank, number))
            if receive is not None and receive.was_read:
                self._finish_receive(rank, number)
        else:
            send = self._sends.get(number)
            if send is not None and send.rank == rank:
                self._answer(send, kind, length)
        return None

    def _answer(self, send, kind, wanted_bytes):
        if kind == REFUSE:
            del self._sends[send.number]
            self._end(send.batch, ValueError(
                f"{send.batch.name} sends {length_of(send.tensor)} bytes, where rank {send.rank} of {self._label} is "
                f"to get {wanted_bytes}"))
        elif kind == READ and not send.is_under_way:
            send.is_under_way = True
            self._mesh.put(send.rank, GIVEN, number=send.number, on_written=lambda: self._finish_send(send))
        elif kind == TAKE and not send.is_under_way:
            send.is_under_way = True
            self._mesh.put(send.rank, DATA, number=send.number, length=length_of(send.tensor),
                           payload=memory_of(send.tensor), on_written=lambda: self._finish_send(send))

    def _finish_send(self, send):
        self._sends.pop(send.number, None)
        self._count(send.batch)

    def _place_for(self, rank, number, length):
        receive = self._taken.get((rank, number))
        if receive is None:
            return None
        if length != receive.length:
            raise LinkLostError("it does not send what it offered")
        self._arriving[rank] = receive
        return memory_of(receive.tensor)[:length], lambda: self._finish_receive(rank, number)

    def _finish_receive(self, rank, number):
        self._arriving.pop(rank, None)
        receive = self._taken.pop((rank, number), None)
        if receive is not None:
            self._count(receive.batch)

    def _count(self, batch):
        batch.left -= 1
        if batch.left == 0:
            self._end(batch)

    def _end(self, batch, error=None):
        """Ends a batch; takes back what of it is outstanding."""
        if batch in self._batches:
            self._batches.remove(batch)
        batch.end(error)
        if error is None:
            return
        for transfer in batch.transfers:
            if isinstance(transfer, Send):
                self._take_back_send(transfer, error)
            elif transfer in self._receives:
                self._receives.remove(transfer)
            else:
                self._take_back_receive(transfer, error)

    def _take_back_send(self, send, error):
        if self._sends.get(send.number) is not send:
            return
        if not send.is_under_way:
            del self._sends[send.number]
            self._mesh.put(send.rank, WITHDRAW, number=send.number)
        elif isinstance(error, TransferTimeout):
            # The receiver must not take what comes from now on for the tensor.
            self._mesh.drop(send.rank, f"{send.batch.name} timed out in the middle")

    def _take_back_receive(self, receive, error):
        key = next((key for key, taken in self._taken.items() if taken is receive), None)
        if key is None:
            return
        del self._taken[key]
        if self._arriving.get(key[0]) is receive:
            # Nothing may be written to a tensor that the program has back.
            self._mesh.drop(key[0], f"{receive.batch.name} ended in the middle: {error}")

    def _handle_lost(self, rank, error):
        self._offers = [offer for offer in self._offers if offer[0] != rank]
        is_last = len(self._mesh.lost) == self._size - 1
        concerned = [send.batch for send in self._sends.values() if send.rank == rank]
        concerned += [receive.batch for (source, _), receive in self._taken.items() if source == rank]
        concerned += [receive.batch for receive in self._receives
                      if receive.rank == rank or receive.rank is None and is_last]
        self._sends = {number: send for number, send in self._sends.items() if send.rank != rank}
        self._taken = {key: receive for key, receive in self._taken.items() if key[0] != rank}
        self._arriving.pop(rank, None)
        for batch in concerned:
            self._end(batch, self._error_of(rank, error))

    def _error_of(self, rank, error):
        if isinstance(error, GivenUpError):
            return AbortedError(f"{self._label} was given up by rank {rank}")
        lost = RankLostError(f"rank {rank} of {self._label} was lost: {error}")
        lost.rank = rank
        return lost

    def _look_at_time(self):
        """Ends what has taken too long. How long there is nothing to look at; None if nothing is outstanding."""
        now = time.monotonic()
        for batch in [batch for batch in self._batches if batch.deadline <= now]:
            error = TransferTimeout(self._describe(batch))
            if batch.is_collective:
                # Under way before the program learns of it, and ends the process, maybe.
                call_beside(self._abort)
            self._end(batch, error)
        return max(0, min(batch.deadline for batch in self._batches) - now) if self._batches else None


    def _describe(self, batch):
        absent = sorted({transfer.rank for transfer in batch.transfers
                         if transfer in self._receives or self._sends.get(getattr(transfer, "number", None)) is transfer
                         and not transfer.is_under_way} - {None})
        text = f"{batch.name} was not over after {batch.limit_s:g} s, when its timeout ended (timed out)"
        if absent:
            text += f": rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))} did not come to it"
        return text + (". The group was aborted at all ranks" if batch.is_collective else "")


def length_of(tensor):
    """How many bytes a tensor has."""
    return tensor.numel() * tensor.element_size()


def memory_of(tensor):
    """A contiguous tensor's memory, which stays as long as it is in use."""
    length = length_of(tensor)
    if length == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * length).from_address(tensor.data_ptr())).cast("B")
