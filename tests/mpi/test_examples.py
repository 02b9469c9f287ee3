"""Compiles and runs the MPI examples as their first lines say, on two emulated hosts, and looks at the report.

The Fortran one needs a Fortran compiler and runs under Debian's Open MPI; the others run under the wheel's.
"""

import json
import shutil

from harness import running
from harness.compiling import compile_c
from harness.places import ROOT, mpicc, mpirun
from harness.plugin import skip_unless_ci

EXAMPLES = ROOT / "examples"
RANKS = 4


def run_example(command, launcher, settings, options, folder):
    """Runs an example; its operations run in the tree."""
    report = folder / "report.json"
    words = ["env", "TRIBUTARY_BETWEEN_HOSTS=tree", *(f"{key}={value}" for key, value in settings.items()),
             options.tributary, "run", "--hosts", 2, "--report", report, "--", launcher, "-n", RANKS, *command]
    code, text = running.run(words, options.timeout)
    assert code == 0 and f"{RANKS} ranks: " in text, f"exit code {code}\n{text}"
    in_tree = json.loads(report.read_text())["in_tree"]
    assert in_tree >= 100, f"{in_tree} operations ran in_tree\n{text}"


def test_allreduce_in_c(options, tmp_path):
    program = compile_c(mpicc(options, "openmpi"), [EXAMPLES / "allreduce.c"], tmp_path / "allreduce")
    run_example([program], mpirun(options, "openmpi"), {}, options, tmp_path)


def test_allreduce_in_python(options, tmp_path):
    libraries = mpirun(options, "openmpi").parent.with_name("lib")
    settings = {"LD_LIBRARY_PATH": libraries, "MPI4PY_LIBMPI": libraries / "libmpi.so.40"}
    command = [options.venvs / "mpi4py/bin/python", EXAMPLES / "allreduce_mpi4py.py"]
    run_example(command, mpirun(options, "openmpi"), settings, options, tmp_path)


def test_conjugate_gradients_in_fortran(options, tmp_path):
    compiler = find_fortran()
    program = tmp_path / "cg_mpi"
    code, text = running.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLES / "cg_mpi.f90", "-o", program], options.timeout)
    assert code == 0, text
    run_example([program], mpirun(options, "debian-openmpi"), {}, options, tmp_path)


def find_fortran():
    """The compiler of Debian's Open MPI."""
    compiler = shutil.which("mpif90.openmpi")
    if compiler is None:
        skip_unless_ci("mpif90.openmpi is not installed: run `make mpi-debian`")
    return compiler
