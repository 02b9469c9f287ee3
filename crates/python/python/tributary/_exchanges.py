"""How ranks reach each other before a communicator is set up, where something connects them already.

An exchange has `allgather(bytes) -> bytes`: everyone's bytes, of equal lengths, in rank order.
"""

from ._tributary import Communicator


class StoreExchange:
    """Through a store of torch.distributed: each rank sets a key a round, and gets those of the others."""

    def __init__(self, store, rank, size, prefix):
        self._store, self._rank, self._size, self._prefix = store, rank, size, prefix
        self._round = 0
        if store.check([self._key(0, rank)]):
            raise ValueError(f"a communicator was made with prefix {prefix!r} in this store before: pass another")

    def _key(self, number, rank):
        return f"{self._prefix}/{number}/{rank}"

    def allgather(self, mine):
        """Everyone's bytes. Raises what the store raises, saying which ranks are missing."""
        self._store.set(self._key(self._round, self._rank), mine)
        keys = [self._key(self._round, rank) for rank in range(self._size)]
        try:
            parts = self._store.multi_get(keys)
        except Exception as error:
            absent = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            raise RuntimeError(f"ranks {absent} did not come to the store: {error}") from error
        # Whoever set a key of this round has read all of the round before the last one. The first round's
        # stay, and tell that the prefix was used.
        if self._round > 2:
            self._store.delete_key(self._key(self._round - 2, self._rank))
        self._round += 1
        return b"".join(parts)


class MpiExchange:
    """Through a communicator of mpi4py."""

    def __init__(self, communicator):
        self._communicator = communicator

    def allgather(self, mine):
        """Everyone's bytes."""
        gathered = bytearray(len(mine) * self._communicator.Get_size())
        self._communicator.Allgather(bytearray(mine), gathered)
        return bytes(gathered)


def from_store(store, rank, size, prefix, label, parent):
    """`Communicator.from_store`."""
    exchange = StoreExchange(store, rank, size, prefix)
    return Communicator.from_exchange(exchange, rank, size, label=label, parent=parent)


def from_mpi(communicator, label):
    """`Communicator.from_mpi`."""
    rank, size = communicator.Get_rank(), communicator.Get_size()
    return Communicator.from_exchange(MpiExchange(communicator), rank, size, label=label)
