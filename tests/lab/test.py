#!/usr/bin/env python3
"""Runs MPI programs on hosts of a lab, under Open MPI and MPICH, and checks results and report.

Where this machine does not let this user make a lab it says so and ends; with CI=true that is a
failure like any other.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MPI_TESTS = ROOT / "tests/mpi"
SOURCES = ["collectives.c", "check.c", "shapes.c", "values.c"]

# Each lab: what it is brought up with, the runs on it (ranks, ranks per host, hosts expected), and the
# MPIs. Open MPI's launcher itself loses its way now and then where links lose (docs/lab.md).
LABS = [
    (["--hosts", "4", "--hosts-per-leaf", "2"], [(4, 1, 4), (8, 2, 4), (3, 1, 3)],
     ("openmpi", "mpich")),
    (["--hosts", "4", "--hosts-per-leaf", "4", "--nodes", "spine"], [(4, 1, 4)],
     ("openmpi", "mpich")),
    (["--hosts", "3", "--loss", "0.5", "--rate", "1gbit"], [(3, 1, 3)], ("mpich",)),
]


class Failure(Exception):
    """Why a run failed, in a few lines."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lab",
                        help="folder for what is compiled (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds a run may take")
    return parser.parse_args()


def compile_program(mpi, arguments):
    arguments.build.mkdir(parents=True, exist_ok=True)
    target = arguments.build / f"collectives-{mpi}"
    sources = [MPI_TESTS / source for source in SOURCES]
    subprocess.run([arguments.venvs / mpi / "bin/mpicc", "-std=gnu11", "-O1", "-g", *sources,
                    "-o", target, "-lm", "-lpthread"], check=True)
    return target.resolve()


def bounded(words, timeout):
    """Runs a command; what it wrote, on either stream, after its exit code."""
    try:
        ended = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                               check=False)
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        raise Failure(f"took more than {timeout:g} s\n{text.decode(errors='replace')}") from error
    return ended.returncode, ended.stdout


def lab_up(name, options, arguments):
    code, text = bounded([arguments.tributary, "lab", "up", "--name", name, *options], 120)
    if code == 2 and os.environ.get("CI") != "true":
        print(f"NOT RUN: {text}", file=sys.stderr)
        sys.exit(0)
    if code != 0:
        raise Failure(f"lab up: exit code {code}\n{text}")


def check(mpi, name, ranks, per_host, hosts, program, arguments):
    """One program on one lab: results right, collectives in the tree, hosts told apart."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        report = pathlib.Path(folder) / "report.json"
        code, text = bounded(
            [arguments.tributary, "lab", "run", "--name", name, "--ranks-per-host", per_host,
             "--mpi", mpi, "--report", report, "--",
             arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", ranks, program,
             "--sample", "18"], arguments.timeout)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        counts = json.loads(report.read_text())
    world = next(entry for entry in counts["communicators"] if entry["label"] == "world")
    if (world["ranks"], world["hosts"]) != (ranks, hosts):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts, expected {ranks} on "
                      f"{hosts}")
    if counts["in_tree"] == 0:
        raise Failure(f"nothing ran in_tree: {counts}")
    return f"{counts['in_node']} in_node, {counts['in_tree']} in_tree"


def main():
    arguments = parse_arguments()
    failed = 0
    programs = {mpi: compile_program(mpi, arguments) for mpi in ("openmpi", "mpich")}
    for number, (options, runs, mpis) in enumerate(LABS):
        name = f"mpi{number}-{os.getpid()}"
        try:
            lab_up(name, options, arguments)
            for mpi in mpis:
                for ranks, per_host, hosts in runs:
                    started = time.monotonic()
                    try:
                        outcome = check(mpi, name, ranks, per_host, hosts, programs[mpi], arguments)
                    except Failure as failure:
                        failed += 1
                        outcome = f"FAILED: {failure}"
                    seconds = time.monotonic() - started
                    print(f"{mpi:8} {ranks} ranks {hosts} hosts {' '.join(options)} "
                          f"{seconds:6.1f} s  {outcome}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"{' '.join(options)}: FAILED: {failure}", flush=True)
        finally:
            subprocess.run([arguments.tributary, "lab", "down", "--name", name], check=False,
                           stderr=subprocess.DEVNULL)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
