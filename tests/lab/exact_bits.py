#!/usr/bin/env python3
"""Runs one program of exact sums on 1 to 16 ranks and 1 to 8 hosts of a lab, over every path, and wants one set of bits.

The links of one lab lose packets, in another the kernel aggregates. While the program computes aggregators are killed, and links to them
are cut. The bits are those of the real sums, by fractions. Sums of a call of MPI are those of what the ranks contribute, so each number
of ranks has bits of its own.

With --python it also runs a program of 16-bit floats, which MPI does not have, in Python.
"""

import argparse
import fractions
import itertools
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

import nemesis
import soak
from lab import parser_of
from test import MPI_TESTS, Failure, bounded

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(MPI_TESTS))
import exact  # noqa: E402, its folder is on the path only now

HOSTS, HOSTS_PER_LEAF = 8, 4
# Ranks, and hosts that they are on. Replicated groups of 5 and 7 hosts are uneven.
PLACEMENTS = ((1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (4, 4), (5, 5), (7, 7), (8, 1), (8, 4), (8, 8), (16, 4), (16, 8))
# The paths between hosts, with their settings.
PATHS = {
    "tree": {"TRIBUTARY_BETWEEN_HOSTS": "tree"},
    "direct": {"TRIBUTARY_BETWEEN_HOSTS": "direct"},
    "two leaders a host": {"TRIBUTARY_BETWEEN_HOSTS": "direct", "TRIBUTARY_LEADERS": "2"},
    "copies": {"TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_MULTICAST": "off"},
    "multicast": {"TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_MULTICAST": "on"},
}
LABS = {"links that lose nothing": [], "1 % loss": ["--single-packets", "--loss", "1"],
        "aggregators in the kernel": ["--node-kernel"]}
# Those of 16-bit floats.
OF_HALVES = ((2, 2), (5, 5), (8, 8), (16, 8))
# Those that run while something is done to aggregators, for how long, and how often.
DISTURBED_PLACEMENTS = ((8, 8), (16, 8))
DISTURBED_S, DISTURB_EVERY_S = 12, 3.0
# Longer than hosts wait for an aggregator that says nothing.
CUT_S = 3.0
CUT_HOSTS = ("h1", "h6")
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


class Sums:
    """The program in C, its values, and the bits that are wanted."""

    def __init__(self, mpi, library, folder):
        self.program, self.data = folder / "exact", folder / "values"
        subprocess.run([mpi / "mpicc", "-O2", f"-I{exact.CRATE / 'include'}", MPI_TESTS / "exact.c", "-o", self.program,
                        f"-L{library}", f"-Wl,-rpath,{library}", "-ltributary_exact_c"], check=True)
        self.given = exact.vectors()
        exact.write(self.data, self.given)
        self.wanted = exact.expected(*self.given)

    def words(self, seconds):
        return [self.program, self.data, seconds]

    def complaint(self, text, ranks):
        """What is wrong with the bits that the ranks print; none if they are right."""
        told = sorted(line for line in text.splitlines() if line.startswith(("bits", "mpi")))
        wanted = [self.wanted] * ranks + [expected_of_allreduce(self.given[0], ranks)] * ranks
        return None if told == wanted else "wanted of each rank\n" + "\n".join(sorted(set(wanted)))


class Halves:
    """The program of 16-bit floats, which compares its bits itself."""

    def __init__(self, python, address):
        self.python, self.address = python, address
        # Each run has a port of its own: one that was just used may still be taken.
        self.ports = itertools.count(7000)

    def words(self, seconds):
        return [self.python, HERE / "halves.py", f"{self.address}:{next(self.ports)}", seconds]

    def complaint(self, text, ranks):
        told = [line for line in text.splitlines() if line.startswith("bits")]
        return None if len(told) == ranks and len(set(told)) == 1 else "wanted the same bits of each rank"


class Runs:
    """Runs programs on a lab's hosts, and looks at their bits and paths."""

    def __init__(self, lab, mpi, timeout, folder):
        self.lab, self.mpi, self.timeout, self.report = lab, mpi, timeout, folder / "report.json"

    def run(self, program, ranks, hosts, path, seconds=0):
        """Runs a program once, and checks its bits; what the report counts, by path."""
        self.report.unlink(missing_ok=True)
        words = self.lab.words("run", "--ranks-per-host", ranks // hosts, "--report", self.report, "--", self.mpi / "mpirun",
                               "-n", ranks, *program.words(seconds))
        code, text = bounded(words, self.timeout + seconds, {**PATHS[path], "TRIBUTARY_SUMS": "exact"})
        complaint = program.complaint(text, ranks)
        if code != 0 or complaint:
            raise Failure(f"{ranks} ranks on {hosts} hosts, {path}: exit code {code}, {complaint}, and found\n{text}")
        return json.loads(self.report.read_text(encoding="utf-8"))

    def check(self, program, ranks, hosts, path):
        counts = self.run(program, ranks, hosts, path)
        counted = "in_host" if hosts == 1 else soak.PATHS[PATHS[path]["TRIBUTARY_BETWEEN_HOSTS"]]
        if counts[counted] == 0 or counts["passed_through"] != 0:
            raise Failure(f"{ranks} ranks on {hosts} hosts, {path}: not {counted}: {counts}")

    def check_all(self, program, placements):
        """Every path that a placement has. How many runs that was."""
        runs = [(ranks, hosts, path) for ranks, hosts in placements for path in paths_of(ranks, hosts)]
        for run in runs:
            self.check(program, *run)
        return len(runs)

    def check_disturbed(self, program, disturbances, ranks, hosts):
        """How often something happened to an aggregator, and how many operations went over each path."""
        with soak.Disturber(disturbances, DISTURB_EVERY_S) as disturber:
            counts = self.run(program, ranks, hosts, "tree", DISTURBED_S)
        if disturber.times == 0 or counts["in_tree"] == 0 or counts["direct"] == 0 or counts["passed_through"] != 0:
            raise Failure(f"{disturber.times} disturbances: {counts}")
        return disturber.times, counts["in_tree"], counts["direct"]


def paths_of(ranks, hosts):
    """The paths that differ for so many ranks on so many hosts."""
    if hosts == 1:
        return ["tree"]
    return [path for path in PATHS if path != "two leaders a host" or ranks > hosts]


def disturbances_of(lab):
    """What happens to the lab's aggregators, by its name."""
    aggregators = ", ".join(lab.addresses[name] for name in lab.nodes)
    cuts = [lambda it=it: lab.cut_off_for(CUT_S, it, f"{{ {aggregators} }}") for it in CUT_HOSTS]
    cuts += [lambda it=it: lab.cut_for(CUT_S, it, "drop;", "drop;") for it in lab.nodes]
    return {"aggregators killed": soak.kills_of(lab.nodes.values()), "links to aggregators cut": cuts}


def check_lab(title, lab, arguments, mpi, folder):
    runs = Runs(lab, mpi, arguments.timeout, folder)
    programs = {"": (Sums(mpi, arguments.tributary.resolve().parent, folder), PLACEMENTS)}
    if arguments.python:
        programs[" of 16-bit floats"] = (Halves(arguments.python.absolute(), lab.addresses["h0"]), OF_HALVES)
    for kind, (program, placements) in programs.items():
        count = runs.check_all(program, placements)
        print(f"{title}: {count} runs{kind}, one set of bits", flush=True)
    for what, disturbances in disturbances_of(lab).items():
        for placement in DISTURBED_PLACEMENTS:
            for kind, (program, _) in programs.items():
                times, in_tree, direct = runs.check_disturbed(program, disturbances, *placement)
                print(f"{title}, {times} {what} under {placement[0]} ranks{kind}: one set of bits in {in_tree} operations in the "
                      f"tree and {direct} over direct links", flush=True)


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has the package; for 16-bit floats")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a run may take (default %(default)s)")
    arguments = parser.parse_args()
    failed = 0
    mpi = arguments.venvs.resolve() / "mpich/bin"
    of_lab = argparse.Namespace(tributary=arguments.tributary, hosts=HOSTS, hosts_per_leaf=HOSTS_PER_LEAF)
    for title, options in LABS.items():
        with tempfile.TemporaryDirectory(prefix="tributary-bits-") as folder, \
                nemesis.NemesisLab(of_lab, subprocess.DEVNULL, "bits", options) as lab:
            try:
                check_lab(title, lab, arguments, mpi, pathlib.Path(folder))
            except Failure as failure:
                failed += 1
                print(f"{title}: FAILED: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
