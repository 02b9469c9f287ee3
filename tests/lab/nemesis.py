#!/usr/bin/env python3
"""Kills, stops, cuts off and upgrades aggregation nodes of a lab, and replaces its manager, under a program that checks
every result. With --python also kills ranks of small jobs beside it, in the states in which a death is hard to hear of.

The program is soak.c: mixed operations on many communicators of eight hosts. It must not see an error. Every event
comes from the seed, so a run can be repeated: kinds, victims and times, not what the machine makes of them.

For every event the stall is the longest time between the ends of two rounds of the program, from the event to 5 s
behind it, or to the next event if that comes first. A round is one operation on each communicator.

A rank's event is a job of victim.py: two ranks on each of three hosts, one of which dies or leaves. Every other rank must
hear of it, and name its host if it names one. How long that took is in a table of its own.

Events overlap. A node that is stopped or cut off is found after up to SILENCE, and whatever happens meanwhile is charged
with that wait. So the table has two parts: all events, and those during whose stall no other event's silence was under
way, with how many were left out.
"""

import dataclasses
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import soak
from soak import settled_status

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.compiling import compile_soak  # noqa: E402, their folder is on the path only now
from harness.daemons import Daemon  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402

# Kinds of events, each with its weight.
KINDS = {
    "kill node": 8,
    "kill two nodes": 2,
    "stop node": 2,
    "cut node off": 2,
    "cut host from node": 2,
    "cut one way": 2,
    "restart manager": 3,
    "upgrade node": 3,
}

# Kinds of events of ranks, each with its weight, the state in victim.py, and what carries the job's operations between
# hosts.
RANK_KINDS = {
    "rank dies before its first link": (2, "first_link", "direct"),
    "rank dies in a set-up": (2, "set_up", "tree"),
    "rank leaves while others wait": (2, "leave", "direct"),
    "rank dies that leads nobody": (2, "leads_nobody", "tree"),
    "rank dies with a forked worker": (2, "worker", "tree"),
    "rank joins streams in another order": (1, "streams", "tree"),
    "rank dies in groups": (2, "leads_nobody", "replicated"),
    "rank dies in groups with a forked worker": (2, "worker", "replicated"),
    "rank leaves groups while others wait": (2, "leave", "replicated"),
}
RANK_HOSTS, RANKS_PER_HOST = 3, 2
# A watchdog, not a bound: far longer than any job takes.
JOB_WITHIN = 90

# Longest time between two events, in seconds. Half of that on average.
PAUSE_MAX = 5.0
# How far behind an event its stall is looked for, in seconds.
STALL_WITHIN = 5.0
# How long a victim stays away, in seconds. Hosts hear nothing of a node that is stopped or cut off for longer than
# about 2.
AWAY_MAX = {"rank": 0.4, "kill": 1.5, "stop": 4.0, "cut": 4.0, "restart": 3.0, "upgrade": 1.0}
# Events that close no link.
SILENT = ("stop", "cut")
# How long after its end a silence may still be felt, in seconds: the bound within which it is found.
SILENCE = 2.0


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="mpich")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--hosts-per-leaf", type=int, default=3)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--channel", choices=soak.CHANNELS, default="auto")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--node-kernel", action="store_true",
                        help="let nodes take short segments inside the kernel")
    parser.add_argument("--depth", type=int, default=1, help="outstanding operations on each communicator")
    parser.add_argument("--pause-ms", type=float, default=0,
                        help="how long a rank sleeps between two rounds, as if it computed (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[*KINDS, *RANK_KINDS], action="append",
                        help="events of this kind alone; may be repeated")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has the package; for events of ranks")
    parser.add_argument("--keep-log", type=pathlib.Path, help="file for the daemons' logs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


class NemesisLab(soak.SoakLab):
    """A lab whose daemons are this run's own."""

    def __init__(self, arguments, log, purpose="nemesis", options=()):
        super().__init__(arguments, purpose, options)
        members = self.members()
        self.addresses = {member["name"]: member["address"] for member in members if member.get("address")}
        by_role = lambda role: [member["name"] for member in members if member["role"] == role]
        self.hosts = by_role("host")
        self.manager = Daemon(self, *by_role("manager"), log)
        self.nodes = {name: Daemon(self, name, log) for name in by_role("node")}
        for daemon in (self.manager, *self.nodes.values()):
            daemon.start()

    def drain(self, node):
        """Drains a node, as soon as there is a manager that knows it."""
        words = self.on("h0", self.program, "drain", node)
        for _ in range(100):
            if subprocess.run(words, check=False, capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{node} could not be drained")


@dataclasses.dataclass
class Event:
    """Something that is done to the lab."""
    kind: str
    victims: list
    after: float
    away: float
    at: int = 0
    # How long each of a job's ranks took to hear of what was done to one of them, in seconds.
    heard: list = dataclasses.field(default_factory=list)


class RankJob:
    """A job of victim.py, one of whose ranks goes."""

    def __init__(self, lab, event, python, seed):
        _, state, between_hosts = RANK_KINDS[event.kind]
        self.event, self.goes, self.host_of = event, int(event.victims[0]), lambda rank: f"h{rank // RANKS_PER_HOST}"
        draw = random.Random(seed)
        ranks = RANK_HOSTS * RANKS_PER_HOST
        address = f"{lab.addresses['h0']}:{draw.randrange(20_000, 30_000)}"
        settings = [f"TRIBUTARY_BETWEEN_HOSTS={between_hosts}", "TRIBUTARY_STREAM_MIN=4096"]
        words = lambda rank: lab.on(
            self.host_of(rank), "env", *settings, python, pathlib.Path(__file__).with_name("victim.py"), state, rank, ranks, address,
            self.goes if state != "streams" else -1, event.away)
        self.ranks = [subprocess.Popen(words(rank), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True) for rank in range(ranks)]

    def run(self):
        """Waits for the end of all ranks, and looks at what they say."""
        until = time.monotonic() + JOB_WITHIN
        try:
            said = [rank.communicate(timeout=max(1, until - time.monotonic())) for rank in self.ranks]
        except subprocess.TimeoutExpired:
            waiting = [number for number, rank in enumerate(self.ranks) if rank.poll() is None]
            for rank in self.ranks:
                rank.kill()
            raise TimeoutError(f"ranks {waiting} wait for ever") from None
        words = [[json.loads(line) for line in out.splitlines()] for out, _ in said]
        for number, (entries, (_, problem)) in enumerate(zip(words, said)):
            if not entries:
                raise RuntimeError(f"rank {number} says nothing but {problem[-500:]}")
        gone_at = next((entry["gone_at"] for entries in words for entry in entries if "gone_at" in entry), None)
        for number, entries in enumerate(words):
            if gone_at is None or number != self.goes:
                self.look_at(entries[-1], gone_at)

    def look_at(self, outcome, gone_at):
        """What a rank says that did not go. With nobody gone, nothing may have gone wrong."""
        if (outcome["error"] is None) != (gone_at is None):
            raise RuntimeError(f"a rank of {self.event.kind} ends with {outcome}")
        if gone_at is not None:
            host = outcome["host"]
            if host is not None and host.split("#")[0].split("@")[0] != self.host_of(self.goes):
                raise RuntimeError(f"not {self.host_of(self.goes)} is named, but in {outcome}")
            self.event.heard.append(outcome["heard_at"] - max(gone_at, outcome["began_at"]))


class Nemesis:
    """Draws events from a seed, and carries them out while others may still last."""

    def __init__(self, lab, arguments):
        self.lab, self.random = lab, random.Random(arguments.seed)
        self.python = arguments.python
        self.weights = {**KINDS, **({kind: it[0] for kind, it in RANK_KINDS.items()} if self.python else {})}
        self.kinds = arguments.only or list(self.weights)
        self.events, self.threads, self.problems = [], [], []

    def draw(self):
        draw = self.random
        kind = draw.choices(self.kinds, [self.weights[kind] for kind in self.kinds])[0]
        nodes = sorted(self.lab.nodes)
        count = 2 if kind == "kill two nodes" else 1
        victims = draw.sample(nodes, count)
        if kind == "cut host from node":
            victims.append(draw.choice(self.lab.hosts))
        if kind == "cut one way":
            victims.append(draw.choice(["incoming", "outgoing"]))
        if kind in RANK_KINDS:
            # The second rank of a host leads nobody in the order of the world's ranks.
            second = kind == "rank dies that leads nobody"
            victims = [RANKS_PER_HOST * draw.randrange(RANK_HOSTS) + second]
        away = draw.uniform(0, AWAY_MAX[kind.split()[0]])
        return Event(kind, victims, draw.uniform(0, PAUSE_MAX), away)

    def run(self, until, is_over):
        while not is_over():
            event = self.draw()
            time.sleep(event.after)
            if time.monotonic() + AWAY_MAX["stop"] > until or is_over():
                break
            event.at = time.monotonic_ns()
            self.events.append(event)
            for work in self.work(event):
                thread = threading.Thread(target=self.guarded, args=(event, work))
                thread.start()
                self.threads.append(thread)
        for thread in self.threads:
            thread.join()

    def guarded(self, event, work):
        try:
            work()
        except Exception as error:  # pylint: disable=broad-except
            self.problems.append(f"{event}: {error}")

    def work(self, event):
        """What is to be done, each in a thread of its own."""
        lab, away = self.lab, event.away
        name = event.victims[0]
        if event.kind in RANK_KINDS:
            return [RankJob(lab, event, self.python, self.random.random()).run]
        match event.kind:
            case "kill node" | "kill two nodes":
                return [lambda it=it: lab.nodes[it].kill_for(away) for it in event.victims]
            case "stop node":
                return [lambda: lab.nodes[name].stop_for(away)]
            case "cut node off":
                return [lambda: lab.cut_for(away, name, "drop;", "drop;")]
            case "cut host from node":
                return [lambda: lab.cut_off_for(away, event.victims[1], lab.addresses[name])]
            case "cut one way":
                rules = {"incoming": "", "outgoing": "", event.victims[1]: "drop;"}
                return [lambda: lab.cut_for(away, name, rules["incoming"], rules["outgoing"])]
            case "upgrade node":
                return [lambda: lab.nodes[name].upgrade(away)]
            case "restart manager":
                return [lambda: lab.manager.kill_for(away)]
        raise ValueError(event.kind)


def start_program(lab, program, folder, arguments):
    ranks = arguments.hosts * arguments.ranks_per_host
    words = lab.words(
        "run", "--ranks-per-host", arguments.ranks_per_host, "--report", folder / "report.json", "--",
        mpirun(arguments, arguments.mpi), "-n", ranks, program, "--operations", "1e18",
        "--seconds", arguments.seconds, "--depth", arguments.depth, "--pause-ms", arguments.pause_ms,
        "--seed", arguments.seed, "--watchdog", int(arguments.seconds) + 120, "--ends", folder / "ends")
    environment = {**os.environ, "TRIBUTARY_CHANNEL": arguments.channel, "TRIBUTARY_BETWEEN_HOSTS": "tree"}
    output = open(folder / "output", "w", encoding="utf-8")
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)


def await_rounds(folder, program, rounds):
    """Waits until the program works."""
    while program.poll() is None:
        if (folder / "ends").exists() and len((folder / "ends").read_text().splitlines()) >= rounds:
            return
        time.sleep(0.2)


def print_heard(events):
    """How long ranks took to hear, by kind of event, if there were such events."""
    if not any(event.kind in RANK_KINDS for event in events):
        return
    print(f"{'event of a rank':<36} {'jobs':>5} {'ranks':>6} {'median ms':>10} {'longest ms':>11} {'above 1 s':>10}")
    for kind in RANK_KINDS:
        jobs = [event.heard for event in events if event.kind == kind]
        heard = [seconds for job in jobs for seconds in job]
        row = f"{kind:<36} {len(jobs):>5} {len(heard):>6}"
        if heard:
            row += (f" {statistics.median(heard) * 1e3:>10.0f} {max(heard) * 1e3:>11.0f}"
                    f" {sum(seconds > 1 for seconds in heard):>10}")
        print(row)


def is_silent(event):
    return event.kind.split()[0] in SILENT


def is_alone(event, gap, events):
    """Whether no other event's silence was under way in a gap."""
    felt = [(other.at, other.at + int((other.away + SILENCE) * 1e9)) for other in events
            if other is not event and is_silent(other)]
    return all(end < gap[0] or start > gap[1] for start, end in felt)


def stalls(events, ends):
    """The longest time without a round's end behind each event, in seconds, and whether no other event's silence was
    under way then, by kind."""
    found = {}
    for event, following in zip(events, [*events[1:], None]):
        last = event.at + int(STALL_WITHIN * 1e9)
        if following is not None:
            last = min(last, following.at)
        near = [end for end in ends if end >= event.at]
        before = max((end for end in ends if end < event.at), default=event.at)
        gaps = [(max(a, event.at), b) for a, b in zip([before, *near], near) if a < last]
        longest = max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
        if longest is None:
            stall = (float("inf"), False)
        else:
            stall = ((longest[1] - longest[0]) / 1e9, is_alone(event, longest, events))
        found.setdefault(event.kind, []).append(stall)
    return found


def longest_gaps(events, ends, count=5):
    """The longest times without a round's end, each with what had happened from 6 s before it on: times in seconds from
    its begin."""
    gaps = sorted(zip(ends, ends[1:]), key=lambda gap: gap[0] - gap[1])[:count]
    seconds = lambda at, begin: round((at - begin) / 1e9, 3)
    return [{"begin_ns": begin, "stall_s": seconds(end, begin),
             "events": [{"kind": event.kind, "victims": event.victims, "at_s": seconds(event.at, begin),
                         "away_s": round(event.away, 3)}
                        for event in events if begin - 6e9 < event.at < end]}
            for begin, end in gaps]


def figures(values):
    """Of stalls: how many, and how long. A kind of event of which none is left has no figures."""
    if not values:
        return {"events": 0}
    return {"events": len(values), "median_s": statistics.median(values), "p99_s": quantile(values, 0.99),
            "longest_s": max(values)}


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(events, ends, report, arguments):
    rounds = [(b - a) / 1e9 for a, b in zip(ends, ends[1:])]
    by_kind = stalls(events, ends)
    failovers = [entry.get("failovers", {}) for entry in report["communicators"]]
    total = lambda name: sum(entry.get(name, 0) for entry in failovers)
    table = {kind: {**figures([stall for stall, _ in values]),
                    "alone": figures([stall for stall, is_alone in values if is_alone])}
             for kind, values in sorted(by_kind.items())}
    return {"seed": arguments.seed, "seconds": arguments.seconds, "mpi": arguments.mpi,
            "pause_ms": arguments.pause_ms, "rounds": len(ends),
            "round_median_s": statistics.median(rounds), "round_p99_s": quantile(rounds, 0.99),
            "trees_lost": total("lost"), "trees_regained": total("regained"), "substitutes": total("substitutes"),
            "stalls": table, "longest": longest_gaps(events, ends)}


def print_table(result):
    print(f"{result['rounds']} rounds, median {result['round_median_s'] * 1e3:.1f} ms, "
          f"p99 {result['round_p99_s'] * 1e3:.1f} ms; {result['trees_lost']} trees lost, "
          f"{result['trees_regained']} regained, {result['substitutes']} operations over direct links")
    heads = f"{'number':>6} {'median ms':>10} {'p99 ms':>8} {'longest ms':>10}"
    print(f"{'':<20} {'all':>{len(heads)}} | {'without another silence':>{len(heads) + 9}}")
    print(f"{'event':<20} {heads} | {heads} {'left out':>8}")
    for kind, row in result["stalls"].items():
        left_out = row["events"] - row["alone"]["events"]
        print(f"{kind:<20} {cells(row)} | {cells(row['alone'])} {left_out:>8}")


def cells(row):
    if not row["events"]:
        return f"{0:>6} {'-':>10} {'-':>8} {'-':>10}"
    return (f"{row['events']:>6} {row['median_s'] * 1e3:>10.0f} {row['p99_s'] * 1e3:>8.0f} "
            f"{row['longest_s'] * 1e3:>10.0f}")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    program = compile_soak(arguments.mpi, arguments)
    with tempfile.TemporaryDirectory(prefix="tributary-nemesis-") as temporary:
        folder = pathlib.Path(temporary)
        log = open(arguments.keep_log or folder / "log", "w", encoding="utf-8")
        options = ["--node-kernel"] if arguments.node_kernel else []
        if arguments.channel == "xdp":
            options += ["--rings", "xdp"]
        with NemesisLab(arguments, log, options=options) as lab:
            running = start_program(lab, program, folder, arguments)
            await_rounds(folder, running, 20)
            nemesis = Nemesis(lab, arguments)
            nemesis.run(time.monotonic() + arguments.seconds, lambda: running.poll() is not None)
            try:
                code = running.wait(timeout=arguments.seconds + 180)
            except subprocess.TimeoutExpired:
                running.terminate()
                code = "none: it ran past the time limit"
            status = settled_status(lab)
        left = [f"{len(status['jobs'])} jobs, {len(status['groups'])} groups"] * bool(status["jobs"] or status["groups"])
        left += [node["registration"]["name"] for node in status["nodes"] if node["osos_used"]]
        if code != 0 or nemesis.problems or left:
            last = nemesis.events[-3:]
            print((folder / "output").read_text()[-4000:], f"exit code {code}", *nemesis.problems, f"left: {left}",
                  f"seed {arguments.seed}, {len(nemesis.events)} events, the last: {last}", sep="\n", file=sys.stderr)
            return 1
        ends = [int(line) for line in (folder / "ends").read_text().splitlines()]
        result = summary(nemesis.events, ends, json.loads((folder / "report.json").read_text()), arguments)
    if arguments.json:
        heard = {kind: [event.heard for event in nemesis.events if event.kind == kind] for kind in RANK_KINDS}
        print(json.dumps({**result, "heard": heard}))
    else:
        print_table(result)
        print_heard(nemesis.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
