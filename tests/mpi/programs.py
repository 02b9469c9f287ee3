"""The MPI test programs, the runs of each, and what is checked from outside.

Every program checks itself and says which rank failed in which case. Visible from outside are exit codes, hangs, the end-of-run
report, and equal bits in two runs.
"""

import dataclasses
import json
import pathlib
import re
import shlex
import tempfile

from harness import running
from harness.places import mpirun
from harness.running import Failure

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
        code, output = running.run(command, timeout, environment)
        if code != 0 and not program.abrupt:
            raise Failure(f"exit code {code}", output)
        if program.abrupt and re.search(r" 0 failed", output) is None:
            raise Failure("did not say that its checks passed", output)
    except Failure as failure:
        line = shlex.join(str(word) for word in command)
        raise Failure(failure.reason, f"{line}\n{failure.output}") from None
    return output


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


def run_once(options, mpi, program, path, run, environment):
    """One launch of a compiled program. Returns its output and its counts (none with plain MPI)."""
    ranks, hosts, extra = run
    command = [mpirun(options, mpi), *program.launcher, "-n", str(ranks), *program.runner, path, *arguments_of(options, extra)]
    if options.without:
        return run_checked(program, command, environment, options.timeout), None
    report = path.with_name(f"{program.name}-{ranks}-{hosts}.json")
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


def run_program(options, mpi, program, path, run):
    """Runs a program as often as it has to run; its output and its counts."""
    environment = environment_of(mpi) | dict(program.settings)
    output, counts = run_once(options, mpi, program, path, run, environment)
    # Tributary guarantees equal bits; plain MPICH does not.
    if program.twice and not options.without:
        check_bits(output, run_once(options, mpi, program, path, run, environment)[0])
    return output, counts


def environment_of(mpi, **further):
    """The environment of an MPI's launcher."""
    return running.environment(**further) | (DEBIAN_SETTINGS if mpi in DEBIAN else {})


def runs_of(options, mpi, program):
    """The runs of a program that the options select."""
    runs = [run for run in program.matrix
            if (mpi not in DEBIAN or (run[0] == DEBIAN_RANKS and run[1] <= DEBIAN_HOSTS_MAX))
            and (options.procs is None or run[0] in options.procs)
            and (options.hosts is None or run[1] in options.hosts)]
    if options.without:  # hosts mean nothing to plain MPI
        runs = list({run[0]: (run[0], 1, run[2]) for run in reversed(runs)}.values())[::-1]
    return runs


def programs_of(mpi):
    if mpi in DEBIAN:
        return [program for program in PROGRAMS
                if program.name in DEBIAN_PROGRAMS and not dict(program.settings).get("SESSIONS")
                and (mpi, program.name) not in DEBIAN_FAILS]
    return [program for program in PROGRAMS if mpi in program.mpis]
