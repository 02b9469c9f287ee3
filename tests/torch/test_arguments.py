"""Goal: what does not fit is refused at the rank that asks, before anything is started, and the group stays of use;
what torch allows is carried out. Method: calls that are wrong in one way each, then a collective."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist

import ranks
import tributary.torch  # noqa: F401  (registers the backend)


def join(rank, size, address, limit_s=60):
    timeout = datetime.timedelta(seconds=limit_s)
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size, timeout=timeout)


def own():
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def zeros(*lengths, dtype=torch.float32):
    return [torch.zeros(length, dtype=dtype) for length in lengths]


# Each is wrong at every rank, so no rank waits for another one.
WRONG = {
    "uneven rows": lambda rank: dist.all_to_all_single(torch.zeros(5), torch.arange(5.0)),
    "parts of another sum": lambda rank: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 2], [2, 2]),
    "too few parts": lambda rank: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [4], [2, 2]),
    "types of all_to_all_single": lambda rank: dist.all_to_all_single(
        torch.zeros(4, dtype=torch.int32), torch.zeros(4)),
    "types of all_to_all": lambda rank: dist.all_to_all(zeros(1, 1), zeros(1, 1, dtype=torch.int32)),
    "short list of all_to_all": lambda rank: dist.all_to_all(zeros(1), zeros(1)),
    "own parts of all_to_all": lambda rank: dist.all_to_all(zeros(1, 1), zeros(2, 2)),
    "types of all_gather_into_tensor": lambda rank: dist.all_gather_into_tensor(
        torch.zeros(4, dtype=torch.int32), torch.ones(2)),
    "length of all_gather_into_tensor": lambda rank: dist.all_gather_into_tensor(torch.zeros(3), torch.ones(2)),
    "length of all_gather": lambda rank: dist.all_gather(zeros(3, 3), torch.ones(1)),
    "types of all_gather": lambda rank: dist.all_gather(zeros(3, 3, dtype=torch.int32), torch.ones(3)),
    "short list of all_gather": lambda rank: dist.all_gather(zeros(3), torch.ones(3)),
    "length of reduce_scatter_tensor": lambda rank: dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(3)),
    "types of reduce_scatter_tensor": lambda rank: dist.reduce_scatter_tensor(
        torch.zeros(2, dtype=torch.int32), torch.ones(4)),
    "short list of reduce_scatter": lambda rank: dist.reduce_scatter(torch.zeros(2), zeros(2)),
    "length of reduce_scatter": lambda rank: dist.reduce_scatter(torch.zeros(2), zeros(3, 3)),
    "short list of all_gather_coalesced": lambda rank: dist.all_gather_coalesced([zeros(2)], zeros(2)),
    "inner list of all_gather_coalesced": lambda rank: dist.all_gather_coalesced([zeros(2), zeros(2)], zeros(2, 2)),
    "sparse broadcast": lambda rank: dist.broadcast(torch.eye(2).to_sparse(), 0),
    "maximum of sparse tensors": lambda rank: dist.all_reduce(torch.eye(2).to_sparse(), op=dist.ReduceOp.MAX),
    "another device": lambda rank: own().allreduce(
        [torch.zeros(1, device="meta")], dist.AllreduceOptions()),
}
# At the root; the other rank does not take part.
WRONG_AT_ROOT = {
    "short list of scatter": lambda rank: dist.scatter(torch.zeros(2), zeros(2), 0),
    "short list of gather": lambda rank: dist.gather(torch.zeros(2), zeros(2), 0),
    "length of gather": lambda rank: dist.gather(torch.zeros(2), zeros(2, 3), 0),
    "types of scatter": lambda rank: dist.scatter(torch.zeros(2), zeros(2, 2, dtype=torch.int32), 0),
}


def refuses(rank, size, address):
    join(rank, size, address)
    for name, call in WRONG.items():
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            call(rank)
            pytest.fail(f"{name} was carried out")
    for name, call in WRONG_AT_ROOT.items():
        if rank == 0:
            with pytest.raises((ValueError, TypeError, RuntimeError)):
                call(rank)
                pytest.fail(f"{name} was carried out")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == size


def test_what_does_not_fit_is_refused():
    ranks.run(refuses, 2)


def refused_beside(rank, size, address):
    join(rank, size, address, 2)
    with pytest.raises((ValueError, RuntimeError)):
        dist.all_gather_into_tensor(torch.zeros(3), torch.ones(2), async_op=True)
    # What the library refuses, where no check of the backend comes before it.
    with pytest.raises((ValueError, RuntimeError)):
        own()._launch("broadcast", None, [("barrier", ()), ("broadcast", (bytearray(1), size))], [])
    dist.barrier()
    # Longer than the timeout: a deadline that nothing ends would pass.
    time.sleep(3)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == size


def test_a_refused_call_leaves_no_deadline():
    ranks.run(refused_beside, 2)


def coalesced(rank, size, address):
    join(rank, size, address)
    for shapes in ([(2,), (2,)], [(2,), (3, 2), (1,)], [(4,)]):
        inputs = [torch.full(shape, 10.0 * rank + place) for place, shape in enumerate(shapes)]
        outputs = [[torch.zeros(shape) for shape in shapes] for _ in range(size)]
        dist.all_gather_coalesced(outputs, inputs)
        for source, of_rank in enumerate(outputs):
            for place, (shape, output) in enumerate(zip(shapes, of_rank)):
                assert torch.equal(output, torch.full(shape, 10.0 * source + place))


def test_all_gather_coalesced_has_a_list_for_each_rank():
    ranks.run(coalesced, 2)


def gradients(rank, size, address):
    join(rank, size, address)
    part = torch.ones(4, requires_grad=True)
    computed = part * 2
    outputs = zeros(4, 4)
    dist.gather(computed, outputs if rank == 0 else None, 0)
    dist.all_gather(outputs, computed)
    uneven = zeros(4, 2)
    dist.all_gather(uneven, computed if rank == 0 else computed[:2])
    whole = torch.zeros(8)
    dist.all_gather_into_tensor(whole, part)
    swapped = torch.zeros(4)
    dist.all_to_all_single(swapped, part)
    pieces = zeros(2, 2)
    dist.all_to_all(pieces, [computed[:2], computed[2:]])
    scattered = torch.zeros(2)
    dist.reduce_scatter(scattered, [computed[:2], computed[2:]])
    dist.reduce_scatter_tensor(scattered, part)
    coalesced = [zeros(4), zeros(4)]
    dist.all_gather_coalesced(coalesced, [computed])
    # To the others torch itself gives a function, over Gloo, too.
    results = {"gather, all_gather": outputs, "uneven": uneven, "swapped": [swapped],
               "coalesced": [*coalesced[0], *coalesced[1]]}
    for name, tensors in results.items():
        assert not any(tensor.requires_grad or tensor.grad_fn for tensor in tensors), name
    parameter = torch.nn.Parameter(torch.zeros(2))
    dist.scatter(parameter, zeros(2, 2) if rank == 0 else None, 0)
    dist.scatter(parameter, [computed[:2], computed[2:]] if rank == 0 else None, 0)
    assert parameter.is_leaf and parameter.tolist() == [2, 2]
    for call in (lambda: dist.all_reduce(parameter), lambda: dist.broadcast(parameter, 0),
                 lambda: dist.reduce(parameter, 0), lambda: dist.send(part, 1) if rank == 0 else dist.recv(part, 0),
                 lambda: dist.all_to_all_single(parameter, part[:2]),
                 lambda: dist.all_gather_into_tensor(part, parameter)):
        call()
    assert parameter.is_leaf and part.is_leaf


def test_tensors_with_gradients():
    ranks.run(gradients, 2)


def layouts(rank, size, address):
    join(rank, size, address)
    wide = torch.zeros(4, 3)
    dist.all_to_all_single(wide[:, 1], torch.arange(4.0) + 10 * rank)
    assert wide[:, 1].tolist() == [2.0 * rank, 2.0 * rank + 1, 10 + 2.0 * rank, 11 + 2.0 * rank]
    assert wide.sum() == wide[:, 1].sum()


def test_views():
    ranks.run(layouts, 2)


def sparse(rank, size, address):
    join(rank, size, address)
    dense = torch.zeros(5, 3)
    dense[rank] = rank + 1
    dense[4, rank % 3] = 1
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor)
    expected = torch.zeros(5, 3)
    for each in range(size):
        expected[each] = each + 1
        expected[4, each % 3] += 1
    assert torch.equal(tensor.to_dense(), expected)
    nothing = torch.zeros(2, 2).to_sparse()
    dist.all_reduce(nothing, async_op=True).wait()
    assert nothing._nnz() == 0
    embedding = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
    embedding(torch.tensor([rank, 5])).sum().backward()
    gradient = embedding.module.weight.grad.to_dense()[:, 0] * size
    assert gradient.tolist() == [1.0 * (row < size) + size * (row == 5) for row in range(10)]


def test_sums_of_sparse_tensors():
    ranks.run(sparse, 3)
