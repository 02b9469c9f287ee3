"""Groups whose ranks change while their processes go on: torch's `reconfigure`.

torch asks a backend for its rank and size in C++, where a class in Python can't change them. It takes a whole process
group in a backend's place; that one's rank and size are asked in Python. So a group of this kind stands before the
backend that its ranks have at the time, and passes calls on.
"""

import secrets

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ._collectives import nothing
from ._within import within
from ._work import TributaryWork

# What is passed on: how many arguments each has, and the options behind them.
PASSED_ON = {
    "all_gather_single": (2, c10d.AllgatherOptions), "all_gather_single_coalesced": (2, c10d.AllgatherOptions),
    "allgather": (2, c10d.AllgatherOptions), "allgather_coalesced": (2, c10d.AllgatherOptions),
    "allreduce": (1, c10d.AllreduceOptions), "allreduce_coalesced": (1, c10d.AllreduceCoalescedOptions),
    "all_to_all_single": (4, c10d.AllToAllOptions), "alltoall": (2, c10d.AllToAllOptions),
    "barrier": (0, c10d.BarrierOptions), "broadcast": (1, c10d.BroadcastOptions), "gather": (2, c10d.GatherOptions),
    "reduce": (1, c10d.ReduceOptions), "reduce_scatter": (2, c10d.ReduceScatterOptions),
    "reduce_scatter_single": (2, c10d.ReduceScatterOptions),
    "reduce_scatter_single_coalesced": (2, c10d.ReduceScatterOptions), "scatter": (2, c10d.ScatterOptions),
    "recv": (3, None), "send": (3, None),
}


class ElasticGroup(dist.ProcessGroup):
    """A process group that `reconfigure` gives its ranks, first and again. `make(store, rank, size, label)` makes the
    backend of those that meet in a store."""

    supports_reconfigure = True

    def __init__(self, options, make):
        super().__init__(options.group_rank, options.group_size)
        self._store, self._make, self._timeout = options.store, make, options.timeout
        self._place = options.group_rank, options.group_size
        self._label, self._description, self._backend, self._used = options.group_id, "", None, set()
        self._handle = new_handle()

    def get_reconfigure_handle(self):
        """What stands for this rank in the next list of ranks. Each list takes a new one."""
        return self._handle

    def reconfigure(self, opts):
        """Meets the ranks that have these handles, and takes their place in the list, or in the sorted set."""
        handles = sorted(opts.handles) if isinstance(opts.handles, (set, frozenset)) else list(opts.handles)
        if opts.uuid in self._used:
            raise ValueError(f"reconfigure with uuid {opts.uuid} a second time: each needs another one")
        if len(set(handles)) != len(handles):
            raise ValueError("reconfigure with a handle twice")
        if self._handle not in handles:
            raise ValueError("reconfigure without this rank's handle; it has a new one after each reconfigure")
        rank, size = handles.index(self._handle), len(handles)
        self._used.add(opts.uuid)
        self.shutdown()
        # Another connection, whose time limit is this call's alone.
        store, limit = dist.PrefixStore(f"reconfigured/{opts.uuid}", self._store), opts.timeout or self._timeout
        try:
            store = within(limit.total_seconds(), store.clone)
        except TimeoutError as error:
            raise dist.DistStoreError(f"reconfigure found nobody at the store of torch {self._label} within "
                                      f"{limit.total_seconds():g} s (timed out): its rank may have died") from error
        store.set_timeout(limit)
        self._backend = self._make(store, rank, size, f"torch {self._label}, number {opts.uuid}")
        self._backend.set_timeout(self._timeout)
        self._place, self._handle = (rank, size), new_handle()
        world = c10d._world
        if world.default_pg is self:
            world.pg_group_ranks[self] = {rank: rank for rank in range(size)}
        return TributaryWork([], [], nothing)

    @property
    def _now(self):
        if self._backend is None:
            raise RuntimeError(f"torch {self._label} has no ranks yet: it was made with enable_reconfigure, and "
                               "reconfigure() comes first")
        return self._backend

    def recvAnysource(self, tensors, tag):
        return self._now.recv_anysource(tensors, tag)

    recv_anysource = recvAnysource

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        opts = c10d.BarrierOptions()
        opts.timeout = self._timeout if timeout is None else timeout
        self._now.monitored_barrier(opts, wait_all_ranks)

    def set_timeout(self, timeout):
        self._timeout = timeout
        if self._backend is not None:
            self._backend.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def abort(self):
        if self._backend is not None:
            self._backend.abort()

    def shutdown(self):
        if self._backend is not None:
            self._backend.shutdown()
            self._backend = None

    # What torch asks of a group. It looks for the names that these have in C++.

    def getRank(self):
        return self._place[0]

    def getSize(self):
        return self._place[1]

    def getBackendName(self):
        return "tributary"

    name = _get_backend_name = getBackendName

    def getGroupName(self):
        return self._label

    def setGroupName(self, name):
        self._label = name

    def getGroupDesc(self):
        return self._description

    def setGroupDesc(self, description):
        self._description = description

    def _get_backend(self, device):
        return self._now

    @property
    def _device_types(self):
        # None before there are ranks: torch would ask for a backend in C++ then, to record what it does.
        return [] if self._backend is None else [torch.device("cpu")]


def new_handle():
    """A handle that no other rank has."""
    return f"tributary:{secrets.token_hex(16)}"


def pass_on(name, count, options):
    """A method that calls the one of the backend. torch passes options last or by name, or leaves them out."""
    def call(group, *arguments, opts=None):
        if options is not None and len(arguments) == count:
            arguments = (*arguments, options() if opts is None else opts)
        return getattr(group._now, name)(*arguments)

    call.__name__ = name
    return call


for name, arguments in PASSED_ON.items():
    setattr(ElasticGroup, name, pass_on(name, *arguments))
