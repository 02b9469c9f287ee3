#!/usr/bin/env python3
"""Concurrent pairs of MPI ranks: message rate, bandwidth, and which of the two limits each length.

As in osu_mbw_mr (pairs.c), every sender has a window of 64 outstanding messages. Lengths are put into the
zones of Bayatpour et al. (SC 2017, section 3), who choose numbers of leaders by them:

  rate         messages a second do not depend on the length: the cost per message limits them, and
               more pairs move more
  bandwidth    bytes a second do not depend on the length: the wire or the memory is full, and more
               pairs share it
  transition   between the two

Bandwidth-limited are the shortest length whose bandwidth is at least --near of the best one, and all
that are longer: their bandwidth may fall again when they leave a cache, but the rate does not limit them.
Rate-limited are, of the others, the longest whose message rate is at least --near of the best one, and
all that are shorter. Runs of different numbers of pairs alternate; a figure is the median over rounds.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import node  # noqa: E402, its folder is on the path only now

WINDOW = 64
LENGTHS = [1 << power for power in range(0, 23, 2)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/bench-node",
                        help="folder for compiled programs (default %(default)s)")
    parser.add_argument("--mpi", choices=[*node.MPIS, "all"], default="all")
    parser.add_argument("--pairs", type=lambda text: [int(one) for one in text.split(",")],
                        default=[1, 2, 4], help="numbers of pairs (default 1,2,4)")
    parser.add_argument("--lengths", type=lambda text: [int(one) for one in text.split(",")],
                        default=LENGTHS, help="bytes of a message (default: 1 to 4 MiB by fours)")
    parser.add_argument("--near", type=float, default=0.8,
                        help="part of the best that counts as the best (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved runs of each kind")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds a run may take")
    parser.add_argument("--prefix", type=shlex.split, default=[],
                        help="command that starts each rank, such as 'nice -n -20'")
    parser.add_argument("--json", action="store_true", help="one object per line")
    return parser.parse_args()


def measure(mpi, program, pairs, arguments):
    """Nanoseconds a window by length, in one run."""
    command = [arguments.venvs / mpi / "bin/mpirun", "-n", 2 * pairs, *arguments.prefix, program,
               pairs, *arguments.lengths]
    output = node.run(command, arguments.timeout, 2 * pairs)
    figures = {}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0].isdigit():
            figures[int(fields[0])] = float(fields[2])
    if set(figures) != set(arguments.lengths):
        sys.exit(f"no figures for some of {arguments.lengths}:\n{output}")
    return figures


def zones(rates, bandwidths, near):
    """The zone of each length, as the head of this file defines it."""
    full = min(length for length, bandwidth in bandwidths.items()
               if bandwidth >= near * max(bandwidths.values()))
    fast = max(length for length, rate in rates.items() if rate >= near * max(rates.values()))
    return {length: "bandwidth" if length >= full else "rate" if length <= fast else "transition"
            for length in rates}


def rows(mpi, pairs, windows_ns, near):
    """One row a length, from nanoseconds a window by length."""
    rates = {length: pairs * WINDOW / ns * 1e9 for length, ns in windows_ns.items()}
    bandwidths = {length: rate * length for length, rate in rates.items()}
    zone = zones(rates, bandwidths, near)
    return [{
        "mpi": mpi, "pairs": pairs, "bytes": length,
        "messages_per_s": rates[length], "bytes_per_s": bandwidths[length],
        "zone": zone[length],
    } for length in windows_ns]


def check_zones():
    """The zones of an ideal link: a message costs 100 ns, and a byte 1 ns."""
    windows_ns = {length: WINDOW * (100 + length) for length in (1, 16, 100, 200, 1024, 65536)}
    found = [row["zone"] for row in rows("ideal", 1, windows_ns, 0.8)]
    expected = ["rate", "rate", "transition", "transition", "bandwidth", "bandwidth"]
    if found != expected:
        sys.exit(f"zones of an ideal link are {found}, not {expected}")


def main():
    arguments = parse_arguments()
    check_zones()
    mpis = node.MPIS if arguments.mpi == "all" else [arguments.mpi]
    programs = {mpi: node.compile_program(arguments.venvs / mpi / "bin/mpicc", "pairs",
                                          arguments.build / mpi) for mpi in mpis}
    runs = {}
    for _ in range(arguments.rounds):
        for mpi in mpis:
            for pairs in arguments.pairs:
                for length, ns in measure(mpi, programs[mpi], pairs, arguments).items():
                    runs.setdefault((mpi, pairs), {}).setdefault(length, []).append(ns)
    cores = len(os.sched_getaffinity(0))
    if not arguments.json:
        print(f"{cores} cores, window {WINDOW}, zones at {arguments.near:g} of the best")
        print(f"{'MPI':<9}{'pairs':>6}{'bytes':>10}{'messages/s':>14}{'MB/s':>10}  limited by")
    for (mpi, pairs), by_length in runs.items():
        medians = {length: statistics.median(ns) for length, ns in by_length.items()}
        for row in rows(mpi, pairs, medians, arguments.near):
            if arguments.json:
                print(json.dumps(row | {"cores": cores}), flush=True)
            else:
                print(f"{mpi:<9}{pairs:>6}{row['bytes']:>10}{row['messages_per_s']:>14.0f}"
                      f"{row['bytes_per_s'] / 1e6:>10.1f}  {row['zone']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
