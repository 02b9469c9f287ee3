"""Tensors as the buffers of collectives: in place where they lie in one piece, else by way of a copy."""

import functools

import torch

from .._tributary import TributaryError

# Types that the library reduces. Others only move, as bytes.
REDUCED = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
           torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool}


# The capsule of DLPack for a `dense` tensor.
memory = torch._C._to_dlpack


def as_bytes(tensor):
    """A `dense` tensor's memory, whatever its type."""
    return memory(tensor.reshape(-1).view(torch.uint8))


def dense(tensor):
    """A tensor's elements in one piece of memory, apart from any graph: itself, or a copy."""
    plain = tensor.detach()
    return plain if plain.is_contiguous() else plain.contiguous()


class InPlace:
    """A tensor that is read, written, or both: itself where it is contiguous, else a copy."""

    def __init__(self, tensor):
        plain = tensor.detach()
        # Where a copy goes back to.
        self._origin = None if plain.is_contiguous() else plain
        self.dense = plain if self._origin is None else plain.contiguous()

    def store(self):
        """Puts a result where it belongs."""
        if self._origin is not None:
            self._origin.copy_(self.dense)


class Joined:
    """Several tensors as one vector: their own memory where they lie one behind the other, else a copy."""

    def __init__(self, tensors, loads):
        self._tensors = [tensor.detach() for tensor in tensors]
        first = self._tensors[0]
        self.counts = [tensor.numel() for tensor in self._tensors]
        self._is_copy = not lie_together(self._tensors)
        if not self._is_copy:
            self.dense = first.as_strided((sum(self.counts),), (1,))
        elif loads:
            self.dense = torch.cat([dense(tensor).reshape(-1) for tensor in self._tensors])
        else:
            self.dense = torch.empty(sum(self.counts), dtype=first.dtype)

    def store(self):
        """Puts the parts where they belong."""
        if self._is_copy:
            for tensor, part in zip(self._tensors, self.dense.split(self.counts)):
                tensor.copy_(part.view(tensor.shape))


def lie_together(tensors):
    """Whether tensors of one type fill one piece of memory, in order."""
    storage, at = tensors[0].untyped_storage().data_ptr(), tensors[0].data_ptr()
    for tensor in tensors:
        if (tensor.dtype != tensors[0].dtype or not tensor.is_contiguous() or tensor.data_ptr() != at
                or tensor.untyped_storage().data_ptr() != storage):
            return False
        at += tensor.numel() * tensor.element_size()
    return True


NAMES = {"SUM": "sum", "AVG": "sum", "PRODUCT": "product", "MIN": "min", "MAX": "max", "BAND": "bit-and",
         "BOR": "bit-or", "BXOR": "bit-xor"}
# On truth values, which have to stay such.
OF_BOOL = {"SUM": "logical-or", "PRODUCT": "logical-and", "BAND": "logical-and", "BOR": "logical-or",
           "BXOR": "logical-xor", "MIN": "min", "MAX": "max"}


def reduction_of(reduce_op, dtype, size):
    """How elements combine, for one of torch's operators, one type, and a group of `size` ranks."""
    # An enumeration member, or an object that has one. Its name takes longer to find than the reduction that is known.
    return _reduction(getattr(reduce_op, "op", reduce_op), dtype, size)


@functools.lru_cache(maxsize=256)
def _reduction(operator, dtype, size):
    return Reduction(operator.name, dtype, size)


class Reduction:
    """How elements combine, for the name of one of torch's operators and one type."""

    def __init__(self, name, dtype, size):
        names = OF_BOOL if dtype == torch.bool else NAMES
        if name not in names:
            raise TributaryError(f"ReduceOp.{name} of {dtype} is not supported by the backend tributary")
        if dtype not in REDUCED:
            raise TypeError(f"tensors of {dtype} can be moved but not reduced by the backend tributary")
        self.name = names[name]
        self._divisor = size if name == "AVG" else None

    def finish(self, dense):
        """Makes an average of a sum."""
        if self._divisor is None:
            return
        if dense.is_floating_point() or dense.is_complex():
            dense.div_(self._divisor)
        else:
            dense.copy_(dense.div(self._divisor, rounding_mode="trunc"))
