"""Goal: what is done with a future of an operation is done as over other backends, also where it waits for further
operations. Method: callbacks that wait, and DDP's communication hooks, whose losses are compared with Gloo's."""

import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

import ranks
import tributary
import tributary.torch  # noqa: F401  (registers the backend)

DEPTH, AT_ONCE = 3, 6


def join(rank, size, address, backend="tributary", **options):
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"tcp://{address}", rank=rank, world_size=size, **options)


def nested(future, depth):
    """Adds the sum over the ranks of what came to itself, `depth` times, each in a callback that waits."""
    tensor = future.value()[0].clone()
    if depth == 0:
        return tensor
    work = dist.all_reduce(tensor, async_op=True)
    return work.get_future().then(lambda inner: nested(inner, depth - 1)).wait()


def wait_in_callbacks(rank, size, address):
    join(rank, size, address)
    # Callbacks of several operations wait for one another at the same time, in turns on all ranks.
    for _ in range(5):
        first = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        assert first.then(lambda future: nested(future, DEPTH)).wait().tolist() == [size ** (DEPTH + 1)] * 4
    barriers = [dist.barrier(async_op=True) for _ in range(AT_ONCE)]
    seen = []
    for barrier in barriers:
        barrier.get_future().then(lambda _: seen.append([other.wait() for other in barriers]))
    for barrier in barriers:
        barrier.wait()
    dist.barrier()
    futures = [barrier.get_future().then(lambda _: None) for barrier in barriers]
    for future in futures:
        future.wait()
    while len(seen) < AT_ONCE:
        time.sleep(0.001)


def test_callbacks_may_wait_for_other_operations():
    ranks.run(wait_in_callbacks, 2)


def wait_for_transfers(rank, size, address):
    join(rank, size, address)
    other = 1 - rank
    if rank == 0:
        got = torch.zeros(1)

        def ask_again(_):
            dist.send(torch.ones(1), other, tag=1)
            dist.recv(got, other, tag=2)
            return got

        work = dist.irecv(torch.zeros(1), other)
        assert work.get_future().then(ask_again).wait() == 7
    else:
        dist.send(torch.zeros(1), other)
        dist.recv(torch.zeros(1), other, tag=1)
        dist.send(torch.full((1,), 7.0), other, tag=2)


def test_callbacks_of_transfers_may_wait_for_other_transfers():
    ranks.run(wait_for_transfers, 2)


def requests_in_callbacks(rank, size, address):
    group = tributary.Communicator.connect(address, rank, size)
    vectors = [bytearray(b"\1" * 8) for _ in range(3)]
    done = []

    def again(depth):
        request = group.iallreduce(torch.frombuffer(vectors[depth], dtype=torch.uint8))
        request.wait(60)
        done.append(depth)
        if depth < 2:
            group.ibarrier().add_done_callback(lambda: again(depth + 1))

    group.ibarrier().add_done_callback(lambda: again(0))
    while len(done) < 3:
        time.sleep(0.001)
    assert all(vector == bytes([size]) * 8 for vector in vectors)
    group.close()


def test_callbacks_of_requests_may_wait_with_a_limit():
    ranks.run(requests_in_callbacks, 2)


def questions(rank, size, address):
    join(rank, size, address)
    work = dist.all_reduce(torch.ones(2), async_op=rank >= 0)
    while not work.is_completed():
        time.sleep(0.001)
    assert work.is_success() and work.exception() is None
    assert [part.tolist() for part in work.result()] == [[size] * 2]
    if rank == 0:
        work = dist.irecv(torch.zeros(1), 1)
        assert not work.is_completed()
        dist.send(torch.zeros(1), 1)
    else:
        dist.recv(torch.zeros(1), 0)
        work = dist.isend(torch.zeros(1), 0)
    while not work.is_completed():
        time.sleep(0.001)


def test_a_work_tells_whether_it_is_over():
    ranks.run(questions, 2)


# A callback that is in torch's C++ again and again, while the process ends.
ENDS = """
    import threading, time
    import torch
    from tributary._tributary import call_beside
    has_begun, tensor = threading.Event(), torch.ones(10, 10)

    def callback():
        until = time.monotonic() + 2
        while time.monotonic() < until:
            torch.mm(tensor, tensor)
            has_begun.set()
        print("over", flush=True)

    call_beside(callback)
    has_begun.wait()
"""


def test_a_process_does_not_end_in_the_middle_of_a_callback(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(ENDS))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=ranks.TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


HOOKS = {
    "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "powersgd": lambda model: model.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook),
    "fp16 and powersgd": lambda model: model.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
        default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    "quantised": lambda model: model.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook),
    "quantised by channel": lambda model: model.register_comm_hook(
        None, quantization_hooks.quantization_perchannel_hook),
    "built-in fp16": lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS),
    "built-in allreduce": lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
}


def train(rank, size, address, backend, hook):
    join(rank, size, address, backend)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 16))
    model = DistributedDataParallel(network, bucket_cap_mb=0.004)
    HOOKS[hook](model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 32, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.destroy_process_group()
    return losses


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_train_as_over_gloo(hook):
    ours, gloo = ranks.run(train, 2, "tributary", hook), ranks.run(train, 2, "gloo", hook)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(gloo), rtol=1e-4, atol=1e-6)


def train_on_unequal_inputs(rank, size, address, backend, divides_by_initial_size):
    join(rank, size, address, backend)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model = DistributedDataParallel(network, bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(3):
        with model.join(divide_by_initial_world_size=divides_by_initial_size):
            for _ in range(3 + 4 * rank):
                optimizer.zero_grad()
                loss = model(torch.randn(4, 8, generator=generator)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    dist.destroy_process_group()
    return losses


@pytest.mark.parametrize("divides_by_initial_size", [True, False])
def test_unequal_inputs_train_as_over_gloo(divides_by_initial_size):
    """DDP takes the value of a future in C++ as soon as it has waited for the operation."""
    ours, gloo = [ranks.run(train_on_unequal_inputs, 3, backend, divides_by_initial_size)
                  for backend in ("tributary", "gloo")]
    for of_ours, of_gloo in zip(ours, gloo):
        torch.testing.assert_close(torch.tensor(of_ours), torch.tensor(of_gloo), rtol=1e-4, atol=1e-6)
