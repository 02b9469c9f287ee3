"""A job for test_fabric.py and test_exact.py: job.py WAY ROUNDS [RANKS]. Each rank runs ROUNDS of every collective and checks
them. With `exact` as ROUNDS it makes exact sums, and appends their bits to the file that BITS names. With `refused` it asks for sums
that an external receiver excludes. With `left` rank 0 leaves a communicator while the others wait for it, in the way that WAY names.

By `address` and `store` it starts its RANKS itself; by `mpi` a launcher does.
"""

import os
import subprocess
import sys
import time

import numpy

import ranks
import tributary


def world(way, sums=None):
    if way == "mpi":
        from mpi4py import MPI

        return tributary.Communicator.from_mpi(MPI.COMM_WORLD, label="python")
    rank, size, address = int(os.environ["RANK"]), int(os.environ["SIZE"]), os.environ["ADDRESS"]
    return tributary.Communicator.connect(address, rank, size, label="world", sums=sums)


def run(all_ranks, rounds):
    rank, size = all_ranks.rank, all_ranks.size
    for number in range(rounds):
        length = 1 + 3000 * number
        vector = numpy.full(length, rank + number, "float32")
        all_ranks.allreduce(vector)
        assert (vector == sum(range(size)) + size * number).all()
        gathered = numpy.zeros((size, length), "int64")
        all_ranks.allgather(numpy.full(length, rank), gathered)
        assert (gathered.T == numpy.arange(size)).all()
        block = numpy.zeros(length, "int32")
        all_ranks.ireduce_scatter(numpy.ones(size * length, "int32"), block).wait()
        assert (block == size).all()
        sent = numpy.full(length, rank)
        all_ranks.broadcast(sent, root=number % size)
        assert (sent == number % size).all()
        all_ranks.barrier()


def sum_exactly(all_ranks):
    import test_exact

    own = test_exact.bits_of(all_ranks)
    with open(os.environ["BITS"], "a") as file:
        # In one piece: the ranks share the file.
        os.write(file.fileno(), (" ".join(own) + "\n").encode())


def be_refused(way):
    try:
        world(way, "exact")
    except tributary.SetUpError as problem:
        assert "rank 0: its sums are exact, which excludes TRIBUTARY_EXTERNAL_RECEIVER" in str(problem), problem
    else:
        raise AssertionError("nobody refused")


def be_left(all_ranks):
    """Rank 0 closes a communicator, drops it, or ends by an exception. All others are told, and by whom."""
    part = all_ranks.split(0, all_ranks.rank)
    for _ in range(20):
        part.allreduce(numpy.ones(5))
        part.barrier()
    if all_ranks.rank == 0:
        time.sleep(0.3)  # the others wait by then
        if os.environ["WAY"] == "raise":
            raise LookupError("rank 0 ends")
        if os.environ["WAY"] == "close":
            part.close()
        del part
    else:
        try:
            part.barrier()
        except (tributary.RankLostError, tributary.HostLostError) as lost:
            assert "#0" in str(lost) or "rank 0 " in str(lost), lost
        else:
            raise AssertionError("a barrier without rank 0")
    if os.environ["WAY"] != "raise":
        all_ranks.barrier()  # rank 0 lives until all have been told


def main(way, rounds, size=None):
    if rounds == "refused" and "RANK" in os.environ:
        be_refused(way)
        return
    if size is None or "RANK" in os.environ:
        with world(way) as all_ranks:
            if rounds == "exact":
                sum_exactly(all_ranks)
            elif rounds == "left":
                be_left(all_ranks)
            else:
                run(all_ranks, int(rounds))
        return
    address = ranks.free_address()
    place = {**os.environ, "SIZE": size, "ADDRESS": address}
    command = [sys.executable, *sys.argv]
    started = [subprocess.Popen(command, env={**place, "RANK": str(rank)}) for rank in range(int(size))]
    codes = [process.wait(ranks.TIMEOUT_S) for process in started]
    raises = rounds == "left" and os.environ["WAY"] == "raise"
    assert codes == [int(raises)] + [0] * (len(codes) - 1), codes


main(*sys.argv[1:])
