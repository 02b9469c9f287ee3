#!/usr/bin/env python3
"""Installs libsharp_coll as its users do, and builds and runs a client against what was installed alone.

The client is compiled with what `sharp.pc` says, finds the library by its soname in the installed folder, and runs as
four processes through aggregation nodes: the report must show operations in the tree.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIENT = ROOT / "crates/capi/tests/client"
SOURCES = [CLIENT / name for name in ("client.c", "collectives.c", "ranks.c")]
INSTALLED = ["include/sharp/api/sharp.h", "include/sharp/api/sharp_coll.h", "include/sharp/api/version.h",
             "lib/libsharp_coll.so", "lib/libsharp_coll.so.0", "lib/pkgconfig/sharp.pc"]
HOSTS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, required=True, help="the program `tributary`")
    return parser.parse_args()


def run(words, **options):
    """The output of a command; ends this program if the command fails."""
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{words} failed with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def needed_by(file):
    """Names of the libraries that a program was linked with."""
    lines = run(["readelf", "--dynamic", file]).splitlines()
    return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="tributary-install-") as temporary:
        prefix = pathlib.Path(temporary, "prefix")
        # As a user types it: without what a make around this has set.
        alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        run(["make", "--no-print-directory", "install", f"PREFIX={prefix}"], cwd=ROOT, env=alone)
        missing = [name for name in INSTALLED if not (prefix / name).exists()]
        if missing:
            sys.exit(f"make install left out {', '.join(missing)}")
        packages = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
        flags = run(["pkg-config", "--cflags", "--libs", "sharp"], env=packages).split()
        program = pathlib.Path(temporary, "client")
        compiler = os.environ.get("CC", "cc")
        run([compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *SOURCES, *flags, "-lpthread", "-o", program])
        if "libsharp_coll.so.0" not in needed_by(program):
            sys.exit(f"the client needs {needed_by(program)}, and not libsharp_coll.so.0")
        report = pathlib.Path(temporary, "report.json")
        told = run([arguments.tributary.resolve(), "run", "--hosts", HOSTS, "--report", report, "--", "env", "-u", "LD_PRELOAD",
                    f"LD_LIBRARY_PATH={prefix / 'lib'}", program, "everything", HOSTS])
        if not told.endswith("statuses 0\n"):
            sys.exit(f"the client failed:\n{told}")
        counts = json.loads(report.read_text(encoding="utf-8"))
        if not counts["in_tree"] or counts["in_host"]:
            sys.exit(f"operations did not go through nodes: {counts}")
        print(f"installed, compiled by sharp.pc, {counts['in_tree']} operations in the tree")


if __name__ == "__main__":
    main()
