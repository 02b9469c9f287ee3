"""Goal: groups are made, asked and ended as torch.distributed's other groups are: again on one store, after a restart
by torchrun, beside groups of other backends, and with torch's debugging. Method: programs that do so."""

import datetime
import os
import re
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import torch.distributed as dist

import ranks
import tributary
import tributary.torch  # noqa: F401  (registers the backend)


def join(rank, size, address, backend="tributary", limit_s=60):
    timeout = datetime.timedelta(seconds=limit_s)
    dist.init_process_group(backend, init_method=f"tcp://{address}", rank=rank, world_size=size, timeout=timeout)


def own():
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def torchrun(tmp_path, text, *options, processes=2, **environment):
    """What a program prints."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(text))
    port = ranks.free_address().split(":")[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes),
               "--master-port", port, *options, program]
    kept = {name: value for name, value in os.environ.items() if name not in ranks.FOREIGN}
    done = subprocess.run(command, capture_output=True, text=True, timeout=ranks.TIMEOUT_S, env=kept | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


RESTARTS = """
    import os
    import torch, torch.distributed as dist
    import tributary.torch
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 1 and os.environ["RANK"] == "0":
        raise RuntimeError("planned, before the group is made")
    dist.init_process_group("tributary")
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if attempt == 0 and dist.get_rank() == 1:
        raise RuntimeError("planned, in the middle")
    dist.all_reduce(tensor)
    assert (tensor == 4).all()
    print(f"attempt {attempt}, rank {dist.get_rank()}: done", flush=True)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("shares_store", ["0", "1"])
def test_torchrun_restarts_a_job(tmp_path, shares_store):
    out = torchrun(tmp_path, RESTARTS, "--max-restarts", "3", TORCH_DISABLE_SHARE_RDZV_TCP_STORE=shares_store)
    done = sorted(re.findall(r"attempt \d, rank \d: done", out))
    assert done == [f"attempt 2, rank {rank}: done" for rank in range(2)]


def again(rank, size, address):
    store = dist.TCPStore(*address.split(":")[:1], int(address.split(":")[1]), size, rank == 0)
    for _ in range(3):
        dist.init_process_group("tributary", store=store, rank=rank, world_size=size)
        part = dist.new_group([0, 1])
        for group in (None, part) if rank < 2 else (None,):
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=group)
            assert tensor == (2 if group else size)
        dist.destroy_process_group()
    # And as the package does it without torch's groups.
    for _ in range(3):
        with tributary.Communicator.from_store(store, rank, size, prefix="mine") as group:
            group.barrier()


def test_groups_one_after_the_other_on_one_store():
    ranks.run(again, 3)


def absent(rank, size, address, missing, go_on):
    store = dist.TCPStore(*address.split(":")[:1], int(address.split(":")[1]), size, rank == 0,
                          timeout=datetime.timedelta(seconds=2), wait_for_workers=False)
    if rank == missing:
        ranks.await_file(go_on)
        return
    with pytest.raises(tributary.SetUpError) as raised:
        tributary.Communicator.from_store(store, rank, size)
    assert f"ranks [{missing}] did not come to the store" in str(raised.value)
    if rank == 0:
        # The store is here, and the others may still ask it.
        dist.PrefixStore("end", store).wait(["1", "2"][:size - 2], datetime.timedelta(seconds=60))
        go_on.touch()
    else:
        dist.PrefixStore("end", store).set("1", "over")


def test_a_rank_that_does_not_come_to_the_store_is_named(tmp_path):
    ranks.run(absent, 3, 2, tmp_path / "go on")


def beside_another_backend(rank, size, address):
    join(rank, size, address, "gloo")
    groups = [dist.new_group(members, backend="tributary") for members in ([0, 1], [1, 2], [0, 1, 2])]
    for members, group in zip(([0, 1], [1, 2], [0, 1, 2]), groups):
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor == sum(members)
    dist.barrier()


def test_overlapping_groups_in_a_world_of_another_backend():
    ranks.run(beside_another_backend, 3)


DETAIL = """
    import torch, torch.distributed as dist
    import tributary.torch
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.group.WORLD.name() == "tributary"
    tensor = torch.ones(2)
    for _ in range(3):
        dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    part = dist.new_group([0, 1])
    dist.broadcast(tensor, 0, group=part)
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(outputs, tensor)
    dist.gather(tensor, outputs if rank == 0 else None, 0)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    model(torch.ones(1, 3)).sum().backward()
    dist.barrier()
    try:
        dist.all_reduce(torch.ones(2 + rank))
    except RuntimeError as error:
        assert "mismatch" in str(error), error
        print(f"rank {rank} was told", flush=True)  # at once: ranks share the pipe
"""


def test_debugging_in_detail(tmp_path):
    out = torchrun(tmp_path, DETAIL, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert sorted(re.findall("rank . was told", out)) == ["rank 0 was told", "rank 1 was told"]


def timeouts(rank, size, address, go_on):
    join(rank, size, address)
    assert own().options._timeout == datetime.timedelta(seconds=60)
    own().set_timeout(datetime.timedelta(seconds=2))
    assert own().options._timeout == datetime.timedelta(seconds=2)
    if rank == 1:
        ranks.await_file(go_on)
        return
    with pytest.raises(dist.DistBackendError, match="barrier was not over after 2 s.* timeout .*timed out"):
        dist.barrier()
    go_on.touch()


def test_a_timeout_that_is_set_later(tmp_path):
    ranks.run(timeouts, 2, tmp_path / "go on")


def monitored(rank, size, address, all_, go_on):
    join(rank, size, address)
    for _ in range(3):
        dist.monitored_barrier()
    if rank in (1, 2):
        ranks.await_file(go_on)
        return
    limit = datetime.timedelta(seconds=1)
    with pytest.raises(RuntimeError) as raised:
        dist.monitored_barrier(timeout=limit, wait_all_ranks=all_)
    text = str(raised.value)
    if rank == 0:
        assert ("Ranks 1, 2 failed" if all_ else "Rank 1 failed") in text and "timed out" in text
        # Rank 3 learns that, too, when its own time is over.
        dist.PrefixStore("end", dist.distributed_c10d._get_default_store()).wait(["3"])
        go_on.touch()
    else:
        assert "received errors while waiting for send/recv from rank 0" in text
        dist.PrefixStore("end", dist.distributed_c10d._get_default_store()).set("3", "over")


@pytest.mark.parametrize("all_", [False, True])
def test_a_monitored_barrier_names_who_did_not_come(tmp_path, all_):
    ranks.run(monitored, 4, all_, tmp_path / "go on")


def profiled(rank, size, address):
    join(rank, size, address)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.broadcast(torch.ones(10), 0, async_op=True).wait()
        dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
    names = {event.name for event in profile.events()}
    assert {"tributary:all_reduce", "tributary:broadcast"} < names
    assert ("tributary:send" if rank == 0 else "tributary:recv") in names


def test_the_profiler_shows_operations():
    ranks.run(profiled, 2)


def without_transfers(rank, size, address):
    """A group that has no transfers has no thread for them."""
    join(rank, size, address)
    dist.all_reduce(torch.ones(1))
    assert "tributary-transfers" not in {thread.name for thread in threading.enumerate()}
    dist.destroy_process_group()


def test_transfers_cost_nothing_where_there_are_none():
    ranks.run(without_transfers, 2)
