#!/usr/bin/env python3
"""Times collectives over a lab: Open MPI and MPICH, each plain and through Tributary, in turns.

Brings up the labs that the methods need, runs every method in every round, and gives medians over
the rounds, with the ratio of the best plain MPI to each of ours beside the target of that case.
--also adds tables that compare ours with itself: copies of multicast results, losses, outstanding
operations, groups at once, and overlap with computing.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Operation, bytes, and for each number of hosts how many times faster than the best plain MPI.
CASES = [
    ("allreduce", 8, {2: 1.2, 4: 1.6, 8: 3.0}),
    ("allreduce", 4096, {8: 2.0}),
    ("allreduce", 65536, {8: 2.0}),
    ("allreduce", 1 << 20, {8: 2.0}),
    ("barrier", 0, {8: 3.0}),
    ("reduce", 8, {8: 2.0}),
    ("reduce", 1 << 20, {8: 2.0}),
]

# What each method runs on, with what besides the lab's own environment. Peers are tuned: no
# transport but TCP between hosts, and yielding where there are more ranks than cores.
OPEN_MPI = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}
MPICH_UCX = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
MPICH_OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
DATAGRAMS = {"TRIBUTARY_CHANNEL": "auto"}
METHODS = {
    "openmpi": ("openmpi", True, OPEN_MPI),
    "mpich-ucx": ("mpich", True, MPICH_UCX),
    "mpich-ofi": ("mpich", True, MPICH_OFI),
    "tributary-openmpi": ("openmpi", False, OPEN_MPI),
    "tributary-mpich": ("mpich", False, MPICH_UCX),
    "datagrams-openmpi": ("openmpi", False, {**OPEN_MPI, **DATAGRAMS}),
    "datagrams-mpich": ("mpich", False, {**MPICH_UCX, **DATAGRAMS}),
}

# Every segment by datagram, so that 4 KiB are multicast too.
ALL_DATAGRAMS = {**MPICH_UCX, "TRIBUTARY_CHANNEL": "udp"}

# Measurements of one case, one after the other, in each of several jobs at once.
GROUPS_CASES = 9

# Tables of ours against ours, on 8 hosts: for each variant what its lab is brought up with and what
# its ranks find in their environment; then the cases.
ALSO = {
    "copies": ({"reliable only": (["--multicast", "off"], ALL_DATAGRAMS),
                "multicast, eager": (["--multicast", "eager"], ALL_DATAGRAMS),
                "multicast, lazy": (["--multicast", "lazy"], ALL_DATAGRAMS)},
               ["allreduce:8", "allreduce:4096"]),
    "loss": ({"no loss": (["--loss", "0"], {**MPICH_UCX, **DATAGRAMS}),
              "1% on every link": (["--loss", "1"], {**MPICH_UCX, **DATAGRAMS})},
             ["allreduce:8", "allreduce:1048576"]),
    "osos": ({f"{osos} outstanding":
              ([], {**MPICH_UCX, **DATAGRAMS, "TRIBUTARY_PAYLOAD_MAX": "256",
                    "TRIBUTARY_OSOS": str(osos)}) for osos in (1, 2, 4, 8)},
             ["allreduce:2048"]),
    "overlap": ({"plain MPICH": (None, MPICH_UCX), "tributary": ([], {**MPICH_UCX, **DATAGRAMS})},
                ["overlap:8", "overlap:65536"]),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lab",
                        help="folder for what is compiled (default %(default)s)")
    parser.add_argument("--hosts", default="2,4,8", help="numbers of hosts (default %(default)s)")
    parser.add_argument("--hosts-per-leaf", type=int, default=8,
                        help="shape of the lab (default %(default)s: one switch)")
    parser.add_argument("--nodes", default="all", help="which switches have a node: all, spine")
    parser.add_argument("--node-spin", type=int, default=50,
                        help="microseconds nodes poll before they sleep (default %(default)s)")
    parser.add_argument("--loss", default="0", help="percentage every link loses")
    parser.add_argument("--rate", help="rate of every link")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every method")
    parser.add_argument("--methods", default=",".join(METHODS), help="of %(default)s")
    parser.add_argument("--cases", help="only these, as operation:bytes, by commas")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a run may take")
    parser.add_argument("--also", default="", help="further tables, by commas, or all: "
                        + ", ".join([*ALSO, "groups"]))
    parser.add_argument("--also-hosts", type=int, default=8, help="hosts of those tables")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    return parser.parse_args()


def waiting(hosts):
    """How ranks are to wait: hosts share this machine's cores, which none of them can know."""
    is_crowded = hosts > os.cpu_count()
    return {"OMPI_MCA_mpi_yield_when_idle": "1" if is_crowded else "0",
            "TRIBUTARY_WAIT": "sleep" if is_crowded else "spin"}


def compile_program(mpi, arguments):
    arguments.build.mkdir(parents=True, exist_ok=True)
    target = arguments.build / f"bench-{mpi}"
    compiler = arguments.venvs / mpi / "bin/mpicc"
    subprocess.run([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
                    HERE / "bench.c", "-o", target], check=True)
    return target


class Lab:
    """A lab of this run's own."""

    made = 0

    def __init__(self, hosts, arguments, options=()):
        self.program = arguments.tributary
        self.name = f"bench-{os.getpid()}-{Lab.made}"
        Lab.made += 1
        words = [self.program, "lab", "up", "--name", self.name, "--hosts", str(hosts),
                 "--hosts-per-leaf", str(arguments.hosts_per_leaf), "--nodes", arguments.nodes,
                 "--node-spin", str(arguments.node_spin)]
        words += [*options] if "--loss" in options else ["--loss", arguments.loss, *options]
        if arguments.rate:
            words += ["--rate", arguments.rate]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([self.program, "lab", "down", "--name", self.name], check=False)

    def run(self, method, hosts, cases, programs, arguments):
        """Microseconds by case, or ends this program with what went wrong."""
        mpi, is_plain, environment = METHODS[method]
        words = [f"{operation}:{size}" for operation, size, _ in cases]
        lines = self.lines(method, (mpi, is_plain, environment), hosts, words, programs, arguments)
        return {(line["operation"], line["bytes"]): line["median_us"] for line in lines}

    def words(self, method, hosts, cases, programs, arguments):
        """The command that runs the program on the lab's first hosts."""
        mpi, is_plain, _ = method
        words = [self.program, "lab", "run", "--name", self.name]
        words += ["--plain"] if is_plain else ["--mpi", mpi]
        words += ["--", arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", str(hosts),
                  programs[mpi]]
        return words + cases

    def at_once(self, jobs, method, programs, arguments):
        """Medians of as many jobs of two hosts each, through one node, while all of them ran."""
        cases = ["allreduce:8"] * GROUPS_CASES
        words = self.words(method, 2, cases, programs, arguments)
        environment = {**os.environ, **waiting(2 * jobs), **method[2]}
        running = [subprocess.Popen(words, env=environment, text=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                   for _ in range(jobs)]
        outputs = [job.communicate(timeout=arguments.timeout)[0] for job in running]
        if any(job.returncode for job in running):
            sys.exit(f"{jobs} groups at once: exit codes {[job.returncode for job in running]}")
        # The first and the last third may have run while others started or had ended.
        third = GROUPS_CASES // 3
        return [statistics.median([json.loads(line)["median_us"] for line in output.splitlines()
                                   if line.startswith("{")][third:-third]) for output in outputs]

    def lines(self, title, method, hosts, cases, programs, arguments):
        """What the program on the lab's hosts says of each case."""
        _, is_plain, environment = method
        words = self.words(method, hosts, cases, programs, arguments)
        try:
            ended = subprocess.run(words, env={**os.environ, **waiting(hosts), **environment},
                                   text=True, stdin=subprocess.DEVNULL, capture_output=True,
                                   timeout=arguments.timeout)
        except subprocess.TimeoutExpired as error:
            sys.exit(f"{title} on {hosts} hosts took more than {error.timeout:g} s")
        if ended.returncode != 0:
            sys.exit(f"{title} on {hosts} hosts failed:\n{ended.stdout}{ended.stderr}")
        if not is_plain and " 0 passed_through" not in ended.stderr:
            sys.exit(f"{title} on {hosts} hosts left operations to the MPI:\n{ended.stderr}")
        return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def measure(host_counts, cases, methods, arguments):
    """Every run's medians, as results[hosts][method][case] = [us, ...]."""
    programs = {mpi: compile_program(mpi, arguments).resolve()
                for mpi in {METHODS[method][0] for method in methods}}
    results = {hosts: {method: {} for method in methods} for hosts in host_counts}
    with Lab(max(host_counts), arguments) as lab:
        for number in range(arguments.rounds):
            for hosts in host_counts:
                for method in methods:
                    print(f"round {number + 1} of {arguments.rounds}: {hosts} hosts, {method}",
                          file=sys.stderr, flush=True)
                    for case, us in lab.run(method, hosts, cases, programs, arguments).items():
                        results[hosts][method].setdefault(case, []).append(us)
    return results


def measure_also(table, programs, arguments):
    """Every run of one of the tables of ours against ours, as rows."""
    variants, cases = ALSO[table]
    found = {(variant, case): [] for variant in variants for case in cases}
    labs = {}
    try:
        for variant, (options, _) in variants.items():
            key = tuple(options or ())
            labs[key] = labs.get(key) or Lab(arguments.also_hosts, arguments, key)
        for number in range(arguments.rounds):
            for variant, (options, environment) in variants.items():
                print(f"round {number + 1} of {arguments.rounds}: {table}, {variant}",
                      file=sys.stderr, flush=True)
                method = ("mpich", options is None, environment)
                for line in labs[tuple(options or ())].lines(
                        variant, method, arguments.also_hosts, cases, programs, arguments):
                    found[variant, f"{line['operation']}:{line['bytes']}"].append(line)
    finally:
        for lab in labs.values():
            lab.__exit__()
    return [{"table": table, "variant": variant, "case": case, "runs": runs,
             **{key: statistics.median(run[key] for run in runs)
                for key in ("median_us", "p99_us", "overlap_percent") if key in runs[0]}}
            for (variant, case), runs in found.items()]


def measure_groups(programs, arguments):
    """Groups of the same two hosts on one aggregation node: one alone, and four at once."""
    method = ("mpich", False, {**MPICH_UCX, **DATAGRAMS, "TRIBUTARY_BETWEEN_HOSTS": "tree"})
    found = {1: [], 4: []}
    with Lab(2, arguments) as lab:
        for number in range(arguments.rounds):
            for groups, runs in found.items():
                print(f"round {number + 1} of {arguments.rounds}: {groups} groups at once",
                      file=sys.stderr, flush=True)
                runs.append(lab.at_once(groups, method, programs, arguments))
    return [{"table": "groups", "variant": f"{groups} at once", "case": "allreduce:8",
             "runs": runs, "median_us": statistics.median(max(run) for run in runs),
             "cores_a_process": os.cpu_count() / (2 * groups + 1)}
            for groups, runs in found.items()]


def judge(host_counts, cases, methods, results):
    """One row for each number of hosts and case."""
    rows = []
    for hosts in host_counts:
        for operation, size, targets in cases:
            medians = {method: statistics.median(results[hosts][method][operation, size])
                       for method in methods}
            plain = {method: us for method, us in medians.items() if METHODS[method][1]}
            ours = {method: us for method, us in medians.items() if not METHODS[method][1]}
            best = min(plain, key=plain.get) if plain else None
            ratios = {method: plain[best] / us for method, us in ours.items()} if plain else {}
            rows.append({"hosts": hosts, "operation": operation, "bytes": size,
                         "median_us": medians, "best_plain": best, "ratios": ratios,
                         "target": targets.get(hosts),
                         "runs_us": {method: results[hosts][method][operation, size]
                                     for method in methods}})
    return rows


def machine():
    """What the figures were taken on."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), "unknown")
    return {"cores": os.cpu_count(), "cpu": model, "kernel": platform.release(),
            "load_before": os.getloadavg()[0]}


def print_table(rows, methods):
    names = [f"{method:>17}" for method in methods]
    print(f"{'hosts':>5} {'case':>18}", *names, f"{'ratio':>7} {'target':>7}")
    for row in rows:
        case = f"{row['operation']} {row['bytes']}"
        figures = [f"{row['median_us'][method]:>17.1f}" for method in methods]
        ratio = f"{max(row['ratios'].values()):.2f}" if row["ratios"] else "-"
        target = f"{row['target']:.1f}" if row["target"] else "-"
        print(f"{row['hosts']:>5} {case:>18}", *figures, f"{ratio:>7} {target:>7}")


def print_also(rows):
    table = None
    for row in rows:
        if row["table"] != table:
            table = row["table"]
            print(f"\n{table}: medians of the runs' medians and 99th percentiles in us")
        p99 = f"{row['p99_us']:>12.1f}" if "p99_us" in row else ""
        cores = f"  {row['cores_a_process']:.2f} cores each" if "cores_a_process" in row else ""
        overlap = f"  overlap {row['overlap_percent']:.0f}%" if "overlap_percent" in row else ""
        figures = f"{row['median_us']:>12.1f}{p99}{overlap}{cores}"
        print(f"{row['variant']:>20} {row['case']:>18} {figures}")


def main():
    arguments = parse_arguments()
    methods = arguments.methods.split(",")
    host_counts = [int(hosts) for hosts in arguments.hosts.split(",")]
    unknown = set(methods) - set(METHODS)
    if unknown:
        sys.exit(f"--methods: {', '.join(sorted(unknown))} not known; {', '.join(METHODS)} are")
    cases = CASES
    if arguments.cases:
        wanted = arguments.cases.split(",")
        cases = [case for case in CASES if f"{case[0]}:{case[1]}" in wanted]
        cases += [(text.split(":")[0], int(text.split(":")[1]), {}) for text in wanted
                  if text not in [f"{case[0]}:{case[1]}" for case in cases]]
    tables = [*ALSO, "groups"]
    also = tables if arguments.also == "all" else [it for it in arguments.also.split(",") if it]
    if set(also) - set(tables):
        sys.exit(f"--also: {', '.join(sorted(set(also) - set(tables)))} not known; "
                 f"{', '.join(tables)} are")
    about = machine()
    rows = judge(host_counts, cases, methods, measure(host_counts, cases, methods, arguments))
    programs = {"mpich": compile_program("mpich", arguments).resolve()}
    others = [row for table in also if table in ALSO
              for row in measure_also(table, programs, arguments)]
    if "groups" in also:
        others += measure_groups(programs, arguments)
    if arguments.json:
        options = {key: str(value) for key, value in vars(arguments).items()}
        print(json.dumps({"machine": about, "options": options, "cases": rows, "also": others}))
    else:
        print(f"medians of {arguments.rounds} runs in us, one rank a host, "
              f"{about['cores']} cores ({about['cpu']}), kernel {about['kernel']}, "
              f"load before {about['load_before']:.1f}")
        print_table(rows, methods)
        print("ratio: the best plain MPI over the better of ours; more than 1 is faster")
        print_also(others)


if __name__ == "__main__":
    main()
