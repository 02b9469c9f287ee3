"""Goal: the rank at fault is named, nobody hangs, and nothing is left in a state that crashes. Method:
ranks that are missing, that die, that are interrupted, that give up, that fork."""

import os
import signal
import sys
import threading
import time

import numpy
import pytest

import ranks
import test_fabric
import tributary
from tributary._tributary import await_callbacks, call_beside


def missing(rank, size, address):
    if rank == 2:
        return
    with pytest.raises(tributary.SetUpError) as raised:
        tributary.Communicator.connect(address, rank, size, timeout=1)
    assert "rank 2 did not arrive" in str(raised.value)


def test_a_missing_rank_is_named_to_all():
    ranks.run(missing, 4)


def test_a_missing_rank_0_is_named():
    with pytest.raises(tributary.SetUpError, match="rank 0 was not found at 127.0.0.1:"):
        tributary.Communicator.connect(ranks.free_address(), 1, 2, timeout=0.2)


def dies(rank, size, address, blocking):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    vector = numpy.ones(1000)
    all_ranks.allreduce(vector)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began_at = time.monotonic()
    with pytest.raises(tributary.RankLostError, match="rank 1 of rendezvous was lost") as raised:
        if blocking:
            all_ranks.allreduce(vector)
        else:
            all_ranks.iallreduce(vector).wait()
    assert raised.value.rank == 1
    with pytest.raises(tributary.RankLostError):
        all_ranks.barrier()
    return time.monotonic() - began_at


@pytest.mark.parametrize("blocking", [True, False])
def test_a_rank_that_dies_is_named(blocking):
    outcomes = ranks.run(dies, 3, blocking)
    assert isinstance(outcomes[1], ranks.Died) and outcomes[1].code == -signal.SIGKILL
    print(f"noticed within {max(outcomes[0], outcomes[2]) * 1e3:.0f} ms")


def host_dies(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    assert not all_ranks.is_on_one_host
    vector = numpy.ones(1000)
    all_ranks.allreduce(vector)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tributary.HostLostError) as raised:
        while True:
            all_ranks.allreduce(vector)
    assert raised.value.host is None or raised.value.host.endswith("#1"), raised.value.host


def test_a_host_that_dies_is_named():
    # Without a manager, emulated hosts meet over direct links.
    environment = {"TRIBUTARY_HOSTS": "2", "TRIBUTARY_BETWEEN_HOSTS": "direct",
                   "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
    assert isinstance(ranks.run(host_dies, 2, environment=environment)[1], ranks.Died)


def dies_beside_another(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    vector = numpy.ones(1000)
    all_ranks.allreduce(vector)
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tributary.RankLostError if rank == 2 else tributary.HostLostError) as raised:
        while True:
            all_ranks.allreduce(vector)
    if rank == 2:
        assert "rank 3 " in str(raised.value)
    else:
        assert raised.value.host.endswith("#1"), raised.value.host


def test_every_rank_of_another_host_names_the_host_that_has_lost_a_rank():
    # Ranks 0 and 1 on one host, of which rank 0 alone has the link; 2 and 3 on the other.
    environment = {"TRIBUTARY_HOSTS": "2", "TRIBUTARY_BETWEEN_HOSTS": "direct",
                   "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
    assert isinstance(ranks.run(dies_beside_another, 4, environment=environment)[3], ranks.Died)


def goes_first(rank, size, address, victim, way):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    if rank == victim:
        if way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)
        all_ranks.close()
        return
    with pytest.raises(tributary.HostLostError) as raised:
        all_ranks.barrier()
    assert raised.value.host.endswith(f"#{victim}"), raised.value.host


@pytest.mark.parametrize("way", ["dies", "leaves"])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_a_host_that_goes_before_its_first_operation_is_named(victim, way):
    environment = {"TRIBUTARY_HOSTS": "4", "TRIBUTARY_BETWEEN_HOSTS": "direct",
                   "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
    outcomes = ranks.run(goes_first, 4, victim, way, environment=environment)
    assert isinstance(outcomes[victim], ranks.Died) == (way == "dies")


@pytest.mark.parametrize("way", ["raise", "close", "drop"])
@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize("between", ["tree", "direct"])
def test_a_rank_that_leaves_a_communicator_is_named_by_those_that_wait(between, hosts, way):
    test_fabric.execute(test_fabric.PROGRAM, "run", "--hosts", hosts, "--", sys.executable, test_fabric.JOB, "address", "left", 4,
                        TRIBUTARY_BETWEEN_HOSTS=between, WAY=way)


def dies_with_a_worker(rank, size, address, worker):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    all_ranks.barrier()
    if rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        worker.with_suffix(".new").write_text(str(child))
        worker.with_suffix(".new").rename(worker)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tributary.HostLostError):
        all_ranks.barrier()
    ranks.await_file(worker)
    child = int(worker.read_text())
    os.kill(child, signal.SIGKILL)  # it lived until now, or this raises


def test_a_death_is_heard_while_a_forked_worker_lives_on(tmp_path):
    environment = {"TRIBUTARY_HOSTS": "2", "TRIBUTARY_BETWEEN_HOSTS": "direct",
                   "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
    outcomes = ranks.run(dies_with_a_worker, 2, tmp_path / "worker", environment=environment)
    assert isinstance(outcomes[1], ranks.Died)


def late(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    if rank == 1:
        time.sleep(2)
        with pytest.raises(tributary.AbortedError, match="given up"):
            all_ranks.barrier()
        return
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        all_ranks.barrier()
    with pytest.raises(tributary.AbortedError):
        all_ranks.barrier()


def test_an_interrupt_ends_a_blocking_wait_and_gives_up():
    ranks.run(late, 2)


def interrupted_wait(rank, size, address, go_on):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    vector = numpy.ones(1)
    if rank == 1:
        ranks.await_file(go_on)
    request = all_ranks.iallreduce(vector)
    if rank == 0:
        threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            request.wait(timeout=60)
        assert not request.done()
        go_on.touch()
    request.wait()
    assert vector[0] == 2


def test_an_interrupted_wait_with_a_limit_can_be_resumed(tmp_path):
    ranks.run(interrupted_wait, 2, tmp_path / "go on")


def given_up(rank, size, address, how, go_on):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    if rank == 0:
        request = all_ranks.iallreduce(numpy.ones(5))
        if how == "abort":
            all_ranks.abort()
        elif how == "close":
            all_ranks.close()
        elif how == "drop":
            del all_ranks
        with pytest.raises(tributary.AbortedError):
            request.wait()
        go_on.touch()
        return
    ranks.await_file(go_on)
    with pytest.raises(tributary.TributaryError):
        all_ranks.allreduce(numpy.ones(5))


@pytest.mark.parametrize("how", ["abort", "close", "drop"])
def test_what_is_outstanding_when_a_rank_leaves_ends_with_an_error(how, tmp_path):
    ranks.run(given_up, 2, how, tmp_path / "go on")


def forks(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            all_ranks.barrier()
        except tributary.TributaryError as error:
            code = 0 if f"belongs to process {parent}" in str(error) else 2
        del all_ranks  # must not leave in the parent's name
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    vector = numpy.ones(3)
    all_ranks.allreduce(vector)
    assert vector[0] == size


def test_a_forked_child_is_refused_and_does_no_harm():
    ranks.run(forks, 2)


def fork_beside_callbacks(rank, size, address):
    is_over = threading.Event()

    # One callback a caller at a time. Where thousands attach to the interpreter, the fork meets a fault of Python 3.11: its child waits
    # for a lock of the interpreter's that a thread held, before anything of ours runs there.
    def call():
        while not is_over.is_set():
            called = threading.Event()
            call_beside(called.set)
            called.wait(10)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(60):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                # Waits for callbacks, as the interpreter's end does.
                await_callbacks(1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        is_over.set()
        for caller in callers:
            caller.join()


def test_a_child_that_is_forked_beside_callbacks_ends():
    ranks.run(fork_beside_callbacks, 1)


def closed(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    all_ranks.barrier()
    all_ranks.close()
    all_ranks.close()
    with pytest.raises(tributary.TributaryError, match="is closed"):
        all_ranks.barrier()


def test_a_closed_communicator_is_refused():
    ranks.run(closed, 2)


def refused_setting(rank, size, address):
    if rank == 1:
        os.environ["TRIBUTARY_WAIT"] = "impatiently"
    with pytest.raises(tributary.SetUpError) as raised:
        tributary.Communicator.connect(address, rank, size)
    words = "TRIBUTARY_WAIT" if rank == 1 else "rank 1 has a setting that is not allowed"
    assert words in str(raised.value)


def test_a_setting_that_is_not_allowed_is_named():
    ranks.run(refused_setting, 2)


def switched_off(rank, size, address):
    with pytest.raises(tributary.SetUpError, match="TRIBUTARY_OFFLOAD"):
        tributary.Communicator.connect(address, rank, size)


def test_there_is_nothing_beneath():
    ranks.run(switched_off, 2, environment={"TRIBUTARY_OFFLOAD": "off"})


def unwaited(rank, size, address):
    global kept
    all_ranks = tributary.Communicator.connect(address, rank, size)
    kept = all_ranks, [all_ranks.iallreduce(numpy.ones(1000)) for _ in range(10 if rank else 11)]
    return rank


def test_an_exit_with_operations_outstanding_does_not_hang():
    assert ranks.run(unwaited, 2) == [0, 1]


def shared_by_threads(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    problems = []

    def work():
        try:
            for _ in range(200):
                all_ranks.barrier()
                request = all_ranks.ibarrier()
                request.wait()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_threads_may_share_a_communicator_where_order_does_not_matter():
    ranks.run(shared_by_threads, 2)


def test_ranks_as_threads_of_one_process():
    address, totals = ranks.free_address(), []

    def work(rank):
        with tributary.Communicator.connect(address, rank, 3) as all_ranks:
            vector = numpy.full(10_000, rank)
            all_ranks.allreduce(vector)
            all_ranks.barrier()
            totals.append(int(vector[0]))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ranks.TIMEOUT_S)
    assert totals == [3, 3, 3]


def releases(rank, size, address):
    all_ranks = tributary.Communicator.connect(address, rank, size)
    if rank == 1:
        time.sleep(1)
        all_ranks.barrier()
        return 0
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    all_ranks.barrier()
    stop.set()
    thread.join()
    return counted[0]


def test_other_threads_run_while_one_waits():
    assert ranks.run(releases, 2)[0] > 20
