"""torch marks every shrunk group of the processor's memory as one of Gloo, and then takes its backend for Gloo's class
in C++, as DDP's logger does: the process crashes. Here such a group gets the mark that a backend's other groups have.
"""

import torch
import torch.distributed as dist


def correct_marks(is_ours):
    """Has torch mark shrunk groups whose backend `is_ours` as any backend that it does not bring."""
    of_torch = getattr(dist.distributed_c10d, "_create_shrunk_process_group", None)
    if of_torch is None:
        return  # this torch can't shrink groups

    def create(backend, *arguments):
        group = of_torch(backend, *arguments)
        if is_ours(backend):
            kind = dist.ProcessGroup.BackendType.CUSTOM
            group._register_backend(torch.device("cpu"), kind, backend)
            group._set_default_backend(kind)
        return group

    dist.distributed_c10d._create_shrunk_process_group = create
