#!/usr/bin/env python3
"""Runs soak.c on hosts of a lossy lab, and checks for wrong results and leaks.

The program checks every result itself. This script compares the daemons before and after: descriptors,
memory, and whether every outstanding operation, group and job was freed.

A soak may consist of several runs: with --state FILE each continues with the round after the previous
run's last one, until all of them together reach --operations.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.compiling import compile_soak  # noqa: E402, their folder is on the path only now
from harness.daemons import Daemon  # noqa: E402
from harness.labs import Lab  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402

CHANNELS = ["auto", "tcp", "udp", "xdp"]

# How the report counts operations of each path between hosts.
PATHS = {"auto": "in_tree", "tree": "in_tree", "direct": "direct", "replicated": "direct"}

# The growth allowed to a process over a long run: allocators keep some memory.
GROWTH_MAX_KIB = 16 << 10

# Prints memory and descriptors of the daemon on a member: the one process there that runs `tributary`
# and is not the member's first.
DAEMON_USAGE = ("for p in /proc/[0-9]*; do n=${p#/proc/}; test $n != 1 && "
        "grep -aq 'node\\|manager' $p/cmdline 2>/dev/null && grep -q ^tributary $p/comm && "
        "echo $(sed -n 's/VmRSS: *//p' $p/status) $(ls $p/fd | wc -l); done; true")


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--hosts-per-leaf", type=int, default=4)
    parser.add_argument("--loss", default="0.5", help="percentage every link loses")
    parser.add_argument("--tcp-rto-min", default="5",
                        help="milliseconds before TCP sends again, at least (default %(default)s)")
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--channel", choices=CHANNELS, default="auto",
                        help="what carries data (default %(default)s: datagrams, multicast results)")
    parser.add_argument("--between-hosts", choices=["auto", "tree", "direct", "replicated"], default="auto",
                        help="path of every operation between hosts (default %(default)s: chosen by "
                             "length and communicator)")
    parser.add_argument("--authenticate-frames", action="store_true", help="authenticate every frame")
    parser.add_argument("--node-kernel", action="store_true",
                        help="let nodes take short segments inside the kernel")
    parser.add_argument("--rings", choices=["traffic-control", "xdp"], metavar="HOOK",
                        help="give every host a service of rings, whose programs sit there: traffic-control, or xdp, which "
                             "--channel xdp needs and implies")
    parser.add_argument("--kill-every", type=float, metavar="SECONDS",
                        help="kill a node's daemon so often, each in turn, and start it again after a second")
    parser.add_argument("--operations", type=int, default=5_000_000,
                        help="on communicators that span hosts (default %(default)s)")
    parser.add_argument("--short", action="store_true",
                        help="only what replicated groups carry: blocking allreduces and barriers of up to 1 KiB")
    parser.add_argument("--communicators", type=int, default=9,
                        help="the first ones of shapes.h, of which the first is MPI_COMM_WORLD (default %(default)s)")
    parser.add_argument("--depth", type=int, default=8,
                        help="outstanding operations on each communicator, at most")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=pathlib.Path,
                        help="file with the record of earlier runs; rewritten at the end")
    arguments = parser.parse_args()
    if arguments.channel == "xdp":
        arguments.rings = arguments.rings or "xdp"
    return arguments


class State:
    """The record of a soak's runs, kept in a file if one is given."""

    def __init__(self, arguments):
        self.path = arguments.state
        self.kept = {"seed": arguments.seed, "next_round": 1, "operations": 0, "seconds": 0.0,
                     "runs": []}
        if self.path is not None and self.path.exists():
            self.kept = json.loads(self.path.read_text())
        if self.kept["seed"] != arguments.seed:
            sys.exit(f"{self.path} has seed {self.kept['seed']}: pass --seed {self.kept['seed']}")

    def add(self, result):
        self.kept["runs"].append(result)
        self.kept["next_round"] = result["next_round"]
        self.kept["operations"] += result["operations"]
        self.kept["seconds"] = round(self.kept["seconds"] + result["seconds"], 1)
        if self.path is not None:
            draft = self.path.with_suffix(".new")
            draft.write_text(json.dumps(self.kept, indent=1) + "\n")
            draft.replace(self.path)


def environment(arguments):
    """The ranks' environment."""
    settings = {"TRIBUTARY_CHANNEL": arguments.channel}
    if arguments.between_hosts != "auto":
        settings["TRIBUTARY_BETWEEN_HOSTS"] = arguments.between_hosts
    return {**os.environ, **settings}


def run_and_pass_on(command, output, timeout_s, variables):
    """Runs a command, whose standard error passes through; its exit code, and the last lines there in which ranks tell why
    they end."""
    told = collections.deque(maxlen=16)
    with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", env=variables) as process:
        limit = threading.Timer(timeout_s, process.kill)
        limit.start()
        try:
            for line in process.stderr:
                sys.stderr.write(line)
                if "tributary: " in line or line.startswith("FAIL"):
                    told.append(line.rstrip())
            code = process.wait()
        finally:
            # Also where this process is told to end.
            limit.cancel()
            process.kill()
    return code, told


class SoakLab(Lab):
    """A lab whose daemons are looked at."""

    def __init__(self, arguments, purpose, options=()):
        super().__init__(arguments.tributary, f"{purpose}-{os.getpid()}", "--hosts", arguments.hosts,
                         "--hosts-per-leaf", arguments.hosts_per_leaf, *options)

    def members(self):
        """What the lab says of each member."""
        plan = subprocess.run(self.words("status", "--json"), check=True, capture_output=True, text=True).stdout
        return json.loads(plan)["members"]

    def daemons(self):
        """KiB and descriptors of every daemon, by member."""
        seen = {}
        for member in self.members():
            if member["role"] in ("manager", "node"):
                kib, _, descriptors = self.output(member["name"], "sh", "-c", DAEMON_USAGE).split()
                seen[member["name"]] = {"kib": int(kib), "descriptors": int(descriptors)}
        return seen

    def status(self):
        return json.loads(self.output("h0", self.program, "status", "--json"))

    def run(self, program, arguments, first_round):
        """Runs the program; its summary. If anything is wrong, prints it and returns None."""
        ranks = arguments.hosts * arguments.ranks_per_host
        with tempfile.TemporaryDirectory(prefix="tributary-soak-") as folder:
            report = pathlib.Path(folder) / "report.json"
            command = self.words(
                "run", "--ranks-per-host", arguments.ranks_per_host, "--report", report, "--",
                mpirun(arguments, arguments.mpi), "-n", ranks, program,
                "--operations", arguments.operations, "--seconds", arguments.seconds,
                "--depth", arguments.depth, "--first-round", first_round, "--short", int(arguments.short),
                "--communicators", arguments.communicators,
                "--seed", arguments.seed, "--watchdog", int(arguments.seconds) + 600)
            # Standard output is a file, as launchers may block on pipes.
            with open(pathlib.Path(folder) / "output", "w+", encoding="utf-8") as output:
                code, told = run_and_pass_on(command, output, arguments.seconds + 900, environment(arguments))
                output.seek(0)
                text = output.read()
            lines = [line for line in text.splitlines() if line.startswith("{")]
            if code != 0 or not lines or not report.exists():
                # What ranks have told comes last: whoever keeps the end of a log alone has it.
                print(text[-3000:], f"exit code {code}", *told, sep="\n", file=sys.stderr)
                return None
            counts = json.loads(report.read_text())
        path = PATHS[arguments.between_hosts]
        if counts[path] == 0:
            print(f"nothing ran {path}: {counts}", file=sys.stderr)
            return None
        totals = {name: counts[name] for name in ("in_host", "in_tree", "direct", "passed_through")}
        multicasts = sum(entry.get("multicast_results", 0) for entry in counts["communicators"])
        return {**json.loads(lines[0]), **totals, "multicast_results": multicasts}


class Disturber:
    """Does one thing after another to a lab, in turn, until it is ended."""

    def __init__(self, disturbances, every_s):
        self.disturbances, self.every_s, self.times = disturbances, every_s, 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        for disturb in itertools.cycle(self.disturbances):
            if self.is_over.wait(self.every_s):
                return
            disturb()
            self.times += 1

    def __enter__(self):
        if self.every_s:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        if self.every_s:
            self.thread.join()


def kills_of(daemons):
    """A disturbance for each daemon: it is killed, and started again after a second."""
    return [lambda it=it: it.kill_for(1.0) for it in daemons]


def settled_status(lab):
    """The manager's status, once the job's groups are freed, or after ten seconds."""
    for _ in range(100):
        status = lab.status()
        if not status["jobs"] and not status["groups"]:
            break
        time.sleep(0.1)
    return status


def most_of_daemons(lab):
    """The most that each daemon uses within ten seconds. On links that lose packets a daemon's connection to the manager
    may be away for seconds, so one look tells too little."""
    most = lab.daemons()
    for _ in range(10):
        time.sleep(1)
        for member, usage in lab.daemons().items():
            most[member] = {name: max(value, usage[name]) for name, value in most[member].items()}
    return most


def settled_daemons(lab, before):
    """What daemons use, once none has more descriptors than before, or after half a minute: on links that lose packets
    connections end late, but a descriptor that leaked stays."""
    for _ in range(30):
        seen = lab.daemons()
        if all(seen[member]["descriptors"] <= usage["descriptors"] for member, usage in before.items()):
            break
        time.sleep(1)
    return seen


def inside_the_kernel(status):
    """What all nodes have done inside the kernel."""
    counts = [node.get("counts", {}).get("kernel", {}) for node in status["nodes"]]
    return {name: sum(count.get(name, 0) for count in counts)
            for name in ("taken", "results", "gathered", "repeats", "refused", "passed")}


def complaints(summary, before, after, status):
    """The problems found, in words."""
    found = []
    if summary["grown_kib"] > GROWTH_MAX_KIB:
        found.append(f"a rank grew by {summary['grown_kib']} KiB")
    # An MPI opens connections when it first needs them, at most two for each other rank; lost trees open direct links,
    # one to each other rank for each of the communicators, of which there are ten at most.
    links = 12 if "kills" in summary else 2
    if summary["grown_descriptors"] > links * summary["ranks"]:
        found.append(f"a rank has {summary['grown_descriptors']} descriptors more")
    for member, then in before.items():
        now = after[member]
        if now["kib"] - then["kib"] > GROWTH_MAX_KIB:
            found.append(f"{member} grew from {then['kib']} to {now['kib']} KiB")
        if now["descriptors"] > then["descriptors"]:
            found.append(f"{member} has {now['descriptors']} descriptors, "
                         f"had {then['descriptors']}")
    for node in status["nodes"]:
        if node["osos_used"] > 0:
            found.append(f"{node['registration']['name']} still holds {node['osos_used']} OSOs")
    if status["jobs"] or status["groups"]:
        found.append(f"{len(status['jobs'])} jobs and {len(status['groups'])} groups remain")
    return found


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    program = compile_soak(arguments.mpi, arguments)
    options = ["--loss", arguments.loss, "--tcp-rto-min", arguments.tcp_rto_min,
               *(["--authenticate-frames"] if arguments.authenticate_frames else []),
               *(["--node-kernel"] if arguments.node_kernel else [])]
    state = State(arguments)
    left = max(1, arguments.operations - state.kept["operations"])
    if arguments.rings:
        options += ["--rings", arguments.rings]
    with SoakLab(arguments, "soak", options) as lab:
        # A short run first, so that the daemons have allocated what they keep.
        short = argparse.Namespace(**{**vars(arguments), "seconds": 2.0, "operations": 2000})
        if lab.run(program, short, 1) is None:
            return 1
        settled_status(lab)
        nodes = []
        if arguments.kill_every:
            nodes = [Daemon(lab, member["name"], None) for member in lab.members() if member["role"] == "node"]
            for node in nodes:
                node.start()
        before = most_of_daemons(lab)
        rest = argparse.Namespace(**{**vars(arguments), "operations": left})
        with Disturber(kills_of(nodes), arguments.kill_every) as disturber:
            summary = lab.run(program, rest, state.kept["next_round"])
        if summary is None:
            return 1
        status = settled_status(lab)
        after = settled_daemons(lab, before)
    if arguments.kill_every:
        summary["kills"] = disturber.times
    found = complaints(summary, before, after, status)
    if arguments.kill_every and not disturber.times:
        found.append("no daemon was killed")
    if arguments.node_kernel:
        summary["inside_the_kernel"] = inside_the_kernel(status)
        if not summary["inside_the_kernel"]["results"]:
            found.append("nothing was completed inside the kernel")
    settings = {name: vars(arguments)[name] for name in
                ("mpi", "hosts", "hosts_per_leaf", "loss", "ranks_per_host", "channel",
                 "between_hosts", "short", "communicators", "depth", "authenticate_frames", "node_kernel",
                 "rings", "kill_every", "seed")}
    result = {**settings, **summary, "before": before, "after": after, "complaints": found}
    state.add(result)
    print(json.dumps(result))
    print(f"soak: {state.kept['operations']} operations in {state.kept['seconds']:g} s over "
          f"{len(state.kept['runs'])} runs", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
