"""Arguments that do not fit: refused before anything is started, so that a group stays of use."""

import torch


def check(tensors):
    """Refuses what no collective can take."""
    for tensor in tensors:
        if not tensor.is_cpu:
            raise TypeError(f"a tensor is on {tensor.device}; the backend tributary takes those of the processor")
        if tensor.layout != torch.strided:
            raise TypeError(f"a tensor is {tensor.layout} (sparse); the backend tributary takes dense ones here")


def one(tensors):
    """The only tensor of a list."""
    if len(tensors) != 1:
        raise ValueError(f"a list of one tensor is needed; it has {len(tensors)}")
    check(tensors)
    return tensors[0]


def one_list(name, lists):
    """The only list of a list."""
    if len(lists) != 1:
        raise ValueError(f"{name} needs one list of tensors; there are {len(lists)}")
    return lists[0]


def check_root(name, root, size):
    """Refuses a root that is no rank."""
    if not 0 <= root < size:
        raise ValueError(f"{name} has root {root}; the group has {size} ranks")


def check_types(name, tensors):
    """Refuses tensors of more than one type."""
    types = {tensor.dtype for tensor in tensors}
    if len(types) > 1:
        raise TypeError(f"{name} needs tensors of one type; there are {sorted(map(str, types))}")


def check_ranks(name, tensors, size):
    """Refuses a list that has not one tensor for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{name} needs a list of {size} tensors, one for each rank; it has {len(tensors)}")


def check_alike(name, tensors, pattern):
    """Refuses tensors whose type or number of elements is not that of `pattern`."""
    check_types(name, [pattern, *tensors])
    for tensor in tensors:
        if tensor.numel() != pattern.numel():
            raise ValueError(f"{name} needs tensors of {pattern.numel()} elements; one has {tensor.numel()}")


def check_parts(name, whole, part, size):
    """Refuses a tensor that is not as long as one part for each rank."""
    check_types(name, [whole, part])
    if whole.numel() != size * part.numel():
        raise ValueError(
            f"{name} of {size} ranks with {part.numel()} elements each needs a tensor of {size * part.numel()}; it "
            f"has {whole.numel()}")


def check_pairs(name, outputs, inputs):
    """Refuses lists of unequal lengths."""
    if len(outputs) != len(inputs):
        raise ValueError(f"{name} needs as many outputs as inputs; there are {len(outputs)} and {len(inputs)}")
    check([*outputs, *inputs])


def split(name, tensor, lengths, size):
    """A tensor's parts for each rank, along its first dimension."""
    rows = tensor.size(0) if tensor.dim() else 0
    if not lengths:
        if rows % size:
            raise ValueError(f"{name} can't split {rows} rows evenly over {size} ranks: pass the lengths of the parts")
        lengths = [rows // size] * size
    check_lengths(name, lengths, rows, size)
    return list(tensor.split(lengths)) if tensor.dim() else [tensor.reshape(-1)[:0]] * size


def check_lengths(name, lengths, rows, size):
    """Refuses lengths of parts that do not fit."""
    if len(lengths) != size or min(lengths) < 0 or sum(lengths) != rows:
        raise ValueError(f"{name} needs the lengths of {size} parts that have {rows} rows together; they are {lengths}")
