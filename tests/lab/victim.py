#!/usr/bin/env python3
"""One rank of a small job in which a rank goes: victim.py STATE RANK SIZE ADDRESS GOES AFTER.

Rank GOES dies or leaves AFTER seconds, in the state of that name. Every other rank prints what it heard of that, and
when, as one JSON object. Nothing must be wrong before, and nobody may come through.
"""

import array
import json
import os
import signal
import sys
import time

import tributary

# Two streams cross when all have come to the first.
CROSSING_S = 0.3
STREAM_ELEMENTS = 100_000


def say(**words):
    print(json.dumps(words), flush=True)


def die():
    say(gone_at=time.monotonic())
    os.kill(os.getpid(), signal.SIGKILL)


def sum_of_ones(communicator):
    vector = array.array("d", [1.0] * 1000)
    communicator.allreduce(vector)
    assert set(vector) == {communicator.size}, "a wrong sum"


def first_link(world, goes, after):
    """Of a communicator that nobody has used yet."""
    fresh = world.split(0, world.rank)
    if goes:
        time.sleep(after)
        die()
    fresh.barrier()


def set_up(world, goes, after):
    """While communicators are made."""
    until = time.monotonic() + after
    while True:
        if goes and time.monotonic() > until:
            die()
        sum_of_ones(world.split(0, -world.rank))


def leave(world, goes, after):
    """While the others wait for it."""
    fresh = world.split(0, -world.rank)
    if goes:
        time.sleep(after)
        say(gone_at=time.monotonic())
        fresh.close()
        # It lives on for longer than the others may wait.
        time.sleep(5)
        sys.exit(0)
    fresh.barrier()


def leads_nobody(world, goes, after):
    """In the middle of operations, at a host that another rank leads."""
    until = time.monotonic() + after
    while True:
        sum_of_ones(world)
        if goes and time.monotonic() > until:
            die()


def worker(world, goes, after):
    """The same, and a forked worker has copies of its sockets."""
    sum_of_ones(world)
    if goes and os.fork() == 0:
        # In a session of its own, so that it outlives its rank's launcher for as long as the others may wait.
        os.setsid()
        for standard in (1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), standard)
        time.sleep(20)
        os._exit(0)
    leads_nobody(world, goes, after)


def streams(world, _goes, _after):
    """Nobody goes: two streams, which one rank joins in the other order than its host's leaders."""
    everyone, half = world.split(0, -world.rank), world.split(world.rank % 2, world.rank)
    vector = array.array("d", [1.0] * STREAM_ELEMENTS)
    request = None if world.rank == 0 else everyone.iallreduce(vector)
    time.sleep(CROSSING_S)
    if world.rank % 2 == 0:
        other = array.array("d", [1.0] * STREAM_ELEMENTS)
        half.allreduce(other)
        assert set(other) == {half.size}, "a wrong sum"
    if request is None:
        request = everyone.iallreduce(vector)
    request.wait()
    assert set(vector) == {world.size}, "a wrong sum"


def main(state, rank, size, address, goes, after):
    world = tributary.Communicator.connect(address, int(rank), int(size), timeout=60)
    world.barrier()
    began_at = time.monotonic()
    try:
        globals()[state](world, rank == goes, float(after))
    except tributary.TributaryError as error:
        say(rank=world.rank, began_at=began_at, heard_at=time.monotonic(), error=type(error).__name__,
            host=getattr(error, "host", None), text=str(error))
    else:
        say(rank=world.rank, error=None)


main(*sys.argv[1:])
