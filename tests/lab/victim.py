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
# Longer than a daemon stays away.
DAEMONS_WITHIN_S = 15


def say(**words):
    print(json.dumps(words), flush=True)


def die():
    say(gone_at=time.monotonic())
    os.kill(os.getpid(), signal.SIGKILL)


def sum_of_ones(communicator):
    """Of a vector that one datagram holds, and of a longer one."""
    for elements in (100, 1000):
        vector = array.array("d", [1.0] * elements)
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


def connect(rank, size, address):
    """No job can start without a manager, or in a tree of which an aggregator is lost meanwhile; all ranks are told alike. Both
    come back soon."""
    until = time.monotonic() + DAEMONS_WITHIN_S
    while True:
        try:
            return tributary.Communicator.connect(address, rank, size, timeout=60)
        except tributary.SetUpError as error:
            is_outage = "manager" in str(error) or "aggregation node" in str(error)
            if not is_outage or time.monotonic() > until:
                raise
            time.sleep(0.2)


def main(state, rank, size, address, goes, after):
    world = connect(int(rank), int(size), address)
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
