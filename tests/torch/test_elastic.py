"""Goal: a group's ranks change while their processes go on: one that died goes, and another one comes in its place.
Method: torch's `reconfigure`, over processes of which one is killed and one joins later."""

import datetime
import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks
import tributary

SPARE, DIES = 3, 1


def join(process, address):
    host, port = address.split(":")
    store = dist.TCPStore(host, int(port), is_master=process == 0, wait_for_workers=False)
    # The spare takes the place of the one that dies. Which place that is matters to nobody.
    rank = DIES if process == SPARE else process
    dist.init_process_group("tributary", store=store, rank=rank, world_size=3, enable_reconfigure=True)
    return store


def reconfigure(store, number, process, processes, kind=list):
    store.set(f"handle {number} of {process}", dist._get_reconfigure_handle())
    handles = kind(store.get(f"handle {number} of {each}").decode() for each in processes)
    dist._reconfigure(uuid=number, handles=handles, timeout=datetime.timedelta(seconds=60)).wait()
    return handles


def check(process, processes):
    """Collectives, transfers, and DDP, whose gradients are the mean of those of the ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (processes.index(process), len(processes))
    tensor = torch.tensor([float(process)])
    dist.all_reduce(tensor)
    assert tensor == sum(processes)
    dist.broadcast(tensor, size - 1)
    gathered = [None] * size
    dist.all_gather_object(gathered, process)
    assert gathered == processes
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        assert dist.recv(tensor) == 0
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 1, bias=False)
    model = DistributedDataParallel(layer)
    model(torch.full((1, 2), float(process))).sum().backward()
    torch.testing.assert_close(layer.weight.grad, torch.full((1, 2), sum(processes) / size))
    dist.monitored_barrier()


def goes_on(process, count, address):
    store = join(process, address)
    group = dist.group.WORLD
    assert dist._supports_reconfigure() and group.name() == "tributary" == dist.get_backend()
    if process != SPARE:
        with pytest.raises(RuntimeError, match="reconfigure.. comes first"):
            dist.barrier()
        handles = reconfigure(store, 1, process, [0, 1, 2])
        check(process, [0, 1, 2])
        for uuid, wanted, error in ((1, handles, "a second time"), (2, handles, "without this rank's handle"),
                                    (2, [dist._get_reconfigure_handle()] * 2, "twice")):
            with pytest.raises(ValueError, match=error):
                dist._reconfigure(uuid=uuid, handles=wanted)
        check(process, [0, 1, 2])
        if process == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(tributary.RankLostError) as raised:
            dist.barrier()
        assert raised.value.rank == DIES
        # In another order than before.
        reconfigure(store, 2, process, [2, 0])
        check(process, [2, 0])
    # The group knows nobody of before.
    reconfigure(store, 3, process, [0, SPARE, 2])
    check(process, [0, SPARE, 2])
    reconfigure(store, 4, process, [0, SPARE, 2], set)
    tensor = torch.zeros(3)
    tensor[dist.get_rank()] = 1
    dist.all_reduce(tensor)
    assert tensor.tolist() == [1, 1, 1]
    if process == SPARE:
        return
    assert dist.group.WORLD is group
    if process == 0:
        # The store is here.
        store.wait(["2 is over"])
    else:
        store.set("2 is over", "")
    dist.destroy_process_group()


def test_a_group_goes_on_with_other_ranks():
    outcomes = ranks.run(goes_on, 4)
    assert isinstance(outcomes[DIES], ranks.Died)


def absent(process, count, address):
    store = join(process, address)
    if process == 1:
        store.get("over")
        store.set("has read", "")
        return
    handles = [dist._get_reconfigure_handle(), "tributary:nobody"]
    with pytest.raises(RuntimeError, match="ranks .1. did not come to the store"):
        dist._reconfigure(uuid=1, handles=handles, timeout=datetime.timedelta(seconds=1))
    store.set("over", "")
    # Nothing is lost: the same handle goes into the next list.
    dist._reconfigure(uuid=2, handles=handles[:1])
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor == 1 == dist.get_world_size()
    # This process has the store.
    store.get("has read")


def test_a_rank_that_does_not_come_is_named():
    ranks.run(absent, 2)
