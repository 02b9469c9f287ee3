#!/usr/bin/env python3
"""Runs one program of exact sums on 1 to 16 ranks and 1 to 8 hosts of a lab, over every path, and wants one set of bits.

The links of one lab lose packets, in another the kernel aggregates, and aggregators are killed while the program computes. The bits
are those of the real sums, by fractions. Sums of a call of MPI are those of what the ranks contribute, so each number of ranks has bits of its own.
"""

import argparse
import fractions
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

import soak
from daemons import Daemon
from test import MPI_TESTS, Failure, bounded

sys.path.insert(0, str(MPI_TESTS))
import exact  # noqa: E402, its folder is on the path only now

HOSTS, HOSTS_PER_LEAF = 8, 4
# Ranks, and hosts that they are on.
PLACEMENTS = ((1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (4, 4), (8, 1), (8, 4), (8, 8), (16, 4), (16, 8))
# The paths between hosts, and how the report counts operations of each.
PATHS = {path: soak.PATHS[path] for path in ("tree", "direct", "replicated")}
LABS = {"links that lose nothing": [], "1 % loss": ["--single-packets", "--loss", "1"],
        "aggregators in the kernel": ["--node-kernel"]}
# Those that run while aggregators are killed, for how long, and how often one is.
KILLED_PLACEMENTS = ((8, 8), (16, 8))
KILLED_S, KILL_EVERY_S = 12, 3.0
# As in exact.c.
COLUMNS = 8


def pieces(values, ranks):
    """What each rank has of the values, as exact.c divides them."""
    rows = len(values) // exact.SUMS
    ends = [rows * rank * rank // (ranks * ranks) * exact.SUMS for rank in range(ranks + 1)]
    return [values[first:end] for first, end in zip(ends, ends[1:])]


def expected_of_allreduce(left, ranks):
    """The bits of the sums of what ranks contribute to a call of MPI."""
    columns = zip(*(piece[:COLUMNS] for piece in pieces(left, ranks)))
    sums = [float(sum(map(fractions.Fraction, column), fractions.Fraction(0))) for column in columns]
    return "mpi" + "".join(" " + struct.pack(">d", value).hex() for value in sums)


def start_aggregators(lab):
    """The lab's aggregators, started anew by this program, which may kill them."""
    aggregators = [Daemon(lab, member["name"], subprocess.DEVNULL) for member in lab.members() if member["role"] == "node"]
    for aggregator in aggregators:
        aggregator.start()
    return aggregators


class Bits:
    """The program, its values, and the bits that are wanted."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.mpi = arguments.venvs.resolve() / "mpich/bin"
        library = arguments.tributary.resolve().parent
        self.program, self.data = folder / "exact", folder / "values"
        subprocess.run([self.mpi / "mpicc", "-O2", f"-I{exact.CRATE / 'include'}", MPI_TESTS / "exact.c", "-o", self.program,
                        f"-L{library}", f"-Wl,-rpath,{library}", "-ltributary_exact_c"], check=True)
        self.given = exact.vectors()
        exact.write(self.data, self.given)
        self.wanted = exact.expected(*self.given)

    def run(self, lab, ranks, hosts, path, seconds=0):
        """Runs the program once, and checks its bits; what the report counts, by path."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        words = lab.words("run", "--ranks-per-host", ranks // hosts, "--report", report, "--", self.mpi / "mpirun", "-n", ranks,
                          self.program, self.data, seconds)
        settings = {"TRIBUTARY_BETWEEN_HOSTS": path, "TRIBUTARY_SUMS": "exact"}
        code, text = bounded(words, self.arguments.timeout + seconds, settings)
        told = sorted(line for line in text.splitlines() if line.startswith(("bits", "mpi")))
        wanted = [self.wanted] * ranks + [expected_of_allreduce(self.given[0], ranks)] * ranks
        if code != 0 or told != wanted:
            raise Failure(f"{ranks} ranks on {hosts} hosts, {path}: exit code {code}, wanted\n" + "\n".join(sorted(set(wanted)))
                          + f"\nof each rank, and found\n{text}")
        return json.loads(report.read_text(encoding="utf-8"))

    def check(self, lab, ranks, hosts, path):
        counts = self.run(lab, ranks, hosts, path)
        counted = "in_host" if hosts == 1 else PATHS[path]
        if counts[counted] == 0 or counts["passed_through"] != 0:
            raise Failure(f"{ranks} ranks on {hosts} hosts: not {counted}: {counts}")

    def check_killed(self, lab, aggregators, ranks, hosts):
        """How many aggregators died under it, and how many operations went over each path."""
        with soak.Killer(aggregators, KILL_EVERY_S) as killer:
            counts = self.run(lab, ranks, hosts, "tree", KILLED_S)
        if killer.kills == 0 or counts["in_tree"] == 0 or counts["direct"] == 0 or counts["passed_through"] != 0:
            raise Failure(f"{killer.kills} aggregators were killed: {counts}")
        return killer.kills, counts["in_tree"], counts["direct"]


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = soak.parser_of(__doc__.splitlines()[0])
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a run may take (default %(default)s)")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tributary-bits-") as folder:
        bits = Bits(arguments, pathlib.Path(folder))
        of_lab = argparse.Namespace(tributary=arguments.tributary, hosts=HOSTS, hosts_per_leaf=HOSTS_PER_LEAF)
        for title, options in LABS.items():
            with soak.SoakLab(of_lab, "bits", options) as lab:
                try:
                    runs = [(ranks, hosts, path) for ranks, hosts in PLACEMENTS for path in (PATHS if hosts > 1 else ("tree",))]
                    for run in runs:
                        bits.check(lab, *run)
                    print(f"{title}: {len(runs)} runs, one set of bits", flush=True)
                    aggregators = start_aggregators(lab)
                    for placement in KILLED_PLACEMENTS:
                        kills, in_tree, direct = bits.check_killed(lab, aggregators, *placement)
                        print(f"{title}, {kills} aggregators killed under {placement[0]} ranks: one set of bits in "
                              f"{in_tree} operations in the tree and {direct} over direct links", flush=True)
                except Failure as failure:
                    failed += 1
                    print(f"{title}: FAILED: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
