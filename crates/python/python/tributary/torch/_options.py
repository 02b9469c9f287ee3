"""What a program may ask of a group, beside what torch itself asks."""

import torch.distributed as dist
from torch._C._distributed_c10d import Backend


class Options(Backend.Options):
    """Options of a group, for `pg_options` of `init_process_group` and `new_group`; the same at all ranks.

    `sums` says how reductions add floats: "ordered", "exact", or as `TRIBUTARY_SUMS` says if it is None. Groups that are split
    off, or go on without some ranks, keep it: torch hands a copy to `split_group`, in which this class is lost. The timeout
    is passed by torch itself.
    """

    def __init__(self, *, sums=None, timeout=dist.distributed_c10d.default_pg_timeout):
        super().__init__("tributary", timeout)
        self.sums = sums


def sums_in(options):
    """How the options of a group say that floats are added; None if they don't say."""
    return options.sums if isinstance(options, Options) else None
