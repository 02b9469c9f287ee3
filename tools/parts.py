#!/usr/bin/env python3
"""Runs make targets one after the other, and says how long each took beside the time that is planned for it.

    tools/parts.py test-style test-rust     runs both; ends with the first that fails
    tools/parts.py --planned                prints what is planned

Nothing fails by its time: a machine may be slower or busy. A part that takes much longer than planned on two idle cores is
to be shortened, or its plan changed with a reason.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

# Seconds on two idle cores, on a fresh clone. `make demo` compiles the program, so that the parts behind it need not.
PLANNED_S = {
    "demo": 360, "test-style": 110, "test-rust": 600, "test-mpi-short": 240, "test-python": 70, "test-install": 10,
    "test-lab-short": 270, "test-wheel": 100, "test-torch": 480,
    "test-mpi": 900, "test-lab": 1800,
}

# What CI runs; the others run by hand.
OF_CI = [part for part in PLANNED_S if part not in ("test-mpi", "test-lab")]


def in_minutes(seconds):
    return f"{seconds / 60:.1f} min"


def planned():
    """A line for each part, and the sum of those of CI."""
    lines = [f"{part:14} {in_minutes(seconds):>9}" for part, seconds in PLANNED_S.items()]
    of_ci = sum(PLANNED_S[part] for part in OF_CI)
    return "\n".join([*lines, f"{'all of CI':14} {in_minutes(of_ci):>9}"])


def free_gib():
    """GiB that are free on the file system of the current folder, for a user who isn't root."""
    return shutil.disk_usage(".").free / 2**30


def run(part, *variables):
    """Runs a target; its exit code. Says the disk that it took too: a full disk fails whatever part comes next."""
    began_at = time.monotonic()
    free_at_begin = free_gib()
    code = subprocess.run([os.environ.get("MAKE", "make"), "--no-print-directory", part, *variables], check=False).returncode
    outcome = "took" if code == 0 else "FAILED after"
    plan = f", {in_minutes(PLANNED_S[part])} planned" if part in PLANNED_S else ""
    free = free_gib()
    disk = f"; {free_at_begin - free:.1f} GiB of disk, {free:.1f} GiB free"
    print(f"{part} {outcome} {in_minutes(time.monotonic() - began_at)}{plan}{disk}", flush=True)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planned", action="store_true", help="print what is planned, and run nothing")
    parser.add_argument("parts", nargs="*", metavar="TARGET|NAME=VALUE", help="targets, and variables for all of them")
    options = parser.parse_args()
    if options.planned:
        print(planned())
        return 0
    variables = [word for word in options.parts if "=" in word]
    return next((code for part in options.parts if part not in variables and (code := run(part, *variables))), 0)


if __name__ == "__main__":
    sys.exit(main())
