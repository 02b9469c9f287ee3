"""Runs `times`, whose collectives are known, and checks that the report tells their times.

Every collective must be in the cell of its kind, path and size class, with as many calls as were made;
the times must be as long as the program made them, and no longer than the program ran. The same program
with offloading off must have the same calls, all passed through: the baseline of `tributary report`, whose
comparison and drawing are checked as well. Without times in the report nothing may be measured.

Each run is traced too: the trace must have the same calls on the same paths, lie within the program's time, and
be replayed by the simulator to its end.
"""

import json
import os
import subprocess
import time

import pytest
from harness.places import mpirun
from harness.running import Failure
from programs import Program, environment_of, run_checked

RANKS = 4
# Where a kind of the group `further` may go on several hosts.
ANY = ("in_host", "in_tree", "direct", "passed_through")
PROGRAM = Program("times")
# check_finish() calls it.
ALSO_MADE = ("allreduce", 16)
TOLERANCE_CLOCKS = 1.05
# Kinds that no rank leaves before all have come.
WAITED_FOR_ALL = ("allreduce", "barrier", "reduce_scatter", "allgather")
# The last to come may be the last to leave, by as much as a busy machine makes it.
FOUND_SHARE = 0.5


def paths_of(group, hosts, is_off):
    """The paths that a group of collectives may take."""
    if is_off or group == "passed":
        return ("passed_through",)
    if group == "further" and hosts > 1:
        return ANY
    return ("in_tree",) if hosts > 1 and group != "host" else ("in_host",)


def class_of(bytes_):
    """The shortest contribution of a size class, as the report's keys have it."""
    return 0 if bytes_ == 0 else 1 << (bytes_.bit_length() - 1)


def made_by(output):
    """What the program says it made: measured cells, and nonblocking calls, by collective."""
    cells, started = {}, {}
    for line in output.splitlines():
        words = line.split()
        if words[:1] != ["made"] or len(words) != 6:
            continue
        kind, bytes_, calls, group, least_us = words[1], *map(int, words[2:4]), words[4], int(words[5])
        if group == "started":
            started[kind] = started.get(kind, 0) + calls
            continue
        cell = cells.setdefault((kind, class_of(bytes_)), {"calls": 0, "least_us": 0, "group": group})
        if cell["group"] != group:
            raise Failure(f"{kind} of {bytes_} bytes is in the groups {cell['group']} and {group}")
        cell["calls"] += calls
        cell["least_us"] += least_us
    if not cells or not started:
        raise Failure("the program does not say what it made", output)
    return cells, started


def check_cell(name, path, cell, made, allowed):
    if path not in allowed:
        raise Failure(f"{name}: in {path}, expected {allowed}")
    if cell["calls"] != made["calls"]:
        raise Failure(f"{name}: {cell['calls']} calls, {made['calls']} were made")
    if sum(cell["durations"].values()) != cell["calls"]:
        raise Failure(f"{name}: the histogram has {sum(cell['durations'].values())} calls of "
                          f"{cell['calls']}")
    if not 0 < cell["min_ns"] <= cell["total_ns"] / cell["calls"] <= cell["max_ns"]:
        raise Failure(f"{name}: min, mean and max are {cell}")
    if cell["total_ns"] < made["least_us"] * 1000:
        raise Failure(f"{name}: {cell['total_ns']} ns, took {made['least_us']} us at least")


def check_waiting(key, cell, least_us):
    """So few calls are all compared between their ranks; what ranks wait for a late one is found in them."""
    kind, bytes_ = key
    is_compared = kind in WAITED_FOR_ALL and (bytes_ > 0 or kind == "barrier")
    compared_ns, waiting_ns = cell.get("compared_ns", 0), cell.get("waiting_ns", 0)
    if compared_ns != (cell["total_ns"] if is_compared else 0):
        raise Failure(f"{key}: {compared_ns} ns compared of {cell['total_ns']} ns")
    if not least_us * 1000 * FOUND_SHARE <= waiting_ns <= compared_ns:
        raise Failure(f"{key}: {waiting_ns} ns of waiting, of {least_us} us at least")


def check_times(report, output, hosts, is_off):
    """Compares the report with what the program made."""
    times = report.get("times")
    if times is None:
        raise Failure("the report has no times", output)
    made, started = made_by(output)
    cells = [((kind, int(size)), path, cell) for kind, paths in times["collectives"].items()
             for path, sizes in paths.items() for size, cell in sizes.items()]
    for key, path, cell in cells:
        if key in made:
            allowed = paths_of(made[key]["group"], hosts, is_off)
            check_cell(f"{key[0]} of {key[1]} bytes", path, cell, made[key], allowed)
            check_waiting(key, cell, made[key]["least_us"])
        elif key != ALSO_MADE:
            raise Failure(f"{key} in {path}: nobody made it: {cell}", output)
    missing = made.keys() - {key for key, _, _ in cells}
    if missing:
        raise Failure(f"the report lacks {sorted(missing)}", output)
    if times.get("not_measured") != started:
        raise Failure(f"not measured: {times.get('not_measured')}, expected {started}", output)
    inside = sum(cell["total_ns"] for _, _, cell in cells)
    if times["ranks"] != RANKS or not 0 < inside < times["program_ns"]:
        raise Failure(f"{inside} ns inside of {times['program_ns']} ns, {times['ranks']} ranks")


def run_times(options, mpi, path, hosts, report, environment, more=()):
    """One run; the report and what the program printed. Its trace is checked if the report has times."""
    report.unlink(missing_ok=True)
    trace = report.with_suffix(".trace")
    if environment["TRIBUTARY_TIMES"] == "on":
        environment = environment | {"TRIBUTARY_TRACE": str(trace)}
    words = [options.tributary, "run", "--hosts", str(hosts), "--report", report, *more, "--",
             mpirun(options, mpi), "-n", str(RANKS), path,
             "--watchdog", str(max(1, int(options.timeout) - 10))]
    started = time.monotonic()
    output = run_checked(PROGRAM, words, environment, options.timeout)
    wall_ns = (time.monotonic() - started) * 1e9
    found = json.loads(report.read_text())
    program_ns = (found.get("times") or {}).get("program_ns", 0)
    if program_ns > RANKS * wall_ns * TOLERANCE_CLOCKS:
        raise Failure(f"{program_ns} ns of {RANKS} ranks in {wall_ns} ns", output)
    if environment["TRIBUTARY_TIMES"] == "on":
        check_trace(options, trace, found, hosts)
    return found, output


# Paths as the report and as the trace name them.
TRACED_PATHS = {"host": "in_host", "tree": "in_tree", "direct": "direct", "passed": "passed_through"}


def check_trace(options, path, report, hosts):
    """Compares a trace with the report of the same run, and replays it."""
    calls, places, within = {}, set(), {}
    for line in path.read_text().splitlines()[2:]:
        words = line.split()
        if words[0] == "rank":
            rank, left_out = int(words[1]), int(words[7])
            places.add(words[3])
            within[rank] = int(words[5])
            if left_out:
                raise Failure(f"rank {rank} has left {left_out} calls out")
        elif words[0] != "communicator":
            kind, bytes_, way, gap, length = words[1], int(words[3]), *words[4:]
            key = (kind, class_of(bytes_), TRACED_PATHS[way])
            calls[key] = calls.get(key, 0) + 1
            within[rank] -= int(gap) + int(length)
    reported = {(kind, int(size), way): cell["calls"]
                for kind, paths in report["times"]["collectives"].items()
                for way, sizes in paths.items() for size, cell in sizes.items()}
    if calls != reported:
        raise Failure(f"traced {calls}, reported {reported}")
    if len(within) != RANKS or min(within.values()) < 0 or len(places) != hosts:
        raise Failure(f"ranks and what is left of their time: {within}; hosts {places}")
    words = [options.tributary, "sim", "replay", "--trace", path, "--csv"]
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
    if done.returncode != 0 or len(done.stdout.splitlines()) < len({key[:2] for key in calls}):
        raise Failure("the simulator does not replay the trace", done.stdout + done.stderr)


def check_reasons(report):
    """With offloading off nothing is offloaded, and the report says why."""
    if report["passed_through"] == 0 or report["in_host"] + report["in_tree"] + report["direct"] > 0:
        raise Failure(f"offloading is off, and the report says {report}")
    if not any("switched off" in reason for reason in report["reasons"]):
        raise Failure(f"switched off is no reason of {report['reasons']}")


def check_comparison(options, ours, baseline, drawing):
    """`tributary report` compares the two, as text, JSON and a drawing."""
    words = [options.tributary, "report", ours, "--baseline", baseline, "--json", "--plot", drawing]
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure("tributary report failed", done.stderr)
    rows = json.loads(done.stdout)["compared"]
    differing = [row for row in rows if row["calls"] != row["baseline_calls"]]
    if not rows or differing:
        raise Failure(f"compared: {differing}", done.stdout)
    if drawing.read_text().count("<svg") < 2:
        raise Failure(f"{drawing} holds no panel")


@pytest.mark.parametrize("hosts", [1, 2])
def test_reports_tell_times(mpi, hosts, options, compiled):
    """With times, without, and with offloading off."""
    path = compiled("times", mpi)
    folder = path.parent
    environment = environment_of(mpi, PATH=f"{mpirun(options, mpi).parent}:{os.environ['PATH']}") | {"TRIBUTARY_TIMES": "on"}
    ours, baseline = folder / f"times-{hosts}.json", folder / f"times-{hosts}-off.json"
    report, output = run_times(options, mpi, path, hosts, ours, environment)
    check_times(report, output, hosts, False)
    silent, _ = run_times(options, mpi, path, hosts, folder / "times-none.json", environment | {"TRIBUTARY_TIMES": "off"})
    if "times" in silent or silent["communicators"] != report["communicators"]:
        raise Failure(f"without times the report says {silent}")
    off, output = run_times(options, mpi, path, hosts, baseline, environment, ("--offload", "off"))
    check_times(off, output, hosts, True)
    check_reasons(off)
    check_comparison(options, ours, baseline, folder / f"times-{hosts}.svg")
