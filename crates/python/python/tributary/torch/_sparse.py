"""The sum of sparse tensors: everyone's indices and values go to everyone."""

import torch

from ._tensors import as_bytes, dense


def sum_sparse(communicator, tensors, opts, run):
    """Replaces the only one of `tensors` by the sum over the ranks. `run` runs calls of the communicator."""
    if len(tensors) != 1:
        raise ValueError(f"a list of one tensor is needed; it has {len(tensors)}")
    [tensor] = tensors
    name = getattr(opts.reduceOp, "op", opts.reduceOp).name
    if tensor.layout != torch.sparse_coo or name != "SUM":
        raise TypeError(f"ReduceOp.{name} of {tensor.layout} (sparse) is not supported by the backend tributary")
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor is on {tensor.device}; the backend tributary takes those of the processor")
    mine = tensor.detach().coalesce()
    counts = torch.zeros(communicator.size, dtype=torch.int64)
    run([("allgather", (as_bytes(torch.tensor([mine._nnz()])), as_bytes(counts)))])
    counts = counts.tolist()
    indices = gather(communicator, mine.indices().t(), counts, run).t()
    values = gather(communicator, mine.values(), counts, run)
    total = torch.sparse_coo_tensor(indices, values, mine.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total)


def gather(communicator, mine, counts, run):
    """Everyone's rows, in rank order; rank i has `counts[i]`."""
    rows = torch.empty((sum(counts), *mine.shape[1:]), dtype=mine.dtype)
    parts = list(rows.split(counts))
    parts[communicator.rank].copy_(mine)
    run([("broadcast", (as_bytes(dense(part)), root)) for root, part in enumerate(parts) if part.numel()])
    return rows
