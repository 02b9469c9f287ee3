"""Collectives in aggregation trees: inside a host through shared memory, between hosts through a tree of
aggregation nodes or over direct links.

Make a `Communicator`; the stubs beside this file say what each method takes, returns and raises.
"""

import atexit
import enum
import json

from ._tributary import (
    AbortedError,
    Communicator,
    ExactSum,
    HostLostError,
    RankLostError,
    Request,
    SetUpError,
    TributaryError,
    __version__,
)
from ._tributary import await_callbacks as _await_callbacks
from ._tributary import finish as _finish
from ._tributary import report as _report

__all__ = [
    "AbortedError",
    "Communicator",
    "ExactSum",
    "HostLostError",
    "Operator",
    "RankLostError",
    "Request",
    "SetUpError",
    "TributaryError",
    "__version__",
    "report",
]


class Operator(enum.StrEnum):
    """How elements combine, as MPI defines it. A method's `op` takes the values too, as text."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    MINLOC = "minloc"
    MAXLOC = "maxloc"
    BIT_AND = "bit-and"
    BIT_OR = "bit-or"
    BIT_XOR = "bit-xor"
    LOGICAL_AND = "logical-and"
    LOGICAL_OR = "logical-or"
    LOGICAL_XOR = "logical-xor"


def report():
    """What this process has counted until now, as a dictionary; see the stubs."""
    return json.loads(_report())


# How long the process stays for callbacks that still run when it is to end.
_CALLBACKS_S = 5

atexit.register(_finish)
# Before that one: what is registered last is called first.
atexit.register(_await_callbacks, _CALLBACKS_S)
