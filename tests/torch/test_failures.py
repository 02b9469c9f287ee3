"""Goal: a peer's death and a rank that does not come are exceptions where torch.distributed waits, in its own
calls and in DDP. Method: ranks that are killed, or stay away."""

import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks
import tributary
import tributary.torch  # noqa: F401  (registers the backend)
from tributary._tributary import await_callbacks
from tributary.torch import _roll


def join(rank, size, address, **options):
    # The store is on rank 0, which nobody kills.
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size, **options)


def dies(rank, size, address, is_beside):
    join(rank, size, address)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began_at = time.monotonic()
    with pytest.raises(tributary.RankLostError, match="rank 1 of torch .* was lost") as raised:
        work = dist.all_reduce(tensor, async_op=is_beside)
        work.wait()
    assert raised.value.rank == 1
    return time.monotonic() - began_at


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_dead_peer_is_named(is_beside):
    outcomes = ranks.run(dies, 3, is_beside)
    assert isinstance(outcomes[1], ranks.Died)
    print(f"noticed within {max(outcomes[0], outcomes[2]) * 1e3:.0f} ms")


def dies_in_training(rank, size, address):
    join(rank, size, address)
    model = DistributedDataParallel(torch.nn.Linear(1000, 100))
    model(torch.ones(1, 1000)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1 of torch .* was lost"):
        model(torch.ones(1, 1000)).sum().backward()


def test_a_dead_peer_ends_a_backward_pass():
    assert isinstance(ranks.run(dies_in_training, 2)[1], ranks.Died)


def stays_away(rank, size, address, go_on):
    limit = datetime.timedelta(seconds=0.5)
    join(rank, size, address)
    if rank == 1:
        ranks.await_file(go_on)
        with pytest.raises(tributary.AbortedError):
            dist.barrier()
        return
    group = dist.distributed_c10d._get_default_group()
    with pytest.raises(dist.DistBackendError, match="barrier was not over after 0.5 s"):
        group.barrier(timeout=limit).wait()
    go_on.touch()


def test_a_barrier_has_a_timeout(tmp_path):
    ranks.run(stays_away, 2, tmp_path / "go on")


def comes_after_the_store(rank, size, address, go_on):
    join(rank, size, address)
    if rank == 0:
        go_on.write_text(str(os.getpid()))
        group = dist.distributed_c10d._get_default_group()
        with pytest.raises(dist.DistBackendError, match="barrier was not over after 0.5 s"):
            group.barrier(timeout=datetime.timedelta(seconds=0.5)).wait()
        os._exit(0)
    ranks.await_file(go_on)
    while is_alive(int(go_on.read_text() or os.getpid())):
        time.sleep(0.01)
    with pytest.raises((tributary.AbortedError, tributary.RankLostError)):
        dist.barrier()
    return "over"


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_rank_that_comes_late_does_not_look_for_a_store_that_has_gone(tmp_path):
    assert ranks.run(comes_after_the_store, 2, tmp_path / "go on")[1] == "over"


def waits_shortly(rank, size, address, go_on):
    join(rank, size, address)
    tensor = torch.ones(1)
    if rank == 1:
        ranks.await_file(go_on)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="not over after 0.2 s"):
            work.wait(datetime.timedelta(seconds=0.2))
        go_on.touch()
    work.wait()
    assert tensor == 2


def test_a_wait_with_a_limit_can_be_repeated(tmp_path):
    ranks.run(waits_shortly, 2, tmp_path / "go on")


def default_timeout(rank, size, address, go_on):
    join(rank, size, address, timeout=datetime.timedelta(seconds=3))
    if rank == 1:
        ranks.await_file(go_on)
        return
    with pytest.raises(dist.DistBackendError, match="all_reduce was not over after 3 s"):
        dist.all_reduce(torch.ones(1))
    go_on.touch()


def test_the_groups_timeout_holds_for_every_operation(tmp_path):
    ranks.run(default_timeout, 2, tmp_path / "go on")


def dump(rank, size, address, go_on):
    import logging

    lines = []
    logging.getLogger("tributary.torch").addHandler(handler := logging.Handler())
    handler.emit = lambda record: lines.append(record.getMessage())
    join(rank, size, address, timeout=datetime.timedelta(seconds=60))
    dist.broadcast(torch.ones(3), 0)
    group = dist.distributed_c10d._get_default_group()
    if rank == 3:
        ranks.await_file(go_on)
        return
    if rank == 2:
        # It has come, and nobody waits for it here.
        work = dist.all_reduce(torch.ones(7), async_op=True)
        ranks.await_file(go_on)
        with pytest.raises(tributary.AbortedError):
            work.wait()
        return
    if rank == 1:
        with pytest.raises(tributary.AbortedError):
            dist.all_reduce(torch.ones(7))
        ranks.await_file(go_on)
        return
    with pytest.raises(dist.DistBackendError, match="all_reduce was not over after 2 s.*: rank 3 did not come to it"):
        group.allreduce([torch.ones(7)], timeout=datetime.timedelta(seconds=2)).wait()
    go_on.touch()
    [line] = lines
    assert "1 broadcast of [(3,)]; 2 all_reduce of [(7,)], not over" in line, line


def test_a_timeout_tells_who_did_not_come_and_the_last_operations(tmp_path):
    ranks.run(dump, 4, tmp_path / "go on")


def end_while_telling(rank, size, address):
    join(rank, size, address)
    has_begun, has_told = threading.Event(), threading.Event()

    def tell(*_):
        has_begun.set()
        time.sleep(0.5)
        has_told.set()

    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    group._watch._roll.tell = tell
    group.abort()
    work = dist.all_reduce(torch.ones(1), async_op=True)  # nobody waits for it
    has_begun.wait()
    # As when the process ends.
    await_callbacks(60)
    assert has_told.is_set()
    del work


def test_a_process_does_not_end_while_it_tells_why():
    """The store's client is C++, in which a thread of Python's must not be when the interpreter ends."""
    ranks.run(end_while_telling, 1)


def fork_while_watched(rank, size, address):
    join(rank, size, address)
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    group._watch._lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            group.barrier(dist.BarrierOptions())
        except RuntimeError as error:
            os._exit(0 if "which forked this one" in str(error) else 2)
        os._exit(1)
    group._watch._lock.release()
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_is_refused_whatever_its_parents_threads_were_at():
    ranks.run(fork_while_watched, 1)


def test_a_roll_tells_who_was_in_which_operation():
    def roll(rank, session="a"):
        return _roll.Roll(store, rank, 4, session)

    store = dist.HashStore()
    # A group of before, on the same store.
    roll(3, "b").tell(7, "barrier")
    roll(2).tell(6, "all_reduce")
    roll(1).tell(9, "barrier")
    assert roll(0).call(7, "barrier") == (
        "rank 3 did not come to it; rank 1 was in barrier, its operation 9 of the group, where this is 7; rank 2 was in "
        "all_reduce, its operation 6 of the group, where this is 7")
    assert "or had done their part" in roll(0).call(7, "reduce")


def test_a_roll_whose_store_has_gone_tells_nothing():
    class Gone:
        def clone(self):
            raise RuntimeError("connection closed")

    assert _roll.Roll(Gone(), 0, 2, "a").call(1, "barrier") is None
