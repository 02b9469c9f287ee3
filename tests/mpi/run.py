#!/usr/bin/env python3
"""Runs the MPI test programs of this folder through the preload libraries, under each MPI.

Every run is `tributary run --hosts H -- mpirun -n P PROGRAM`. It passes if the program says so, and
if the report shows that its collectives went where they should: in_node on one host, in_tree on
several. A report of zeros is a failure. `--without` runs the programs on plain MPI, to test them.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHARED_SOURCES = ["check.c", "shapes.c", "values.c"]
SHARED_HEADERS = ["check.h", "shapes.h", "values.h"]
CFLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]

# Program, its arguments, and the (processes, hosts) it runs with.
PROGRAMS = [
    ("collectives", ["--sample", "32"],
     [(1, 1), (2, 1), (3, 1), (4, 1), (9, 1), (2, 2), (3, 2), (4, 2), (5, 3), (9, 4)]),
    ("waits", [], [(4, 1), (4, 2)]),
    ("passing", [], [(4, 1), (4, 2)]),
    ("progress", [], [(2, 1), (4, 1), (4, 2)]),
    ("bits", [], [(4, 1), (5, 2)]),
    ("bcast_types", [], [(4, 1), (4, 2)]),
    ("errors", [], [(3, 1)]),
    ("lifecycle", [], [(4, 1), (4, 2)]),
    ("threads", [], [(3, 1), (4, 2)]),
    ("no_finalize", [], [(3, 1), (4, 2)]),
]
# These end without MPI_Finalize: nobody writes their report, and launchers differ in whether they
# call that a failure. What counts is that they end, and what they say before.
WITHOUT_FINALIZE = {"no_finalize"}
# Plain MPICH, as its wheel is built, crashes on arguments that Open MPI refuses.
NOT_UNDER = {("errors", "mpich")}
# These print lines that have to be the same in two runs.
REPEATED = {"bits"}


class Failure(Exception):
    """Why a run failed, in a few lines."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=["openmpi", "mpich", "all"], default="all")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary",
                        help="the program (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mpi-tests",
                        help="folder for what is compiled (default %(default)s)")
    parser.add_argument("--filter", default="", help="only programs whose name contains this")
    parser.add_argument("--procs", type=int, help="only runs with so many processes")
    parser.add_argument("--hosts", type=int, help="only runs with so many hosts")
    parser.add_argument("--without", action="store_true", help="plain MPI, without the library")
    parser.add_argument("--seed", type=int, default=1, help="seed of the programs")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a run may take")
    parser.add_argument("--json", action="store_true", help="one object per line")
    return parser.parse_args()


def environment():
    """The environment for mpirun: containers run as root, and have fewer cores than ranks."""
    result = dict(os.environ)
    for name in ("TRIBUTARY_MANAGER", "TRIBUTARY_REPORT", "TRIBUTARY_HOSTS", "LD_PRELOAD"):
        result.pop(name, None)
    result.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    result.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    result.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    return result


def run_bounded(command, timeout):
    """Runs a command in a group of its own, and ends the whole group if it takes too long."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, env=environment(),
                                   start_new_session=True)
        try:
            process.wait(timeout)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(5)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        output.seek(0)
        text = output.read()
    if timed_out:
        raise Failure(f"took more than {timeout:g} s\n{tail(text)}")
    return process.returncode, text


def tail(text, lines=25):
    return "\n".join("    " + line for line in text.splitlines()[-lines:])


def compile_program(mpi, name, arguments):
    folder = arguments.build / mpi
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    sources = [HERE / f"{name}.c"] + [HERE / source for source in SHARED_SOURCES]
    inputs = sources + [HERE / header for header in SHARED_HEADERS]
    if target.exists() and all(path.stat().st_mtime < target.stat().st_mtime for path in inputs):
        return target
    command = [arguments.venvs / mpi / "bin/mpicc", *CFLAGS, *sources, "-o", target, "-lm",
               "-lpthread"]
    status, text = run_bounded(command, 120)
    if status != 0:
        raise Failure(f"{name}.c does not compile\n{tail(text)}")
    return target


def launch(mpi, program, extra, procs, hosts, arguments, report):
    mpirun = [arguments.venvs / mpi / "bin/mpirun", "-n", procs, program, "--seed",
              arguments.seed, *extra]
    if arguments.without:
        return run_bounded(mpirun, arguments.timeout)
    command = [arguments.tributary, "run", "--mpi", mpi, "--hosts", hosts, "--report", report, "--"]
    return run_bounded(command + mpirun, arguments.timeout)


def check_report(name, procs, hosts, report):
    if name in WITHOUT_FINALIZE:
        return "no report, as expected"
    try:
        counts = json.loads(report.read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"no report: {error}") from error
    way = "in_tree" if hosts > 1 else "in_node"
    if counts[way] == 0:
        raise Failure(f"nothing ran {way}; reasons: {counts.get('reasons')}")
    return " ".join(f"{key} {counts[key]}" for key in ("in_node", "in_tree", "passed_through"))


def bits(text):
    return sorted(re.findall(r"^bits .*$", text, re.MULTILINE))


def run_one(mpi, name, extra, procs, hosts, arguments):
    program = compile_program(mpi, name, arguments)
    with tempfile.TemporaryDirectory(prefix="tributary-test-") as folder:
        report = pathlib.Path(folder) / "report.json"
        status, text = launch(mpi, program, extra, procs, hosts, arguments, report)
        is_good = status == 0
        if name in WITHOUT_FINALIZE:
            is_good = f"{name}: " in text and " 0 failed" in text
        if not is_good:
            raise Failure(f"exit status {status}\n{tail(text)}")
        detail = "" if arguments.without else check_report(name, procs, hosts, report)
        if name in REPEATED and not arguments.without:
            _, again = launch(mpi, program, extra, procs, hosts, arguments, report)
            if not bits(text) or bits(text) != bits(again):
                raise Failure(f"two runs differ in their bits\n{tail(text)}\n{tail(again)}")
            detail += "; same bits twice"
    return detail


def main():
    arguments = parse_arguments()
    mpis = ["openmpi", "mpich"] if arguments.mpi == "all" else [arguments.mpi]
    passed = failed = 0
    for mpi in mpis:
        for name, extra, shapes in PROGRAMS:
            for procs, hosts in shapes:
                unwanted = ((name, mpi) in NOT_UNDER
                            or arguments.filter not in name
                            or arguments.procs not in (None, procs)
                            or arguments.hosts not in (None, hosts))
                if unwanted:
                    continue
                started = time.monotonic()
                try:
                    outcome, detail = "ok", run_one(mpi, name, extra, procs, hosts, arguments)
                    passed += 1
                except Failure as failure:
                    outcome, detail = "FAILED", str(failure)
                    failed += 1
                seconds = time.monotonic() - started
                if arguments.json:
                    print(json.dumps({"mpi": mpi, "program": name, "procs": procs, "hosts": hosts,
                                      "outcome": outcome, "seconds": round(seconds, 2),
                                      "detail": detail}), flush=True)
                else:
                    print(f"{mpi:8} {name:12} {procs} ranks {hosts} hosts {seconds:6.1f} s  "
                          f"{outcome:6} {detail}", flush=True)
    if passed + failed == 0:
        print("no run matches the options", file=sys.stderr)
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
