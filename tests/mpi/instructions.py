#!/usr/bin/env python3
"""Counts the instructions of short blocking collectives through the preload library.

Two ranks each run under callgrind, which counts from the entry of the interposed function to its
return, without the loop that waits for the other rank: its number of iterations depends on timing. A
count is the difference between a long and a short run, divided by the calls, so that work that is done
once does not count. Valgrind has no AVX-512, so the kernels are those for AVX2. A call that waits takes a few
instructions more than one that finds everything there (the root of a reduce 13), so a
count depends a little on timing, and a limit is for calls that all wait.

Prints every count and fails if one is above its limit, or if starting a persistent allreduce and waiting for
it takes no fewer than the blocking call. A limit is a few per cent above the count at the
time when it was set: lower it when the path gets shorter. Fails if valgrind is not installed.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "mk"))
import mpi_launch  # noqa: E402, its folder is on the path only now

FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
# Collective, interposed functions, variables, and instructions allowed per call on the rank with more of them.
LIMITS = [("allreduce", ("shim_Allreduce",), (), 312), ("reduce", ("shim_Reduce",), (), 362),
          ("bcast", ("shim_Bcast",), (), 256), ("barrier", ("shim_Barrier",), (), 125),
          ("persistent", ("shim_Start", "shim_Wait"), (), 306),
          ("allreduce", ("shim_Allreduce",), ("TRIBUTARY_SUMS=exact",), 450)]
SHORT, LONG = 500, 2500


class Failure(Exception):
    """No count could be taken."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--libraries", type=pathlib.Path, required=True,
                        help="folder of the preload library")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with mpich/ (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    return parser.parse_args()


def collected(program, collective, functions, variables, calls, arguments, folder):
    """Instructions of the two ranks, in any order."""
    library = (arguments.libraries / "libtributary.so").resolve()
    command = [arguments.venvs / "mpich/bin/mpirun", "-n", 2, "env", *variables, f"LD_PRELOAD={library}",
               "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind.%p",
               "--collect-atstart=no", *(f"--toggle-collect={name}" for name in functions),
               "--toggle-collect=*HostGroup*wait_for*", program, collective, calls]
    status, text = mpi_launch.run(command, arguments.timeout)
    counts = [int(number) for number in re.findall(r"Collected : (\d+)", text)]
    if status != 0 or len(counts) != 2:
        raise Failure(f"{collective}: exit status {status}\n{text[-3000:]}")
    return counts


def per_call(program, collective, functions, variables, arguments, folder):
    short = sorted(collected(program, collective, functions, variables, SHORT, arguments, folder))
    long = sorted(collected(program, collective, functions, variables, LONG, arguments, folder))
    return [(after - before) / (LONG - SHORT) for before, after in zip(short, long)]


def main():
    arguments = parse_arguments()
    if shutil.which("valgrind") is None:
        print("instructions: valgrind is not installed: install it",
              file=sys.stderr)
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tributary-instructions-") as folder:
        program = pathlib.Path(folder) / "instructions"
        compiler = arguments.venvs / "mpich/bin/mpicc"
        subprocess.run([str(compiler), *FLAGS, str(HERE / "instructions.c"), "-o",
                        str(program)], check=True)
        counts = {}
        for collective, functions, variables, limit in LIMITS:
            cheaper, dearer = per_call(program, collective, functions, variables, arguments, folder)
            title = " ".join([collective, *variables])
            counts[title] = dearer
            outcome = "ok" if 0 < dearer <= limit else "FAILED"
            failed += outcome != "ok"
            print(f"{title:10} 8 B, 2 ranks: {cheaper:.0f} and {dearer:.0f} instructions a "
                  f"call, at most {limit}: {outcome}", flush=True)
    if counts["persistent"] >= counts["allreduce"]:
        print("persistent: FAILED: no fewer instructions than the blocking allreduce")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, mpi_launch.TimedOut) as failure:
        print(f"instructions: {failure}", file=sys.stderr)
        sys.exit(1)
