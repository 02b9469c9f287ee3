"""Kills jobs that join their hosts themselves, at random moments: from before MPI_Init to the middle of their operations.

Whatever is killed with SIGKILL (a rank, the launcher, or everything), the job ends, and no process, socket or file of it stays on
any host. A seed brings the moments back as far as a machine's timing does.
"""

import os
import pathlib
import random
import tempfile
import time

import pytest
from harness.compiling import compile_soak
from harness.jobs import on
from harness.processes import kill_all, name_of
from harness.running import Failure, bounded
from harness.undeployed import HOSTS, LAB, Marked, job_words

MPIS = ("openmpi", "mpich")
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


def kill_some(what, running, program, random_source):
    """How many processes it killed."""
    alive = running.alive()
    if what == "the launcher":
        alive = [running.launched.pid]
    elif what == "a rank":
        ranks = [pid for pid in alive if name_of(pid) == program.name[:15]]
        alive = [random_source.choice(ranks)] if ranks else []
    kill_all(alive)
    return len(alive)


def check_kill(number, mpi, name, program, random_source, arguments):
    """One job and one kill."""
    what, moment_s = random_source.choice(WHAT), random_source.uniform(*MOMENTS_S)
    files_before = files(name, arguments)
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        words = job_words("run", mpi, name, len(HOSTS), 1, [program, "--seconds", 600, "--depth", 2],
                          pathlib.Path(folder) / "report.json", arguments)
        try:
            with Marked(f"{os.getpid()}-{mpi}-{number}", words, name, folder, arguments) as running:
                time.sleep(moment_s)
                # Nothing may be there to kill yet.
                while not kill_some(what, running, program, random_source) and running.launched.poll() is None:
                    time.sleep(0.05)
                running.must_be_gone()
                left = files(name, arguments) - files_before
                if left:
                    raise Failure(f"files stay: {left}")
        except Failure as failure:
            raise Failure(f"{mpi}, {number}, {what} after {moment_s:.2f} s: {failure}") from failure


@pytest.mark.short
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.lab(*LAB)
class TestRandomKills:
    def test_nothing_stays_of_jobs_that_are_killed(self, mpi, lab, arguments, kills, tell):
        program = compile_soak(mpi, arguments)
        random_source = random.Random(f"{arguments.seed} {mpi}")
        for number in range(kills):
            check_kill(number, mpi, lab, program, random_source, arguments)
        tell(f"{kills} kills, seed {arguments.seed}")
