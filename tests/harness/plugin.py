"""What pytest needs for the tests of this project that are written in Python: options, labs, and a line for each test."""

import argparse
import itertools
import os
import pathlib
import subprocess

import pytest

from .compiling import MpiTests
from .labs import command, taken_down_on_sigterm
from .places import OPTIONS
from .running import Failure, bounded

NUMBERS = itertools.count()
IS_CI = os.environ.get("CI") == "true"


def skip_unless_ci(why):
    """Skips a test for which something is missing; with CI=true that is a failure."""
    assert not IS_CI, why
    pytest.skip(why)


def pytest_addoption(parser):
    group = parser.getgroup("tributary")
    for name, default, what in OPTIONS:
        group.addoption(name, type=lambda path: pathlib.Path(path).absolute(), default=default, help=f"{what} (default {default})")
    group.addoption("--timeout", type=float, help="seconds that one run may take (default 240 in a lab, else 120)")
    group.addoption("--seed", type=int, default=1, help="of what is drawn (default 1)")


def pytest_configure(config):
    config.addinivalue_line("markers", "short: matters most; `make test` runs these that are not `long`")
    config.addinivalue_line("markers", "long: takes a lab that is too large for `make test`")
    config.addinivalue_line("markers", "lab(*options): the options of `tributary lab up` for the tests of a class")


def pytest_report_teststatus(report, config):
    """Says what a test that passed has found (`tell`) beside its time."""
    if report.when == "call" and report.passed and config.get_verbosity() > 0:
        outcome = dict(report.user_properties).get("outcome", "")
        return "passed", ".", f"{report.duration:6.1f} s  {outcome}".rstrip()
    return None


def pytest_make_parametrize_id(val, argname):
    """Names labs by their options."""
    return " ".join(val) if argname == "lab" else None


@pytest.fixture(scope="session")
def arguments(request):
    """The options, as programs have them."""
    names = [name.removeprefix("--") for name, _, _ in OPTIONS]
    timeout = request.config.getoption("timeout") or 240.0
    return argparse.Namespace(timeout=timeout, **{name: request.config.getoption(name) for name in (*names, "seed")})


@pytest.fixture
def tell(record_property):
    """A function that takes what a test found, for people."""
    return lambda outcome: record_property("outcome", outcome)


@pytest.fixture(scope="session")
def compiled(arguments):
    """A function that compiles a program of tests/mpi for an MPI, once, and returns its path."""
    known = {}

    def compile_once(name, mpi):
        if mpi not in known:
            known[mpi] = MpiTests(mpi, arguments)
        return known[mpi].compile(name)

    return compile_once


@pytest.fixture(scope="class")
def lab(request, arguments):
    """The name of a lab for the tests of a class, with the options that its mark or its parameter says. Where this machine does not
    let this user make one the tests are skipped; with CI=true that is a failure."""
    options = getattr(request, "param", None) or request.node.get_closest_marker("lab").args
    name = f"test{next(NUMBERS)}-{os.getpid()}"
    with taken_down_on_sigterm():
        try:
            code, text = bounded(command(arguments.tributary, "up", name, *options), 120)
            if code == 2:
                skip_unless_ci(f"no lab: {text}")
            if code != 0:
                raise Failure(f"lab up: exit code {code}\n{text}")
            yield name
        finally:
            subprocess.run(command(arguments.tributary, "down", name), check=False, stderr=subprocess.DEVNULL)
