#!/usr/bin/env python3
"""Runs MPI ranks that are confined as in containers and on hardened kernels, each rank by itself.

Every rank opens the shared segment or gets it over a socket, long vectors take a path that is permitted,
the report names it and the reason, and results have the same bits as without confinement.
"""

import dataclasses
import json
import os
import subprocess
import sys

import run

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
    mpis: tuple = run.MPIS
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


def compile_filter(folder):
    target = folder / "without"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
                    run.HERE / "without.c", "-o", target], check=True)
    return target


def is_permitted(command):
    """Whether this machine permits this confinement. If not, says so; with CI=true that is a failure."""
    if not command:
        return True
    tried = subprocess.run([*command, "true"], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        print(f"SKIPPED: {command[0]} {command[1]} is not permitted here: {tried.stderr.strip()}",
              file=sys.stderr)
    return tried.returncode == 0


def memory_of(report):
    """What the report says of the segment and of long vectors."""
    worlds = [entry for entry in report["communicators"] if entry["label"] == "world"]
    return worlds[0].get("memory", "") if worlds else "no communicator"


def run_confined(options, confinement, command, place):
    """Runs `bits` confined; the bits of its cases."""
    program = run.Program("bits")
    report_path = place["folder"] / "confined.json"
    report_path.unlink(missing_ok=True)
    words = [options.tributary, "run", "--hosts", str(confinement.hosts), "--report", report_path,
             "--", place["mpirun"], "-n", str(RANKS), *command, place["folder"] / "bits",
             "--seed", str(options.seed)]
    environment = run.mpi_launch.environment(**dict(confinement.settings))
    output = run.run_checked(program, words, environment, options.timeout)
    report = json.loads(report_path.read_text())
    carrier = "in_host" if confinement.hosts == 1 else "direct"
    if report[carrier] == 0 or report["passed_through"] > 0:
        raise run.Failure(f"the report says {report[carrier]} {carrier}, "
                          f"{report['passed_through']} passed_through", output)
    memory = memory_of(report)
    missing = [words for words in confinement.memory if words not in memory]
    if missing or (memory and not confinement.memory):
        raise run.Failure(f"of memory the report says: {memory!r}, which lacks {missing}", output)
    return run.bits_of(output)


def main():
    options = run.parse_arguments()
    options.tributary = options.tributary.absolute()
    failures = 0
    for mpi in run.MPIS if options.mpi == "all" else (options.mpi,):
        place = run.prepare(options, mpi, [run.Program("bits")])
        without = compile_filter(place["folder"])
        # By the number of hosts.
        unconfined = {}
        for confinement in (each for each in CONFINEMENTS if mpi in each.mpis):
            command = [without if word == "without" else word for word in confinement.command]
            if not is_permitted(command):
                failures += os.environ.get("CI") == "true"
                continue
            try:
                bits = run_confined(options, confinement, command, place)
                if bits != unconfined.setdefault(confinement.hosts, bits):
                    raise run.Failure("other bits than without confinement")
                verdict = "ok"
            except run.Failure as failure:
                verdict = f"FAILED: {failure}\n{failure.output}"
                failures += 1
            print(f"{mpi:8} confined: {confinement.name:12} ranks {RANKS} hosts {confinement.hosts}  {verdict}", flush=True)
    print(f"confined: {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
