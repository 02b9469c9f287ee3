"""Counts the instructions of short blocking collectives through the preload library.

Two ranks each run under callgrind, which counts from the entry of the interposed function to its
return, without the loop that waits for the other rank: its number of iterations depends on timing. A
count is the difference between a long and a short run, divided by the calls, so that work that is done
once does not count. Valgrind has no AVX-512, so the kernels are those for AVX2. A call that waits takes a few
instructions more than one that finds everything there (the root of a reduce 13), so a
count depends a little on timing, and a limit is for calls that all wait.

A limit is a few per cent above the count at the time when it was set: lower it when the path gets shorter.
"""

import re
import shutil

import pytest
from harness import running
from harness.compiling import compile_c
from harness.places import MPI_TESTS, mpicc, mpirun

# Collective, interposed functions, variables, and instructions allowed per call on the rank with more of them.
LIMITS = [("allreduce", ("shim_Allreduce",), (), 312), ("reduce", ("shim_Reduce",), (), 362),
          ("bcast", ("shim_Bcast",), (), 256), ("barrier", ("shim_Barrier",), (), 125),
          ("persistent", ("shim_Start", "shim_Wait"), (), 306),
          ("allreduce", ("shim_Allreduce",), ("TRIBUTARY_SUMS=exact",), 450)]
SHORT, LONG = 500, 2500


def collected(program, collective, functions, variables, calls, options):
    """Instructions of the two ranks, in any order."""
    library = options.tributary.with_name("libtributary.so")
    command = [mpirun(options, "mpich"), "-n", 2, "env", *variables, f"LD_PRELOAD={library}",
               "valgrind", "--tool=callgrind", f"--callgrind-out-file={program.parent}/callgrind.%p",
               "--collect-atstart=no", *(f"--toggle-collect={name}" for name in functions),
               "--toggle-collect=*HostGroup*wait_for*", program, collective, calls]
    status, text = running.run(command, options.timeout)
    counts = [int(number) for number in re.findall(r"Collected : (\d+)", text)]
    assert status == 0 and len(counts) == 2, f"{collective}: exit status {status}\n{text[-3000:]}"
    return counts


def count(program, collective, functions, variables, options):
    """Instructions a call on the rank with fewer and on that with more of them."""
    short, long = (sorted(collected(program, collective, functions, variables, calls, options)) for calls in (SHORT, LONG))
    return [(after - before) / (LONG - SHORT) for before, after in zip(short, long)]


@pytest.fixture(scope="module")
def program(options, tmp_path_factory):
    assert shutil.which("valgrind"), "valgrind is not installed: install it"
    folder = tmp_path_factory.mktemp("instructions")
    return compile_c(mpicc(options, "mpich"), [MPI_TESTS / "instructions.c"], folder / "instructions", standard="c11")


@pytest.fixture(scope="module")
def counts():
    """Those of the rank with more of them, by title."""
    return {}


@pytest.mark.parametrize("collective, functions, variables, limit", LIMITS, ids=[" ".join([it[0], *it[2]]) for it in LIMITS])
def test_a_call_takes_no_more_than_its_limit(collective, functions, variables, limit, program, counts, options, tell):
    """8 B, 2 ranks."""
    fewer, more = count(program, collective, functions, variables, options)
    counts[" ".join([collective, *variables])] = more
    tell(f"{fewer:.0f} and {more:.0f} instructions a call, at most {limit}")
    assert 0 < more <= limit


def test_a_persistent_allreduce_takes_fewer_than_a_blocking_one(counts):
    assert counts["persistent"] < counts["allreduce"]
