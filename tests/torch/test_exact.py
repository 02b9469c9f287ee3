"""Goal: a group whose options ask for exact sums rounds them once, and so do groups that are made of it. Method: values that
an ordered sum loses."""

import math

import pytest
import torch
import torch.distributed as dist

import ranks
import tributary.torch
import test_groups

# By rank. As real numbers they add up to RANKS + 1; one after the other, the ones are lost.
LOST = [2.0**60, 1.0, 1.0, 1.0, -(2.0**60) + 2**10]
RANKS = len(LOST)
EXACT = 2.0**10 + 3


def sums_of(group, rank, dtype=torch.float64):
    """The sum by every reduction that gives one, at this rank."""
    tensor = torch.full((3,), LOST[rank], dtype=dtype)
    whole, own = tensor.clone().repeat(RANKS), torch.empty(3, dtype=dtype)
    dist.reduce_scatter_single(own, whole, group=group)
    mean = tensor.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    assert torch.equal(mean, tensor / RANKS)
    assert torch.equal(own, tensor)
    return set(tensor.tolist())


def exact_groups(rank, size, address):
    exact = tributary.torch.Options(sums="exact")
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size, pg_options=exact)
    assert test_groups.own().options.sums == "exact"
    assert sums_of(None, rank) == {EXACT}
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.tensor([LOST[rank]]).to(dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.tensor([math.fsum(torch.tensor(LOST).to(dtype).tolist())]).to(dtype))
    # A group that is split off has it too; a new one as it asks.
    everyone = list(range(size))
    assert sums_of(dist.split_group(split_ranks=[everyone]), rank) == {EXACT}
    assert sums_of(dist.new_group(everyone), rank) != {EXACT}
    assert sums_of(dist.new_group(everyone, pg_options=exact), rank) == {EXACT}
    dist.destroy_process_group()


def test_a_group_that_asks_for_exact_sums_and_those_that_are_made_of_it_round_once():
    ranks.run(exact_groups, RANKS)


def unknown_word(rank, size, address):
    with pytest.raises(ValueError, match="ordered.*exact.*precise"):
        dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size,
                                pg_options=tributary.torch.Options(sums="precise"))


def test_an_unknown_word_for_sums_is_refused():
    ranks.run(unknown_word, 1)
