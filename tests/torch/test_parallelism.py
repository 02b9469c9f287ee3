"""Goal: what torch builds on groups beside DDP gives what it gives over Gloo: tensor parallelism, FSDP of both kinds, a
pipeline, distributed checkpoints. Method: the losses of small models over both backends."""

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import ranks

STEPS, RANKS = 4, 2


def join(rank, size, address, backend):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(backend, init_method=f"tcp://{address}", rank=rank, world_size=size)


def layers():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))


def batch(seed):
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))


def train(model, data, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def tensor_parallel(rank, size, path):
    mesh = init_device_mesh("cpu", (size,))
    return train(parallelize_module(layers(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), batch(0))


def fsdp2(rank, size, path):
    model = layers()
    for layer in model:
        fully_shard(layer)
    return train(fully_shard(model), batch(rank))


def fsdp1(rank, size, path):
    model = FullyShardedDataParallel(layers(), sharding_strategy=ShardingStrategy.FULL_SHARD,
                                     device_id=torch.device("cpu"))
    return train(model, batch(rank))


def zero(rank, size, path):
    model = torch.nn.parallel.DistributedDataParallel(layers())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    return train(model, batch(rank), optimizer)


def pipeline(schedule):
    def run(rank, size, path):
        whole = layers()
        part = whole[:2] if rank == 0 else whole[2:]
        stage = PipelineStage(part, rank, size, torch.device("cpu"))
        runner = schedule(stage, n_microbatches=4, loss_fn=lambda got, wanted: (got - wanted).square().mean())
        optimizer, all_losses = torch.optim.SGD(part.parameters(), lr=0.1), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            losses = []
            if rank == 0:
                runner.step(batch(0))
            else:
                runner.step(target=batch(0), losses=losses)
            optimizer.step()
            all_losses += [loss.item() for loss in losses]
        return all_losses

    return run


def checkpoints(rank, size, path):
    model = fully_shard(layers())
    losses = train(model, batch(rank))
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=path)
    torch.manual_seed(1)
    again = fully_shard(layers())
    state = {"model": again.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    again.load_state_dict(state["model"])
    return losses + train(again, batch(rank))


WAYS = {"tensor parallel": tensor_parallel, "fsdp1": fsdp1, "fsdp2": fsdp2, "zero": zero,
        "gpipe": pipeline(ScheduleGPipe), "1f1b": pipeline(Schedule1F1B), "checkpoints": checkpoints}


def all_ways(rank, size, address, backend, folder):
    join(rank, size, address, backend)
    found = {}
    for way, run in WAYS.items():
        torch.manual_seed(0)
        found[way] = run(rank, size, f"{folder}/{way}")
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_losses_are_those_of_gloo(tmp_path):
    ours = ranks.run(all_ways, RANKS, "tributary", str(tmp_path / "ours"))
    gloo = ranks.run(all_ways, RANKS, "gloo", str(tmp_path / "gloo"))
    for rank in range(RANKS):
        for way in WAYS:
            assert ours[rank][way] or way in ("gpipe", "1f1b") and rank == 0
            torch.testing.assert_close(torch.tensor(ours[rank][way]), torch.tensor(gloo[rank][way]),
                                       rtol=1e-5, atol=1e-7, msg=lambda text: f"{way}: {text}")
