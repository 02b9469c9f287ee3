"""Goal: every call of torch.distributed gives what its documentation says. Method: four processes; results
are computed beside it from what all ranks have."""

import pytest
import torch
import torch.distributed as dist

import ranks
import tributary
import tributary.torch  # noqa: F401  (registers the backend)

RANKS = 4
SUM = sum(range(RANKS))


def join(rank, size, address):
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size)


def same(got, expected):
    assert got.dtype == expected.dtype and torch.equal(got, expected), (got, expected)


def everyones(length, dtype=torch.float32):
    """What each rank contributes: small integers, so that sums are exact."""
    return [(torch.arange(length) % 5 + rank).to(dtype) for rank in range(RANKS)]


def reductions(rank, size, address):
    join(rank, size, address)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64):
        for length in (1, 1000, 100_000):
            given = everyones(length, dtype)
            stacked = torch.stack(given)
            for op, expected in [(dist.ReduceOp.SUM, stacked.sum(0, dtype=dtype)),
                                 (dist.ReduceOp.MAX, stacked.amax(0)), (dist.ReduceOp.MIN, stacked.amin(0)),
                                 (dist.ReduceOp.PRODUCT, stacked.prod(0, dtype=dtype)),
                                 (dist.ReduceOp.AVG, stacked.sum(0, dtype=dtype))]:
                if op == dist.ReduceOp.AVG:
                    expected = (expected / size if dtype.is_floating_point
                                else expected.div(size, rounding_mode="trunc"))
                for is_beside in (False, True):
                    tensor = given[rank].clone()
                    work = dist.all_reduce(tensor, op=op, async_op=is_beside)
                    if is_beside:
                        work.wait()
                        [result] = work.get_future().wait()
                        same(result, expected)
                    same(tensor, expected)
    tensor = torch.tensor([rank, 7], dtype=torch.int32)
    dist.reduce(tensor, 2)
    same(tensor, torch.tensor([SUM, 28] if rank == 2 else [rank, 7], dtype=torch.int32))
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    assert bits == 15
    truth = torch.tensor([rank == 1, False, True])
    dist.all_reduce(truth)
    assert truth.tolist() == [True, False, True]
    complex_ = torch.tensor([complex(rank, 1)])
    dist.all_reduce(complex_)
    assert complex_ == complex(SUM, size)


def test_reductions():
    ranks.run(reductions, RANKS)


def layouts(rank, size, address):
    join(rank, size, address)
    transposed = torch.arange(12.0).view(3, 4).t()
    dist.all_reduce(transposed)
    same(transposed, torch.arange(12.0).view(3, 4).t() * size)
    wide = torch.zeros(5, 6)
    wide[:, 2] = rank
    dist.broadcast(wide[:, 2], 3)
    assert wide.sum() == 15
    parameter = torch.nn.Parameter(torch.ones(3))
    dist.all_reduce(parameter.data)
    with torch.no_grad():
        dist.all_reduce(parameter)
    assert parameter.tolist() == [16] * 3
    narrow = torch.full((3,), float(rank)).to(torch.float8_e4m3fn)
    dist.broadcast(narrow, 2)
    assert narrow.float().tolist() == [2] * 3
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar == SUM
    empty = torch.empty(0)
    dist.all_reduce(empty)


def test_tensors_of_any_layout():
    ranks.run(layouts, RANKS)


def gathering(rank, size, address):
    join(rank, size, address)
    mine = torch.full((3, 2), float(rank))
    outputs = [torch.zeros(3, 2) for _ in range(size)]
    dist.all_gather(outputs, mine)
    assert [output[0, 0].item() for output in outputs] == [0, 1, 2, 3]
    uneven = [torch.zeros(length + 1) for length in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert [output[-1].item() for output in uneven] == [0, 1, 2, 3]
    together = torch.zeros(size * 3, 2)
    dist.all_gather_into_tensor(together, mine)
    same(together, torch.cat(outputs))
    first, second = torch.zeros(size), torch.zeros(2 * size, dtype=torch.int32)
    with dist.distributed_c10d._coalescing_manager():
        dist.all_gather_into_tensor(first, torch.tensor([float(rank)]))
        dist.all_gather_into_tensor(second, torch.tensor([rank, rank], dtype=torch.int32))
    assert first.tolist() == [0, 1, 2, 3] and second.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert [each["rank"] for each in objects] == [0, 1, 2, 3]
    box = [{"from": rank}]
    dist.broadcast_object_list(box, src=1)
    assert box == [{"from": 1}]


def test_gathering():
    ranks.run(gathering, RANKS)


def scattering(rank, size, address):
    join(rank, size, address)
    whole, block = torch.arange(size * 5.0), torch.zeros(5)
    dist.reduce_scatter_tensor(block, whole)
    same(block, whole.view(size, 5)[rank] * size)
    dist.reduce_scatter_tensor(block, whole, op=dist.ReduceOp.AVG)
    same(block, whole.view(size, 5)[rank])
    dist.reduce_scatter(block, [torch.full((5,), float(place)) for place in range(size)])
    same(block, torch.full((5,), float(rank * size)))
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((place + 1,), float(place)) for place in range(size)])
    same(uneven, torch.full((rank + 1,), float(rank * size)))
    first, second = torch.zeros(1), torch.zeros(2)
    with dist.distributed_c10d._coalescing_manager():
        dist.reduce_scatter_tensor(first, torch.ones(size))
        dist.reduce_scatter_tensor(second, torch.ones(2 * size))
    assert first == size and second.tolist() == [size, size]
    first, second = torch.ones(3), torch.ones(4)
    with dist.distributed_c10d._coalescing_manager():
        dist.all_reduce(first)
        dist.all_reduce(second)
    assert first.tolist() == [size] * 3 and second.tolist() == [size] * 4


def test_reduce_scatter_and_coalesced_calls():
    ranks.run(scattering, RANKS)


def from_rank_to_rank(rank, size, address):
    join(rank, size, address)
    for root in range(size):
        parts = [torch.zeros(2) for _ in range(size)] if rank == root else None
        dist.gather(torch.full((2,), float(rank)), parts, dst=root)
        assert rank != root or [part[0].item() for part in parts] == [0, 1, 2, 3]
        mine = torch.zeros(2)
        parts = [torch.full((2,), float(place)) for place in range(size)] if rank == root else None
        dist.scatter(mine, parts, src=root)
        assert mine[0] == rank
    swapped = torch.zeros(size)
    dist.all_to_all_single(swapped, torch.arange(size) + 10.0 * rank)
    same(swapped, torch.arange(size) * 10.0 + rank)
    # Rank i sends i + 1 elements to each.
    sent = torch.full(((rank + 1) * size,), float(rank))
    got = torch.zeros(sum(range(1, size + 1)))
    dist.all_to_all_single(got, sent, [place + 1 for place in range(size)], [rank + 1] * size)
    same(got, torch.repeat_interleave(torch.arange(float(size)), torch.arange(1, size + 1)))
    outputs = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(outputs, [torch.tensor([float(rank * 10 + place)]) for place in range(size)])
    assert [output.item() for output in outputs] == [place * 10 + rank for place in range(size)]
    if rank == 0:
        # The receiver takes them by tag, in another order.
        first = dist.isend(torch.tensor([1]), 1, tag=1)
        dist.isend(torch.tensor([2]), 1, tag=2).wait()
        first.wait()
    if rank == 1:
        for tag in (2, 1):
            tensor = torch.tensor([0])
            dist.recv(tensor, 0, tag=tag)
            assert tensor == tag
    incoming = torch.zeros(70_000)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, torch.full((70_000,), float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, incoming, (rank - 1) % size)])
    for work in works:
        work.wait()
    assert (incoming == (rank - 1) % size).all()


def test_from_rank_to_rank():
    ranks.run(from_rank_to_rank, RANKS)


def groups(rank, size, address):
    join(rank, size, address)
    for members in ([0, 2], [1, 2, 3]):
        part = dist.new_group(members)
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=part)
            assert tensor == sum(members)
            dist.broadcast(tensor, src=members[-1], group=part)
    dist.barrier()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.name() == "tributary"
    if rank == 0:
        labels = {each["label"] for each in tributary.report()["communicators"]}
        assert any(label.startswith("torch ") for label in labels)
    dist.destroy_process_group()


def test_groups():
    ranks.run(groups, RANKS)


def refused(rank, size, address):
    join(rank, size, address)
    with pytest.raises(TypeError, match="moved but not reduced"):
        dist.all_reduce(torch.zeros(2).to(torch.float8_e4m3fn))
    with pytest.raises(tributary.TributaryError, match="ReduceOp.AVG of torch.bool"):
        dist.all_reduce(torch.tensor([True]), op=dist.ReduceOp.AVG)
    with pytest.raises(TypeError, match="sparse"):
        dist.all_reduce(torch.eye(2).to_sparse(), op=dist.ReduceOp.MAX)
    # Nothing was started, so the group is of use.
    dist.barrier()


def test_what_is_not_supported_is_refused_and_does_no_harm():
    ranks.run(refused, 2)
