#!/usr/bin/env python3
"""Checks the preload libraries as files: exported symbols, loading into any program, overhead.

Every check runs for both libraries, and under the other's MPI too, where the library must warn that it
is the wrong one and leave every call to the MPI.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "mk"))
import mpi_launch  # noqa: E402, its folder is on the path only now

OTHER = {"openmpi": "mpich", "mpich": "openmpi"}
COST_NS_MAX = 50.0
TIMEOUT_S = 120


def run(command, **extra):
    """A command's exit code and everything it wrote."""
    return mpi_launch.run(command, TIMEOUT_S, mpi_launch.environment(**extra))


def symbols(library, option):
    lines = run(["nm", "-D", option, library])[1].splitlines()
    return [line.split()[-1].split("@")[0] for line in lines if line.strip()]


def check_symbols(library):
    """The library exports MPI functions only, and needs no MPI symbol."""
    exported = symbols(library, "--defined-only")
    if not exported or "MPI_Allreduce" not in exported:
        return "does not export MPI_Allreduce"
    strange = [name for name in exported if not name.startswith(("MPI_", "MPIX_"))]
    if strange:
        return f"exports {strange[0]} and {len(strange) - 1} more that are not MPI's"
    needed = [name for name in symbols(library, "--undefined-only")
              if name.startswith(("MPI_", "PMPI_", "ompi_"))]
    return f"needs {needed[0]} to load" if needed else None


def check_loads(library, mpirun):
    """The library loads into programs without MPI, with every symbol bound at once, and into launchers."""
    for command in (["/bin/sh", "-c", "exit 0"], [mpirun, "--version"]):
        code, output = run(command, LD_PRELOAD=str(library), LD_BIND_NOW="1")
        if code != 0:
            return f"{command[0]} fails under it: {output.strip()[:200]}"
    return None


def check_cost(library, mpirun, program):
    code, output = run([mpirun, "-n", "1", program], LD_PRELOAD=str(library))
    if code != 0:
        return f"{program.name} fails under it: {output.strip()[:200]}"
    print(output, end="")
    costs = re.findall(r"^overhead (.+): .* difference (\S+) ns$", output, re.MULTILINE)
    if not costs:
        return f"{program.name} printed no cost"
    for name, cost_ns in costs:
        if float(cost_ns) >= COST_NS_MAX:
            return f"{name} costs {cost_ns} ns more; allowed: under {COST_NS_MAX} ns"
    return None


def check_wrong_mpi(library, mpirun, program):
    code, output = run([mpirun, "-n", "2", program], LD_PRELOAD=str(library))
    if code != 0:
        return f"breaks a program of the other MPI: {output.strip()[:200]}"
    warnings = output.count("tributary: this preload library is for")
    return None if warnings == 1 else f"warned {warnings} times under the other MPI, not once"


def compile_overhead(venv, build):
    program = build / f"overhead-{venv.name}"
    sources = [pathlib.Path(__file__).with_name(name) for name in ("overhead.c", "check.c")]
    subprocess.run([venv / "bin" / "mpicc", "-std=c11", "-O2", "-Wall", "-Werror", "-pthread",
                    *sources, "-o", program], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=pathlib.Path, default="target/release",
                        help="where libtributary_*.so are (default: %(default)s)")
    parser.add_argument("--venvs", type=pathlib.Path, default=".venv",
                        help="where the MPIs are (default: %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default="target/mpi",
                        help="where to put compiled programs (default: %(default)s)")
    options = parser.parse_args()
    options.build.mkdir(parents=True, exist_ok=True)
    programs = {mpi: compile_overhead(options.venvs / mpi, options.build) for mpi in OTHER}
    mpirun = {mpi: options.venvs / mpi / "bin" / "mpirun" for mpi in OTHER}
    failures = 0
    for mpi, other in OTHER.items():
        library = (options.libraries / f"libtributary_{mpi}.so").resolve()
        checks = {
            "symbols": lambda: check_symbols(library),
            "loads anywhere": lambda: check_loads(library, mpirun[mpi]),
            "cost": lambda: check_cost(library, mpirun[mpi], programs[mpi]),
            f"under {other}": lambda: check_wrong_mpi(library, mpirun[other], programs[other]),
        }
        for name, check in checks.items():
            problem = check()
            failures += problem is not None
            print(f"{library.name:26} {name:16} {problem or 'ok'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
