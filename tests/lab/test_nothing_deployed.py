"""Runs MPI programs on hosts of a lab without a manager, under Open MPI and MPICH: jobs join their hosts themselves.

Results are right and operations go between hosts over direct links, also of two jobs at once, of processes without any
capability, and between hosts that have no address of IPv4. A job that loses a rank, or all its processes at once, ends and
leaves no process and no socket. Where a port is blocked or an address is wrong, one line says so and the job goes on over its
MPI.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

import pytest
from harness.compiling import compile_soak
from harness.jobs import on, world_of
from harness.processes import eventually, kill_all, name_of
from harness.running import Failure, bounded, must
from harness.undeployed import FURTHER, HOSTS, LAB, WITHOUT_CAPABILITIES, Marked, job_words, run_everywhere, run_job, sockets

MPIS = ("openmpi", "mpich")
short = pytest.mark.short
# A part of the program's combinations: plain MPIs take long over hosts that share two cores.
SAMPLE = ("--sample", "256")
# The figures of a lab take the tree from 5 hosts on.
IN_TREE = {"TRIBUTARY_BETWEEN_HOSTS": "tree"}
# Ports that listeners get when they do not ask for one. Open MPI takes others itself, and MPICH if it is told to.
BLOCKED_HOST = "h1"
BLOCK = ("table inet blocked { chain input { type filter hook input priority 0; iifname != lo "
         "%s tcp dport 32768-60999 tcp flags & (syn|ack) == syn counter %s; }; }")
FIRST_NETWORK = "ip daddr 10.77.2.2"
OTHER_PORTS = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_PORT_LOW_RANGE": "20000",
               "FI_TCP_PORT_HIGH_RANGE": "20999"}
NAMED = re.compile(r"^tributary: host h\d at [\d.]+ can't connect to host h1 at 10\.77\.2\.2, port \d+: .*"
                   r"left to the underlying MPI")
PASSED_OVER = re.compile(r"^tributary: host h\d at [\d.]+ can't connect to host h1 at 10\.77\.2\.2, port \d+: .*"
                         r"another network of the hosts is used", re.MULTILINE)
# How a job is killed while it runs: one rank of a host, or everything.
KILLS = ("a rank", "everything")
VICTIMS_HOST = "h2"


def under_each_mpi(short_under=()):
    """Runs a test under each MPI; a short run has it under these."""
    return pytest.mark.parametrize("mpi", [pytest.param(mpi, marks=[short] if mpi in short_under else []) for mpi in MPIS])


@pytest.fixture
def program(mpi, compiled):
    """A program of checked collectives, and the part of them that runs."""
    return [compiled("collectives", mpi), *SAMPLE]


def check_joined(counts, ranks):
    """Every host is in it, and what goes between hosts goes over direct links."""
    world = world_of(counts)
    if (world["ranks"], world["hosts"]) != (ranks, len(HOSTS)):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts")
    if counts["in_tree"] != 0 or any(world["collectives"][kind]["direct"] == 0
                                     for kind in ("allreduce", "reduce", "bcast", "barrier")):
        raise Failure(f"not over direct links: {counts}")
    return counts["direct"]


def network_of(pid):
    """The network namespace of a process, by which its host is known; launchers give all ranks one environment."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""


def check_killed(how, mpi, name, arguments, way="run"):
    """The job is in the middle of its operations when something of it is killed."""
    job = f"{os.getpid()}-{mpi}-{how.replace(' ', '-')}"
    program = compile_soak(mpi, arguments)
    network = bounded(on(name, VICTIMS_HOST, arguments, "readlink", "/proc/self/ns/net"), 60)[1].strip()
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        ends, report = pathlib.Path(folder) / "ends", pathlib.Path(folder) / "report.json"
        words = job_words(way, mpi, name, len(HOSTS), 1, [program, "--seconds", 600, "--depth", 2, "--ends", ends],
                          report, arguments)
        with Marked(job, words, name, folder, arguments) as running:
            kill_some(how, running, program, network, lambda: ends.exists() and ends.stat().st_size > 0)
            running.must_be_gone()
    code = running.launched.returncode
    if code == 0:
        raise Failure("the job ended as if nothing had happened")
    return f"ended with exit code {code}"


def kill_some(how, running, program, network, is_running):
    """Kills a rank of the host with that network, or all processes of the job, once operations run."""
    if not eventually(is_running, 120):
        raise Failure("no operation ran")
    alive = running.alive()
    if how == "a rank":
        alive = [pid for pid in alive if name_of(pid) == program.name[:15] and network_of(pid) == network]
    if not alive:
        raise Failure(f"nothing to kill for {how}")
    kill_all(alive)


def check_left_to_mpi(mpi, name, program, arguments, environment, pattern):
    """One line says why hosts are not joined, and results are right; inside hosts shared memory is used all the same."""
    counts, text = run_job("run", mpi, name, 2 * len(HOSTS), 2, program, arguments, environment)
    told = [line for line in text.splitlines() if line.startswith("tributary: ") and "underlying MPI" in line]
    if len(told) != 1 or not re.search(pattern, told[0]):
        raise Failure(f"not one line of what is wrong: {told}\n{text}")
    why = " ".join(reason for collective in world_of(counts)["collectives"].values()
                   for reason in collective.get("reasons", {}))
    if "spans 4 hosts" not in why:
        raise Failure(f"the report does not say why: {counts}")
    if counts["direct"] != 0 or 0 in (counts["passed_through"], counts["in_host"]):
        raise Failure(f"{told[0]}\n{counts}")
    return f"{counts['passed_through']} passed_through, {counts['in_host']} in_host: {told[0]}"


@contextlib.contextmanager
def blocked(what, verdict, name, arguments):
    """A host's packet filter keeps the others from its listeners."""
    must(on(name, BLOCKED_HOST, arguments, "nft", BLOCK % (what, verdict)))
    try:
        yield
    finally:
        must(on(name, BLOCKED_HOST, arguments, "nft", "delete table inet blocked"))


def check_direct(way, mpi, name, per_host, program, arguments):
    """A job whose operations go over direct links, and which is told nothing."""
    ranks = per_host * len(HOSTS)
    counts, text = run_job(way, mpi, name, ranks, per_host, program, arguments)
    if "can't" in text:
        raise Failure(f"something was told:\n{text}")
    return f"{check_joined(counts, ranks)} direct, {counts['in_host']} in_host"


@pytest.mark.lab(*LAB)
class TestNothingDeployed:
    @pytest.mark.parametrize("mpi, way, per_host", [
        pytest.param("openmpi", "run", 1, marks=short), ("openmpi", "preload", 2), ("mpich", "run", 1),
        pytest.param("mpich", "preload", 2, marks=short)])
    def test_hosts_join_and_operations_go_over_direct_links(self, mpi, way, per_host, lab, program, arguments, tell):
        tell(check_direct(way, mpi, lab, per_host, program, arguments))

    @under_each_mpi(short_under=["mpich"])
    def test_ranks_need_no_capability(self, mpi, lab, program, arguments, tell):
        tell(check_direct("run", mpi, lab, 1, [*WITHOUT_CAPABILITIES, *program], arguments))

    @under_each_mpi(short_under=["mpich"])
    def test_two_jobs_run_on_the_same_hosts_at_once(self, mpi, lab, program, arguments, tell):
        with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
            reports = [pathlib.Path(folder) / f"{number}.json" for number in range(2)]
            jobs = [subprocess.Popen([str(word) for word in job_words(
                        "run", mpi, lab, len(HOSTS), 1, program, report, arguments)],
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    for report in reports]
            try:
                texts = [job.communicate(timeout=arguments.timeout)[0] for job in jobs]
            except subprocess.TimeoutExpired as error:
                raise Failure(f"took more than {arguments.timeout:g} s") from error
            finally:
                for job in jobs:
                    job.kill()
            for job, text in zip(jobs, texts):
                if job.returncode != 0 or " 0 failed" not in text:
                    raise Failure(f"exit code {job.returncode}\n{text}")
            tell(" and ".join(f"{check_joined(json.loads(report.read_text()), len(HOSTS))} direct" for report in reports))

    @pytest.mark.parametrize("mpi, how", [
        pytest.param(mpi, how, marks=[short] if (mpi, how) in (("openmpi", "everything"), ("mpich", "a rank")) else [])
        for mpi in MPIS for how in KILLS])
    def test_nothing_stays_of_a_job_that_is_killed(self, mpi, how, lab, arguments, tell):
        tell(check_killed(how, mpi, lab, arguments))

    @under_each_mpi()
    def test_a_job_reduces_in_an_aggregator_of_its_own(self, mpi, lab, program, arguments, tell):
        """Nothing of it stays."""
        before = sockets(lab, arguments)
        counts, text = run_job("aggregator", mpi, lab, len(HOSTS), 1, program, arguments,
                               IN_TREE | {"TRIBUTARY_PORTS": "21000-21063"})
        world = world_of(counts)
        if (world["hosts"], counts["direct"]) != (len(HOSTS), 0) or any(
                world["collectives"][kind]["in_tree"] == 0 for kind in ("allreduce", "reduce", "bcast", "barrier")):
            raise Failure(f"not in the tree: {counts}\n{text}")
        left = lambda: sockets(lab, arguments) - before  # noqa: E731
        if not eventually(lambda: not left()):
            raise Failure(f"sockets stay: {left()}")
        tell(f"{counts['in_tree']} in_tree")

    @under_each_mpi()
    def test_nothing_stays_of_a_job_with_an_aggregator_that_is_killed(self, mpi, lab, arguments, tell):
        tell(check_killed("everything", mpi, lab, arguments, "aggregator"))

    @pytest.mark.parametrize("mpi, verdict", [
        ("openmpi", "drop"), ("openmpi", "reject with tcp reset"), pytest.param("mpich", "drop", marks=short),
        ("mpich", "reject with tcp reset")])
    def test_a_blocked_port_leaves_hosts_to_the_mpi(self, mpi, verdict, lab, program, arguments, tell):
        with blocked("", verdict, lab, arguments):
            tell(check_left_to_mpi(mpi, lab, program, arguments, OTHER_PORTS, NAMED))

    @pytest.mark.parametrize("family", FURTHER)
    @under_each_mpi()
    def test_hosts_use_a_second_network_where_the_first_is_blocked(self, mpi, family, lab, program, arguments, tell):
        join, leave, interface = FURTHER[family]
        run_everywhere(join, lab, arguments)
        try:
            with blocked(FIRST_NETWORK, "reject with tcp reset", lab, arguments):
                counts, text = run_job("run", mpi, lab, len(HOSTS), 1, program, arguments, OTHER_PORTS)
                named = {**OTHER_PORTS, "TRIBUTARY_INTERFACE": interface}
                named_counts, named_text = run_job("run", mpi, lab, len(HOSTS), 1, program, arguments, named)
        finally:
            run_everywhere(leave, lab, arguments)
        check_joined(named_counts, len(HOSTS))
        if "can't" in named_text:
            raise Failure(f"the blocked network was tried though another was named:\n{named_text}")
        if len(PASSED_OVER.findall(text)) != 1:
            raise Failure(f"not one line of the blocked network:\n{text}")
        tell(f"{check_joined(counts, len(HOSTS))} direct")

    @under_each_mpi()
    def test_ranks_listen_at_the_ports_that_a_firewall_leaves_open(self, mpi, lab, program, arguments, tell):
        with blocked("", "drop", lab, arguments):
            counts, text = run_job("run", mpi, lab, 2 * len(HOSTS), 2, program, arguments,
                                   {**OTHER_PORTS, "TRIBUTARY_PORTS": "21000-21063"})
        if "can't" in text:
            raise Failure(f"something was told:\n{text}")
        tell(f"{check_joined(counts, 2 * len(HOSTS))} direct")

    @under_each_mpi()
    def test_an_interface_that_is_not_there_leaves_hosts_to_the_mpi(self, mpi, lab, program, arguments, tell):
        tell(check_left_to_mpi(mpi, lab, program, arguments, {"TRIBUTARY_INTERFACE": "ib7"},
                               r"host h\d has no address of its own.*TRIBUTARY_INTERFACE"))

    @under_each_mpi()
    def test_a_misspelt_knob_is_named_once(self, mpi, lab, program, arguments):
        _, text = run_job("preload", mpi, lab, len(HOSTS), 1, program, arguments, {"TRIBUTARY_FABRICS": "off"})
        if text.count("TRIBUTARY_FABRICS is no knob and has no effect; the nearest is TRIBUTARY_FABRIC\n") != 1:
            raise Failure(f"not told once:\n{text}")

    @under_each_mpi()
    def test_one_address_for_all_leaves_hosts_to_the_mpi(self, mpi, lab, program, arguments, tell):
        tell(check_left_to_mpi(mpi, lab, program, arguments, {"TRIBUTARY_HOST_ADDRESS": "10.77.2.1"},
                               r"host h\d has no address of its own.*TRIBUTARY_HOST_ADDRESS"))

    # MPICH's launcher listens at an address of IPv4 only.
    @short
    @pytest.mark.parametrize("mpi", ["openmpi"])
    def test_hosts_without_an_address_of_ipv4_join(self, mpi, lab, program, arguments, tell):
        """They keep none: this comes last on its lab."""
        join, _, _ = FURTHER["IPv6"]
        run_everywhere(f"{join} && ip -4 addr flush dev eth0", lab, arguments)
        tell(check_direct("run", mpi, lab, 1, program, arguments))
