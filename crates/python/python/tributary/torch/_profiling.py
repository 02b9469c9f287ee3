"""Ranges of torch's profiler around operations."""

import contextlib

import torch

NOT_PROFILED = contextlib.nullcontext()


def is_profiling():
    """Whether torch's profiler is on."""
    return torch.autograd.profiler._is_profiler_enabled


def profiled(name, tensors):
    """A range with the shapes of an operation's tensors; nothing while the profiler is off."""
    if not is_profiling():
        return NOT_PROFILED
    flat = [part for tensor in tensors for part in (tensor if isinstance(tensor, list) else [tensor])]
    return torch._C._profiler._RecordFunctionFast(f"tributary:{name}", flat, {})
