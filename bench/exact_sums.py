#!/usr/bin/env python3
"""Times allreduces of floats whose sums are exact beside ordered ones and a plain MPI.

    bench/exact_sums.py                                     ranks of this machine
    bench/exact_sums.py --ranks 8 --lab "--hosts 8 --hosts-per-leaf 8"     one a host of a lab, as root
    bench/exact_sums.py --environment TRIBUTARY_BETWEEN_HOSTS=tree ...     by a path that is named

Ordered and exact sums take turns within a program, on a communicator of each, so that both meet the same placement; programs with and
without the library take turns in every round. A figure is the median over rounds, and so is each ratio. Values are random between -1
and 1, so that their exponents lie near each other. A plain MPI is that of --mpi alone; the better of both is to be taken by hand.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import running  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_c  # noqa: E402
from harness.labs import Lab  # noqa: E402
from harness.places import mpicc, mpirun, parser_of  # noqa: E402


def parse_arguments():
    parser = parser_of(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="mpich")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--lab", type=shlex.split, help="options of `tributary lab up`; one rank a host")
    parser.add_argument("--lengths", default="8,64,4096,65536,1048576", help="bytes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true", help="one object for each row")
    return parser.parse_args()


def words(is_plain, lab, launcher, arguments):
    """The command of one run, without the program."""
    if lab is not None:
        return lab.words("run", "--ranks-per-host", 1, *(["--plain"] if is_plain else []), "--", *launcher)
    return [*([] if is_plain else [arguments.tributary.resolve(), "run", "--"]), *launcher]


def measure(is_plain, lab, program, arguments):
    """Microseconds of an ordered and an exact call, by type and length; without the library both are the MPI's own."""
    launcher = [mpirun(arguments, arguments.mpi), "-n", arguments.ranks]
    environment = running.environment(**dict(entry.split("=", 1) for entry in arguments.environment))
    command = [*words(is_plain, lab, launcher, arguments), program, *arguments.lengths.split(",")]
    done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True,
                          timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("time ")]
    return {(kind, int(length)): (float(ordered), float(exact)) for _, kind, length, ordered, exact in lines}


def median_ratio(numerators, denominators):
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def print_rows(times, as_json):
    if not as_json:
        print(f"{'type':7}{'bytes':>9}{'plain':>11}{'ordered':>11}{'exact':>11}{'exact/ordered':>15}{'exact/plain':>13}")
    for (kind, length), us in times.items():
        if as_json:
            print(json.dumps({"type": kind, "bytes": length, "us": us}))
            continue
        columns = "".join(f"{statistics.median(us[way]):11.2f}" for way in ("plain", "ordered", "exact"))
        print(f"{kind:7}{length:9}{columns}{median_ratio(us['exact'], us['ordered']):15.2f}"
              f"{median_ratio(us['exact'], us['plain']):13.2f}")


def main():
    arguments = parse_arguments()
    program = compile_c(mpicc(arguments, arguments.mpi), [HERE / "exact_sums.c"], arguments.build / f"exact_sums-{arguments.mpi}")
    times = {}
    with Lab(arguments.tributary, f"exact-{os.getpid()}", *arguments.lab) if arguments.lab else contextlib.nullcontext() as lab:
        for number in range(arguments.rounds):
            for is_plain in (True, False) if number % 2 == 0 else (False, True):
                name = "plain MPI" if is_plain else "with the library"
                print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr, flush=True)
                for case, (ordered, exact) in measure(is_plain, lab, program, arguments).items():
                    us = times.setdefault(case, {"plain": [], "ordered": [], "exact": []})
                    if is_plain:
                        us["plain"].append((ordered + exact) / 2)
                    else:
                        us["ordered"].append(ordered)
                        us["exact"].append(exact)
    print_rows(times, arguments.json)


if __name__ == "__main__":
    main()
