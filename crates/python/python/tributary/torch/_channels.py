"""From one rank to another: a channel is a communicator of two, in which the sender broadcasts.

It is set up when it is first used, on a thread of its own, so that no rank waits for another one that is not
there yet. Each has a sender, a receiver and a tag; what one channel carries arrives in the order of its sends.
"""

import queue
import threading
import time

from .._exchanges import StoreExchange
from .._tributary import Communicator

# Between two looks whether the other rank has come. A store's own wait would hold up the process's other threads.
POLL_S = 0.002


class PollingStore:
    """A store in which nobody waits inside a call."""

    def __init__(self, store, timeout_s, is_closed):
        self._store, self._timeout_s, self._is_closed = store, timeout_s, is_closed
        self.set, self.check, self.delete_key = store.set, store.check, store.delete_key

    def multi_get(self, keys):
        until = time.monotonic() + self._timeout_s
        while not self._store.check(keys):
            if self._is_closed():
                raise RuntimeError("the group was closed")
            if time.monotonic() >= until:
                raise RuntimeError(f"not within {self._timeout_s:g} s")
            time.sleep(POLL_S)
        return [self._store.get(key) for key in keys]


class Transfer:
    """One send or receive."""

    def __init__(self, buffer):
        self.buffer = buffer
        self._error, self._callbacks, self._lock, self._is_over = None, [], threading.Lock(), threading.Event()

    def run(self, work):
        try:
            work(self.buffer)
        except BaseException as error:
            self._error = error
        self.buffer = None
        with self._lock:
            self._is_over.set()
            callbacks = self._callbacks
        for callback in callbacks:
            callback()

    def add_done_callback(self, callback):
        with self._lock:
            if not self._is_over.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout_s):
        if not self._is_over.wait(timeout_s):
            raise TimeoutError(f"the transfer is not over after {timeout_s:g} s")

    def done(self):
        return self._is_over.is_set()

    def test(self):
        if self._error is not None:
            raise self._error


class Channel:
    """From one rank to another. Its thread ends with the group."""

    def __init__(self, connect):
        self._connect, self._communicator = connect, None
        self._transfers = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="tributary-channel", daemon=True).start()

    def begin(self, buffer):
        transfer = Transfer(buffer)
        self._transfers.put(transfer)
        return transfer

    def abort(self):
        self._transfers.put(None)
        if self._communicator is not None:
            self._communicator.abort()

    def _serve(self):
        while (transfer := self._transfers.get()) is not None:
            transfer.run(self._carry)

    def _carry(self, buffer):
        if self._communicator is None:
            self._communicator = self._connect()
        self._communicator.broadcast(buffer, root=0)


class Channels:
    """One group's channels at one rank."""

    def __init__(self, group, store, timeout_s):
        self._group, self._store, self._timeout_s = group, store, timeout_s
        self._channels, self._is_closed = {}, False

    def send(self, buffer, target, tag):
        return self._channel(self._group.rank, target, tag).begin(buffer)

    def receive(self, buffer, source, tag):
        return self._channel(source, self._group.rank, tag).begin(buffer)

    def close(self):
        self._is_closed = True
        for channel in self._channels.values():
            channel.abort()

    def _channel(self, source, target, tag):
        if source == target:
            raise ValueError(f"rank {source} can't send to itself")
        key = (source, target, tag)
        if key not in self._channels:
            self._channels[key] = Channel(lambda: self._connect(*key))
        return self._channels[key]

    def _connect(self, source, target, tag):
        store = PollingStore(self._store, self._timeout_s, lambda: self._is_closed)
        place = 0 if self._group.rank == source else 1
        exchange = StoreExchange(store, place, 2, f"channel/{source}/{target}/{tag}")
        label = f"{self._group.label} {source}>{target}"
        return Communicator.from_exchange(exchange, place, 2, label=label, parent=self._group)
