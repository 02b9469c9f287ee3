"""Checks the preload library as a file: exported symbols, loading into any program, overhead.

It must offload what it can when the MPI at hand lacks something (hide.c), and leave every call to the MPI when
it can't do without, or does not know the MPI.
"""

import json
import re

import pytest
from harness import running
from harness.compiling import compile_c
from harness.places import MPI_TESTS, mpirun
from programs import DEBIAN, DEBIAN_SETTINGS, MPIS

# Every MPI, and its binary interface.
KINDS = {mpi: mpi for mpi in MPIS} | DEBIAN
TIMEOUT_S = 120

# What an MPI may lack, as patterns of hide.c: what is newer than MPI 3.0, and extensions.
NEWER = "PMPIX_*,PMPI_*_c,PMPI_Comm_create_from_group,PMPI_Request_get_status_*"
# Datatypes and operators of Open MPI are symbols, too.
TYPES = "ompi_mpi_op_bxor,ompi_mpi_float,ompi_mpi_c_bool,ompi_mpi_logical*,ompi_mpi_2int"
# Called by the library, and by no test here.
NEEDED = "PMPI_Iexscan"
INTEL = "Intel(R) MPI Library 2021.19 for Linux* OS"
NOBODYS = "Some MPI 1.0"
USED = ("collectives", "bcast_types", "waits", "missing")


def run(command, **extra):
    """A command's exit code and everything it wrote."""
    return running.run(command, TIMEOUT_S, running.environment(**extra))


def symbols(library, option):
    lines = run(["nm", "-D", option, library])[1].splitlines()
    return [line.split()[-1].split("@")[0] for line in lines if line.strip()]


@pytest.fixture(scope="session")
def library(options):
    return options.tributary.with_name("libtributary.so")


def test_it_exports_mpi_functions_only_and_needs_no_mpi(library):
    exported = symbols(library, "--defined-only")
    assert "MPI_Allreduce" in exported
    strange = [name for name in exported if not name.startswith(("MPI_", "MPIX_", "PMPI_", "PMPIX_"))]
    assert not strange, "exports what is not MPI's"
    needed = [name for name in symbols(library, "--undefined-only") if name.startswith(("MPI_", "PMPI_", "ompi_"))]
    assert not needed, "needs MPI to load"


def test_it_loads_anywhere(mpi, library, options):
    """Into programs without MPI, with every symbol bound at once, and into launchers."""
    for command in (["/bin/sh", "-c", "exit 0"], [mpirun(options, mpi), "--version"]):
        code, output = run(command, LD_PRELOAD=str(library), LD_BIND_NOW="1")
        assert code == 0, f"{command[0]} fails under it: {output.strip()[:200]}"


def test_a_program_says_what_a_call_costs(mpi, library, options, compiled, tell):
    code, output = run([mpirun(options, mpi), "-n", "1", compiled("overhead", mpi)], LD_PRELOAD=str(library))
    assert code == 0, output.strip()[:200]
    # Times are for reading: test_instructions.py holds what a call costs.
    assert re.search(r"^overhead .+: .* difference \S+ ns$", output, re.MULTILINE), "no cost was printed"
    tell(output.strip())


def offloaded(report):
    """How many calls the report counts as offloaded; none if there is no report."""
    if not report.exists():
        return 0
    counts = json.loads(report.read_text())
    return counts["in_host"] + counts["in_tree"]


def check_with_less(library, mpi, names, offloads, options, compiled, **less):
    """Programs run under an MPI that seems to lack something; whether anything is then offloaded."""
    paths = [compiled(name, mpi) for name in names]
    folder = paths[0].parent
    report = folder / "less.json"
    hide = compile_c("cc", ["-fPIC", "-shared", MPI_TESTS / "hide.c"], folder / "libhide.so", "-ldl")
    # The variables are of the ranks: the launcher is to find its symbols.
    settings = (DEBIAN_SETTINGS if mpi in DEBIAN else {}) | less
    settings |= {"LD_PRELOAD": f"{hide} {library}", "TRIBUTARY_REPORT": report}
    words = ["env", *(f"{name}={value}" for name, value in settings.items())]
    for name, path in zip(names, paths):
        report.unlink(missing_ok=True)
        code, output = run([mpirun(options, mpi), "-n", "2", *words, path, "--sample", "64"])
        assert code == 0, f"{name}: exit code {code}: {output.strip()[:1000]}"
        # Every rank of `missing` says that it called such a function; one rank says why the library is off.
        expected = 2 if name == "missing" else 0 if offloads else 1
        warnings = len(re.findall("^tributary: ", output, re.MULTILINE))
        assert warnings == expected, f"{name}: lines of ours: {output.strip()[-400:]}"
        assert (offloaded(report) > 0) == offloads, f"{name}: {offloaded(report)} calls were offloaded"


def test_it_offloads_under_mpi_3_0(mpi, library, options, compiled):
    check_with_less(library, mpi, USED, True, options, compiled, HIDE=NEWER)


def test_it_is_off_under_less_than_mpi_3_0(mpi, library, options, compiled):
    check_with_less(library, mpi, ("bcast_types",), False, options, compiled, HIDE=NEEDED)


def test_it_is_off_under_an_mpi_of_nobody(mpi, library, options, compiled):
    check_with_less(library, mpi, ("bcast_types",), False, options, compiled, SAY=NOBODYS)


@pytest.mark.mpis(*(mpi for mpi in KINDS if KINDS[mpi] == "openmpi"))
def test_it_offloads_with_fewer_types(mpi, library, options, compiled):
    check_with_less(library, mpi, ("collectives",), True, options, compiled, HIDE=TYPES)


@pytest.mark.mpis(*(mpi for mpi in KINDS if KINDS[mpi] == "openmpi"))
def test_it_is_off_without_mpi_int(mpi, library, options, compiled):
    check_with_less(library, mpi, ("waits",), False, options, compiled, HIDE="ompi_mpi_int")


@pytest.mark.mpis(*(mpi for mpi in KINDS if KINDS[mpi] == "mpich"))
def test_it_offloads_under_intel_mpi(mpi, library, options, compiled):
    check_with_less(library, mpi, ("collectives",), True, options, compiled, SAY=INTEL)
