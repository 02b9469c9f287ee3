#!/usr/bin/env python3
"""Times collectives over a lab: Open MPI and MPICH, each plain and through Tributary, in turns.

Brings up one lab, runs every method in every round, and gives medians over the rounds, with the
ratio of the best plain MPI to each of ours beside the target of that case.
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
METHODS = {
    "openmpi": ("openmpi", True, OPEN_MPI),
    "mpich-ucx": ("mpich", True, MPICH_UCX),
    "mpich-ofi": ("mpich", True, MPICH_OFI),
    "tributary-openmpi": ("openmpi", False, OPEN_MPI),
    "tributary-mpich": ("mpich", False, MPICH_UCX),
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

    def __init__(self, hosts, arguments):
        self.program = arguments.tributary
        self.name = f"bench-{os.getpid()}"
        words = [self.program, "lab", "up", "--name", self.name, "--hosts", str(hosts),
                 "--hosts-per-leaf", str(arguments.hosts_per_leaf), "--nodes", arguments.nodes,
                 "--node-spin", str(arguments.node_spin), "--loss", arguments.loss]
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
        words = [self.program, "lab", "run", "--name", self.name]
        words += ["--plain"] if is_plain else ["--mpi", mpi]
        words += ["--", arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", str(hosts),
                  programs[mpi]]
        words += [f"{operation}:{size}" for operation, size, _ in cases]
        try:
            ended = subprocess.run(words, env={**os.environ, **waiting(hosts), **environment},
                                   text=True, stdin=subprocess.DEVNULL, capture_output=True,
                                   timeout=arguments.timeout)
        except subprocess.TimeoutExpired as error:
            sys.exit(f"{method} on {hosts} hosts took more than {error.timeout:g} s")
        if ended.returncode != 0:
            sys.exit(f"{method} on {hosts} hosts failed:\n{ended.stdout}{ended.stderr}")
        if not is_plain and " 0 passed_through" not in ended.stderr:
            sys.exit(f"{method} on {hosts} hosts left operations to the MPI:\n{ended.stderr}")
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        return {(line["operation"], line["bytes"]): line["median_us"] for line in lines}


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
    about = machine()
    rows = judge(host_counts, cases, methods, measure(host_counts, cases, methods, arguments))
    if arguments.json:
        options = {key: str(value) for key, value in vars(arguments).items()}
        print(json.dumps({"machine": about, "options": options, "cases": rows}))
    else:
        print(f"medians of {arguments.rounds} runs in us, one rank a host, "
              f"{about['cores']} cores ({about['cpu']}), kernel {about['kernel']}, "
              f"load before {about['load_before']:.1f}")
        print_table(rows, methods)
        print("ratio: the best plain MPI over the better of ours; more than 1 is faster")


if __name__ == "__main__":
    main()
