"""Sums NumPy arrays over processes without an MPI: each knows its rank, how many there are, and one address.

    pip install build/wheels/tributary-*.whl numpy
    python examples/numpy_allreduce.py 4                              # starts 4 ranks on this host
    tributary run --hosts 2 -- python examples/numpy_allreduce.py 4   # two hosts emulated: through a tree

A launcher of your own sets RANK, SIZE and ADDRESS (a port on the host of rank 0) for each process.
"""

import os
import socket
import subprocess
import sys

import numpy

import tributary


def work(rank, size, address):
    with tributary.Communicator.connect(address, rank, size) as ranks:
        gradient = numpy.full(100_000, rank + 1.0, "float32")
        ranks.allreduce(gradient)  # in place
        assert (gradient == size * (size + 1) / 2).all()

        # Nonblocking: both are under way at once.
        longest = numpy.array([rank], "int64")
        found = numpy.empty((size, 2), "int32")
        requests = [ranks.iallreduce(longest, op="max"),
                    ranks.iallgather(numpy.array([rank, rank * rank], "int32"), found)]
        for request in requests:
            request.wait()
        assert longest[0] == size - 1 and (found[:, 1] == numpy.arange(size) ** 2).all()
        if rank == 0:
            print(f"{size} ranks: each element is {gradient[0]:g}, the largest rank {longest[0]}")


def start(size):
    """Starts the ranks on this host; their exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = "127.0.0.1:%d" % probe.getsockname()[1]
    place = {**os.environ, "SIZE": str(size), "ADDRESS": address}
    started = [subprocess.Popen([sys.executable, __file__], env={**place, "RANK": str(rank)}) for rank in range(size)]
    return [process.wait() for process in started]


if "RANK" in os.environ:
    work(int(os.environ["RANK"]), int(os.environ["SIZE"]), os.environ["ADDRESS"])
else:
    sys.exit(any(start(int(sys.argv[1]) if len(sys.argv) > 1 else 2)))
