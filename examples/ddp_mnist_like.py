#!/usr/bin/env python3
"""Trains a small convolutional network on several processes, on pictures of digits that it draws itself:

    torchrun --nproc-per-node 4 examples/ddp_mnist_like.py

Prints loss (as exact hexadecimal), accuracy and time of each epoch. `--backend gloo` is for comparison.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel

# Digits on 3 by 5 points, a bit a point from the top left.
GLYPHS = [0x7B6F, 0x2C97, 0x73E7, 0x73CF, 0x5BC9, 0x79CF, 0x79EF, 0x7249, 0x7BEF, 0x7BCF]
BATCH = 64


def pictures(count, generator):
    """`count` digits of 28 by 28 points: at any place, of any strength, with noise; and which they are."""
    bits = torch.tensor([[glyph >> place & 1 for place in range(14, -1, -1)] for glyph in GLYPHS])
    drawn = bits.view(10, 1, 5, 3).float().repeat_interleave(4, 2).repeat_interleave(4, 3)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.randn(count, 1, 28, 28, generator=generator) * 0.4
    places = torch.randint(0, 8, (count, 2), generator=generator)
    strengths = torch.rand(count, generator=generator) * 0.8 + 0.4
    for image, label, (row, column), strength in zip(images, labels, places.tolist(), strengths):
        image[:, row:row + 20, column:column + 12] += drawn[label] * strength
    return images, labels


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 16, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def train_epoch(model, optimizer, images, labels):
    """Trains on every picture once; the mean loss of all ranks."""
    total = torch.zeros(1)
    for at in range(0, len(images), BATCH):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[at:at + BATCH]), labels[at:at + BATCH])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    total /= len(images) / BATCH
    dist.all_reduce(total, op=dist.ReduceOp.AVG if dist.get_backend() != "gloo" else dist.ReduceOp.SUM)
    return total.item() if dist.get_backend() != "gloo" else total.item() / dist.get_world_size()


def accuracy(model, images, labels):
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(labels) / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train = pictures(2048, torch.Generator().manual_seed(1 + rank))
    test = pictures(512, torch.Generator().manual_seed(1001 + rank))
    for epoch in range(arguments.epochs):
        began_at = time.monotonic()
        loss = train_epoch(model, optimizer, *train)
        taken_s = time.monotonic() - began_at
        right = accuracy(model, *test)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.hex()} = {loss:.4f}, accuracy {right:.1%}, {taken_s:.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
