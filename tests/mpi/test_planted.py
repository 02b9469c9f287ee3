"""Shows that the tests of results can fail: runs them with a library that spoils one bit of every result.

Only the results of blocking, nonblocking or persistent calls are spoiled at a time. Every program must notice
each form that it tests: it must end, by itself, with an exit code that is not 0, and name checks that failed.
The library is the one of `make mpi-planted` (planted.c), and --planted says where it is.
"""

import dataclasses
import re

import bindings
import pytest
from harness import running
from harness.places import mpirun
from harness.plugin import skip_unless_ci
from programs import environment_of

RANKS = 4
FORMS = ("blocking", "nonblocking")
SAMPLED = ("--sample", "64")


@dataclasses.dataclass(frozen=True)
class Checking:
    """A program that compares results with what they must be: of calls in which forms."""

    name: str
    forms: tuple = FORMS
    arguments: tuple = ()
    settings: tuple = ()


CHECKING = (
    Checking("collectives", arguments=SAMPLED),
    Checking("further", arguments=SAMPLED),
    Checking("operators", arguments=SAMPLED),
    Checking("started_operators", ("nonblocking", "persistent")),
    Checking("sessions"),
    Checking("waits"),
    Checking("persistent", (*FORMS, "persistent")),
    Checking("bcast_types"),
    # Every sum is compared with the one in rank order.
    Checking("bits"),
    # The last result of every kind of call that is measured; these take another way through the library.
    Checking("times", settings=(("TRIBUTARY_TIMES", "on"),)),
)
# The MPI whose Fortran is tried.
BINDINGS_OF = "debian-openmpi"


@pytest.fixture
def spoiled(request, options):
    """A function that runs words with the library that spoils results of a form: the program has to notice."""
    folder = request.config.getoption("--planted")
    if folder is None:
        skip_unless_ci("no --planted: the folder of a library that spoils results (make mpi-planted)")

    def run(words, form, environment):
        command = [options.tributary, "run", "--hosts", 1, "--", *words]
        code, output = running.run(command, options.timeout, environment | {"TRIBUTARY_LIBRARY_PATH": str(folder), "PLANTED": form})
        assert code != 0, "noticed nothing"
        failed = re.search(r"[1-9]\d* failed", output)
        assert failed, f"ended with exit code {code} and no check that failed:\n{output[-2000:]}"

    return run


@pytest.mark.parametrize("checking, form", [(each, form) for each in CHECKING for form in each.forms],
                         ids=lambda value: getattr(value, "name", value))
def test_a_program_notices_a_spoiled_bit(checking, form, spoiled, options, compiled):
    words = [mpirun(options, "mpich"), "-n", RANKS, compiled(checking.name, "mpich"), *checking.arguments]
    spoiled(words, form, environment_of("mpich", **dict(checking.settings)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.mpis(BINDINGS_OF)
def test_programs_of_all_bindings_notice_a_spoiled_bit(mpi, form, spoiled, options):
    of_bindings = bindings.MPIS[mpi](options)
    environment = running.environment(**{name: str(value) for name, value in of_bindings.settings.items()})
    for _, make in bindings.bindings_of(options, of_bindings):
        spoiled([of_bindings.mpirun, "-n", RANKS, *make()], form, environment)
