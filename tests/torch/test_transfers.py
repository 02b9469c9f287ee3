"""Goal: transfers between two ranks end, well or with an error that says why, whatever the other rank does. Method:
tags without number, lengths that differ, ranks that stay away, end early or are killed."""

import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import ranks
import tributary
import tributary.torch  # noqa: F401  (registers the backend)
from tributary._tributary import await_callbacks
from tributary.torch import _links, _mesh, _transfers

LIMIT_S = 3


def join(rank, size, address, limit_s=60):
    timeout = datetime.timedelta(seconds=limit_s)
    dist.init_process_group("tributary", init_method=f"tcp://{address}", rank=rank, world_size=size, timeout=timeout)


def own():
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def any_tags(rank, size, address):
    join(rank, size, address)
    tags = list(range(700))
    if rank == 0:
        works = [dist.isend(torch.tensor([tag]), 1, tag=tag) for tag in tags]
        for work in works:
            work.wait()
    else:
        for tag in reversed(tags):
            tensor = torch.tensor([-1])
            dist.recv(tensor, 0, tag=tag)
            assert tensor == tag
    assert len(threading.enumerate()) < 10
    dist.barrier()


def test_tags_cost_nothing():
    ranks.run(any_tags, 2)


def leave_slowly(rank, size, address):
    """The thread that leaves is held up at each of its steps, so that the thread that serves transfers runs ahead."""
    join(rank, size, address)
    if rank == 0:
        dist.send(torch.ones(1), 1)
        write = os.eventfd_write

        def write_late(*arguments):
            time.sleep(0.2)
            write(*arguments)

        os.eventfd_write = write_late
        dist.destroy_process_group()
        return None
    dist.recv(torch.zeros(1), 0)
    with pytest.raises(tributary.RankLostError) as caught:
        dist.recv(torch.zeros(1), 0)
    return str(caught.value)


def test_rank_that_leaves_is_not_overtaken_by_its_own_thread():
    _, told = ranks.run(leave_slowly, 2)
    assert "it has left the group" in told


def call_both_ways(rank):
    """Has both ranks of a pair call the other one, so that there are two connections between them."""
    accept = _mesh.Mesh._accept

    def accept_late(mesh):
        if 1 - rank in mesh._links:
            accept(mesh)

    _mesh.Mesh._accept = accept_late


def read_a_little(link):
    """As `Link.read`, slowly: whatever else there is to look at comes in between."""
    time.sleep(0.05)
    count = link.socket.recv_into(link._into[:1024])
    if count == 0:
        raise _links.LinkEndedError("connection closed by peer")
    link._advance(count)


def leave_behind_a_tensor(rank, size, address, leaves):
    join(rank, size, address)
    call_both_ways(rank)
    if rank == 1:
        _links.Link.read = read_a_little
    # Short enough to be in the system's hands at once.
    tensor = torch.full((3000,), float(rank))
    other = torch.zeros(1 if rank == 0 else 3000)
    sending, receiving = dist.isend(tensor if rank == 0 else tensor[:1], 1 - rank), dist.irecv(other, 1 - rank)
    if rank == 0:
        sending.wait()
        receiving.wait()
        if leaves == "closed":
            dist.destroy_process_group()
        os._exit(0)
    receiving.wait()
    assert (other == 0).all()
    with pytest.raises(tributary.RankLostError, match="has left the group" if leaves == "closed" else "rank 0"):
        dist.recv(other, 0)
    return "over"


@pytest.mark.parametrize("leaves", ["closed", "ended"])
def test_a_rank_that_leaves_takes_nothing_along_that_it_has_sent(leaves):
    """The other rank still reads on one of the two connections between them when the second one ends."""
    assert ranks.run(leave_behind_a_tensor, 2, leaves)[1] == "over"


def confirm_late(rank, size, address):
    join(rank, size, address)
    if rank == 1:
        tensor = torch.zeros(50_000)
        dist.recv(tensor, 0)
        assert (tensor == 1).all()
        return
    write, is_held, may_go = _links.Link.write, threading.Event(), threading.Event()

    def hold(link):
        # There is no room, as far as anybody can see.
        if link._outbox and link._outbox[0][0][0] in (_links.GIVEN, _links.DATA) and not may_go.is_set():
            is_held.set()
        else:
            write(link)

    _links.Link.write = hold
    work = dist.isend(torch.ones(50_000), 1)
    is_held.wait()
    time.sleep(0.2)
    assert not work.is_completed()
    may_go.set()
    work.wait()


def test_a_send_is_over_when_its_last_frame_is_with_the_system():
    ranks.run(confirm_late, 2)


def abort_late(rank, size, address):
    join(rank, size, address)
    tensor = torch.zeros(1)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    if rank == 1:
        # Rank 0 is not lost: nobody is to shrink the group by it.
        with pytest.raises(tributary.AbortedError, match="was given up by rank 0"):
            dist.recv(tensor, 0)
        return "over"
    beside = _transfers.call_beside

    def call_late(action):
        time.sleep(0.5)
        beside(action)

    _transfers.call_beside = call_late
    own().set_timeout(datetime.timedelta(seconds=1))
    with pytest.raises(dist.DistBackendError, match="timed out"):
        dist.all_to_all(zeros(1, 1), zeros(1, 1))
    # As when the process ends.
    await_callbacks(60)
    os._exit(0)


def test_a_group_is_being_given_up_when_a_program_learns_of_a_timeout():
    assert ranks.run(abort_late, 2)[1] == "over"


def fail_inside(rank, size, address):
    join(rank, size, address)

    def fail():
        time.sleep(0.5)
        raise ZeroDivisionError

    own()._transfers._mesh.post(fail)
    with pytest.raises(tributary.RankLostError, match="transfers have failed"):
        dist.recv(torch.zeros(1), 1 - rank)


def test_no_transfer_waits_for_a_thread_that_has_failed():
    ranks.run(fail_inside, 2)


def greet_late(rank, size, address):
    _mesh.GREETING_S = 0
    join(rank, size, address)
    tensor = torch.zeros(1)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)


def test_a_rank_that_is_slow_to_say_who_it_is_is_not_turned_away():
    ranks.run(greet_late, 2)


def order(rank, size, address):
    join(rank, size, address)
    if rank == 0:
        for number in range(100):
            dist.send(torch.full((number + 1,), number), 1)
    else:
        works, tensors = [], [torch.zeros(number + 1, dtype=torch.int64) for number in range(100)]
        for tensor in tensors:
            works.append(dist.irecv(tensor, 0))
        for number, (work, tensor) in enumerate(zip(works, tensors)):
            work.wait()
            assert (tensor == number).all()


def test_tensors_of_one_tag_keep_their_order():
    ranks.run(order, 2)


def large(rank, size, address, reads):
    join(rank, size, address)
    assert not own()._transfers._mesh.can_read(1 - rank) or reads == "auto"
    tensor = torch.arange(5_000_000) + rank
    got = torch.zeros_like(tensor)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)])
    for work in works:
        work.wait()
    assert torch.equal(got, torch.arange(5_000_000) + 1 - rank)


@pytest.mark.parametrize("reads", ["auto", "off"])
def test_large_tensors_both_ways(reads):
    """Through another process's memory, or by way of the connection."""
    ranks.run(large, 2, reads, environment={"TRIBUTARY_CROSS_MEMORY": reads})


def any_source(rank, size, address):
    join(rank, size, address)
    part = dist.new_group([1, 2])
    if rank == 0:
        got = {}
        for _ in range(2 * (size - 1)):
            tensor = torch.zeros(1)
            source = dist.recv(tensor)
            got.setdefault(source, []).append(tensor.item())
        assert got == {source: [source, source + 10] for source in range(1, size)}
        work = dist.irecv(tensor, tag=5)
        work.wait()
        assert work._source_rank() == 2
    else:
        dist.send(torch.tensor([float(rank)]), 0)
        dist.send(torch.tensor([rank + 10.0]), 0)
        if rank == 2:
            dist.send(torch.zeros(1), 0, tag=5)
            dist.send(torch.zeros(1), 1, group=part)
    if rank == 1:
        # The group's rank 1 is rank 2 of all.
        assert dist.recv(torch.zeros(1), group=part) == 2


def test_receiving_from_any_rank():
    ranks.run(any_source, 3)


def lengths(rank, size, address):
    join(rank, size, address, 20)
    if rank == 0:
        with pytest.raises(ValueError, match="sends 32 bytes, where rank 1 of torch .* is to get 16"):
            dist.send(torch.ones(8), 1)
        dist.send(torch.ones(4), 1)
    else:
        with pytest.raises(ValueError, match="rank 0 of torch .* sends 32 bytes, where .* is to get 16"):
            dist.recv(torch.zeros(4), 0)
        tensor = torch.zeros(8)
        dist.recv(tensor, 0)
        assert tensor.tolist() == [1] * 4 + [0] * 4
    # Nothing is broken.
    dist.barrier()
    if rank == 0:
        with pytest.raises(ValueError, match="bytes.*all_to_all|all_to_all.*bytes"):
            dist.all_to_all([torch.zeros(1), torch.zeros(2)], [torch.zeros(1), torch.zeros(2)])
    else:
        with pytest.raises(ValueError, match="bytes.*all_to_all|all_to_all.*bytes"):
            dist.all_to_all([torch.zeros(3), torch.zeros(1)], [torch.zeros(2), torch.zeros(1)])


def test_lengths_that_differ_are_errors_at_both_ranks():
    ranks.run(lengths, 2)


# Each is begun by the group's rank 0 alone.
CALLS = {
    "recv": lambda group: dist.irecv(torch.zeros(1), group=group, group_src=1),
    "recv from any": lambda group: dist.irecv(torch.zeros(1), group=group),
    "send": lambda group: dist.isend(torch.zeros(1_000_000), group=group, group_dst=1),
    "all_to_all": lambda group: dist.all_to_all(zeros(1, 1), zeros(1, 1), group=group, async_op=True),
    "all_to_all_single": lambda group: dist.all_to_all_single(
        torch.zeros(2), torch.zeros(2), group=group, async_op=True),
    "gather": lambda group: dist.gather(torch.zeros(1), zeros(1, 1), group=group, group_dst=0, async_op=True),
    "scatter": lambda group: dist.scatter(torch.zeros(1), group=group, group_src=1, async_op=True),
}


def zeros(*lengths):
    return [torch.zeros(length) for length in lengths]


def used_and_unused(members, limit_s):
    """A group for each of the calls, and another one whose pair has exchanged something."""
    timeout, made = datetime.timedelta(seconds=limit_s), []
    for was_used in (False, True):
        for call in CALLS:
            group = dist.new_group(members, timeout=timeout)
            if dist.get_rank() in members and was_used:
                tensor, own = torch.zeros(1), dist.get_group_rank(group, dist.get_rank())
                for source in range(2):
                    if own == source:
                        dist.send(tensor, group=group, group_dst=1 - own)
                    else:
                        dist.recv(tensor, group=group, group_src=1 - own)
            made.append((call, group))
    return made


def stays_away(rank, size, address, go_on):
    join(rank, size, address)
    groups = used_and_unused([0, 1], LIMIT_S)
    if rank == 1:
        ranks.await_file(go_on)
        return
    for call, work in [(call, CALLS[call](group)) for call, group in groups]:
        with pytest.raises(dist.DistBackendError, match="timed out") as raised:
            work.wait()
        assert "rank 1" in str(raised.value) or call == "recv from any"
    go_on.touch()


def test_a_rank_that_stays_away(tmp_path):
    ranks.run(stays_away, 2, tmp_path / "go on")


def after_a_timeout(rank, size, address, go_on):
    join(rank, size, address, LIMIT_S)
    tensor = torch.zeros(1)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.recv(tensor, 1)
        go_on.touch()
        # The group is as good as before.
        dist.recv(tensor, 1)
        assert tensor == 7
    else:
        ranks.await_file(go_on)
        dist.send(torch.full((1,), 7.0), 0)
    dist.barrier()


def test_a_group_is_of_use_after_a_receive_has_timed_out(tmp_path):
    ranks.run(after_a_timeout, 2, tmp_path / "go on")


def after_a_send_has_timed_out(rank, size, address, length, go_on):
    join(rank, size, address)
    if rank == 0:
        own().set_timeout(datetime.timedelta(seconds=LIMIT_S))
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.send(torch.zeros(length), 1)
        # What follows may take as long as the machine is busy.
        own().set_timeout(datetime.timedelta(seconds=60))
        go_on.touch()
        dist.send(torch.ones(length), 1)
    else:
        ranks.await_file(go_on)
        tensor = torch.full((length,), 7.0)
        dist.recv(tensor, 0)
        assert (tensor == 1).all()
    dist.barrier()


@pytest.mark.parametrize("length", [1, 50_000])
def test_what_timed_out_does_not_come_later(tmp_path, length):
    """Short tensors go by way of the connection, long ones are read where they are."""
    ranks.run(after_a_send_has_timed_out, 2, length, tmp_path / "go on")


def ends_early(rank, size, address, ends):
    join(rank, size, address)
    groups = used_and_unused([1, 2], 60)
    dist.barrier()
    if rank == 2:
        if ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        for _, group in groups:
            dist.destroy_process_group(group)
    if rank == 1:
        # Within the groups' timeout, which is half the watchdog's. Its rank in the group is 1, and not in the pair.
        for call, work in [(call, CALLS[call](group)) for call, group in groups]:
            with pytest.raises(tributary.RankLostError, match="rank 1 of torch .* was lost") as raised:
                work.wait()
                pytest.fail(f"{call} is over")
            assert raised.value.rank == 1


def test_a_rank_that_is_killed_is_named():
    ranks.run(ends_early, 3, "killed")


def test_a_rank_that_leaves_is_named():
    ranks.run(ends_early, 3, "left")


def given_up(rank, size, address, go_on):
    join(rank, size, address, 60)
    tensor = torch.zeros(1)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    if rank == 0:
        ranks.await_file(go_on)
        dist.distributed_c10d._get_default_group().abort()
        return
    # Rank 0 is not lost: nobody is to shrink the group by it.
    work = dist.irecv(tensor, 0)
    go_on.touch()
    with pytest.raises(tributary.AbortedError, match="was given up by rank 0"):
        work.wait()


def test_a_group_that_is_given_up(tmp_path):
    ranks.run(given_up, 2, tmp_path / "go on")


def empty(rank, size, address):
    join(rank, size, address, 20)
    outputs = [torch.empty(0) for _ in range(size)]
    dist.gather(torch.empty(0), outputs if rank == 0 else None, 0)
    dist.scatter(torch.empty(0), outputs if rank == 0 else None, 0)
    dist.all_to_all(outputs, [torch.empty(0) for _ in range(size)])
    dist.all_to_all_single(torch.empty(0), torch.empty(0))
    dist.all_gather(outputs, torch.empty(0))
    dist.broadcast(torch.empty(0), 0)
    dist.send(torch.empty(0), 1) if rank == 0 else rank == 1 and dist.recv(torch.empty(0), 0)
    dist.barrier()


def test_empty_tensors():
    ranks.run(empty, 3)


def strangers(rank, size, address):
    """Callers without the secret are turned away, and disturb nobody."""
    import socket

    join(rank, size, address)
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    _, port, host, *_ = group._transfers._mesh._cards[1 - rank]
    callers = [socket.create_connection((host.rstrip(b"\0").decode(), port)) for _ in range(10)]
    for caller in callers[:5]:
        caller.sendall(os.urandom(1000))
    dist.barrier()
    tensor = torch.zeros(1)
    dist.send(tensor, 1 - rank) if rank else dist.recv(tensor, 1 - rank)
    for caller in callers[:5]:
        caller.settimeout(60)
        try:
            assert caller.recv(1) == b""
        except ConnectionResetError:
            pass
    dist.barrier()


def test_strangers_are_turned_away():
    ranks.run(strangers, 2)
