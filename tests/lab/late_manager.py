#!/usr/bin/env python3
"""Runs MPI programs on hosts of a lab whose manager or aggregator can't be reached at first, under Open MPI and MPICH.

Results are right and nothing is left to the underlying MPI: direct links carry all until there is a tree, which the job then
takes by itself. A job that must have a tree (TRIBUTARY_REQUIRE) ends at once and says why.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import soak
from kills import eventually
from lab import command
from nothing_deployed import HOSTS, MPIS, must
from test import Failure, Tests, bounded, compile_program, on, parse_arguments, world_of

LAB = ["--hosts", "4", "--hosts-per-leaf", "4"]
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
    launcher = arguments.venvs.resolve() / mpi / "bin/mpirun"
    return command(arguments.tributary.resolve(), "run", name, "--report", report, "--", launcher, "-n", len(HOSTS),
                   *program)


@contextlib.contextmanager
def soaking(mpi, name, environment, folder, arguments):
    """A job that checks its results in many rounds: its process, the file of its rounds, its report, and its text."""
    program = soak.compile_for(mpi, arguments)
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


def check_late(what, mpi, name, arguments):
    """What is away comes back while the job runs."""
    member, whose, told = AWAY[what]
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary:
        folder = pathlib.Path(temporary)
        with away(member, whose, name, arguments) as come_back, \
                soaking(mpi, name, environment_of(BY_TREE), folder, arguments) as (job, ends, report, said):
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
    return f"{counts['direct']} direct, then {counts['in_tree']} in_tree"


def check_wrong_token(mpi, name, program, arguments):
    """The token is another manager's: there is no tree, and all the rest is there."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary:
        folder = pathlib.Path(temporary)
        token, report = folder / "token", folder / "report.json"
        token.write_text("0123456789abcdef" * 2 + "\n", encoding="utf-8")
        token.chmod(0o600)
        words = command(arguments.tributary.resolve(), "run", name, "--plain", "--ranks-per-host", 2, "--", "env",
                        f"TRIBUTARY_TOKEN_FILE={token}", arguments.tributary.resolve(), "run", "--report", report, "--",
                        arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", 2 * len(HOSTS), *program)
        code, text = bounded(words, arguments.timeout)
        if code != 0 or " 0 failed" not in text:
            raise Failure(f"exit code {code}\n{text}")
        counts = json.loads(report.read_text(encoding="utf-8"))
    if text.count("the job has no tree") != 1 or "token" not in text:
        raise Failure(f"not told once:\n{text}")
    if 0 in (counts["direct"], counts["in_host"]) or counts["in_tree"] != 0:
        raise Failure(f"not over direct links and inside hosts: {counts}")
    return f"{counts['direct']} direct, {counts['in_host']} in_host"


def check_required(mpi, name, program, arguments):
    """A job that must have a tree ends when its manager is away."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as temporary, \
            away("manager", "", name, arguments):
        words = job_words(mpi, name, pathlib.Path(temporary) / "report.json", program, arguments)
        code, text = bounded(words, arguments.timeout, {**BY_TREE, "TRIBUTARY_REQUIRE": "tree"})
    told = [line for line in text.splitlines() if "TRIBUTARY_REQUIRE=tree, but" in line and "does not answer" in line]
    if code == 0 or len(told) != 1:
        raise Failure(f"exit code {code}\n{text}")
    return f"exit code {code}: {told[0].removeprefix('tributary: ')}"


def environment_of(settings):
    return {**os.environ, **settings}


def main():
    # SIGTERM takes the lab down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    programs = {mpi: [compile_program("collectives", mpi, arguments)[0], "--sample", "256"] for mpi in MPIS}
    tests = Tests(arguments)
    cases = []
    for mpi in MPIS:
        cases += [(f"{mpi:8} {what} comes late", lambda name, mpi=mpi, what=what: check_late(what, mpi, name, arguments))
                  for what in AWAY]
        cases.append((f"{mpi:8} a wrong token", lambda name, mpi=mpi:
                      check_wrong_token(mpi, name, programs[mpi], arguments)))
        cases.append((f"{mpi:8} a tree is required", lambda name, mpi=mpi:
                      check_required(mpi, name, programs[mpi], arguments)))
    tests.on_lab(LAB, cases)
    print(f"{tests.failed} failed")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
