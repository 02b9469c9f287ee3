"""Who takes part in which operation, told through the group's store once the group is given up, and never before."""

import contextlib
import json
import time

from ._within import within

# How long the ranks have to tell; those that wait in an operation do so as soon as the group is given up.
ANSWERS_S, POLL_S = 1, 0.02
# At the end of these, a rank may have done its part and be elsewhere.
ROOTED = {"broadcast", "reduce"}


class Roll:
    """A group's roll at one rank. `session` tells this group's words from those of others on one store."""

    def __init__(self, store, rank, size, session):
        self._store, self._rank, self._size, self._session = store, rank, size, session
        self._has_told = False

    def tell(self, number, name):
        """Says that this rank is in an operation. Only the first word counts."""
        if self._has_told:
            return
        self._has_told = True
        with contextlib.suppress(Exception):  # the store may have gone with its rank
            # A connection of its own: on the group's, another thread may wait.
            word = json.dumps([number, name])
            within(ANSWERS_S, lambda: self._store.clone().set(self._key(self._rank), word))

    def call(self, number, name):
        """Which ranks did not come to an operation, in words; None if that can't be learnt."""
        self.tell(number, name)
        try:
            told = self._answers()
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
        store, until = within(ANSWERS_S, self._store.clone), time.monotonic() + ANSWERS_S
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


def of_ranks(ranks):
    """Ranks in words."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
