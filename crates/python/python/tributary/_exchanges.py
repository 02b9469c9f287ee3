"""How ranks reach each other before a communicator is set up, where something connects them already.

An exchange has `allgather(bytes) -> bytes`: everyone's bytes, of equal lengths, in rank order.
"""

import os
import time

from ._tributary import Communicator

# Between two looks whether other ranks have come.
POLL_S = 0.002


class StoreExchange:
    """Through a store of torch.distributed: each rank sets a key a round, and gets those of the others.

    A store may live longer than the ranks: torchrun restarts them on the same one, and a program may end a group and
    make the next one of its name. So ranks first agree on a session. Every rank but rank 0 says hello with a word that it
    has just drawn; rank 0 answers each word with the session's name. Keys of an earlier time have other names, and an
    answer to a word that nobody waits for any more does no harm.
    """

    def __init__(self, store, rank, size, prefix):
        self._store, self._rank, self._size, self._prefix = store, rank, size, prefix
        self._word, self._session, self._round = os.urandom(16).hex(), None, 0

    def allgather(self, mine):
        """Everyone's bytes. Raises what the store raises, saying which ranks are missing."""
        if self._session is None:
            self._session = self._word if self._rank == 0 else self._ask_for_session()
        keys = [self._key(self._round, rank) for rank in range(self._size)]
        self._store.set(keys[self._rank], mine)
        if self._rank == 0 and self._round == 0:
            self._admit(keys)
        try:
            parts = self._store.multi_get(keys)
        except Exception as error:
            raise RuntimeError(f"ranks {self._absent(keys)} did not come to the store: {error}") from error
        # A rank that has set its key of this round has read all of the round before.
        if self._round > 0:
            self._store.delete_key(self._key(self._round - 1, self._rank))
        self._round += 1
        return b"".join(parts)

    def _key(self, number, rank):
        return f"{self._prefix}/{self._session}/{number}/{rank}"

    def _ask_for_session(self):
        hello, answer = f"{self._prefix}/hello/{self._rank}", f"{self._prefix}/{self._word}"
        self._store.set(hello, self._word)
        try:
            session = self._store.get(answer).decode()
        except Exception as error:
            raise RuntimeError(f"ranks [0] did not come to the store: {error}") from error
        self._store.delete_key(answer)
        return session

    def _admit(self, keys):
        """Tells the session to every rank that says hello, until all have come to its first round."""
        until, told = time.monotonic() + self._store.timeout.total_seconds(), set()
        while absent := self._absent(keys):
            for rank in absent:
                hello = f"{self._prefix}/hello/{rank}"
                # The word stays, and the next one replaces it: a key that could go would be waited for here.
                word = self._store.get(hello).decode() if self._store.check([hello]) else None
                if word and word not in told:
                    self._store.set(f"{self._prefix}/{word}", self._session)
                    told.add(word)
            if time.monotonic() >= until:
                raise RuntimeError(f"ranks {absent} did not come to the store: timed out")
            time.sleep(POLL_S)

    def _absent(self, keys):
        return [rank for rank, key in enumerate(keys) if not self._store.check([key])]


class MpiExchange:
    """Through a communicator of mpi4py."""

    def __init__(self, communicator):
        self._communicator = communicator

    def allgather(self, mine):
        """Everyone's bytes."""
        gathered = bytearray(len(mine) * self._communicator.Get_size())
        self._communicator.Allgather(bytearray(mine), gathered)
        return bytes(gathered)


def from_store(store, rank, size, prefix, label, parent, sums):
    """`Communicator.from_store`."""
    exchange = StoreExchange(store, rank, size, prefix)
    return Communicator.from_exchange(exchange, rank, size, label=label, parent=parent, sums=sums)


def from_mpi(communicator, label, sums):
    """`Communicator.from_mpi`."""
    rank, size = communicator.Get_rank(), communicator.Get_size()
    return Communicator.from_exchange(MpiExchange(communicator), rank, size, label=label, sums=sums)
