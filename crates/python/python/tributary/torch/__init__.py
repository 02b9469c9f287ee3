"""The backend `tributary` of torch.distributed, for tensors in the processor's memory.

    import torch.distributed as dist
    import tributary.torch

    dist.init_process_group("tributary")

Importing this module registers it. The book's page on PyTorch says what it carries, and how.
"""

import torch.distributed as dist

from ._backend import TributaryBackend, create

__all__ = ["TributaryBackend"]

if "TRIBUTARY" not in dist.Backend._plugins:
    dist.Backend.register_backend("tributary", create, extended_api=True, devices=["cpu"])
