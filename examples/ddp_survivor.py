#!/usr/bin/env python3
"""Trains on several processes, one of which dies in the middle; the others take it out of the group and train on, in the
same processes:

    python examples/ddp_survivor.py --ranks 3 --dies 1 --at 10

torchrun ends all processes of a job when one fails, so this program starts its own, and keeps the store at which they
meet. Needs torch 2.15.
"""

import argparse
import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    data = torch.randn(64, 16, generator=generator)
    return data, data.sum(1, keepdim=True)


def train(rank, options, port):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("tributary", store=store, rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model, step = DistributedDataParallel(network), 0
    while step < STEPS:
        if rank == options.dies and step == options.at:
            os.kill(os.getpid(), signal.SIGKILL)
        # A step that fails leaves parameters as they were: they change when all gradients are there.
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        optimizer.zero_grad()
        data, wanted = batch(rank, step)
        try:
            loss = (model(data) - wanted).square().mean()
            loss.backward()
            # The backward pass tells that a rank was lost; a collective also tells which.
            dist.all_reduce(loss.detach())
        except RuntimeError:
            model = DistributedDataParallel(shrink(network, rank))
            continue
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            print(f"step {step} with {dist.get_world_size()} ranks: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def shrink(network, rank):
    """Takes the rank that was lost out of the group."""
    began_at = time.monotonic()
    try:
        dist.barrier()
    except RuntimeError as error:
        lost = error.rank
    dist.shrink_group([lost], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    print(f"rank {rank} goes on without rank {lost}, after {time.monotonic() - began_at:.2f} s", flush=True)
    return network


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--dies", type=int, default=1, help="the rank that dies")
    parser.add_argument("--at", type=int, default=10, help="the step at which it does")
    options = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=train, args=(rank, options, store.port)) for rank in range(options.ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [rank for rank, process in enumerate(processes) if process.exitcode != 0 and rank != options.dies]
    raise SystemExit(f"ranks {failed} failed" if failed else 0)


if __name__ == "__main__":
    main()
