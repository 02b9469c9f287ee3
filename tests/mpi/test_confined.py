"""Runs MPI ranks that are confined as in containers and on hardened kernels, each rank by itself.

Every rank opens the shared segment or gets it over a socket, long vectors take a path that is permitted,
the report names it and the reason, and results have the same bits as without confinement.
"""

import dataclasses
import json
import subprocess

import pytest
from harness.compiling import compile_c
from harness.places import MPI_TESTS, mpirun
from harness.plugin import skip_unless_ci
from harness.running import Failure
from programs import MPIS, Program, bits_of, environment_of, run_checked

RANKS = 3
SMALL_SHM = "mount -t tmpfs -o size=16k none /dev/shm && exec \"$0\" \"$@\""
HANDED_OVER = "segment handed over a socket"
# Each rank is a host of replicated groups. Links carry everything where datagrams do not come.
BY_GROUPS = (("TRIBUTARY_BETWEEN_HOSTS", "replicated"), ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1"))


@dataclasses.dataclass(frozen=True)
class Confinement:
    """A command in front of every rank, and words that the report must then say of memory."""

    name: str
    command: tuple
    memory: tuple
    # The MPIs that run under it at all.
    mpis: tuple = MPIS
    # On how many hosts, and by which settings.
    hosts: int = 1
    settings: tuple = ()


CONFINEMENTS = (
    Confinement("none", (), ()),
    Confinement("seccomp", ("without", "EPERM", "process_vm_readv,process_vm_writev"),
                ("long vectors staged", "process_vm_readv")),
    Confinement("user ns", ("unshare", "-Ur"),
                (HANDED_OVER, "long vectors staged", "process_vm_readv")),
    # Open MPI 5.0.11 crashes if ranks of one host have different process namespaces.
    Confinement("user+pid ns", ("unshare", "-Urpf", "--mount-proc"),
                (HANDED_OVER, "long vectors staged", "another pid namespace"), ("mpich",)),
    # MPICH 5.0.2 does not start with so little shared memory.
    Confinement("16 KiB shm", ("unshare", "-Urm", "sh", "-c", SMALL_SHM), (HANDED_OVER,),
                ("openmpi",)),
    Confinement("none, groups", (), (), hosts=RANKS, settings=BY_GROUPS),
    Confinement("no recvmmsg", ("without", "EPERM", "recvmmsg"), (), hosts=RANKS, settings=BY_GROUPS),
    Confinement("no sendmmsg", ("without", "EPERM", "sendmmsg"), (), hosts=RANKS, settings=BY_GROUPS),
)


def memory_of(report):
    """What the report says of the segment and of long vectors."""
    worlds = [entry for entry in report["communicators"] if entry["label"] == "world"]
    return worlds[0].get("memory", "") if worlds else "no communicator"


def run_confined(options, mpi, confinement, command, path):
    """Runs `bits` confined; the bits of its cases."""
    report_path = path.with_name("confined.json")
    report_path.unlink(missing_ok=True)
    words = [options.tributary, "run", "--hosts", str(confinement.hosts), "--report", report_path,
             "--", mpirun(options, mpi), "-n", str(RANKS), *command, path, "--seed", str(options.seed)]
    output = run_checked(Program("bits"), words, environment_of(mpi, **dict(confinement.settings)), options.timeout)
    report = json.loads(report_path.read_text())
    carrier = "in_host" if confinement.hosts == 1 else "direct"
    if report[carrier] == 0 or report["passed_through"] > 0:
        raise Failure(f"the report says {report[carrier]} {carrier}, {report['passed_through']} passed_through", output)
    memory = memory_of(report)
    missing = [words for words in confinement.memory if words not in memory]
    if missing or (memory and not confinement.memory):
        raise Failure(f"of memory the report says: {memory!r}, which lacks {missing}", output)
    return bits_of(output)


@pytest.fixture(scope="session")
def unconfined():
    """The bits without confinement, by MPI and number of hosts; confinements of the same come behind."""
    return {}


@pytest.mark.parametrize("mpi, confinement", [(mpi, each) for mpi in MPIS for each in CONFINEMENTS if mpi in each.mpis],
                         ids=lambda value: getattr(value, "name", None))
def test_confined_ranks_have_the_same_bits(mpi, confinement, unconfined, options, compiled):
    path = compiled("bits", mpi)
    without = compile_c("cc", [MPI_TESTS / "without.c"], path.with_name("without"))
    command = [without if word == "without" else word for word in confinement.command]
    if command:
        tried = subprocess.run([*command, "true"], check=False, capture_output=True, text=True)
        if tried.returncode != 0:
            skip_unless_ci(f"{command[0]} {command[1]} is not permitted here: {tried.stderr.strip()}")
    bits = run_confined(options, mpi, confinement, command, path)
    assert bits == unconfined.setdefault((mpi, confinement.hosts), bits), "other bits than without confinement"
