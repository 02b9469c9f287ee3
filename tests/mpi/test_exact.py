"""Exact sums in C and Fortran: the bits of the real sum for any number of ranks and hosts, and those of the examples.

Runs exact.c under the wheels' MPIs and the examples in Fortran under Debian's Open MPI, plain and with the library on emulated hosts.
"""

import pytest
from exact import CRATE, expected, vectors, write
from harness import running
from harness.compiling import compile_c
from harness.places import MPI_TESTS, ROOT, mpicc, mpirun
from programs import MPIS
from test_examples import find_fortran

RANKS = [1, 2, 3, 4, 8]
# Emulated hosts; 0 is plain MPI.
HOSTS = [0, 1, 2, 4]
PLACES = [(ranks, hosts) for ranks in RANKS for hosts in HOSTS if hosts <= ranks]


def linked(options):
    """Options by which a program is linked with the library beside the program."""
    library = options.tributary.parent
    return [f"-L{library}", f"-Wl,-rpath,{library}", "-ltributary_exact_c"]


def lines(options, mpi, ranks, command, hosts, prefix):
    """The lines of all ranks that begin with a word."""
    words = [mpirun(options, mpi), "-n", ranks, *command]
    if hosts:
        words = ["env", "TRIBUTARY_BETWEEN_HOSTS=tree", options.tributary, "run", "--hosts", hosts, "--", *words]
    code, text = running.run(words, options.timeout)
    assert code == 0, f"{ranks} ranks on {hosts} hosts of {command}: exit code {code}\n{text}"
    return [line for line in text.splitlines() if line.startswith(prefix)]


@pytest.mark.mpis(*MPIS)
def test_sums_in_c_have_the_bits_of_the_real_sums(mpi, options, tmp_path):
    program = compile_c(mpicc(options, mpi), [f"-I{CRATE / 'include'}", MPI_TESTS / "exact.c"], tmp_path / "exact", *linked(options))
    data, given = tmp_path / "values", vectors()
    write(data, given)
    wanted = expected(*given)
    for ranks, hosts in PLACES:
        found = lines(options, mpi, ranks, [program, data], hosts, "bits")
        assert found == [wanted] * ranks, f"{ranks} ranks on {hosts} hosts"


@pytest.mark.parametrize("example", ["cg_exact", "shallow_water"])
@pytest.mark.mpis("debian-openmpi")
def test_examples_in_fortran_have_checksums_of_their_own(mpi, example, options, tmp_path):
    """With exact sums the same for all numbers of ranks, with plain sums not: else the example would show nothing."""
    program = tmp_path / example
    code, text = running.run(
        [find_fortran(), "-O2", "-ffp-contract=off", "-Wall", "-Wextra", f"-J{tmp_path}", CRATE / "fortran/tributary_exact.f90",
         ROOT / "examples" / f"{example}.f90", "-o", program, *linked(options)], options.timeout)
    assert code == 0, text
    runs = [lines(options, mpi, ranks, [program], hosts, "step") for ranks, hosts in PLACES]
    assert runs[0] and all(run == runs[0] for run in runs), [run[-1:] for run in runs]
    plain = {tuple(lines(options, mpi, ranks, [program, "plain"], 0, "step")) for ranks in RANKS}
    assert len(plain) > 1, "plain sums are the same for all numbers of ranks"
