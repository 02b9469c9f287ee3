"""Runs the MPI test programs through `tributary run`, or with plain MPI, and checks the reports."""

from conftest import selected
from programs import COUNTS, DEBIAN, MPIS, programs_of, run_program, runs_of

# Their figures are for reading.
SHOWN = ("overhead", "latency")


def name_of(program, run):
    settings = [f"{name.removeprefix('TRIBUTARY_').lower()} {value}" for name, value in program.settings]
    return ", ".join([program.name, f"{run[0]} ranks", f"{run[1]} hosts", *settings])


def pytest_generate_tests(metafunc):
    options = metafunc.config.option
    cases = [(mpi, program, run) for mpi in selected(metafunc.config, (*MPIS, *DEBIAN)) for program in programs_of(mpi)
             for run in runs_of(options, mpi, program)]
    metafunc.parametrize("mpi, program, run", cases, ids=[f"{mpi}: {name_of(program, run)}" for mpi, program, run in cases])


def test_program(mpi, program, run, options, compiled, tell, record_property):
    output, counts = run_program(options, mpi, program, compiled(program.name, mpi), run)
    if counts:
        record_property("counts", (mpi, run[1], counts))
    paths = " ".join(f"{key} {counts[key]}" for key in COUNTS) if counts else ""
    tell("\n".join([paths, *(f"    | {line}" for line in output.splitlines())]) if program.name in SHOWN else paths)
