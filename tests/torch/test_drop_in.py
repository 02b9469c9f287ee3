"""Goal: a training program of another backend needs another name and nothing else, also where torchrun restarts it, where
the world has a second backend, and where a mesh picks backends. Method: programs that torchrun starts with one name and
with the other; their losses have to agree."""

import pytest
import torch

from test_groups import torchrun

# What the programs share. Each prints its losses exactly, one line for all of them.
COMMON = """
    import os, sys
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    BACKEND = os.environ["BACKEND"]
    torch.set_num_threads(1)

    def layers():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))

    def step(model, optimizer, number):
        data = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * number + dist.get_rank()))
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def train(model, steps=4):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return [step(model, optimizer, number) for number in range(steps)]

    def tell(losses):
        # In one piece: ranks share the pipe.
        sys.stdout.write(f"losses of rank {dist.get_rank()}: {' '.join(loss.hex() for loss in losses)}\\n")
        sys.stdout.flush()
        dist.destroy_process_group()
        if BACKEND == "gloo":
            # One run in eight that has trained over Gloo ends in "terminate called without an active exception".
            os._exit(0)
"""

# Rank 1 fails in the first attempt; the second goes on from the last checkpoint. With Gloo nobody fails: it may find
# addresses of the first attempt in the store, and not come up again.
RESTARTED = """
    path, attempt = os.environ["CHECKPOINT"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group(BACKEND)
    model = DistributedDataParallel(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, first = [], 0
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"]), optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    assert (first == 3) == (attempt == 1), (first, attempt)
    for number in range(first, 6):
        if BACKEND != "gloo" and attempt == 0 and number == 3:
            dist.barrier()
            if dist.get_rank() == 1:
                raise RuntimeError("planned")
        losses.append(step(model, optimizer, number))
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number + 1}, path + "~")
            os.replace(path + "~", path)
    tell(losses)
"""

# For another device, another backend. Gloo stands in for one of accelerators: it moves nothing here.
BESIDE = """
    dist.init_process_group(f"cpu:{BACKEND},cuda:gloo")
    kinds = {device.type: dist.group.WORLD._get_backend(device).name() for device in dist.group.WORLD._device_types}
    assert kinds == {"cpu": BACKEND, "cuda": "gloo"}, kinds
    tell(train(DistributedDataParallel(layers())) + train(fully_shard(layers())))
"""

# A world of another backend, and a group for tensors of the processor.
WITHIN = """
    dist.init_process_group("gloo")
    group = dist.new_group(backend=BACKEND)
    tell(train(DistributedDataParallel(layers(), process_group=group)))
"""

MESH = """
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    assert {dist.get_backend(mesh.get_group(name)) for name in mesh.mesh_dim_names} == {BACKEND}
    tell(train(fully_shard(layers(), mesh=mesh)))
"""

# A mesh that names backends itself, in a world of another one.
NAMED_BY_MESH = """
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"),
                            backend_override={name: BACKEND for name in ("replicate", "shard")})
    assert {dist.get_backend(mesh.get_group(name)) for name in mesh.mesh_dim_names} == {BACKEND}
    tell(train(fully_shard(layers(), mesh=mesh)))
"""

PROGRAMS = {"restarted": (RESTARTED, 2, ("--max-restarts", "1")), "beside": (BESIDE, 2, ()), "within": (WITHIN, 2, ()),
            "mesh": (MESH, 4, ()), "named by mesh": (NAMED_BY_MESH, 4, ())}


def losses(folder, name, backend):
    """By rank: the losses that a program prints."""
    text, processes, options = PROGRAMS[name]
    folder.mkdir()
    out = torchrun(folder, COMMON + text, *options, processes=processes, BACKEND=backend,
                   CHECKPOINT=str(folder / "checkpoint"))
    lines = [line.split(":") for line in out.splitlines() if line.startswith("losses of rank")]
    assert len(lines) == processes, out
    return {who: [float.fromhex(loss) for loss in told.split()] for who, told in lines}


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_those_of_gloo(tmp_path, name):
    ours, gloo = losses(tmp_path / "ours", name, "tributary"), losses(tmp_path / "gloo", name, "gloo")
    assert ours.keys() == gloo.keys() and all(len(told) >= 3 for told in ours.values())
    for who in ours:
        # After a restart there are losses of the last steps alone.
        of_gloo = gloo[who][-len(ours[who]):]
        torch.testing.assert_close(torch.tensor(ours[who]), torch.tensor(of_gloo), rtol=1e-5, atol=1e-7)
