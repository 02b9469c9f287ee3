#!/usr/bin/env python3
"""Checks the preload library as a file: exported symbols, loading into any program, overhead.

It must offload what it can when the MPI at hand lacks something (hide.c), and leave every call to the MPI when
it can't do without, or does not know the MPI.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import run as programs
from run import mpi_launch

HERE = pathlib.Path(__file__).resolve().parent
# Every MPI, and its binary interface.
KINDS = {mpi: mpi for mpi in programs.MPIS} | programs.DEBIAN
TIMEOUT_S = 120

# What an MPI may lack, as patterns of hide.c: what is newer than MPI 3.0, and extensions.
NEWER = "PMPIX_*,PMPI_*_c,PMPI_Comm_create_from_group,PMPI_Request_get_status_*"
# Datatypes and operators of Open MPI are symbols, too.
TYPES = "ompi_mpi_op_bxor,ompi_mpi_float,ompi_mpi_c_bool,ompi_mpi_logical*,ompi_mpi_2int"
# Called by the library, and by no test here.
NEEDED = "PMPI_Iexscan"
INTEL = "Intel(R) MPI Library 2021.19 for Linux* OS"
NOBODYS = "Some MPI 1.0"
USED = ("collectives", "bcast_types", "waits", "missing")


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
    strange = [name for name in exported if not name.startswith(("MPI_", "MPIX_", "PMPI_", "PMPIX_"))]
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
    # Times are for reading: instructions.py holds what a call costs.
    if not re.search(r"^overhead .+: .* difference \S+ ns$", output, re.MULTILINE):
        return f"{program.name} printed no cost"
    return None


def offloaded(report):
    """How many calls the report counts as offloaded; none if there is no report."""
    if not report.exists():
        return 0
    counts = json.loads(report.read_text())
    return counts["in_host"] + counts["in_tree"]


def check_with_less(library, place, names, offloads, **less):
    """Programs run under an MPI that seems to lack something; whether anything is then offloaded."""
    report = place["folder"] / "less.json"
    # The variables are of the ranks: the launcher is to find its symbols.
    settings = place["settings"] | less
    settings |= {"LD_PRELOAD": f"{place['hide']} {library}", "TRIBUTARY_REPORT": report}
    words = ["env", *(f"{name}={value}" for name, value in settings.items())]
    for name in names:
        report.unlink(missing_ok=True)
        code, output = run([place["mpirun"], "-n", "2", *words, place["folder"] / name, "--sample", "64"])
        if code != 0:
            return f"{name}: exit code {code}: {output.strip()[:1000]}"
        # Every rank of `missing` says that it called such a function; one rank says why the library is off.
        expected = 2 if name == "missing" else 0 if offloads else 1
        warnings = len(re.findall("^tributary: ", output, re.MULTILINE))
        if warnings != expected:
            return f"{name}: {warnings} lines of ours, not {expected}: {output.strip()[-400:]}"
        calls = offloaded(report)
        if (calls > 0) != offloads:
            return f"{name}: {calls} calls were offloaded"
    return None


def checks_of(library, kind, place):
    """The checks under one MPI of an interface, as pairs of a name and a function."""
    mpirun, overhead = place["mpirun"], place["folder"] / "overhead"
    check = check_with_less
    checks = [
        ("loads anywhere", lambda: check_loads(library, mpirun)),
        ("cost", lambda: check_cost(library, mpirun, overhead)),
        ("MPI 3.0", lambda: check(library, place, USED, True, HIDE=NEWER)),
        ("less than 3.0", lambda: check(library, place, ("bcast_types",), False, HIDE=NEEDED)),
        ("of nobody", lambda: check(library, place, ("bcast_types",), False, SAY=NOBODYS)),
    ]
    if kind == "openmpi":
        checks += [
            ("fewer types", lambda: check(library, place, ("collectives",), True, HIDE=TYPES)),
            ("no MPI_INT", lambda: check(library, place, ("waits",), False, HIDE="ompi_mpi_int")),
        ]
    else:
        checks += [("as Intel MPI", lambda: check(library, place, ("collectives",), True, SAY=INTEL))]
    return checks


def prepare(options, mpi):
    place = programs.prepare(options, mpi, [programs.Program(name) for name in ("overhead", *USED)])
    for name, messages in place["failed"].items():
        raise SystemExit(f"preload.py: {name} does not compile: {messages}")
    place["hide"] = place["folder"] / "libhide.so"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                    HERE / "hide.c", "-o", place["hide"], "-ldl"], check=True)
    return place


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=pathlib.Path, default="target/release",
                        help="where libtributary.so is (default: %(default)s)")
    parser.add_argument("--venvs", type=pathlib.Path, default=".venv",
                        help="where the MPIs are (default: %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default="target/mpi/preload",
                        help="where to put compiled programs (default: %(default)s)")
    options = parser.parse_args()
    there = [mpi for mpi in KINDS if programs.is_there(options, mpi)]
    places = {mpi: prepare(options, mpi) for mpi in there}
    failures = len(KINDS) - len(there) if os.environ.get("CI") == "true" else 0
    library = (options.libraries / "libtributary.so").resolve()
    checks = [("file", "symbols", lambda: check_symbols(library))]
    for mpi, place in places.items():
        checks += [(mpi, *check) for check in checks_of(library, KINDS[mpi], place)]
    for mpi, name, check in checks:
        problem = check()
        failures += problem is not None
        print(f"{mpi:15} {name:15} {problem or 'ok'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
