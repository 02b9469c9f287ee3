"""Compiles programs in C. All are compiled alike: with warnings as errors, optimisation and debug information."""

import functools
import pathlib
import subprocess

from .places import MPI_TESTS, ROOT, mpicc

# MPICH 4.0 declares the address MPI_STATUSES_IGNORE, which is 1, as an array: GCC then warns of overflow.
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow", "-pthread")
# Shared by the programs of tests/mpi.
SUPPORT = ("check.c", "plain.c", "values.c", "shapes.c", "sample.c", "layouts.c", "completion.c")


def compile_c(compiler, sources, target, *further, standard="gnu11"):
    """Compiles sources to a target, whose folder is made, and returns its path. `further` come last: libraries, for one."""
    target = pathlib.Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    run_once(*(str(word) for word in (compiler, f"-std={standard}", *FLAGS, *sources, "-o", target, *further)))
    return target


@functools.cache
def run_once(*words):
    """Many tests compile the same program."""
    subprocess.run(words, check=True)


class MpiTests:
    """The programs of tests/mpi for one MPI. Each is compiled when it is asked for, and what all share once."""

    def __init__(self, mpi, arguments):
        self.compiler, self.folder = mpicc(arguments, mpi), arguments.build / mpi
        self.objects, self.programs = [], {}

    def compile(self, name):
        """The path of a program."""
        if not self.objects:
            self.objects = [self.build(["-c", MPI_TESTS / source], source.replace(".c", ".o")) for source in SUPPORT]
            # A library that a program loads itself.
            self.build(["-shared", "-fPIC", MPI_TESTS / "fake_driver.c"], "libcuda.so.1")
        if name not in self.programs:
            self.programs[name] = self.build([MPI_TESTS / f"{name}.c", *self.objects], name, "-lm", "-ldl")
        return self.programs[name]

    def build(self, sources, target, *further):
        return compile_c(self.compiler, sources, self.folder / target, *further, standard="c11")


def compile_soak(mpi, arguments):
    """Compiles soak.c, a program that checks every result of many rounds of operations, for an MPI."""
    support = [MPI_TESTS / name for name in ("check.c", "plain.c", "shapes.c", "values.c")]
    return compile_c(mpicc(arguments, mpi), [f"-I{MPI_TESTS}", ROOT / "tests/lab/soak.c", *support],
                     arguments.build / f"soak-{mpi}", "-lm")
