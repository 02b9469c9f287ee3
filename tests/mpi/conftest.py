"""Options of the tests of MPI programs, and what these tests share."""

import argparse
import pathlib

import pytest
from harness.places import mpicc
from harness.plugin import skip_unless_ci
from programs import COUNTS, DEBIAN, MPIS


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def pytest_addoption(parser):
    group = parser.getgroup("tributary")
    group.addoption("--mpi", choices=(*MPIS, *DEBIAN), action="append", help="under this MPI alone; may be repeated")
    group.addoption("--procs", type=numbers, help="only programs of these numbers of ranks: 1,4")
    group.addoption("--hosts", type=numbers, help="only programs on these numbers of hosts: 1,2")
    group.addoption("--sample", type=int, help="instead of each program's own; 1 runs everything")
    group.addoption("--without", action="store_true", help="plain MPI, without tributary")
    group.addoption("--planted", type=lambda path: pathlib.Path(path).absolute(),
                    help="folder of a library that spoils results (make mpi-planted)")
    group.addoption("--write-bindings", action="store_true", help="write the table of bindings to the documentation")


def pytest_configure(config):
    config.addinivalue_line("markers", "mpis(*names): the MPIs that a test runs under; without it, all")


def selected(config, names):
    """Those of some MPIs that the options select."""
    return [name for name in names if name in (config.getoption("--mpi") or names)]


def names_its_mpis(metafunc):
    """Whether a test has parameters that say under which MPIs it runs."""
    names = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return any("mpi" in name.split(", ") for name in names) or hasattr(metafunc.module, "pytest_generate_tests")


def pytest_generate_tests(metafunc):
    if "mpi" not in metafunc.fixturenames or names_its_mpis(metafunc):
        return
    marker = metafunc.definition.get_closest_marker("mpis")
    metafunc.parametrize("mpi", selected(metafunc.config, marker.args if marker else (*MPIS, *DEBIAN)))


@pytest.fixture(scope="session")
def options(arguments, request):
    """The options, as programs have them."""
    further = {name: request.config.getoption(name) for name in ("procs", "hosts", "sample", "without")}
    library = arguments.tributary.with_name("libtributary.so")
    assert library.exists(), f"{library} does not exist: `make build` first"
    timeout = request.config.getoption("timeout") or 120.0
    return argparse.Namespace(**{**vars(arguments), "timeout": timeout}, **further)


@pytest.fixture(autouse=True)
def mpi_is_there(request):
    """A test whose MPI is not installed fails; that of an MPI of Debian is skipped, unless CI=true."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("mpi")
    if not isinstance(name, str):
        return
    compiler = mpicc(request.getfixturevalue("arguments"), name)
    if not compiler.exists():
        why = f"{compiler} does not exist: `make {'mpi-debian' if name in DEBIAN else 'mpi-venvs'}` makes it"
        assert name in DEBIAN, why
        skip_unless_ci(why)


def pytest_terminal_summary(terminalreporter):
    """Calls that programs made, and those that were offloaded, for each MPI and number of hosts."""
    sums = {}
    for report in terminalreporter.stats.get("passed", []):
        counted = dict(report.user_properties).get("counts")
        if counted:
            mpi, hosts, counts = counted
            made = sums.setdefault((mpi, hosts), dict.fromkeys(COUNTS, 0))
            for key in COUNTS:
                made[key] += counts[key]
    for (mpi, hosts), counts in sums.items():
        offloaded = counts["in_host"] + counts["in_tree"] + counts["direct"]
        terminalreporter.write_line(f"{mpi:14} hosts {hosts}  {sum(counts.values())} calls, {offloaded} offloaded")
