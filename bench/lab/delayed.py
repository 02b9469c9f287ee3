#!/usr/bin/env python3
"""Times collectives in labs whose network takes the time, in units of the delay.

There a method's time is the number of times that an operation crosses the network, one crossing after the
other, and a rest: the work of all parties on this machine's few cores. Each method runs at two delays, which tells
one from the other: what grows with the delay is crossings. Beside that are shown the frames that a call sends, and
the processor time that it takes over all processes of the lab: both are the difference of a long and a short run over
the difference of their calls, so the start of a program counts in neither. Processor time is no work alone: ranks that
wait poll and yield, ours for a while and those of plain MPIs all the time.

With one delay each method is started once a round, for all cases, and compared with the better plain MPI. That takes seconds
where the above takes minutes.
"""

import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness.bench_labs import ALL_LENGTHS, MPICH_OFI, MPICH_UCX, OPEN_MPI, compile_program, finish, start  # noqa: E402, their folder is on the path only now
from harness.labs import Lab  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402

# Hosts of one kernel have no network by themselves; this one is as a cloud's, whose latency is most of its price.
CLOUD = {"TRIBUTARY_NETWORK": "cloud"}

# Each method: its MPI, whether that is plain, variables, in which {hosts} and {hosts_per_leaf} are those of the lab, and options of
# the lab.
METHODS = {
    "openmpi": ("openmpi", True, OPEN_MPI, ()),
    "mpich-ucx": ("mpich", True, MPICH_UCX, ()),
    "mpich-ofi": ("mpich", True, MPICH_OFI, ()),
    "direct": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "direct"}, ()),
    "tree": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"}, ()),
    "tree-inside": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"}, ("--nodes", "inside")),
    "kernel": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"}, ("--node-kernel",)),
    "replicated": ("mpich", False, {**MPICH_UCX, **CLOUD, "TRIBUTARY_BETWEEN_HOSTS": "replicated"}, ()),
    "by-leaf": ("mpich", False, {**MPICH_UCX, **CLOUD, "TRIBUTARY_BETWEEN_HOSTS": "replicated",
                                 "BENCH_HOSTS_PER_LEAF": "{hosts_per_leaf}"}, ()),
    "one-level": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_GROUPS": "{hosts}"}, ()),
    "copies": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_GROUPS": "{hosts}",
                                "TRIBUTARY_MULTICAST": "off"}, ()),
    "auto": ("mpich", False, {**MPICH_UCX, **CLOUD}, ()),
    "auto-openmpi": ("openmpi", False, {**OPEN_MPI, **CLOUD}, ()),
}

# How often a case is measured in the long run, for once in the short one.
REPEATS = 3
# A block of calls takes so many delays. Its first call begins when ranks leave a barrier, at different times: calls in a
# row even that out.
BLOCK_DELAYS = 60
UNITS_US = {"ms": 1e3, "us": 1.0}


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=8, help="hosts, on one switch unless --lab says otherwise")
    parser.add_argument("--delays", default="1ms,2ms", help="the labs' delays, two or one, in ms or us (default %(default)s)")
    parser.add_argument("--lab", default="", help="further options of `tributary lab up`, in one word")
    parser.add_argument("--methods", default=",".join(METHODS), help="of %(default)s")
    parser.add_argument("--cases", default="allreduce:8", help="operation:bytes, by commas")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every method")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--output", type=pathlib.Path, help="also write everything there as JSON")
    return parser.parse_args()


def delay_us(text):
    """A delay in microseconds."""
    unit = text[-2:]
    if unit not in UNITS_US or not text[:-2].isdigit():
        sys.exit(f"--delays {text}: a whole number of ms or us is allowed")
    return int(text[:-2]) * UNITS_US[unit]


class DelayedLab(Lab):
    """A lab with delay, and what its switch counts."""

    def __init__(self, arguments, delay, options, number):
        self.block_us = round(BLOCK_DELAYS * delay_us(delay))
        words = ["--hosts", arguments.hosts, "--delay", delay, *options, *arguments.lab.split()]
        if "--hosts-per-leaf" not in words:
            words += ["--hosts-per-leaf", arguments.hosts]
        self.sizes = {"hosts": arguments.hosts, "hosts_per_leaf": words[words.index("--hosts-per-leaf") + 1]}
        super().__init__(arguments.tributary, f"delayed-{os.getpid()}-{number}", *words)

    def counts(self):
        """Processor time of the lab, frames sent, and frames dropped, since the lab is there."""
        text = subprocess.run(self.words("status", "--json"), check=True, text=True, capture_output=True).stdout
        switch = json.loads(text)["switch"]
        ports = [port for _, port in switch["ports"]]
        drops = sum(port[cause] for port in ports for cause in ("overflowed", "refused", "unread"))
        return {"cpu_us": switch["lab_ns"] / 1e3, "frames": sum(port["sent"] for port in ports), "drops": drops}

    def lines(self, method, cases, programs, arguments):
        """Runs the program on the lab's hosts; its figures, and what the switch counted meanwhile."""
        mpi, is_plain, environment, _ = METHODS[method]
        launcher = mpirun(arguments, mpi)
        plain = ["--plain"] if is_plain else []
        before = self.counts()
        running = start(self.words("run", *plain, "--", launcher, "-n", arguments.hosts, programs[mpi], *cases),
                        {**ALL_LENGTHS, **{name: value.format(**self.sizes) for name, value in environment.items()},
                         "BENCH_BLOCK_US": str(self.block_us)})
        (stdout, stderr), = finish(f"{method} on {arguments.hosts} hosts", [running], arguments.timeout)
        if not is_plain and " 0 passed_through" not in stderr:
            sys.exit(f"{method} on {arguments.hosts} hosts left operations to the underlying MPI:\n{stderr}")
        after = self.counts()
        lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        return lines, {name: after[name] - before[name] for name in before}


def measure(method, case, lab, programs, arguments):
    """One long and one short run: the time of a call, and what a call costs."""
    short, short_counts = lab.lines(method, [case], programs, arguments)
    long, long_counts = lab.lines(method, [case] * REPEATS, programs, arguments)
    calls = sum(line["calls_in_all"] for line in long) - sum(line["calls_in_all"] for line in short)
    return {"call_us": statistics.median(line["call_median_us"] for line in long),
            "block_us": statistics.median(line["median_us"] for line in long),
            "cpu_us": (long_counts["cpu_us"] - short_counts["cpu_us"]) / calls,
            "frames": (long_counts["frames"] - short_counts["frames"]) / calls,
            "drops": short_counts["drops"] + long_counts["drops"]}


def compile_programs(methods, arguments):
    return {mpi: compile_program(mpi, arguments).resolve() for mpi in {METHODS[it][0] for it in methods}}


def start_labs(labs, methods, delays, arguments):
    """A lab for each delay and each kind that a method needs, as lab_of[delay, kind]; they are there as long as `labs` is."""
    kinds = dict.fromkeys((delay, METHODS[method][3]) for delay in delays for method in methods)
    return {kind: labs.enter_context(DelayedLab(arguments, *kind, number)) for number, kind in enumerate(kinds)}


def measure_all(methods, cases, delays, arguments):
    """Every run, as results[case, method][delay] = [figures, ...], in turns."""
    programs = compile_programs(methods, arguments)
    results = {(case, method): {delay: [] for delay in delays} for case in cases for method in methods}
    with contextlib.ExitStack() as labs:
        lab_of = start_labs(labs, methods, delays, arguments)
        for number in range(arguments.rounds):
            for (case, method), runs in results.items():
                print(f"round {number + 1} of {arguments.rounds}: {case}, {method}", file=sys.stderr, flush=True)
                for delay in delays:
                    lab = lab_of[delay, METHODS[method][3]]
                    runs[delay].append(measure(method, case, lab, programs, arguments))
    return results


def row_of(method, case, runs, cores):
    """Medians over runs of calls in a row: at the first delay in its units, and what the second one tells."""
    (first, short), (second, long) = ((delay_us(delay), found) for delay, found in runs.items())
    median = {name: statistics.median(run[name] for run in short) for name in short[0]}
    calls = sorted(run["block_us"] / first for run in short)
    crossings = (statistics.median(run["block_us"] for run in long) - median["block_us"]) / (second - first)
    return {"case": case, "method": method, "delays": statistics.median(calls), "least": calls[0], "most": calls[-1],
            "crossings": crossings, "rest_us": median["block_us"] - crossings * first, "call_us": median["call_us"],
            "busy": median["cpu_us"] / cores / median["block_us"], "frames": median["frames"],
            "drops": sum(run["drops"] for found in runs.values() for run in found), "runs": runs}


def print_table(rows):
    for case in dict.fromkeys(row["case"] for row in rows):
        print(f"\n{case:>16} {'delays':>7} {'least':>6} {'most':>6} {'crossings':>9} {'rest us':>7} {'busy':>5} "
              f"{'frames':>6} {'drops':>5}")
        for row in (row for row in rows if row["case"] == case):
            print(f"{row['method']:>16} {row['delays']:>7.2f} {row['least']:>6.2f} {row['most']:>6.2f} "
                  f"{row['crossings']:>9.2f} {row['rest_us']:>7.0f} {100 * row['busy']:>4.0f}% {row['frames']:>6.0f} "
                  f"{row['drops']:>5}")


def compare(methods, cases, delay, arguments):
    """Delays that each case takes by each method, medians of the rounds; a row each. Ratios are to the better plain MPI."""
    programs = compile_programs(methods, arguments)
    found = {(case, method): [] for case in cases for method in methods}
    with contextlib.ExitStack() as labs:
        lab_of = start_labs(labs, methods, [delay], arguments)
        for number in range(arguments.rounds):
            for method in methods:
                print(f"round {number + 1} of {arguments.rounds}: {method}", file=sys.stderr, flush=True)
                lines, _ = lab_of[delay, METHODS[method][3]].lines(method, cases, programs, arguments)
                for case, line in zip(cases, lines, strict=True):
                    found[case, method].append(line["median_us"] / delay_us(delay))
    rows = []
    for case in cases:
        delays = {method: statistics.median(found[case, method]) for method in methods}
        plain = [delays[method] for method in methods if METHODS[method][1]]
        ratios = {method: min(plain) / delays[method] for method in methods if plain and not METHODS[method][1]}
        rows.append({"case": case, "delays": delays, "plain_by_ours": ratios})
    return rows


def print_comparison(methods, rows):
    print(f"{'':>16}" + "".join(f" {method:>15}" for method in methods))
    for row in rows:
        cells = [f"{row['delays'][method]:.2f}" + (f" ({row['plain_by_ours'][method]:.2f})" if method in row["plain_by_ours"] else "")
                 for method in methods]
        print(f"{row['case']:>16}" + "".join(f" {cell:>15}" for cell in cells))
    print("\nin parentheses: the better plain MPI's time over this one")


def write_output(rows, load, arguments):
    options = {key: str(value) for key, value in vars(arguments).items()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"command": sys.argv, "options": options, "load_before": load, "rows": rows}),
                                encoding="utf-8")


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    methods, cases, delays = (it.split(",") for it in (arguments.methods, arguments.cases, arguments.delays))
    unknown = set(methods) - set(METHODS)
    if unknown:
        sys.exit(f"--methods: {', '.join(sorted(unknown))} are unknown; allowed are {', '.join(METHODS)}")
    if len(delays) > 2 or len({delay_us(delay) for delay in delays}) != len(delays):
        sys.exit(f"--delays {arguments.delays}: one delay or two different ones are needed")
    load = os.getloadavg()[0]
    if len(delays) == 1:
        rows = compare(methods, cases, *delays, arguments)
    else:
        results = measure_all(methods, cases, delays, arguments)
        rows = [row_of(method, case, runs, os.cpu_count()) for (case, method), runs in results.items()]
    if arguments.output:
        write_output(rows, load, arguments)
    print(f"{arguments.hosts} hosts, one rank each {arguments.lab}; medians of {arguments.rounds} runs of calls in a row,\n"
          f"on the slowest rank, in delays of {delays[0]}; {os.cpu_count()} cores, load before {load:.1f}")
    if len(delays) == 1:
        print_comparison(methods, rows)
        return
    print_table(rows)
    print(f"\nleast, most: of the runs; crossings, rest: from delays of {delays[1]} too; busy: processor\n"
          "time of a call over all cores, polls of those who wait included")


if __name__ == "__main__":
    main()
