"""The process group: how it is made, what torch asks it beside collectives, and how it ends."""

import contextlib
import datetime
import functools

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from .._exchanges import StoreExchange
from .._tributary import Communicator
from ._collectives import LibraryCollectives
from ._elastic import ElasticGroup
from ._monitored_barrier import await_all
from ._options import Options, sums_in
from ._pairwise import PairwiseCollectives
from ._roll import Roll
from ._transfers import Transfers
from ._watch import Watch

# Groups that are in use. torch may hold no more of them than what C++ knows, and finds their methods in Python only
# as long as the objects are there.
_in_use = set()

# The group of all ranks, if it is this backend's.
_world = None


def create(options, backend_options=None):
    """Makes a process group, when torch.distributed asks for one. Collective over its ranks."""
    global _world
    sums = sums_in(backend_options)
    if getattr(options, "enable_reconfigure", False):
        return ElasticGroup(options, functools.partial(make_elastic, sums=sums))
    label = f"torch {options.group_id}"
    rank, size = options.group_rank, options.group_size
    # Later groups share the place at the manager of the group of all ranks. All ranks see alike whether there is one.
    is_world = not options.global_ranks_in_group
    parent = _world._communicator if _world is not None and not is_world else None
    made = meet(options.store, rank, size, "tributary", label, parent, sums)
    group = TributaryBackend(made, options.store, options.timeout, sums)
    if is_world:
        _world = group
    return group


def make_elastic(store, rank, size, label, sums):
    """The backend of a group whose ranks change, for those that it has now."""
    return TributaryBackend(meet(store, rank, size, "tributary", label, None, sums), store, store.timeout, sums)


def meet(store, rank, size, prefix, label, parent, sums):
    """A communicator of the ranks that meet in a store."""
    exchange = StoreExchange(store, rank, size, prefix)
    return Communicator.from_exchange(exchange, rank, size, label=label, parent=parent, computes_beside=True, sums=sums)


class TributaryBackend(LibraryCollectives, PairwiseCollectives, Backend):
    """A process group of the backend `tributary`. torch.distributed makes it; see its documentation for what
    each method is to do."""

    # What torch would ask itself in a circle, if a class in Python did not answer.
    supports_coalescing = supports_time_estimate = supports_reconfigure = supports_window = False
    supports_splitting = supports_shrinking = True

    def __init__(self, communicator, store, timeout, sums):
        super().__init__(communicator.rank, communicator.size)
        self._communicator, self._store, self._timeout_s = communicator, store, timeout.total_seconds()
        self._sums = sums
        self._sequence = 0
        self._transfers = Transfers(communicator, self.abort)
        roll = Roll(store, communicator.rank, communicator.size, self._transfers.session)
        self._watch = Watch(communicator.label, self.abort, roll)
        _in_use.add(self)

    def name(self):
        return "tributary"

    def getBackendName(self):
        return "tributary"

    _get_backend_name = getBackendName

    @property
    def options(self):
        """What the group was made with."""
        return Options(sums=self._sums, timeout=self._timeout)

    @property
    def _timeout(self):
        return datetime.timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout):
        """Sets the timeout of operations from now on."""
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _limit_s(self, opts):
        timeout = getattr(opts, "timeout", None)
        if not isinstance(timeout, datetime.timedelta) or timeout <= datetime.timedelta(0):
            return self._timeout_s
        return timeout.total_seconds()

    def _set_sequence_number_for_group(self):
        """All ranks count from zero."""

    def _get_sequence_number_for_group(self):
        return self._sequence

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """A barrier that tells which ranks did not come."""
        # No time at all is a limit here, as over Gloo.
        limit_s = 0 if opts.timeout == datetime.timedelta(0) else self._limit_s(opts)
        await_all(self._communicator, self._transfers, limit_s, wait_all_ranks)

    # Groups of some of the ranks.

    def split(self, store, ranks, options):
        """A group of those of this group's ranks, of which this rank is one."""
        own = ranks.index(self._communicator.rank)
        label = f"{self._communicator.label}/split"
        made = meet(store, own, len(ranks), "tributary", label, self._communicator, self._sums)
        return TributaryBackend(made, store, options._timeout if options else self._timeout, self._sums)

    def shrink(self, ranks_to_exclude, shrink_flags=0, opts_override=None):
        """A group of the ranks that are left. Those that are excluded, dead ones as a rule, take no part. It has a
        place of its own at the manager: this group's goes with a rank that has died."""
        global _world
        ranks = [rank for rank in range(self._communicator.size) if rank not in ranks_to_exclude]
        if shrink_flags & dist.distributed_c10d.SHRINK_ABORT:
            self.abort()
        word = "-".join(map(str, ranks_to_exclude))
        label = f"{self._communicator.label} without {word}"
        own = ranks.index(self._communicator.rank)
        made = meet(self._store, own, len(ranks), f"without {word}", label, None, self._sums)
        group = TributaryBackend(made, dist.PrefixStore(f"without {word}", self._store), self._timeout, self._sums)
        if _world is self:
            _world = group
        return group

    # The end.

    def abort(self):
        """Gives the group up at all ranks."""
        with contextlib.suppress(Exception):
            self._communicator.abort()
        self._transfers.close(is_aborted=True)

    def shutdown(self):
        """Leaves the group."""
        global _world
        self._transfers.close()
        self._communicator.close()
        _in_use.discard(self)
        if _world is self:
            _world = None
