#!/usr/bin/env python3
"""Shows that the tests of results can fail: runs them with a library that spoils one bit of every result.

Only the results of blocking, nonblocking or persistent calls are spoiled at a time. Every program must notice
each form that it tests: it must end, by itself, with an exit code that is not 0, and name checks that failed.
The library is the one of `make mpi-planted` (planted.c).
"""

import argparse
import dataclasses
import os
import pathlib
import re
import sys

import bindings
import run as programs
from run import mpi_launch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 4
FORMS = ("blocking", "nonblocking")
SAMPLED = ("--sample", "64")


@dataclasses.dataclass(frozen=True)
class Checking:
    """A program that compares results with what they must be: of calls in which forms."""

    name: str
    forms: tuple = FORMS
    arguments: tuple = ()
    settings: tuple = ()


CHECKING = (
    Checking("collectives", arguments=SAMPLED),
    Checking("further", arguments=SAMPLED),
    Checking("operators", arguments=SAMPLED),
    Checking("started_operators", ("nonblocking", "persistent")),
    Checking("sessions"),
    Checking("waits"),
    Checking("persistent", (*FORMS, "persistent")),
    Checking("bcast_types"),
    # Every sum is compared with the one in rank order.
    Checking("bits"),
    # The last result of every kind of call that is measured; these take another way through the library.
    Checking("times", settings=(("TRIBUTARY_TIMES", "on"),)),
)
# The MPI whose Fortran is tried.
BINDINGS_OF = "debian-openmpi"


def noticed(options, words, settings):
    """Why the run shows nothing; none if the program noticed."""
    command = [options.tributary.resolve(), "run", "--hosts", 1, "--", *words]
    environment = mpi_launch.environment(TRIBUTARY_LIBRARY_PATH=str(options.library.resolve()),
                                         **{name: str(value) for name, value in settings.items()})
    code, output = mpi_launch.run(command, options.timeout, environment)
    if code == 0:
        return "noticed nothing"
    if re.search(r"[1-9]\d* failed", output) is None:
        return f"ended with exit code {code} and no check that failed:\n{output[-2000:]}"
    return None


def cases(options):
    """What to run: a name, the form of call that is spoiled, the launcher's words, and environment variables."""
    place = programs.prepare(options, "mpich", [programs.Program(each.name) for each in CHECKING])
    for each in CHECKING:
        words = [place["mpirun"], "-n", RANKS, place["folder"] / each.name, *each.arguments]
        for form in each.forms:
            yield each.name, form, words, place["settings"] | dict(each.settings)
    mpi = bindings.MPIS[BINDINGS_OF](options)
    for binding, make in bindings.bindings_of(options, mpi):
        for form in FORMS:
            yield f"binding {binding}", form, [mpi.mpirun, "-n", RANKS, *make()], mpi.settings


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
        for name, form, words, settings in cases(options):
            problem = noticed(options, words, settings | {"PLANTED": form})
            failures += problem is not None
            print(f"planted: {name:16} {form:11} {problem or 'noticed'}", flush=True)
    except bindings.Missing as error:
        print(f"planted: not tried: {error}")
        failures += os.environ.get("CI") == "true"
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
