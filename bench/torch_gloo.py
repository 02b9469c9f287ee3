#!/usr/bin/env python3
"""Times collectives of torch.distributed over Tributary and over Gloo, side by side in one run, and prints a table
of medians and ratios. The two take turns in blocks, so that both have the same moments of the machine.

    bench/torch_gloo.py --ranks 2,4,8
    bench/torch_gloo.py --train --ranks 4      DDP on a small network: losses, step times and overlap
    bench/torch_gloo.py --lab 4,8 --tributary PROGRAM      one rank on each host of a lab
    bench/torch_gloo.py --train --batch 256 --lab 2 --rate 2gbit --tributary PROGRAM      DDP over slow links
"""

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

import tributary.torch  # noqa: F401  (registers the backend)

BACKENDS = ("tributary", "gloo")
SIZES = {"4 KiB": 4 << 10, "256 KiB": 256 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BLOCKS = 5
# Time of a block that is aimed at, and the calls that it has at most.
BLOCK_S, CALLS_MAX = 0.15, 200
# The address of a lab's first host.
LAB_HOST_0 = "10.77.2.1"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def calls(size):
    """Each collective: what it does with `length` elements in all, for a group."""
    def vectors(length, dtype):
        return torch.ones(length, dtype=dtype), torch.ones(length // size, dtype=dtype)

    def allreduce(group, whole, part):
        dist.all_reduce(whole, group=group)

    def reduce_scatter(group, whole, part):
        dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.SUM, group=group)

    def allgather(group, whole, part):
        dist.all_gather_into_tensor(whole, part, group=group)

    def broadcast(group, whole, part):
        dist.broadcast(whole, 0, group=group)

    return vectors, {"allreduce": allreduce, "reduce_scatter": reduce_scatter, "allgather": allgather,
                     "broadcast": broadcast}


def block(call, group, buffers, count):
    """Mean time of a call, in us, in a block of `count`."""
    dist.barrier(group=group)
    began_at = time.perf_counter()
    for _ in range(count):
        call(group, *buffers)
    return (time.perf_counter() - began_at) / count * 1e6


def measure(call, groups, buffers):
    """Medians over the blocks, in us: by backend."""
    first = torch.tensor([max(block(call, group, buffers, 1) for _ in range(2)) for group in groups.values()])
    dist.all_reduce(first, op=dist.ReduceOp.MAX)
    counts = [max(1, min(CALLS_MAX, int(BLOCK_S * 1e6 / took))) for took in first.tolist()]
    times = {name: [] for name in groups}
    for _ in range(BLOCKS):
        for (name, group), count in zip(groups.items(), counts):
            times[name].append(block(call, group, buffers, count))
    slowest = torch.tensor([statistics.median(times[name]) for name in groups])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return dict(zip(groups, slowest.tolist()))


def collectives(rank, size, arguments):
    groups = {name: dist.new_group(backend=name) for name in arguments.backends}
    vectors, all_calls = calls(size)
    for dtype_name in arguments.dtypes:
        for call_name in arguments.collectives:
            for size_name, len_bytes in SIZES.items():
                if size_name.replace(" ", "") not in arguments.sizes:
                    continue
                dtype = DTYPES[dtype_name]
                buffers = vectors(len_bytes // dtype.itemsize, dtype)
                took = measure(all_calls[call_name], groups, buffers)
                if rank == 0:
                    if arguments.json:
                        print(json.dumps({"ranks": size, "collective": call_name, "type": dtype_name,
                                          "bytes": len_bytes, "us": took}), flush=True)
                        continue
                    times = " | ".join(f"{us:,.0f}" for us in took.values())
                    ratio = f" | {took['gloo'] / took['tributary']:.2f}" if len(took) == len(BACKENDS) else ""
                    print(f"| {size} | {call_name} | {dtype_name} | {size_name} | {times}{ratio} |", flush=True)


def train(rank, size, arguments):
    """DDP over each backend, twice: step times and whether the losses are the same bits."""
    from torch.nn.parallel import DistributedDataParallel

    losses = {}
    for name in (*arguments.backends, *arguments.backends):
        group = dist.new_group(backend=name)
        torch.manual_seed(0)
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(768, 768), torch.nn.ReLU())]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group, bucket_cap_mb=2.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.randn(arguments.batch, 768, generator=torch.Generator().manual_seed(rank))
        told, steps = [], []
        for _ in range(arguments.steps):
            began_at = time.perf_counter()
            optimizer.zero_grad()
            loss = (model(data) - data).square().mean()
            loss.backward()
            optimizer.step()
            steps.append(time.perf_counter() - began_at)
            told.append(loss.item().hex())
        losses.setdefault(name, []).append(told)
        with model.no_sync():
            gradients = gradients_ms(model, data)
        both = gradients_ms(model, data)
        reduction = reduction_ms(model, data, group)
        if rank == 0:
            step = statistics.median(steps) * 1e3
            hidden = max(0, gradients + reduction - both) / reduction
            print(f"| {size} | {name} | {step:.1f} | {gradients:.1f} | {reduction:.1f} | {both:.1f} | {hidden:.0%} | "
                  f"{told[-1]} |", flush=True)
        dist.barrier()
    if rank == 0:
        for name, (first, second) in losses.items():
            print(f"{name}: losses of two runs {'are' if first == second else 'are NOT'} equal bit for bit")


def gradients_ms(model, data):
    """Median time of forward and backward, with whatever the model reduces meanwhile."""
    return median_ms(lambda: (model(data) - data).square().mean().backward())


def reduction_ms(model, data, group):
    """Median time of a step's reductions by themselves, all outstanding at once as in a step."""
    lengths = []

    def hook(_, bucket):
        lengths.append(bucket.buffer().numel())
        return dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future().then(
            lambda future: future.value()[0])

    model.register_comm_hook(None, hook)
    (model(data) - data).square().mean().backward()
    buckets = [torch.ones(length) for length in lengths]

    def reduce():
        for work in [dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets]:
            work.wait()

    return median_ms(reduce)


def median_ms(work):
    """Median time of work that all ranks begin together."""
    took = []
    for _ in range(9):
        dist.barrier()
        began_at = time.perf_counter()
        work()
        took.append(time.perf_counter() - began_at)
    return statistics.median(took) * 1e3


def rank_main(rank, size, port, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{arguments.address}:{port}", rank=rank, world_size=size)
    (train if arguments.train else collectives)(rank, size, arguments)
    dist.destroy_process_group()


def on_lab(hosts, rate, program):
    """Runs this program with the same arguments on hosts of a lab, one rank each."""
    name = f"torch-{os.getpid()}"
    lab = [program, "lab"]
    links = ["--rate", rate] if rate else []
    subprocess.run([*lab, "up", "--name", name, "--hosts", str(hosts), *links], check=True,
                   stdout=subprocess.DEVNULL)
    try:
        # Gloo would look for an address of the host's name.
        place = ["env", f"WORLD_SIZE={hosts}", "MASTER_PORT=29500", "GLOO_SOCKET_IFNAME=eth0"]
        command = [sys.executable, *sys.argv, "--address", LAB_HOST_0]
        started = [subprocess.Popen([*lab, "exec", "--name", name, f"h{rank}", "--", *place, f"RANK={rank}", *command])
                   for rank in range(hosts)]
        assert not any([process.wait() for process in started])
    finally:
        subprocess.run([*lab, "down", "--name", name], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--ranks", type=words, default=["2", "4", "8"])
    parser.add_argument("--sizes", type=words, default=[name.replace(" ", "") for name in SIZES])
    parser.add_argument("--dtypes", type=words, default=list(DTYPES))
    parser.add_argument("--collectives", type=words, default=["allreduce", "reduce_scatter", "allgather", "broadcast"])
    parser.add_argument("--backends", type=words, default=list(BACKENDS))
    parser.add_argument("--json", action="store_true", help="a line of JSON for each case; not with --train")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="rows of a rank's data (default %(default)s)")
    parser.add_argument("--address", default="127.0.0.1", help="where rank 0 is, for ranks that a launcher starts")
    parser.add_argument("--lab", type=words, default=[], metavar="HOSTS")
    parser.add_argument("--rate", help="of a lab's links, such as 2gbit (default: none)")
    parser.add_argument("--tributary", help="the program, which makes labs")
    arguments = parser.parse_args()
    if "RANK" not in os.environ and not arguments.json:
        heads = (["ranks", "backend", "step, ms", "gradients, ms", "reduction, ms", "both, ms", "hidden", "last loss"]
                 if arguments.train else
                 ["ranks", "collective", "type", "bytes", *(f"{name}, us" for name in arguments.backends),
                  *(["ratio"] if len(arguments.backends) == len(BACKENDS) else [])])
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    if "RANK" in os.environ:  # started by a launcher
        place = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")]
        rank_main(*place, arguments)
        return
    for hosts in map(int, arguments.lab):
        on_lab(hosts, arguments.rate, arguments.tributary)
    for size in map(int, [] if arguments.lab else arguments.ranks):
        port, spawn = free_port(), multiprocessing.get_context("spawn")
        started = [spawn.Process(target=rank_main, args=(rank, size, port, arguments)) for rank in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join()
            assert process.exitcode == 0, process.exitcode


if __name__ == "__main__":
    main()
