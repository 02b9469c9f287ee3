#!/usr/bin/env python3
"""Runs many random MPI programs (fuzz.c) over every path, in some runs with a lost aggregation node.

A launch runs a batch of right programs, of right ones in several threads, or of wrong ones. Its line says which, and a
failure prints the command that repeats it alone. The programs check themselves; this runner checks the exit code, hangs,
and that the path in question was used.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import programs  # noqa: E402, it finds the harness
from harness import running  # noqa: E402
from harness.compiling import MpiTests  # noqa: E402
from harness.fabrics import Fabric  # noqa: E402
from harness.labs import Lab  # noqa: E402
from harness.places import MPI_TESTS, mpirun, parser_of  # noqa: E402

DIRECT = {"TRIBUTARY_BETWEEN_HOSTS": "direct", "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
REPLICATED = DIRECT | {"TRIBUTARY_BETWEEN_HOSTS": "replicated"}
# Tree, groups and links take turns in a communicator.
MIXED = {"TRIBUTARY_TUNING": str(MPI_TESTS / "mixed.toml"), "TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}
# The programs make communicators without end: each is to be the library's from its first call on.
ALWAYS = {"TRIBUTARY_COMMUNICATORS_EAGER": "60000"}
# How long after the last one a node is killed, in seconds: from and to.
KILL_AFTER_S = (0.3, 2.0)
# Nodes of a fabric in which they are killed.
NODES = 4
# A lab's commands name its manager.
WITHOUT_MANAGER = ["env", "-u", "TRIBUTARY_MANAGER", "-u", "TRIBUTARY_TOKEN_FILE"]
# Percentage of packets that every link of a lab loses, and how soon TCP sends them again, in milliseconds.
LOSS = 1
TCP_RTO_MIN_MS = 5
# Communicators are set up over the MPI, whose links wait for lost packets: seven seconds for a program with threads.
LOSSY_TAKES_TIMES = 3
# With leave to oversubscribe Open MPI puts all ranks on the lab's first host.
OPEN_MPI_ON_LAB = {"PRTE_MCA_rmaps_default_mapping_policy": "slot"}
# Where the programs of services of rings sit in a lab.
HOOK = ("--rings", "traffic-control")
KINDS = ("right", "threads", "wrong")


@dataclasses.dataclass(frozen=True)
class Path:
    """One way for calls to go: ranks, hosts, settings."""

    name: str
    ranks: int
    hosts: int
    settings: dict
    # What the report must count.
    counts: str
    # Whether an aggregation node is killed while right programs run.
    kills: bool = False
    # Whether its hosts are those of a lab whose links lose packets; as root.
    loses: bool = False
    # Whether such a job knows the lab's manager.
    managed: bool = True
    # Whether hosts have services of rings; as root.
    rings: bool = False


PATHS = (
    Path("host2", 2, 1, {}, "in_host"),
    Path("host4", 4, 1, {}, "in_host"),
    Path("host4-spin", 4, 1, {"TRIBUTARY_WAIT": "spin"}, "in_host"),
    Path("tree2", 4, 2, {"TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree"),
    Path("tree4", 4, 4, {"TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree"),
    Path("tree3-uneven", 5, 3, {"TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree"),
    Path("auto2", 4, 2, {"TRIBUTARY_HOST_ADDRESS": "127.0.0.1"}, "in_tree"),
    Path("direct2", 4, 2, DIRECT, "direct"),
    Path("direct4", 4, 4, DIRECT, "direct"),
    Path("replicated2", 4, 2, REPLICATED, "direct"),
    Path("replicated4", 4, 4, REPLICATED, "direct"),
    # Of groups of 3 and 2 hosts, in which one stands in for another.
    Path("replicated5", 5, 5, REPLICATED | {"TRIBUTARY_GROUPS": "3x2"}, "direct"),
    # Of hosts that are dealt to two leaves, which meet leaf by leaf.
    Path("leaves6", 6, 6, REPLICATED | {"TRIBUTARY_GROUPS": "3x2", "MPI_FUZZ_LEAVES": "2"}, "direct"),
    # Datagrams come out of rings in memory, which a program of the kernel fills.
    Path("ring4", 4, 4, REPLICATED, "direct", rings=True),
    Path("mixed4", 4, 4, MIXED, "in_tree"),
    Path("mixed3-uneven", 5, 3, MIXED, "in_tree"),
    Path("streams", 4, 2, {"TRIBUTARY_STREAM_MIN": "4096"}, "in_tree"),
    Path("tcp", 4, 2, {"TRIBUTARY_TRANSPORT": "tcp"}, "in_tree"),
    Path("datagrams", 4, 2, {"TRIBUTARY_TRANSPORT": "tcp", "TRIBUTARY_CHANNEL": "udp"}, "in_tree"),
    Path("leaders", 6, 2, {"TRIBUTARY_LEADERS": "2"}, "in_tree"),
    Path("exact4", 4, 1, {"TRIBUTARY_SUMS": "exact"}, "in_host"),
    Path("exact-tree3", 5, 3, {"TRIBUTARY_SUMS": "exact", "TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree"),
    Path("exact-direct4", 4, 4, DIRECT | {"TRIBUTARY_SUMS": "exact"}, "direct"),
    Path("exact-replicated4", 4, 4, REPLICATED | {"TRIBUTARY_SUMS": "exact"}, "direct"),
    Path("exact-kills", 4, 2, {"TRIBUTARY_HOST_ADDRESS": "127.0.0.1", "TRIBUTARY_FAILOVER": "on", "TRIBUTARY_SUMS": "exact"}, "",
         kills=True),
    Path("kills", 4, 2, {"TRIBUTARY_HOST_ADDRESS": "127.0.0.1", "TRIBUTARY_FAILOVER": "on"}, "", kills=True),
    Path("mixed-kills", 4, 4, MIXED | {"TRIBUTARY_FAILOVER": "on"}, "", kills=True),
    Path("lossy-tree4", 4, 4, {"TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree", loses=True),
    Path("lossy-exact4", 4, 4, {"TRIBUTARY_SUMS": "exact", "TRIBUTARY_BETWEEN_HOSTS": "tree"}, "in_tree", loses=True),
    Path("lossy-direct2", 4, 2, {"TRIBUTARY_BETWEEN_HOSTS": "direct"}, "direct", loses=True),
    Path("lossy-direct4", 4, 4, {"TRIBUTARY_BETWEEN_HOSTS": "direct"}, "direct", loses=True),
    Path("lossy-replicated4", 4, 4, {"TRIBUTARY_BETWEEN_HOSTS": "replicated"}, "direct", loses=True),
    Path("lossy-replicated5", 5, 5, {"TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_GROUPS": "3x2"}, "direct", loses=True),
    Path("lossy-ring4", 4, 4, {"TRIBUTARY_BETWEEN_HOSTS": "replicated"}, "direct", loses=True, rings=True),
    Path("lossy-mixed4", 4, 4, {"TRIBUTARY_TUNING": MIXED["TRIBUTARY_TUNING"]}, "in_tree", loses=True),
    # What the library takes on a network with a manager, and without one.
    Path("lossy-managed4", 4, 4, {"TRIBUTARY_NETWORK": "cloud"}, "direct", loses=True),
    Path("lossy-network4", 4, 4, {"TRIBUTARY_NETWORK": "cloud"}, "direct", loses=True, managed=False),
)


@dataclasses.dataclass(frozen=True)
class Batch:
    """The programs of one launch."""

    path: Path
    kind: str
    seed: int
    first: int
    count: int

    def __str__(self):
        return f"{self.path.name:17} {self.kind} {self.first} to {self.first + self.count - 1}"


# Programs that once went wrong, each on its path with its seed; what they found is mended.
REGRESSIONS = (
    # Other roots, and a scan beside a reduce-scatter: hosts waited for each other in a circle.
    ("direct4", "wrong", 1, 17),
    ("direct4", "wrong", 1, 26),
    # Hosts that came to it when two others had found the disagreement took these for dead.
    ("direct4", "wrong", 1, 2),
    ("direct4", "wrong", 1, 22),
    # Two roots of the first reduction: three hosts waited in a circle, and did not look at a link that they needed for nothing.
    ("direct4", "wrong", 1, 1651),
    # Ranks of one host that disagreed in the first call of links: the other host took them for dead.
    ("direct2", "wrong", 1, 41),
    ("direct2", "wrong", 1, 48),
    # A scan beside exclusive ones.
    ("tree4", "wrong", 1, 0),
    ("tree4", "wrong", 1, 12),
    # Exclusive scans with different operators.
    ("tree4", "wrong", 1, 37),
    # Broadcasts with other roots, neither of which was the host that called differently.
    ("tree4", "wrong", 1, 87),
    ("tree4", "wrong", 1, 161),
    # Roots that only some ranks named, on hosts that have both: the parts inside hosts and between them were alike.
    ("auto2", "wrong", 27, 659),
    ("direct2", "wrong", 27, 155),
    ("direct2", "wrong", 27, 1444),
    ("streams", "wrong", 27, 458),
    ("tree2", "wrong", 27, 338),
    ("tree3-uneven", "wrong", 27, 636),
    # Ranks that only test their requests asked nobody what others called.
    ("direct4", "wrong", 27, 162),
    ("direct4", "wrong", 27, 1200),
    # A host in a barrier by groups, the others in the tree.
    ("mixed4", "wrong", 1, 1),
    # A host that was done with the operation told the others to look no further for the two that disagree.
    ("tree4", "wrong", 20261130, 198),
)


class Killer(threading.Thread):
    """Kills a fabric's aggregation nodes, one after the other, at moments drawn from a seed; one is left."""

    def __init__(self, fabric, seed):
        super().__init__(daemon=True)
        self.nodes = fabric.daemons[1:]
        self.draw = random.Random(seed)
        self.killed = 0
        self.over = threading.Event()

    def run(self):
        self.draw.shuffle(self.nodes)
        for node in self.nodes[1:]:
            if self.over.wait(self.draw.uniform(*KILL_AFTER_S)):
                return
            node.kill()
            self.killed += 1

    def end(self):
        self.over.set()
        self.join()


@contextlib.contextmanager
def service(options):
    """A service of rings on this machine: the settings by which jobs find it."""
    address = f"@mpi-fuzz-{os.getpid()}"
    words = [options.tributary, "rings", "--socket", address, "--per-user", "64"]
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as serving:
        try:
            if address not in serving.stdout.readline():
                raise running.Failure("the service of rings does not start")
            yield {"TRIBUTARY_RINGS": address}
        finally:
            serving.terminate()


@contextlib.contextmanager
def losing_nodes(options, seed):
    """A fabric whose nodes are killed as long as the context lasts: its settings, and who kills."""
    with tempfile.TemporaryDirectory(prefix="mpi-fuzz-fabric-") as folder:
        fabric = Fabric(options.tributary, pathlib.Path(folder), [f"node-{number}" for number in range(NODES)])
        try:
            killer = Killer(fabric, seed)
            killer.start()
            try:
                yield {"TRIBUTARY_MANAGER": fabric.manager, "TRIBUTARY_TOKEN_FILE": str(fabric.token)}, killer
            finally:
                killer.end()
        finally:
            fabric.stop()


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=programs.MPIS, action="append", help="default: all")
    parser.add_argument("--programs", type=int, default=2000, help="of each kind, for each MPI (default %(default)s)")
    parser.add_argument("--batch", type=int, default=40, help="programs of one launch (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", choices=[path.name for path in PATHS], action="append",
                        help="default: all in turn but those of a lab")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--regressions", action="store_true",
                        help="run the programs that once went wrong, each by itself, and no others")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one batch, three times that where links lose packets")
    return parser.parse_args()


def batches(options):
    """What is launched. Every path has its turn."""
    if options.regressions:
        by_name = {path.name: path for path in PATHS}
        yield from (Batch(by_name[name], kind, seed, first, 1) for name, kind, seed, first in REGRESSIONS)
        return
    named = options.path or [path.name for path in PATHS if not path.loses]
    for kind in options.kind or KINDS:
        paths = [path for path in PATHS if path.name in named and not (path.kills and kind == "wrong")]
        first, end = options.first, options.first + options.programs
        turn = 0
        while first < end and paths:
            count = min(options.batch, end - first)
            yield Batch(paths[turn % len(paths)], kind, options.seed, first, count)
            first += count
            turn += 1


def run_batch(options, mpi, fuzz, batch, report):
    """Runs one batch. Returns the report's counts and how many nodes were killed; raises Failure."""
    path = batch.path
    timeout = options.timeout * (LOSSY_TAKES_TIMES if path.loses else 1)
    programs_of_batch = {f"MPI_FUZZ_{batch.kind.upper()}": str(batch.count), "MPI_FUZZ_FIRST": str(batch.first)}
    settings = ALWAYS | path.settings | programs_of_batch
    job = ["--report", report, "--", mpirun(options, mpi), "-n", str(path.ranks), fuzz,
           *programs.arguments_of(argparse.Namespace(sample=None, seed=batch.seed, timeout=timeout), ())]
    command = [options.tributary, "run", "--hosts", str(path.hosts), *job]
    program = programs.Program("fuzz")
    killed = 0
    if path.loses:
        with Lab(options.tributary, f"mpi-fuzz-{os.getpid()}", "--hosts", path.hosts, "--hosts-per-leaf",
                 path.hosts // 2, "--loss", LOSS, "--tcp-rto-min", TCP_RTO_MIN_MS, *(HOOK if path.rings else ())) as lab:
            if not path.managed:
                job = ["--plain", "--", *WITHOUT_MANAGER, options.tributary, "run", *job]
            command = lab.words("run", "--ranks-per-host", path.ranks // path.hosts, *job)
            environment = running.environment(**settings, **OPEN_MPI_ON_LAB)
            output = programs.run_checked(program, command, environment, timeout)
    elif path.kills:
        with losing_nodes(options, batch.seed + batch.first) as (fabric, killer):
            environment = running.environment(**settings, **fabric)
            output = programs.run_checked(program, command, environment, timeout)
        killed = killer.killed
    else:
        with service(options) if path.rings else contextlib.nullcontext({}) as of_service:
            output = programs.run_checked(program, command, running.environment(**settings, **of_service), timeout)
    counts = programs.read_counts(report, output)
    if path.counts and counts[path.counts] == 0:
        raise running.Failure(f"the report says {path.counts} 0", output)
    return counts, killed


def repeat_command(options, mpi, batch):
    words = [sys.executable, sys.argv[0], "--tributary", options.tributary, "--mpi", mpi, "--path", batch.path.name,
             "--kind", batch.kind, "--seed", batch.seed, "--first", batch.first, "--programs", batch.count,
             "--batch", batch.count,
             "--timeout", f"{options.timeout:g}"]
    return shlex.join(str(word) for word in words)


def run_mpi(options, mpi):
    """All batches under one MPI; how many failed."""
    fuzz = MpiTests(mpi, options).compile("fuzz")
    done = dict.fromkeys(KINDS, 0)
    kills = failures = 0
    with tempfile.TemporaryDirectory(prefix="mpi-fuzz-") as folder:
        report = pathlib.Path(folder) / "report.json"
        for batch in batches(options):
            report.unlink(missing_ok=True)
            started = time.monotonic()
            try:
                counts, killed = run_batch(options, mpi, fuzz, batch, report)
            except running.Failure as failure:
                failures += 1
                print(f"{mpi:9} {batch}  FAILED  {failure}")
                print(f"    again: {repeat_command(options, mpi, batch)}", flush=True)
                continue
            done[batch.kind] += batch.count
            kills += killed
            print(f"{mpi:9} {batch}  ok  "
                  f"{time.monotonic() - started:.1f} s  "
                  + " ".join(f"{key} {counts[key]}" for key in programs.COUNTS)
                  + (f"  killed {killed}" if batch.path.kills else ""), flush=True)
    passed = ", ".join(f"{count} {kind}" for kind, count in done.items())
    print(f"{mpi:9} seed {options.seed}: programs passed: {passed}; {kills} nodes killed, {failures} batches failed",
          flush=True)
    return failures


def main():
    options = parse_arguments()
    options.tributary = options.tributary.absolute()
    if not os.access(options.tributary, os.X_OK):
        raise SystemExit(f"fuzz.py: --tributary {options.tributary} can't be run; `make build` first")
    failures = sum(run_mpi(options, mpi) for mpi in options.mpi or programs.MPIS)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
