"""The backend `tributary` of torch.distributed, for tensors in the processor's memory.

    import torch.distributed as dist

    dist.init_process_group("tributary")

torch 2.15 finds it by its name alone; importing this module registers it, too. The book's page on PyTorch says what it
carries, and how.
"""

import torch.distributed as dist

from ._backend import TributaryBackend, create
from ._naming import name_groups
from ._options import Options
from ._shrinking import correct_marks
from ._work import pass_questions_on

__all__ = ["Options", "TributaryBackend", "register"]


def register():
    """Makes the backend known to torch.distributed, if it is not."""
    if "TRIBUTARY" not in dist.Backend._plugins:
        dist.Backend.register_backend("tributary", create, extended_api=True, devices=["cpu"])
        pass_questions_on()
        correct_marks(is_ours)
        name_groups(is_ours)


def is_ours(backend):
    """Whether a backend is one of this package."""
    return isinstance(backend, TributaryBackend)


register()
