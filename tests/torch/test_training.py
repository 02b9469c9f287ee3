"""Goal: DDP and FSDP2 train as they do over other backends, and equal runs give equal bits. Method: small
models on data by a seed, against a run of one process on the data of all."""

import pathlib
import re
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import ranks
import tributary.torch  # noqa: F401  (registers the backend)

RANKS, STEPS = 3, 10
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/ddp_mnist_like.py"


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).double()


def batch(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(8, 20, generator=generator, dtype=torch.float64)


def train(network, data):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (network(data) - data.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parallel(rank, size, address, how):
    torch.set_num_threads(1)
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size)
    network = model()
    if how == "ddp":
        # Small buckets, so that several are reduced while others are computed.
        network = DistributedDataParallel(network, bucket_cap_mb=0.005)
    else:
        for layer in network:
            fully_shard(layer)
        fully_shard(network)
    losses = train(network, batch(rank))
    dist.destroy_process_group()
    return losses


def check(how):
    runs = [ranks.run(parallel, RANKS, how) for _ in range(2)]
    assert runs[0] == runs[1]
    alone = train(model(), torch.cat([batch(rank) for rank in range(RANKS)]))
    means = [sum(losses) / RANKS for losses in zip(*runs[0])]
    torch.testing.assert_close(means, alone, rtol=1e-9, atol=0)


def test_ddp():
    check("ddp")


def test_fsdp2():
    check("fsdp2")


def test_torchrun_and_the_example():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                ranks.free_address().split(":")[1]]
    command = [*torchrun, EXAMPLE, "--epochs", "2"]
    losses = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=ranks.TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        losses.append(re.findall(r"loss (\S+)", done.stdout))
    assert losses[0] == losses[1] and len(losses[0]) == 2
    assert float.fromhex(losses[0][1]) < float.fromhex(losses[0][0])
