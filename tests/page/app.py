"""A program with many communicators: app.py SPLITS. Each split halves the ranks at random. It reduces for ever."""

import array
import random
import sys
import time

from mpi4py import MPI

LENGTH = 200
# Leaves the cores to others: what is shown is the page, not how fast a machine is.
PAUSE_S = 0.002

world = MPI.COMM_WORLD
draw = random.Random(18)
halves = []
for number in range(int(sys.argv[1])):
    order = draw.sample(range(world.size), world.size)
    half = world.Split(color=order.index(world.rank) % 2, key=world.rank)
    halves.append(half)
mine, total = array.array("d", [1.0] * LENGTH), array.array("d", [0.0] * LENGTH)
while True:
    for each in (world, *draw.sample(halves, 5)):
        each.Allreduce(mine, total, op=MPI.SUM)
        assert all(value == each.size for value in total)
    time.sleep(PAUSE_S)
