"""Runs MPI programs on the hosts of a lab."""

import json
import pathlib
import tempfile

from .labs import command
from .places import mpirun
from .running import Failure, bounded


def on(name, member, arguments, *words):
    """The command that runs a command on a member of a lab."""
    return command(arguments.tributary, "exec", name, member, "--", *words)


def program_words(mpi, name, ranks, per_host, program, arguments, *options):
    """The command that runs a program on a lab."""
    return command(arguments.tributary, "run", name, "--ranks-per-host", per_host, *options, "--",
                   mpirun(arguments, mpi), "-n", ranks, *program)


def run_program(mpi, name, ranks, per_host, program, arguments, environment=None):
    """Runs a program on a lab; its report."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        report = pathlib.Path(folder) / "report.json"
        code, text = bounded(
            program_words(mpi, name, ranks, per_host, program, arguments, "--report", report),
            arguments.timeout, environment)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        return json.loads(report.read_text())


def world_of(counts):
    """What a report says of the world's communicator."""
    return next(entry for entry in counts["communicators"] if entry["label"] == "world")
