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
import struct
import subprocess
import sys

import nemesis
import pytest
import soak
from harness.compiling import compile_c
from harness.labs import taken_down_on_sigterm
from harness.places import MPI_TESTS, mpicc, mpirun
from harness.running import Failure, bounded

sys.path.insert(0, str(MPI_TESTS))
import exact  # noqa: E402, its folder is on the path only now

HERE = pathlib.Path(__file__).resolve().parent

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
KILLED, CUT = "aggregators killed", "links to aggregators cut"
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

    def __init__(self, compiler, library, folder):
        self.data = folder / "values"
        self.program = compile_c(compiler, [f"-I{exact.CRATE / 'include'}", MPI_TESTS / "exact.c"], folder / "exact",
                                 f"-L{library}", f"-Wl,-rpath,{library}", "-ltributary_exact_c")
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

    def __init__(self, lab, launcher, timeout, folder):
        self.lab, self.launcher, self.timeout, self.report = lab, launcher, timeout, folder / "report.json"

    def run(self, program, ranks, hosts, path, seconds=0):
        """Runs a program once, and checks its bits; what the report counts, by path."""
        self.report.unlink(missing_ok=True)
        words = self.lab.words("run", "--ranks-per-host", ranks // hosts, "--report", self.report, "--", self.launcher,
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
    return {KILLED: soak.kills_of(lab.nodes.values()), CUT: cuts}


# The programs, and where each runs.
PROGRAMS = {"in C": PLACEMENTS, "of 16-bit floats": OF_HALVES}


@pytest.fixture(scope="class", params=LABS)
def hosts(request, arguments):
    """A lab whose aggregators the tests kill and cut off."""
    of_lab = argparse.Namespace(tributary=arguments.tributary, hosts=HOSTS, hosts_per_leaf=HOSTS_PER_LEAF)
    with taken_down_on_sigterm(), nemesis.NemesisLab(of_lab, subprocess.DEVNULL, "bits", LABS[request.param]) as lab:
        yield lab


@pytest.fixture(scope="class")
def runs(hosts, arguments, tmp_path_factory):
    return Runs(hosts, mpirun(arguments, "mpich"), arguments.timeout, tmp_path_factory.mktemp("bits"))


@pytest.fixture(scope="class", params=PROGRAMS)
def program(request, hosts, arguments, tmp_path_factory):
    """The program, and where it runs."""
    if request.param == "in C":
        folder = tmp_path_factory.mktemp("sums")
        found = Sums(mpicc(arguments, "mpich"), arguments.tributary.parent, folder)
    else:
        python = request.config.getoption("--python")
        if python is None:
            pytest.skip("no --python that has the package")
        found = Halves(python, hosts.addresses["h0"])
    return found, PROGRAMS[request.param]


class TestBits:
    def test_every_path_has_one_set_of_bits(self, runs, program, tell):
        tell(f"{runs.check_all(*program)} runs")

    @pytest.mark.parametrize("placement", DISTURBED_PLACEMENTS)
    @pytest.mark.parametrize("what", [KILLED, CUT])
    def test_disturbances_change_no_bit(self, runs, hosts, program, what, placement, tell):
        times, in_tree, direct = runs.check_disturbed(program[0], disturbances_of(hosts)[what], *placement)
        tell(f"{times} {what}: {in_tree} operations in the tree and {direct} over direct links")
