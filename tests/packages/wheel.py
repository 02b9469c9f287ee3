#!/usr/bin/env python3
"""Goal: `pip install` of the wheel is the whole set-up. Method: a fresh virtual environment with the wheel,
mpi4py and an MPI from PyPI runs a program on one host and on two emulated ones, and the report says which path
its operations took. auditwheel and objdump say which glibc the wheel needs.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
import zipfile

import counts

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 300
ELF = b"\x7fELF"


def run(*command, **variables):
    """A command's output, of both kinds; its failure is this test's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRIBUTARY_")}
    done = subprocess.run([str(word) for word in command], env={**own, **counts.MPIRUN, **variables}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def check_platform(wheel, auditwheel, glibc, folder):
    """Every program and library in the wheel runs with `glibc`, and the wheel's name says so."""
    tag = f"manylinux_{glibc.replace('.', '_')}_"
    assert tag in wheel.name, wheel.name
    assert tag in run(auditwheel, "show", wheel).split("following platform tag:")[1].split("\n\n")[0]
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    files = [file for file in folder.rglob("*") if file.is_file() and file.read_bytes()[:4] == ELF]
    assert {file.name for file in files} == {"tributary", "libtributary.so", "_tributary.abi3.so"}, files
    for file in files:
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", run("objdump", "-T", file))}
        assert versions and max(versions) <= tuple(map(int, glibc.split("."))), (file, max(versions))
    print(f"{wheel.name}: {len(files)} files run with glibc {glibc}")


def check_jobs(wheel, requirements, folder):
    """The set-up that the documentation promises, followed to the letter."""
    venv.create(folder / "venv", with_pip=True)
    bin_folder = folder / "venv" / "bin"
    run(bin_folder / "pip", "install", "--quiet", "--disable-pip-version-check", wheel, *requirements)
    path = f"{bin_folder}:{os.environ['PATH']}"
    for hosts, way in ((1, "in_host"), (2, "in_tree")):
        report = folder / f"report-{hosts}.json"
        run(bin_folder / "tributary", "run", "--hosts", hosts, "--report", report, "--", "mpirun", "-n", counts.RANKS,
            "python", HERE / "app.py", counts.ROUNDS, PATH=path, TRIBUTARY_BETWEEN_HOSTS="tree")
        print(counts.require(report, way))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=pathlib.Path, required=True, help="the folder that holds the wheel")
    parser.add_argument("--auditwheel", type=pathlib.Path, required=True)
    parser.add_argument("--glibc", required=True, help="the oldest that the wheel has to run with")
    parser.add_argument("requirements", nargs="+", help="what else a person would install")
    options = parser.parse_args()
    [wheel] = options.wheels.resolve().glob("tributary-*.whl")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_platform(wheel, options.auditwheel, options.glibc, folder / "unpacked")
        check_jobs(wheel, options.requirements, folder)


if __name__ == "__main__":
    sys.exit(main())
