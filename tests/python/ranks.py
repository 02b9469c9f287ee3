"""Runs a function on several ranks, each in a process of its own, and collects what they return."""

import multiprocessing
import os
import signal
import socket
import time
import traceback

# A surrounding run of tributary, or a person, may have set these. A test must not inherit them.
FOREIGN = ("TRIBUTARY_MANAGER", "TRIBUTARY_REPORT", "TRIBUTARY_OFFLOAD", "TRIBUTARY_HOSTS", "LD_PRELOAD")
# A watchdog, not a bound: far longer than any test takes.
TIMEOUT_S = 120
# What the server of ranks imports once, before it forks them: torch alone takes seconds.
PRELOADED = ["numpy", "torch"]


class Died(Exception):
    """A rank's process ended without a word; `code` is its exit code."""

    def __init__(self, rank, code):
        super().__init__(f"rank {rank} ended with code {code}")
        self.code = code


def free_address():
    """A loopback address that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


def await_file(path):
    """Waits until another rank has made a file."""
    until = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < until, f"nobody made {path}"
        time.sleep(0.001)


def serve(answer, function, rank, arguments, environment):
    # A shell ignores interrupts of what it starts in the background, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(environment)
    try:
        answer.send((True, function(rank, *arguments)))
    except BaseException:
        answer.send((False, traceback.format_exc()))
        raise SystemExit(1) from None


def run(function, ranks, *arguments, environment=None):
    """What `function(rank, ranks, address, *arguments)` returns on each rank; `Died` for one that was killed.

    Fails with its traceback if a rank raises, and if one is not done in time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    arguments = (ranks, free_address(), *arguments)
    children = []
    for rank in range(ranks):
        answers, answer = context.Pipe(duplex=False)
        task = (answer, function, rank, arguments, environment or {})
        process = context.Process(target=serve, args=task)
        process.start()
        answer.close()
        children.append((process, answers))
    until = time.monotonic() + TIMEOUT_S
    try:
        return [result_of(rank, *child, until) for rank, child in enumerate(children)]
    finally:
        for process, _ in children:
            process.join(max(0, until - time.monotonic()) if process.exitcode is None else 0)
            process.kill()
            process.join()


def result_of(rank, process, answers, until):
    assert answers.poll(max(0, until - time.monotonic())), f"rank {rank} is not done after {TIMEOUT_S} s"
    try:
        is_result, value = answers.recv()
    except EOFError:
        process.join()
        return Died(rank, process.exitcode)
    assert is_result, f"rank {rank}:\n{value}"
    return value
