"""Goal: the backend is there by its name alone, for one kind of device beside another backend, and training goes on
without a rank that died. Method: programs that torchrun starts, which import nothing of this package."""

import pathlib
import subprocess
import sys
import textwrap

import ranks
from test_groups import torchrun

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/ddp_survivor.py"

BY_NAME = """
    import sys
    import torch, torch.distributed as dist
    dist.init_process_group("tributary")
    assert dist.get_backend() == dist.group.WORLD.name() == "tributary"
    rank, size = dist.get_rank(), dist.get_world_size()

    def check(group=None):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert (tensor == size).all()

    check()
    check(dist.new_group(backend="tributary"))
    other = dist.new_group(backend="gloo")
    assert other.name() == "gloo"
    check(other)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    assert model._get_ddp_logging_data()["backend_name"] == "tributary"
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), process_group=other)
    assert model._get_ddp_logging_data()["backend_name"] == "gloo"
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    check(mesh.get_group())
    check(dist.split_group(split_ranks=[list(range(size))]))
    dist.destroy_process_group()
    for backend in ("cpu:tributary,cuda:gloo", "cpu:tributary"):
        dist.init_process_group(backend)
        name = dist.group.WORLD._get_backend(torch.device("cpu")).name()
        assert name == "tributary", name
        check()
        check(dist.new_group([0, 1]))
        dist.destroy_process_group()
    print("done", flush=True)
"""


def test_no_import_is_needed(tmp_path):
    assert torchrun(tmp_path, BY_NAME).count("done") == 2


# Rank 1 ends in the middle. The others take it out and train on, in the same processes.
SHRINKS = """
    import os, signal, time
    import torch, torch.distributed as dist
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    if rank == 1:
        os._exit(0)
    try:
        dist.all_reduce(tensor)
        raise SystemExit("nobody was missed")
    except RuntimeError as error:
        lost = error.rank
    assert lost == 1
    group = dist.shrink_group([lost], shrink_flags=FLAGS)
    assert dist.get_world_size() == size - 1 and dist.get_rank() == (0 if rank == 0 else rank - 1)
    # torch takes a group that is marked "gloo" for Gloo's class in C++.
    assert dist.group.WORLD.name() == "tributary"
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert (tensor == size - 1).all()
    dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)
    part = dist.new_group([0, 1])
    dist.barrier(group=part)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    print(f"rank {rank} went on", flush=True)
    dist.destroy_process_group()
"""


def test_training_goes_on_without_a_rank_that_died(tmp_path):
    for flags in ("0", "1"):
        out = torchrun(tmp_path, textwrap.dedent(SHRINKS).replace("FLAGS", flags), processes=3)
        assert "rank 0 went on" in out and "rank 2 went on" in out


def test_the_example_of_a_survivor():
    command = [sys.executable, EXAMPLE, "--at", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ranks.TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 2 goes on without rank 1" in done.stdout and "step 20 with 2 ranks" in done.stdout
