"""Runs MPI programs on hosts of a lab whose manager or aggregator can't be reached at first, under Open MPI and MPICH.

Results are right and nothing is left to the underlying MPI: direct links carry all until there is a tree, which the job then
takes by itself. A job that must have a tree (TRIBUTARY_REQUIRE) ends at once and says why.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest
from harness.compiling import compile_soak
from harness.jobs import on, world_of
from harness.labs import command
from harness.places import mpirun
from harness.processes import eventually
from harness.running import Failure, bounded, must
from harness.undeployed import HOSTS, LAB

MPIS = ("openmpi", "mpich")
BY_TREE = {"TRIBUTARY_BETWEEN_HOSTS": "tree"}
# Nobody at an address, or at any, reaches the daemon of a member.
BLOCK = ("table inet away { chain input { type filter hook input priority 0; iifname != lo %s tcp dport 7470 "
         "counter reject with tcp reset; }; }")
SECOND_HOST = "ip saddr 10.77.2.2"
# What is out of reach, and what the job is told of it on standard error; none if only the report tells.
AWAY = {
    "the manager": ("manager", "", "does not answer"),
    "one host's aggregator": ("leaf0-an", SECOND_HOST, None),
}
# Seconds that a job runs: it takes a tree a second after nothing is in the way.
SECONDS = 6


@contextlib.contextmanager
def away(member, what, name, arguments):
    """The daemon of a member can't be reached, until the context's value is called or the context ends."""
    must(on(name, member, arguments, "nft", BLOCK % what))
    is_away = True

    def come_back():
        nonlocal is_away
        if is_away:
            is_away = False
            must(on(name, member, arguments, "nft", "delete table inet away"))

    try:
        yield come_back
    finally:
        come_back()


def job_words(mpi, name, report, program, arguments):
    return command(arguments.tributary, "run", name, "--report", report, "--", mpirun(arguments, mpi), "-n", len(HOSTS), *program)


@contextlib.contextmanager
def soaking(mpi, name, environment, folder, arguments):
    """A job that checks its results in many rounds: its process, the file of its rounds, its report, and its text."""
    program = compile_soak(mpi, arguments)
    ends, report = folder / "ends", folder / "report.json"
    words = job_words(mpi, name, report, [program, "--seconds", SECONDS, "--depth", 1, "--ends", ends], arguments)
    with (folder / "said").open("w+", encoding="utf-8") as said:
        job = subprocess.Popen([str(word) for word in words], env=environment, stdin=subprocess.DEVNULL, stdout=said,
                               stderr=subprocess.STDOUT)
        try:
            yield job, ends, report, folder / "said"
        finally:
            job.kill()
            job.wait()


@pytest.fixture
def program(mpi, compiled):
    """A program of checked collectives, and the part of them that runs."""
    return [compiled("collectives", mpi), "--sample", "256"]


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.lab(*LAB)
class TestLateManager:
    @pytest.mark.parametrize("what", AWAY)
    def test_what_is_away_comes_back_while_the_job_runs(self, mpi, what, lab, arguments, tell):
        member, whose, told = AWAY[what]
        with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary:
            folder = pathlib.Path(temporary)
            with away(member, whose, lab, arguments) as come_back, \
                    soaking(mpi, lab, {**os.environ, **BY_TREE}, folder, arguments) as (job, ends, report, said):
                started = eventually(lambda: ends.exists() and ends.stat().st_size > 0, arguments.timeout)
                # Some more rounds without a tree.
                time.sleep(1)
                come_back()
                ended = started and eventually(lambda: job.poll() is not None, SECONDS + arguments.timeout)
                text = said.read_text(encoding="utf-8", errors="replace")
                if not ended or job.returncode != 0:
                    raise Failure(f"exit code {job.returncode}\n{text}")
                if told and len([line for line in text.splitlines()
                                 if line.startswith("tributary: ") and told in line and "without a tree" in line]) != 1:
                    raise Failure(f"not one line of what is away:\n{text}")
                counts = json.loads(report.read_text(encoding="utf-8"))
        world = world_of(counts)
        regained = world["failovers"]["regained"]
        why_left = " ".join(counts["reasons"])
        if "spans" in why_left or "answer" in why_left or 0 in (counts["in_tree"], counts["direct"], regained):
            raise Failure(f"not over links and then in a tree: {counts}")
        tell(f"{counts['direct']} direct, then {counts['in_tree']} in_tree")

    def test_the_token_is_another_managers(self, mpi, lab, program, arguments, tell):
        """There is no tree, and all the rest is there."""
        with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary:
            folder = pathlib.Path(temporary)
            token, report = folder / "token", folder / "report.json"
            token.write_text("0123456789abcdef" * 2 + "\n", encoding="utf-8")
            token.chmod(0o600)
            words = command(arguments.tributary, "run", lab, "--plain", "--ranks-per-host", 2, "--", "env",
                            f"TRIBUTARY_TOKEN_FILE={token}", arguments.tributary, "run", "--report", report, "--",
                            mpirun(arguments, mpi), "-n", 2 * len(HOSTS), *program)
            code, text = bounded(words, arguments.timeout)
            if code != 0 or " 0 failed" not in text:
                raise Failure(f"exit code {code}\n{text}")
            counts = json.loads(report.read_text(encoding="utf-8"))
        if text.count("the job has no tree") != 1 or "token" not in text:
            raise Failure(f"not told once:\n{text}")
        if 0 in (counts["direct"], counts["in_host"]) or counts["in_tree"] != 0:
            raise Failure(f"not over direct links and inside hosts: {counts}")
        tell(f"{counts['direct']} direct, {counts['in_host']} in_host")

    def test_a_job_that_must_have_a_tree_ends_when_its_manager_is_away(self, mpi, lab, program, arguments, tell):
        with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary, \
                away("manager", "", lab, arguments):
            words = job_words(mpi, lab, pathlib.Path(temporary) / "report.json", program, arguments)
            code, text = bounded(words, arguments.timeout, {**BY_TREE, "TRIBUTARY_REQUIRE": "tree"})
        told = [line for line in text.splitlines() if "TRIBUTARY_REQUIRE=tree, but" in line and "does not answer" in line]
        if code == 0 or len(told) != 1:
            raise Failure(f"exit code {code}\n{text}")
        tell(f"exit code {code}: {told[0].removeprefix('tributary: ')}")
