#!/usr/bin/env python3
"""The table of collectives inside one node: plain MPI beside the same program with the library.

Compiles collectives.c against each MPI, and floors.c, and then alternates plain and preloaded runs, in
--rounds rounds. A figure is the median over rounds of a run's median. `ratio` is the better plain MPI
over the preloaded run on that same MPI; it is compared with `target`. Exit status 1 if a target is missed
and --strict is given.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import running  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_c  # noqa: E402

MPIS = ["openmpi", "mpich"]
KIB, MIB = 1024, 1024 * 1024

# Ranks, cases with the ratio each should reach. `:apart` has a barrier in front of each call.
TABLE = [
    (2, [("allreduce:8", 2.5), ("allreduce:64", 2.0), (f"allreduce:{KIB}", 2.0),
         (f"allreduce:{4 * KIB}", 1.6), ("barrier:0", 2.0), ("reduce:8", 1.5), ("bcast:8", 1.5)]),
    (2, [("allreduce:8:apart", 1.8), (f"allreduce:{4 * KIB}:apart", 1.6)]),
    (2, [(f"allreduce:{64 * KIB}", 2.0), (f"allreduce:{64 * KIB}:apart", 1.8),
         (f"allreduce:{MIB}", 1.8), (f"allreduce:{MIB}:apart", 1.8)]),
    (2, [(f"allreduce:{16 * MIB}", 1.5)]),
    (4, [("allreduce:8", 2.0), ("allreduce:8:apart", 1.8)]),
    (8, [("allreduce:8", 2.0), ("allreduce:8:apart", 1.8), (f"allreduce:{64 * KIB}", 2.0)]),
    (8, [(f"allreduce:{MIB}", 1.5), (f"allreduce:{MIB}:apart", 1.5)]),
]


# Collectives that go to the underlying MPI from some length on; the target is 1. `--further` runs only
# these, offloads every length, and prints the knob's value. Lengths are of one rank's contribution, as the
# knob counts.
FURTHER = {
    "reduce_scatter": (64, KIB, 4 * KIB, 64 * KIB, MIB),
    "allgather": (8, KIB, 4 * KIB, 16 * KIB, 64 * KIB),
    "scan": (8, KIB, 4 * KIB, 64 * KIB, MIB),
}
KNOB = "TRIBUTARY_OFFLOAD_MAX"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--libraries", type=pathlib.Path, default=target / "release",
                        help="folder of the preload library (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/bench-node",
                        help="folder for compiled programs (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each kind")
    parser.add_argument("--ranks", type=int, help="only rows with so many ranks")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--further", action="store_true",
                        help="reduce-scatter, allgather and scan instead, and their knob")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds a run may take")
    parser.add_argument("--prefix", type=shlex.split, default=[],
                        help="command that starts each rank and floor, such as 'nice -n -20'")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--json", action="store_true", help="one object per line")
    return parser.parse_args()


def environment(ranks):
    """With a core for every rank, each MPI's defaults; with fewer cores, settings that let it yield."""
    result = running.environment()
    if ranks <= len(os.sched_getaffinity(0)):
        for name in [name for name in running.SETTINGS if name.startswith("MPIR_CVAR_CH4")]:
            result.pop(name, None)
    return result


def run(command, timeout, ranks=1):
    try:
        status, output = running.run(command, timeout, environment(ranks))
    except running.TimedOut as late:
        sys.exit(f"{' '.join(map(str, command))}\n{late}")
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {status}\n{output[-2000:]}")
    return output


def compile_program(compiler, name, build):
    return compile_c(compiler, [HERE / f"{name}.c"], build / name)


def run_cases(mpi, program, ranks, cases, preload, arguments):
    """Median nanoseconds and context switches of each case, in one run."""
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as folder:
        command = [arguments.venvs / mpi / "bin/mpirun", "-n", ranks]
        report = pathlib.Path(folder) / "report.json"
        if preload:
            library = (arguments.libraries / "libtributary.so").resolve()
            if not library.exists():
                sys.exit(f"{library} does not exist; run `make build`")
            command += ["env", f"LD_PRELOAD={library}", f"TRIBUTARY_REPORT={report}"]
            if arguments.further:
                command.append(f"{KNOB}={','.join(f'{operation}:always' for operation in FURTHER)}")
        output = run([*command, *arguments.prefix, program, *cases], arguments.timeout, ranks)
        if preload:
            counts = json.loads(report.read_text())
            if counts["in_host"] == 0:
                sys.exit(f"nothing ran in shared memory: {counts.get('reasons')}")
    figures = {}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) == 5 and fields[0] in cases:
            figures[fields[0]] = (float(fields[2]), float(fields[4]))
    if set(figures) != set(cases):
        sys.exit(f"no figures for some of {cases}:\n{output}")
    return figures


def measure(ranks, cases, programs, arguments):
    """Figures of every round by (mpi, preloaded, case)."""
    runs = {}
    for number in range(arguments.rounds):
        for mpi in MPIS:
            # The order alternates, so that neither always follows the other.
            for preload in ((False, True) if number % 2 == 0 else (True, False)):
                figures = run_cases(mpi, programs[mpi], ranks, cases, preload, arguments)
                for case, figure in figures.items():
                    runs.setdefault((mpi, preload, case), []).append(figure)
    return runs


def moved_bytes(case, ranks):
    """Bytes that one rank must read or write beyond its core's caches; None for short vectors.

    An allreduce: its share of every other vector, and every other share of the result.
    """
    operation, length, *_ = case.split(":")
    if operation != "allreduce" or int(length) < 64 * KIB:
        return None
    return 2 * int(length) * (ranks - 1) // ranks


def floor_ns(case, ranks, floors):
    """The least time of the case on this machine, and why; None if it is not computed."""
    operation, length, *_ = case.split(":")
    length = int(length)
    if moved_bytes(case, ranks) is not None:
        cores = min(ranks, floors["cores"])
        moved = moved_bytes(case, ranks) * ranks / cores
        return moved / floors["copy_bytes_per_ns"], f"{moved:.0f} bytes through each core"
    if ranks > floors["cores"]:
        return (ranks / floors["cores"]) * floors["switch_ns"], "switches of one core's ranks"
    if operation in ("allreduce", "barrier") and length <= 64:
        return floors["line_ns"], "one line, one direction"
    return None, ""


def row(ranks, case, target, runs, floors):
    def median(mpi, preload, index):
        return statistics.median(figure[index] for figure in runs[mpi, preload, case])
    plain = {mpi: median(mpi, False, 0) for mpi in MPIS}
    ours = {mpi: median(mpi, True, 0) for mpi in MPIS}
    better = min(MPIS, key=plain.get)
    least, why = floor_ns(case, ranks, floors)
    return {
        "case": case, "ranks": ranks,
        "plain_ns": plain, "preloaded_ns": ours,
        "switches_plain": {mpi: median(mpi, False, 1) for mpi in MPIS},
        "switches_preloaded": {mpi: median(mpi, True, 1) for mpi in MPIS},
        "better": better, "ratio": plain[better] / ours[better], "target": target,
        "met": plain[better] / ours[better] >= target,
        "floor_ns": least, "floor": why, "moved_bytes": moved_bytes(case, ranks),
    }


def microseconds(ns):
    return f"{ns / 1000:.3f}" if ns < 10000 else f"{ns / 1000:.1f}"


HEADINGS = ("case", "ranks", "Open MPI", "with", "MPICH", "with", "ratio", "target", "", "floor",
            "moved", "switches", "with")
WIDTHS = (24, 6, 10, 10, 10, 10, 7, 7, 8, 9, 10, 9, 7)


def print_row(fields):
    print("".join(f"{field:<{width}}" if at == 0 else f"{field:>{width}}"
                  for at, (field, width) in enumerate(zip(fields, WIDTHS))), flush=True)


def show(result, as_json):
    if as_json:
        print(json.dumps(result), flush=True)
        return
    plain, ours, better = result["plain_ns"], result["preloaded_ns"], result["better"]
    moved = "-" if result["moved_bytes"] is None else result["moved_bytes"]
    floor = microseconds(result["floor_ns"]) if result["floor_ns"] is not None else "-"
    print_row([result["case"], result["ranks"], microseconds(plain["openmpi"]),
               microseconds(ours["openmpi"]), microseconds(plain["mpich"]),
               microseconds(ours["mpich"]), f"{result['ratio']:.2f}", f"{result['target']:.1f}",
               "met" if result["met"] else "missed", floor, moved, f"{result['switches_plain'][better]:.2f}",
               f"{result['switches_preloaded'][better]:.2f}"])


def further(programs, floors, arguments):
    """Times each collective beside both MPIs; prints up to which length it was faster than either."""
    for ranks in [arguments.ranks] if arguments.ranks is not None else [2, 4]:
        longest = {}
        for operation, lengths in FURTHER.items():
            if arguments.filter not in operation:
                continue
            cases = [f"{operation}:{length}" for length in lengths]
            runs = measure(ranks, cases, programs, arguments)
            faster = [0]
            for length, case in zip(lengths, cases):
                result = row(ranks, case, 1.0, runs, floors)
                show(result, arguments.json)
                faster += [length] if result["ratio"] > 1 else []
            longest[operation] = "always" if faster[-1] == lengths[-1] else faster[-1]
        if not arguments.json:
            said = ",".join(f"{operation}:{most}" for operation, most in longest.items())
            print(f"{KNOB}={said}  # {ranks} ranks", flush=True)


def main():
    arguments = parse_arguments()
    programs = {mpi: compile_program(arguments.venvs / mpi / "bin/mpicc", "collectives",
                                     arguments.build / mpi) for mpi in MPIS}
    floors_program = compile_program("cc", "floors", arguments.build)
    floors = json.loads(run([*arguments.prefix, floors_program], arguments.timeout))
    if arguments.json:
        print(json.dumps({"floors": floors}), flush=True)
    else:
        print("floors: " + ", ".join(f"{name} {value:g}" for name, value in floors.items()))
        print("microseconds a call; `with`: the same program with the library preloaded; moved: bytes "
              "a rank must move at least; floor: those at the machine's copy speed, or lines, or "
              "switches; switches: context switches of all ranks a call, on the better MPI")
        print_row(HEADINGS)
    if arguments.further:
        further(programs, floors, arguments)
        return 0
    missed, rows = 0, 0
    for ranks, cases in TABLE:
        wanted = [(case, target) for case, target in cases if arguments.filter in case]
        if not wanted or arguments.ranks not in (None, ranks):
            continue
        runs = measure(ranks, [case for case, _ in wanted], programs, arguments)
        for case, target in wanted:
            result = row(ranks, case, target, runs, floors)
            missed, rows = missed + (not result["met"]), rows + 1
            show(result, arguments.json)
    if not arguments.json:
        print(f"{rows - missed} of {rows} targets met")
    return 1 if missed and arguments.strict else 0


if __name__ == "__main__":
    sys.exit(main())
