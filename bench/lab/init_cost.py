#!/usr/bin/env python3
"""Measures what the library adds to MPI_Init on hosts of a lab: plain MPI, a fabric of the job's own, and a manager's tree, in turns.

Prints medians and quartiles in milliseconds, a line for each number of hosts and MPI, and what was added. Hosts of a lab share
the machine's cores: among 32 hosts it is their processor time that one sees.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness.bench_labs import MPICH_UCX, OPEN_MPI  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_c  # noqa: E402
from harness.labs import Lab, command  # noqa: E402
from harness.places import mpicc, mpirun, parser_of  # noqa: E402
from harness.undeployed import WITHOUT_MANAGER  # noqa: E402

PLAIN = {"openmpi": OPEN_MPI, "mpich": MPICH_UCX}
WAYS = ("plain", "job", "tree")


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=sorted(PLAIN), action="append", help="default: both")
    parser.add_argument("--hosts", type=int, action="append", help="default: 2, 8 and 32")
    parser.add_argument("--runs", type=int, default=9, help="of each way (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    return parser.parse_args()


def compile_program(mpi, arguments):
    return compile_c(mpicc(arguments, mpi), [HERE / "init_cost.c"], arguments.build / f"init_cost-{mpi}")


def words_of(way, mpi, name, hosts, program, arguments):
    tributary = arguments.tributary.resolve()
    launch = [mpirun(arguments, mpi), "-n", hosts, program]
    preload = f"LD_PRELOAD={tributary.with_name('libtributary.so')}"
    before = {"plain": [], "job": [*WITHOUT_MANAGER, preload], "tree": ["env", preload, "TRIBUTARY_BETWEEN_HOSTS=tree"]}[way]
    return command(tributary, "run", name, "--plain", "--", *before, *launch)


def measure(way, mpi, name, hosts, program, arguments):
    environment = {**os.environ, **PLAIN[mpi], "TRIBUTARY_WAIT": "sleep", "OMPI_MCA_mpi_yield_when_idle": "1"}
    ended = subprocess.run(words_of(way, mpi, name, hosts, program, arguments), env=environment, text=True, check=False,
                           capture_output=True, timeout=300)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode != 0 or len(lines) != 1:
        sys.exit(f"{way}, {mpi}, {hosts} hosts: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return json.loads(lines[0])["init_us"] / 1000


def main():
    arguments = parse_arguments()
    if not arguments.json:
        print(f"{'hosts':>5} {'MPI':8} " + " ".join(f"{way + ' ms':>20}" for way in WAYS) + "   added by job, tree")
    for mpi in arguments.mpi or PLAIN:
        program = compile_program(mpi, arguments)
        for hosts in arguments.hosts or (2, 8, 32):
            with Lab(arguments.tributary, f"init-{os.getpid()}", "--hosts", hosts, "--hosts-per-leaf", min(hosts, 16)) as lab:
                times = {way: [] for way in WAYS}
                for _ in range(arguments.runs):
                    for way in WAYS:
                        times[way].append(measure(way, mpi, lab.name, hosts, program, arguments))
            rows = {way: statistics.quantiles(found, n=4) for way, found in times.items()}
            added = [rows[way][1] - rows["plain"][1] for way in ("job", "tree")]
            if arguments.json:
                print(json.dumps({"hosts": hosts, "mpi": mpi, "ms": rows, "added_ms": added}), flush=True)
            else:
                cells = " ".join(f"{median:8.1f} {low:5.0f}-{high:<5.0f}" for low, median, high in rows.values())
                print(f"{hosts:5} {mpi:8} {cells}   {added[0]:.0f}, {added[1]:.0f}", flush=True)


if __name__ == "__main__":
    main()
