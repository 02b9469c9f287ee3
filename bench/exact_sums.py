#!/usr/bin/env python3
"""Times allreduces of floats whose sums are exact beside ordered ones and a plain MPI.

    bench/exact_sums.py                                     ranks of this machine
    bench/exact_sums.py --ranks 8 --lab "--hosts 8 --hosts-per-leaf 8"     one a host of a lab, as root
    bench/exact_sums.py --environment TRIBUTARY_BETWEEN_HOSTS=tree ...     by a path that is named

The three take turns in every round, and a figure is the median over rounds. Values are random between -1 and 1, so that their
exponents lie near each other. A plain MPI is that of --mpi alone; the better of both is to be taken by hand.
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
sys.path[:0] = [str(ROOT / "mk"), str(ROOT / "tests/lab")]
import mpi_launch  # noqa: E402, its folder is on the path only now
from lab import Lab  # noqa: E402, likewise

WAYS = ("plain", "ordered", "exact")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/bench-exact")
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="mpich")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--lab", type=shlex.split, help="options of `tributary lab up`; one rank a host")
    parser.add_argument("--lengths", default="8,64,4096,65536,1048576", help="bytes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true", help="one object for each row")
    return parser.parse_args()


def words(way, lab, launcher, arguments):
    """The command of one run, without the program."""
    if lab is not None:
        return lab.words("run", "--ranks-per-host", 1, *(["--plain"] if way == "plain" else []), "--", *launcher)
    return [*([] if way == "plain" else [arguments.tributary.resolve(), "run", "--"]), *launcher]


def measure(way, lab, program, arguments):
    """Microseconds a call, by type and length."""
    launcher = [arguments.venvs.resolve() / arguments.mpi / "bin/mpirun", "-n", arguments.ranks]
    named = dict(entry.split("=", 1) for entry in arguments.environment)
    environment = mpi_launch.environment(**named, TRIBUTARY_SUMS="exact" if way == "exact" else "ordered")
    command = [*words(way, lab, launcher, arguments), program, *arguments.lengths.split(",")]
    done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True,
                          timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{way}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("time ")]
    return {(kind, int(length)): float(us) for _, kind, length, us in lines}


def print_rows(times, as_json):
    if not as_json:
        print(f"{'type':7}{'bytes':>9}{'plain':>11}{'ordered':>11}{'exact':>11}{'exact/ordered':>15}{'exact/plain':>13}")
    for (kind, length), by_way in times.items():
        plain, ordered, exact = (statistics.median(by_way[way]) for way in WAYS)
        if as_json:
            print(json.dumps({"type": kind, "bytes": length, "us": {way: by_way[way] for way in WAYS}}))
            continue
        print(f"{kind:7}{length:9}{plain:11.2f}{ordered:11.2f}{exact:11.2f}{exact / ordered:15.2f}{exact / plain:13.2f}")


def main():
    arguments = parse_arguments()
    arguments.build.mkdir(parents=True, exist_ok=True)
    program = (arguments.build / f"exact_sums-{arguments.mpi}").resolve()
    subprocess.run([arguments.venvs / arguments.mpi / "bin/mpicc", "-O2", HERE / "exact_sums.c", "-o", program], check=True)
    times = {}
    with Lab(arguments.tributary, f"exact-{os.getpid()}", *arguments.lab) if arguments.lab else contextlib.nullcontext() as lab:
        for number in range(arguments.rounds):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                print(f"round {number + 1} of {arguments.rounds}: {way}", file=sys.stderr, flush=True)
                for case, us in measure(way, lab, program, arguments).items():
                    times.setdefault(case, {}).setdefault(way, []).append(us)
    print_rows(times, arguments.json)


if __name__ == "__main__":
    main()
