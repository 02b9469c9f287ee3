"""A program as people have it, with mpi4py alone: app.py ROUNDS. Every rank checks every result."""

import array
import sys

from mpi4py import MPI

LENGTH = 1000

world = MPI.COMM_WORLD
for number in range(int(sys.argv[1])):
    mine = array.array("d", [world.rank + number] * LENGTH)
    total = array.array("d", [0.0] * LENGTH)
    world.Allreduce(mine, total, op=MPI.SUM)
    expected = sum(rank + number for rank in range(world.size))
    assert all(each == expected for each in total), (number, total[0], expected)
