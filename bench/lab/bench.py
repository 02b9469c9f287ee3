#!/usr/bin/env python3
"""Times collectives over a lab: Open MPI and MPICH, each plain and through Tributary, in turns.

Brings up the labs that the methods need, runs every method in every round, and prints medians over
the rounds, and the ratio of the best plain MPI to each Tributary run beside the target of that case.
--also adds tables that compare Tributary with itself: every path at every length, copies of multicast
results, losses, outstanding operations, groups at once, overlap with computation, floods at a node's port, and
the memory and throughput of an aggregation node. With the table of paths it checks that the chosen path is at most a
tenth slower than the best single one.
"""

import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from further import (ALSO, TABLES, check_choice, measure_also, measure_groups, measure_memory,  # noqa: E402, they find labs
                     print_also, print_checks)
from garbage import measure_flood  # noqa: E402
from harness.bench_labs import METHODS, USUAL_METHODS, BenchLab, compile_program  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402
from throughput import measure_throughput  # noqa: E402

# Case and its target by number of hosts: the best plain MPI's time over ours. "apart": with a barrier before each call,
# which is not counted, as many programs and the Intel MPI Benchmarks call.
CASES = [
    ("allreduce:8", {2: 1.2, 4: 1.6, 8: 3.0}),
    ("allreduce:8:apart", {2: 1.0, 4: 1.0, 8: 1.0}),
    ("allreduce:4096", {8: 2.0}),
    ("allreduce:65536", {8: 2.0}),
    ("allreduce:65536:apart", {2: 1.0, 4: 1.0, 8: 2.0}),
    ("allreduce:1048576", {8: 2.0}),
    ("allreduce:1048576:apart", {2: 1.0, 4: 1.0, 8: 1.0}),
    ("barrier:0", {8: 3.0}),
    ("reduce:8", {8: 2.0}),
    ("reduce:1048576", {8: 2.0}),
    *[(f"{operation}:{size}", {4: 1.5, 8: 1.5}) for operation in ("allgather", "reduce_scatter")
      for size in (8, 4096, 65536)],
    *[(f"scan:{size}", {}) for size in (8, 4096, 65536)],
]

def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--hosts", default="2,4,8", help="numbers of hosts (default %(default)s)")
    parser.add_argument("--hosts-per-leaf", type=int, default=8,
                        help="shape of the lab (default %(default)s: one switch)")
    parser.add_argument("--nodes", default="all", help="where nodes are: all, spine, inside")
    parser.add_argument("--node-spin", type=int, default=50,
                        help="microseconds nodes poll before they sleep (default %(default)s)")
    parser.add_argument("--loss", default="0", help="percentage every link loses")
    parser.add_argument("--rate", help="rate of every link")
    parser.add_argument("--cores-per-host", type=int,
                        help="cores of its own for each host; all share all cores unless given")
    parser.add_argument("--node-kernel", action="store_true", help="let nodes take short segments inside the kernel")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every method")
    parser.add_argument("--methods", default=",".join(USUAL_METHODS),
                        help=f"of {', '.join(METHODS)} (default %(default)s)")
    parser.add_argument("--cases", help="only these, as operation:bytes or operation:bytes:apart, by commas; or none")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--also", default="", help="further tables, by commas, or all: "
                        + ", ".join(TABLES))
    parser.add_argument("--also-hosts", type=int, default=8, help="hosts of those tables")
    parser.add_argument("--output", type=pathlib.Path, help="also write everything there as JSON")
    return parser.parse_args()


def measure(host_counts, cases, methods, arguments):
    """Every run's medians, as results[hosts][method][case] = [us, ...]."""
    programs = {mpi: compile_program(mpi, arguments).resolve()
                for mpi in {METHODS[method][0] for method in methods}}
    results = {hosts: {method: {} for method in methods} for hosts in host_counts}
    with BenchLab(max(host_counts), arguments) as lab:
        for number in range(arguments.rounds):
            for hosts in host_counts:
                for method in methods:
                    print(f"round {number + 1} of {arguments.rounds}: {hosts} hosts, {method}",
                          file=sys.stderr, flush=True)
                    for case, us in lab.run(method, hosts, cases, programs, arguments).items():
                        results[hosts][method].setdefault(case, []).append(us)
    return results


def judge(host_counts, cases, methods, results):
    """One row for each number of hosts and case."""
    rows = []
    for hosts in host_counts:
        for case, targets in cases:
            medians = {method: statistics.median(results[hosts][method][case]) for method in methods}
            plain = {method: us for method, us in medians.items() if METHODS[method][1]}
            ours = {method: us for method, us in medians.items() if not METHODS[method][1]}
            best = min(plain, key=plain.get) if plain else None
            ratios = {method: plain[best] / us for method, us in ours.items()} if plain else {}
            rows.append({"hosts": hosts, "case": case, "median_us": medians, "best_plain": best, "ratios": ratios,
                         "target": targets.get(hosts),
                         "runs_us": {method: results[hosts][method][case] for method in methods}})
    return rows


def mpi_version(mpi, arguments):
    """The MPI's version, from its mpirun."""
    words = subprocess.run([mpirun(arguments, mpi), "--version"], check=True, text=True,
                           capture_output=True).stdout.split()
    # "mpirun (Open MPI) 5.0.11" and "HYDRA build details: Version: 5.0.2".
    return next(word for word in words if word[0].isdigit())


def machine(arguments):
    """The machine that the figures are of."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "unknown")
    return {"cores": os.cpu_count(), "cpu": model, "kernel": platform.release(),
            "congestion_control": pathlib.Path(
                "/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="utf-8").strip(),
            "mpis": {mpi: f"{name} {mpi_version(mpi, arguments)}"
                     for mpi, name in (("openmpi", "Open MPI"), ("mpich", "MPICH"))},
            "load_before": os.getloadavg()[0]}


def print_table(rows, methods):
    names = [f"{method:>17}" for method in methods]
    print(f"{'hosts':>5} {'case':>24}", *names, f"{'ratio':>7} {'target':>7}")
    for row in rows:
        figures = [f"{row['median_us'][method]:>17.1f}" for method in methods]
        ratio = f"{max(row['ratios'].values()):.2f}" if row["ratios"] else "-"
        target = f"{row['target']:.1f}" if row["target"] else "-"
        print(f"{row['hosts']:>5} {row['case']:>24}", *figures, f"{ratio:>7} {target:>7}")


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    methods = arguments.methods.split(",")
    host_counts = [int(hosts) for hosts in arguments.hosts.split(",")]
    unknown = set(methods) - set(METHODS)
    if unknown:
        sys.exit(f"--methods: {', '.join(sorted(unknown))} are unknown; allowed are {', '.join(METHODS)}")
    cases = CASES
    if arguments.cases and arguments.cases != "none":
        wanted = arguments.cases.split(",")
        targets = dict(CASES)
        cases = [(case, targets.get(case, {})) for case in wanted]
    also = TABLES if arguments.also == "all" else [it for it in arguments.also.split(",") if it]
    if set(also) - set(TABLES):
        sys.exit(f"--also: {', '.join(sorted(set(also) - set(TABLES)))} are unknown; "
                 f"allowed are {', '.join(TABLES)}")
    about = machine(arguments)
    rows = [] if arguments.cases == "none" else judge(
        host_counts, cases, methods, measure(host_counts, cases, methods, arguments))
    programs = {mpi: compile_program(mpi, arguments).resolve() for mpi in ("openmpi", "mpich")}
    others = [row for table in also if table in ALSO
              for row in measure_also(table, programs, arguments)]
    if "groups" in also:
        others += measure_groups(programs, arguments)
    if "memory" in also:
        others += measure_memory(programs, arguments)
    if "flood" in also:
        others += measure_flood(programs, arguments)
    if "throughput" in also:
        others += measure_throughput(programs, arguments)
    checks = check_choice(others)
    if arguments.output:
        options = {key: str(value) for key, value in vars(arguments).items()}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(
            {"machine": about, "command": sys.argv, "options": options, "cases": rows,
             "also": others, "choice": checks}), encoding="utf-8")
    print(f"medians of {arguments.rounds} runs in us, one rank a host, "
          f"{about['cores']} cores ({about['cpu']}), kernel {about['kernel']}, TCP "
          f"{about['congestion_control']}, load before {about['load_before']:.1f}")
    if rows:
        print_table(rows, methods)
        print("ratio: the best plain MPI over the better Tributary run; above 1, Tributary is faster")
    print_also(others)
    print_checks(checks)


if __name__ == "__main__":
    main()
