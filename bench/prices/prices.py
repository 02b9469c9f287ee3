#!/usr/bin/env python3
"""Measures what messages cost on this machine: the prices that presets of the simulator ask for.

A price is all processor time that one more message takes, in its sender and its receiver: the calls, the network stack,
the wake-up of a process that sleeps until it comes. Messages go at several fixed rates, and the price is the slope of
processor time over messages, less what the sender's clock takes for as many ticks. So nothing that goes on anyway is in it.
The time is the scheduler's own account of both processes, in nanoseconds. Sockets are those of the loopback interface: a
driver's work is not in it.

Each price is measured in several rounds, all prices in turn, so that slow minutes of the machine meet all of them. The
median counts. A price whose rounds differ too much is not reported: it stands as NA, and the program fails. --programs
measures programs inside the kernel instead, while something else sends them packets, by kernel.bpf_stats_enabled.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TICKS_PER_SECOND = [500, 1000, 2000, 4000]
BATCHES = [1, 2, 4, 8, 16, 32]
# A run in which the sender fell further behind its clock, or messages were lost, is no run at that rate.
KEPT_PACE_MIN = 0.95
# Fewer valid rounds say nothing of their spread.
ROUNDS_MIN = 5
# Runs of a program in a window; fewer are chance.
PROGRAM_RUNS_MIN = 1000
STATISTICS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")


def cases():
    """What is measured: its name, and the case, the length and the batch of prices.c."""
    yield "wake-up by a timer", "pace", 8, 1
    yield "wake-up by an eventfd, with a write and a read", "event", 8, 1
    for length in (8, 4096):
        yield "shared memory, with a wake-up by a futex", "memory", length, 1
    for length in (8, 256, 1388, 4096):
        yield "stream socket, sent and received", "stream", length, 1
    for length in (256, 1388):
        yield "datagram, sent and received", "datagram", length, 1
    for batch in BATCHES:
        yield "datagram, by sendmmsg and recvmmsg", "datagram", 8, batch


def slope(points):
    """The slope of the line with the least squared distances from points (x, y)."""
    x_mean = statistics.fmean(x for x, _ in points)
    y_mean = statistics.fmean(y for _, y in points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread


def fault_of(run, case, batch, ticks_per_second):
    """Why a run does not count, or None."""
    pace = run["ticks"] / run["seconds"] / ticks_per_second
    if pace < KEPT_PACE_MIN:
        return f"the sender kept {pace:.0%} of its pace"
    sent = 0 if case == "pace" else run["ticks"] * batch
    if run["received"] != sent:
        return f"{run['received']} of {sent} messages arrived"
    return None


def slope_of(program, case, length, batch, seconds):
    """Nanoseconds of processor time for a tick of a case. Raises ValueError if a run does not count."""
    points = []
    for ticks_per_second in TICKS_PER_SECOND:
        command = [program, case, str(length), str(batch), str(ticks_per_second), str(seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        run = json.loads(done.stdout)
        fault = fault_of(run, case, batch, ticks_per_second)
        if fault:
            raise ValueError(f"{ticks_per_second} ticks a second: {fault}")
        points.append((run["ticks"] / run["seconds"], run["cpu_ns"] / run["seconds"]))
    return slope(points)


def judged(values, spread_max, faults=()):
    """The median of the rounds with its spread, or why it is not reported."""
    if len(values) < ROUNDS_MIN:
        last = f", the last because {faults[-1]}" if faults else ""
        return {"ns": None, "cause": f"{len(values)} of {len(values) + len(faults)} rounds count{last}"}
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    row = {"q1_ns": q1, "q3_ns": q3, "rounds": len(values)}
    if median <= 0:
        return {"ns": None, "cause": "less than what the clock takes", **row}
    row["spread"] = (q3 - q1) / median
    if row["spread"] > spread_max:
        return {"ns": None, "cause": f"half of the rounds spread over {row['spread']:.0%} of the median", **row}
    return {"ns": median, "cause": None, **row}


def measure(program, options):
    wanted = list(cases())
    rounds = {case: [] for case in wanted}
    faults = {case: [] for case in wanted}
    for _ in range(options.rounds):
        pace_ns = None
        for case in wanted:
            name, kind, length, batch = case
            try:
                each_ns = slope_of(program, kind, length, batch, options.seconds)
                if kind == "pace":
                    pace_ns = each_ns
                elif pace_ns is None:
                    raise ValueError("the round's own clock was not measured")
                else:
                    each_ns -= pace_ns
                rounds[case].append(each_ns / batch)
            except ValueError as fault:
                faults[case].append(str(fault))
    for case in wanted:
        name, _, length, batch = case
        judgement = judged(rounds[case], options.spread_max, faults[case])
        yield {"price": name, "bytes": length, "batch": batch, **judgement}


def program_counts():
    """Name, runs and nanoseconds of every program inside the kernel that a process holds, by its number."""
    counts = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/fdinfo/*"):
        try:
            fields = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
            holder = (entry.parents[1] / "comm").read_text().strip()
        except OSError:
            continue  # the process or the descriptor has gone
        if "run_cnt" in fields:
            number = int(fields["prog_id"])
            counts[number] = (holder, int(fields["run_cnt"]), int(fields["run_time_ns"]))
    return counts


def measure_programs(options):
    """The time of each program by run, over windows of the time given."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        seen = [program_counts()]
        for _ in range(options.rounds):
            time.sleep(options.programs / options.rounds)
            seen.append(program_counts())
    finally:
        STATISTICS.write_text(before)
    for number, (holder, _, _) in sorted(seen[-1].items()):
        values, faults = [], []
        for then, now in zip(seen, seen[1:]):
            if number not in then or number not in now:
                faults.append("it was not there")
                continue
            runs = now[number][1] - then[number][1]
            if runs < PROGRAM_RUNS_MIN:
                faults.append(f"it ran {runs} times")
            else:
                values.append((now[number][2] - then[number][2]) / runs)
        name = f"program {number} of {holder}, a run"
        yield {"price": name, "bytes": None, "batch": 1, **judged(values, options.spread_max, faults)}


def machine():
    model = platform.processor()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    load = os.getloadavg()[0]
    return {"processor": model, "cores": os.cpu_count(), "kernel": platform.release(), "load": load}


def table(report):
    host = report["machine"]
    yield f"{host['processor']}, {host['cores']} cores, Linux {host['kernel']}, load {host['load']:.1f}"
    yield f"{'price':48} {'bytes':>6} {'batch':>5} {'ns':>8} {'q1':>8} {'q3':>8} {'spread':>7}  cause"
    number = lambda value, form="8.0f": f"{'NA':>8}" if value is None else f"{value:{form}}"
    for row in report["prices"]:
        spread = f"{row['spread']:7.0%}" if "spread" in row else f"{'NA':>7}"
        length = "" if row["bytes"] is None else row["bytes"]
        yield (f"{row['price']:48} {length:>6} {row['batch']:>5} {number(row['ns'])} {number(row.get('q1_ns'))} "
               f"{number(row.get('q3_ns'))} {spread}  {row['cause'] or ''}").rstrip()


def compiled(folder):
    program = str(pathlib.Path(folder) / "prices")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", program, str(HERE / "prices.c")], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each price (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a run at one rate (default: 0.5)")
    parser.add_argument("--spread-max", type=float, default=0.1,
                        help="largest distance of the quartiles that is reported, by the median (default: 0.1)")
    parser.add_argument("--programs", type=float, metavar="SECONDS",
                        help="measure programs inside the kernel for so long; needs root")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args()
    if options.rounds < ROUNDS_MIN:
        parser.error(f"--rounds {options.rounds}: allowed is {ROUNDS_MIN} or more")
    if options.programs:
        rows = list(measure_programs(options))
        if not rows:
            sys.exit("prices: no process holds a program inside the kernel")
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = list(measure(compiled(folder), options))
    report = {"machine": machine(), "command": sys.argv[1:], "prices": rows}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(table(report)))
    refused = [row for row in rows if row["ns"] is None]
    if refused:
        sys.exit(f"prices: {len(refused)} of {len(rows)} are not reported")


if __name__ == "__main__":
    main()
