#!/usr/bin/env python3
"""Kills jobs that join their hosts themselves, at random moments: from before MPI_Init to the middle of their operations.

Whatever is killed with SIGKILL (a rank, the launcher, or everything), the job ends, and no process, socket or file of it stays on
any host. A seed brings the moments back as far as a machine's timing does.
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import soak
from kills import MARK, eventually, is_alive, name_of, processes_of
from nothing_deployed import HOSTS, LAB, MPIS, job_words, sockets
from test import Failure, Tests, bounded, on, parse_arguments

# When something is killed, in seconds after the launcher was started: set-up takes about half a second.
MOMENTS_S = (0.0, 2.0)
WHAT = ("a rank", "the launcher", "everything")
# Where a job could leave files. The MPIs leave some of their own when they are killed.
FOLDERS = ("/dev/shm", "/tmp", "$TMPDIR")


def files(name, arguments):
    """Our files in the hosts' folders for temporary ones, and in memory that processes share."""
    find = f"find {' '.join(FOLDERS)} -mindepth 1 -maxdepth 2 -name '*tributary*' -not -name 'tributary-lab*'"
    found = set()
    for host in HOSTS:
        found.update(bounded(on(name, host, arguments, "sh", "-c", find), arguments.timeout)[1].splitlines())
    return found


def kill_some(what, job, program, launched, random_source):
    alive = [pid for pid in processes_of(job) if is_alive(pid)]
    if what == "the launcher":
        alive = [launched.pid]
    elif what == "a rank":
        ranks = [pid for pid in alive if name_of(pid) == program.name[:15]]
        alive = [random_source.choice(ranks)] if ranks else []
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(alive)


def check_kill(number, mpi, name, program, random_source, arguments):
    """One job and one kill."""
    job = f"{os.getpid()}-{mpi}-{number}"
    what, moment_s = random_source.choice(WHAT), random_source.uniform(*MOMENTS_S)
    before = sockets(name, arguments), files(name, arguments)
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        words = job_words("run", mpi, name, len(HOSTS), 1, [program, "--seconds", 600, "--depth", 2],
                          pathlib.Path(folder) / "report.json", arguments)
        with (pathlib.Path(folder) / "said").open("w+") as said:
            launched = subprocess.Popen([str(word) for word in words], env={**os.environ, MARK: job},
                                        stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
            try:
                time.sleep(moment_s)
                # Nothing may be there to kill yet.
                while not kill_some(what, job, program, launched, random_source) and launched.poll() is None:
                    time.sleep(0.05)
                must_be_gone(job, launched, before, name, arguments)
            except Failure as failure:
                said.seek(0)
                raise Failure(f"{mpi}, {number}, {what} after {moment_s:.2f} s: {failure}\n{said.read()}") from failure
            finally:
                for pid in processes_of(job):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                launched.kill()
                launched.wait()


def must_be_gone(job, launched, before, name, arguments):
    if not eventually(lambda: launched.poll() is not None, arguments.timeout):
        raise Failure("the job goes on")
    if not eventually(lambda: not any(map(is_alive, processes_of(job)))):
        left = [f"{pid} {name_of(pid)}" for pid in processes_of(job)]
        raise Failure(f"processes stay: {left}")
    if not eventually(lambda: sockets(name, arguments) <= before[0]):
        raise Failure(f"sockets stay: {sockets(name, arguments) - before[0]}")
    left = files(name, arguments) - before[1]
    if left:
        raise Failure(f"files stay: {left}")


def check_kills(mpi, name, arguments):
    program = soak.compile_for(mpi, arguments)
    random_source = random.Random(f"{arguments.seed} {mpi}")
    for number in range(arguments.kills):
        check_kill(number, mpi, name, program, random_source, arguments)
    return f"{arguments.kills} kills, seed {arguments.seed}"


def main():
    # SIGTERM takes the lab down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments([("--kills", {"type": int, "default": 4, "help": "kills under each MPI (default %(default)s)"}),
                                 ("--seed", {"type": int, "default": 1, "help": "of moments and victims"})])
    tests = Tests(arguments)
    tests.on_lab(LAB, [(f"{mpi:8} killed at random moments", lambda name, mpi=mpi: check_kills(mpi, name, arguments))
                       for mpi in MPIS])
    print(f"{tests.failed} failed")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
