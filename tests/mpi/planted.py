#!/usr/bin/env python3
"""Shows that the tests of results can fail: runs them with a library that spoils one bit of every result.

Every program must notice: it must end, by itself, with an exit code that is not 0, and name checks that
failed. The library is the one of `make mpi-planted` (planted.c).
"""

import argparse
import os
import pathlib
import re
import sys

import bindings
import run as programs
from run import mpi_launch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 4
# Those that compare results with what they must be.
CHECKING = ("collectives", "further", "operators", "waits", "bcast_types")
# The MPI whose Fortran is tried.
BINDINGS_OF = "debian-openmpi"


def noticed(options, words, settings):
    """Why the run shows nothing; none if the program noticed."""
    command = [options.tributary.resolve(), "run", "--", *words]
    environment = mpi_launch.environment(TRIBUTARY_LIBRARY_PATH=str(options.library.resolve()),
                                         **{name: str(value) for name, value in settings.items()})
    code, output = mpi_launch.run(command, options.timeout, environment)
    if code == 0:
        return "noticed nothing"
    if re.search(r"[1-9]\d* failed", output) is None:
        return f"ended with exit code {code} and no check that failed:\n{output[-2000:]}"
    return None


def cases(options):
    """What to run: a name, the launcher's words, and environment variables."""
    place = programs.prepare(options, "mpich", [each for each in programs.PROGRAMS if each.name in CHECKING])
    for name in CHECKING:
        yield name, [place["mpirun"], "-n", RANKS, place["folder"] / name, "--sample", "64"], place["settings"]
    mpi = bindings.MPIS[BINDINGS_OF](options)
    for binding, make in bindings.bindings_of(options, mpi):
        yield f"binding {binding}", [mpi.mpirun, "-n", RANKS, *make()], mpi.settings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True, help="folder of the spoiled library")
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv", help="where the MPIs are")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mpi-planted")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one run")
    options = parser.parse_args()
    failures = 0
    try:
        for name, words, settings in cases(options):
            problem = noticed(options, words, settings)
            failures += problem is not None
            print(f"planted: {name:16} {problem or 'noticed'}", flush=True)
    except bindings.Missing as error:
        print(f"planted: not tried: {error}")
        failures += os.environ.get("CI") == "true"
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
