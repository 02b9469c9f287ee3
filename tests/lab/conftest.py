"""Options of the tests on labs."""

import pathlib

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("tributary")
    group.addoption("--kills", type=int, default=4, help="random kills under each MPI (default 4)")
    group.addoption("--cluster", type=int, default=4, help="hosts on which launchers start jobs (default 4)")
    group.addoption("--python", type=lambda path: pathlib.Path(path).absolute(),
                    help="a Python that has the package, for programs of 16-bit floats")


@pytest.fixture
def kills(request):
    return request.config.getoption("--kills")
