"""Runs applications that Debian packages, unmodified, with plain MPI and with the preload library.

Quantum ESPRESSO (Fortran), HPC Challenge (C) and a solver that is linked with PETSc (C), all with Debian's
Open MPI. A run passes if what the application prints of its results is what it prints with plain MPI, to the
last digit, and if the report has offloaded operations.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import time

import pytest
from harness import running
from harness.places import MPI_TESTS

INPUTS = MPI_TESTS / "applications"
RANKS = 2
# 0: plain MPI.
HOSTS = (0, 1, 2)
# Two ranks on two cores: threads of a rank would take the other's core.
SETTINGS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclasses.dataclass(frozen=True)
class Application:
    """One application: how to run it in a folder, and which lines of its output are results."""

    name: str
    program: str
    arguments: tuple
    results: str
    # The file that holds them; standard output without one.
    output: str = ""
    inputs: tuple = ()


APPLICATIONS = (
    Application("Quantum ESPRESSO", "pw.x", ("-in", "silicon.in"),
                r"^!.*|^ +number of electrons.*|^ +highest occupied.*|^ +convergence has been.*",
                inputs=("silicon.in", "pseudopotential.in")),
    Application("HPC Challenge", "hpcc", (),
                r"^Success=.*|^PTRANS_residual=.*|^MPIFFT_maxErr=.*|^MPIRandomAccess_Errors=.*|^HPL_N=.*",
                output="hpccoutf.txt", inputs=("hpccinf.txt",)),
    Application("PETSc", "poisson", (), r"^iterations .*", inputs=("poisson.c",)),
)


def prepare(application, folder):
    """Copies the inputs, and makes what is made of them; the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in application.inputs:
        shutil.copy(INPUTS / name, folder)
    if application.name == "Quantum ESPRESSO":
        with (folder / "pseudopotential.in").open() as text:
            subprocess.run(["ld1.x"], stdin=text, cwd=folder, check=True, capture_output=True)
    if application.name == "PETSc":
        # Debian's alternative for real numbers.
        petsc = next(pathlib.Path("/usr/lib/petscdir").glob("petsc*/*-real"))
        subprocess.run(["mpicc.openmpi", "poisson.c", f"-I{petsc}/include", f"-L{petsc}/lib", "-lpetsc_real",
                        "-o", "poisson"], cwd=folder, check=True)
        return folder / "poisson"
    program = shutil.which(application.program)
    assert program, f"{application.program} is not installed: run `make test-applications`"
    return program


def run_once(options, application, program, folder, hosts):
    """What it printed of its results, seconds, and counts of the report."""
    report = folder / "report.json"
    for left in (report, folder / application.output if application.output else report):
        left.unlink(missing_ok=True)
    words = ["mpirun.openmpi", "-n", RANKS, program, *application.arguments]
    if hosts:
        words = [options.tributary, "run", "--hosts", hosts, "--report", report, "--", *words]
    started = time.monotonic()
    code, output = running.run(["env", "-C", folder, *words], options.timeout,
                                  running.environment(**SETTINGS))
    seconds = time.monotonic() - started
    assert code == 0, f"exit code {code}:\n{output[-3000:]}"
    text = (folder / application.output).read_text() if application.output else output
    results = re.findall(application.results, text, re.MULTILINE)
    assert results, f"printed no results:\n{output[-3000:]}"
    return results, seconds, json.loads(report.read_text()) if hosts else None


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda it: it.name)
def test_results_are_those_of_the_plain_mpi(application, options, tell):
    folder = options.build / application.program.replace(".", "-")
    program = prepare(application, folder)
    expected, told = None, []
    for hosts in HOSTS:
        results, seconds, counts = run_once(options, application, program, folder, hosts)
        expected = expected or results
        assert results == expected, f"{hosts} hosts"
        line = f"{f'{hosts} hosts' if hosts else 'plain'}: {seconds:.1f} s"
        if counts:
            offloaded = counts["in_host"] + counts["in_tree"] + counts["direct"]
            assert offloaded, f"{hosts} hosts: nothing was offloaded: {counts['reasons']}"
            line += f", {offloaded} offloaded, {counts['passed_through']} passed through"
        told.append(line)
    tell("; ".join(told))
