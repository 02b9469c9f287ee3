"""torch has one word, "custom", for every kind of backend that it does not bring, and gives it as a group's name. Here
groups of this backend have its name: where a program asks a group, and in what DDP's logger tells.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

OF_TORCH = "custom"


def name_groups(is_ours):
    """Has groups whose backend `is_ours` answer with its name."""
    for method in ("name", "_get_backend_name"):
        answer_with_name(method, is_ours)
    tell = DistributedDataParallel._get_ddp_logging_data

    def tell_with_name(model):
        told = tell(model)
        return told | {"backend_name": model.process_group.name()} if told.get("backend_name") == OF_TORCH else told

    tell_with_name.__doc__ = tell.__doc__
    DistributedDataParallel._get_ddp_logging_data = tell_with_name


def answer_with_name(method, is_ours):
    """Replaces one of the methods of torch's groups that say their name."""
    of_torch = getattr(dist.ProcessGroup, method)

    def name(group):
        given = of_torch(group)
        return own_name(group, is_ours) or given if given == OF_TORCH else given

    name.__doc__, name.__name__ = of_torch.__doc__, method
    setattr(dist.ProcessGroup, method, name)


def own_name(group, is_ours):
    """The name of the group's backend, if it is ours."""
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None  # it has none for the processor's memory
    # torch's debugging puts a backend of its own before it.
    backend = getattr(backend, "wrapped_pg", backend)
    return backend.name() if is_ours(backend) else None
