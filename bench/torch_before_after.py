#!/usr/bin/env python3
"""Compares two wheels by bench/torch_gloo.py, case by case: is the backend of torch slower in any than it was?

    make torch-venv
    .venv/torch/bin/python bench/torch_before_after.py --before OLD.whl --after build/wheels/tributary-*.whl
    ... --lab 4,8 --tributary target/release/tributary

The wheels take turns in every round, one first and then the other, so slow minutes of the machine meet both. A ratio below
1 is faster now: the median over rounds, and the best round of either. Where there are more ranks than cores, the kernel's
placement decides a round, and the best rounds compare the wheels.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILDS = ("before", "after")


def install(wheel, folder):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--target", folder, wheel], check=True)


def run(folder, words):
    """The times of one run, in us, by case."""
    done = subprocess.run([sys.executable, HERE / "torch_gloo.py", "--json", "--backends", "tributary", *words],
                          check=True, text=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folder})
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        case = line["ranks"], line["collective"], line["type"], line["bytes"]
        found[case] = line["us"]["tributary"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=pathlib.Path, help="a wheel")
    parser.add_argument("--after", required=True, type=pathlib.Path, help="a wheel")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path, help="also write every time there as JSON")
    arguments, words = parser.parse_known_args()
    times = {}
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as path:
        folders = {build: os.path.join(path, build) for build in BUILDS}
        for build, folder in folders.items():
            install(getattr(arguments, build), folder)
        for number in range(arguments.rounds):
            for build in BUILDS if number % 2 == 0 else reversed(BUILDS):
                print(f"round {number + 1} of {arguments.rounds}: {build}", file=sys.stderr, flush=True)
                for case, us in run(folders[build], words).items():
                    times.setdefault(case, {}).setdefault(build, []).append(us)
    if arguments.output:
        arguments.output.write_text(json.dumps([[*case, by] for case, by in times.items()]), encoding="utf-8")
    print(f"{'ranks':>5} {'collective':>14} {'type':>8} {'bytes':>9} {'before, us':>12} {'after, us':>12} "
          f"{'median':>7} {'best':>5}")
    for (ranks, collective, dtype, len_bytes), by in times.items():
        before, after = (statistics.median(by[build]) for build in BUILDS)
        best = min(by["after"]) / min(by["before"])
        print(f"{ranks:>5} {collective:>14} {dtype:>8} {len_bytes:>9} {before:>12,.1f} {after:>12,.1f} "
              f"{after / before:>7.2f} {best:>5.2f}")


if __name__ == "__main__":
    main()
