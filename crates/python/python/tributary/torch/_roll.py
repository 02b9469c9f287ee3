"""Who takes part in which operation, told through the group's store once the group is given up, and never before."""

import contextlib
import json
import time
import weakref

import torch.distributed as dist

from ._within import within

# How long the ranks have to tell; those that wait in an operation do so as soon as the group is given up.
ANSWERS_S, POLL_S = 1, 0.02
# At the end of these, a rank may have done its part and be elsewhere.
ROOTED = {"broadcast", "reduce"}


# By store, a second connection to it, for the rolls of all groups on it.
_beside = weakref.WeakKeyDictionary()


class Roll:
    """A group's roll at one rank. `session` tells this group's words from those of others on one store."""

    def __init__(self, store, rank, size, session):
        self._rank, self._size, self._session = rank, size, session
        self._has_told = False
        # On the group's connection, another thread may wait. This one is made while the store is there: making one waits
        # for minutes where the store has gone with its rank.
        self._store, self._beside = connect_beside(store)

    def tell(self, number, name):
        """Says that this rank is in an operation. Only the first word counts."""
        if self._has_told:
            return
        self._has_told = True
        with contextlib.suppress(Exception):  # the store may have gone with its rank
            self._beside.set(self._key(self._rank), json.dumps([number, name]))

    def call(self, number, name):
        """Which ranks did not come to an operation, in words; None if that can't be learnt."""
        self.tell(number, name)
        try:
            # A store whose host is silent answers nothing, and ends no connection.
            told = within(2 * ANSWERS_S, self._answers)
        except Exception:
            return None
        parts = []
        silent = [rank for rank in range(self._size) if rank not in told]
        if silent:
            parts.append(f"{of_ranks(silent)} did not come to it" +
                         (", or had done their part" if name in ROOTED else ""))
        for rank, (at, what) in sorted(told.items()):
            if (at, what) != (number, name):
                parts.append(f"rank {rank} was in {what}, its operation {at} of the group, where this is {number}")
        return "; ".join(parts) or "all ranks came to it"

    def _answers(self):
        store, until = self._beside, time.monotonic() + ANSWERS_S
        told = {}
        while True:
            for rank in set(range(self._size)) - told.keys():
                if store.check([self._key(rank)]):
                    told[rank] = json.loads(store.get(self._key(rank)))
            if len(told) == self._size or time.monotonic() > until:
                return told
            time.sleep(POLL_S)

    def _key(self, rank):
        return f"given up/{self._session}/{rank}"


def connect_beside(store):
    """What a store's prefixes stand before, and a second connection to it; None where it gives none."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if store not in _beside:
        try:
            _beside[store] = store.clone()
        except Exception:
            return store, None
    return store, _beside[store]


def of_ranks(ranks):
    """Ranks in words."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
