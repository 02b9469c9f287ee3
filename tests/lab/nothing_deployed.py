#!/usr/bin/env python3
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
import signal
import subprocess
import sys
import tempfile

import soak
from kills import MARK, eventually, is_alive, name_of, processes_of
from lab import command
from test import Failure, Tests, bounded, compile_program, on, parse_arguments, world_of

MPIS = ("openmpi", "mpich")
LAB = ["--hosts", "4", "--hosts-per-leaf", "4"]
HOSTS = ("h0", "h1", "h2", "h3")
# A lab's commands name its manager.
WITHOUT_MANAGER = ["env", "-u", "TRIBUTARY_MANAGER", "-u", "TRIBUTARY_TOKEN_FILE"]
# What each way of starting a job does to its words.
WAYS = ("run", "preload")
# A short run takes these cases.
SHORT = ("openmpi  run", "mpich    preload", "mpich    without capabilities", "mpich    two jobs", "openmpi  everything killed",
         "mpich    a rank killed", "mpich    h1 blocked, drop", "openmpi  IPv6 alone")
# A part of the program's combinations: plain MPIs take long over hosts that share two cores.
SAMPLE = "256"
# Ports that listeners get when they do not ask for one. Open MPI takes others itself, and MPICH if it is told to.
BLOCKED_HOST = "h1"
BLOCK = ("table inet blocked { chain input { type filter hook input priority 0; iifname != lo "
         "%s tcp dport 32768-60999 tcp flags & (syn|ack) == syn counter %s; }; }")
FIRST_NETWORK = "ip daddr 10.77.2.2"
# A second network on the lab's links: how each host joins it, by its number, and leaves it, and its name. Labs
# have no IPv6 otherwise.
IPV6_OFF = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
FURTHER = {"IPv4": ("ip addr add 10.88.0.{}/24 dev eth0", "ip addr del 10.88.0.{}/24 dev eth0",
                    "10.88.0.0/16"),
           "IPv6": (f"echo 0 >{IPV6_OFF} && ip addr add fd88::{{}}/64 dev eth0 nodad", f"echo 1 >{IPV6_OFF}",
                    "ipv6")}
# A rank of root's that may do nothing that other users may not.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
OTHER_PORTS = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_PORT_LOW_RANGE": "20000",
               "FI_TCP_PORT_HIGH_RANGE": "20999"}
NAMED = re.compile(r"^tributary: host h\d at [\d.]+ can't connect to host h1 at 10\.77\.2\.2, port \d+: .*"
                   r"left to the underlying MPI")
PASSED_OVER = re.compile(r"^tributary: host h\d at [\d.]+ can't connect to host h1 at 10\.77\.2\.2, port \d+: .*"
                         r"another network of the hosts is used", re.MULTILINE)
# How a job is killed while it runs: one rank of a host, or everything.
KILLS = ("a rank", "everything")
VICTIMS_HOST = "h2"
# States of a socket in /proc/net/tcp: established, and listening.
STAYING = ("01", "0A")


def job_words(way, mpi, name, ranks, per_host, program, report, arguments):
    """The command that runs a job on a lab without naming its manager."""
    words = [arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", ranks, *program]
    tributary = arguments.tributary.resolve()
    if way in ("run", "aggregator"):
        options = ["--aggregator"] if way == "aggregator" else []
        words = [tributary, "run", *options, "--report", report, "--", *words]
        words = [*HIDING, *words] if way == "aggregator" else words
    else:
        words = [f"LD_PRELOAD={tributary.with_name('libtributary.so')}", f"TRIBUTARY_REPORT={report}", *words]
    return command(tributary, "run", name, "--plain", "--ranks-per-host", per_host, "--", *WITHOUT_MANAGER, *words)


def run_job(way, mpi, name, ranks, per_host, program, arguments, environment=None):
    """Runs a job to its end; its report and what it printed."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        report = pathlib.Path(folder) / "report.json"
        words = job_words(way, mpi, name, ranks, per_host, program, report, arguments)
        code, text = bounded(words, arguments.timeout, environment)
        if code != 0 or " 0 failed" not in text:
            raise Failure(f"exit code {code}\n{text}")
        return json.loads(report.read_text()), text


def check_joined(counts, ranks):
    """Every host is in it, and what goes between hosts goes over direct links."""
    world = world_of(counts)
    if (world["ranks"], world["hosts"]) != (ranks, len(HOSTS)):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts")
    if counts["in_tree"] != 0 or any(world["collectives"][kind]["direct"] == 0
                                     for kind in ("allreduce", "reduce", "bcast", "barrier")):
        raise Failure(f"not over direct links: {counts}")
    return counts["direct"]


def check_job(way, mpi, name, per_host, program, arguments):
    ranks = per_host * len(HOSTS)
    counts, text = run_job(way, mpi, name, ranks, per_host, program, arguments)
    if "can't" in text:
        raise Failure(f"something was told:\n{text}")
    return f"{check_joined(counts, ranks)} direct, {counts['in_host']} in_host"


# The job's token lies where no other host sees it.
HIDING = ["sh", "-c", 'mount -t tmpfs none /mnt && TMPDIR=/mnt exec "$@"', "sh"]
# The figures of a lab take the tree from 5 hosts on.
IN_TREE = {"TRIBUTARY_BETWEEN_HOSTS": "tree"}


def check_aggregator(mpi, name, program, arguments):
    """A job with an aggregator of its own reduces there, and nothing of it stays."""
    before = sockets(name, arguments)
    counts, text = run_job("aggregator", mpi, name, len(HOSTS), 1, program, arguments,
                           IN_TREE | {"TRIBUTARY_PORTS": "21000-21063"})
    world = world_of(counts)
    if (world["hosts"], counts["direct"]) != (len(HOSTS), 0) or any(
            world["collectives"][kind]["in_tree"] == 0 for kind in ("allreduce", "reduce", "bcast", "barrier")):
        raise Failure(f"not in the tree: {counts}\n{text}")
    left = lambda: sockets(name, arguments) - before  # noqa: E731
    if not eventually(lambda: not left()):
        raise Failure(f"sockets stay: {left()}")
    return f"{counts['in_tree']} in_tree"


def check_two_jobs(mpi, name, program, arguments):
    """Two jobs on the same hosts at the same time."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        reports = [pathlib.Path(folder) / f"{number}.json" for number in range(2)]
        jobs = [subprocess.Popen([str(word) for word in job_words(
                    "run", mpi, name, len(HOSTS), 1, program, report, arguments)],
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
        return " and ".join(f"{check_joined(json.loads(report.read_text()), len(HOSTS))} direct" for report in reports)


def sockets(name, arguments):
    """Sockets of a lab's hosts that listen or have a connection."""
    found = set()
    for host in HOSTS:
        code, text = bounded(on(name, host, arguments, "cat", "/proc/net/tcp", "/proc/net/tcp6"), 60)
        if code != 0:
            raise Failure(f"the sockets of {host}: exit code {code}\n{text}")
        rows = [line.split() for line in text.splitlines()]
        found.update((host, row[1], row[2]) for row in rows if len(row) > 3 and row[3] in STAYING)
    return found


class Marked:
    """A launched job whose processes carry a mark, until the end of a `with`: then whatever is left of it is killed. A failure
    within it is told with all that the job has said."""

    def __init__(self, job, words, name, folder, arguments):
        self.job, self.name, self.arguments = job, name, arguments
        self.sockets_before = sockets(name, arguments)
        self.said = (pathlib.Path(folder) / "said").open("w+")
        self.launched = subprocess.Popen([str(word) for word in words], env={**os.environ, MARK: job},
                                         stdin=subprocess.DEVNULL, stdout=self.said, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, kind, failure, _):
        kill_all(processes_of(self.job))
        self.launched.kill()
        self.launched.wait()
        with self.said:
            if kind is Failure:
                self.said.seek(0)
                raise Failure(f"{failure}\n{self.said.read()}") from failure

    def alive(self):
        """Its processes."""
        return [pid for pid in processes_of(self.job) if is_alive(pid)]

    def must_be_gone(self):
        """It ends, and no process or socket of it stays."""
        if not eventually(lambda: self.launched.poll() is not None, self.arguments.timeout):
            raise Failure("the job goes on")
        if not eventually(lambda: not self.alive()):
            raise Failure(f"processes stay: {[f'{pid} {name_of(pid)}' for pid in processes_of(self.job)]}")
        left = lambda: sockets(self.name, self.arguments) - self.sockets_before  # noqa: E731
        if not eventually(lambda: not left()):
            raise Failure(f"sockets stay: {left()}")


def kill_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def network_of(pid):
    """The network namespace of a process, by which its host is known; launchers give all ranks one environment."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""


def check_killed(how, mpi, name, arguments, way="run"):
    """The job is in the middle of its operations when something of it is killed."""
    job = f"{os.getpid()}-{mpi}-{how.replace(' ', '-')}"
    program = soak.compile_for(mpi, arguments)
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


def check_ports(mpi, name, program, arguments):
    """Ranks listen at the ports that a firewall leaves open."""
    with blocked("", "drop", name, arguments):
        counts, text = run_job("run", mpi, name, 2 * len(HOSTS), 2, program, arguments,
                               {**OTHER_PORTS, "TRIBUTARY_PORTS": "21000-21063"})
    if "can't" in text:
        raise Failure(f"something was told:\n{text}")
    return f"{check_joined(counts, 2 * len(HOSTS))} direct"


def check_misspelt(mpi, name, program, arguments):
    """A variable that is no knob is named once."""
    _, text = run_job("preload", mpi, name, len(HOSTS), 1, program, arguments, {"TRIBUTARY_FABRICS": "off"})
    if text.count("TRIBUTARY_FABRICS is no knob and has no effect; the nearest is TRIBUTARY_FABRIC\n") != 1:
        raise Failure(f"not told once:\n{text}")
    return "told once"


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


def must(words):
    code, text = bounded(words, 60)
    if code != 0:
        raise Failure(f"{words}: exit code {code}\n{text}")


def check_blocked(verdict, mpi, name, program, arguments):
    with blocked("", verdict, name, arguments):
        return check_left_to_mpi(mpi, name, program, arguments, OTHER_PORTS, NAMED)


def run_everywhere(script, name, arguments):
    """Runs a script on every host, with the host's number in it."""
    for number, host in enumerate(HOSTS, start=1):
        must(on(name, host, arguments, "sh", "-c", script.format(number)))


def check_further_network(family, mpi, name, program, arguments):
    """Hosts that are on two networks use the second where the first is blocked."""
    join, leave, interface = FURTHER[family]
    run_everywhere(join, name, arguments)
    try:
        with blocked(FIRST_NETWORK, "reject with tcp reset", name, arguments):
            counts, text = run_job("run", mpi, name, len(HOSTS), 1, program, arguments, OTHER_PORTS)
            named = {**OTHER_PORTS, "TRIBUTARY_INTERFACE": interface}
            named_counts, named_text = run_job("run", mpi, name, len(HOSTS), 1, program, arguments, named)
    finally:
        run_everywhere(leave, name, arguments)
    check_joined(named_counts, len(HOSTS))
    if "can't" in named_text:
        raise Failure(f"the blocked network was tried though another was named:\n{named_text}")
    if len(PASSED_OVER.findall(text)) != 1:
        raise Failure(f"not one line of the blocked network:\n{text}")
    return f"{check_joined(counts, len(HOSTS))} direct"


def check_ipv6_alone(mpi, name, program, arguments):
    """Hosts without an address of IPv4. They keep none: this comes last on its lab."""
    join, _, _ = FURTHER["IPv6"]
    run_everywhere(f"{join} && ip -4 addr flush dev eth0", name, arguments)
    return check_job("run", mpi, name, 1, program, arguments)


def check_wrong_address(mpi, name, program, arguments):
    """All hosts are said to have one and the same address."""
    return check_left_to_mpi(mpi, name, program, arguments, {"TRIBUTARY_HOST_ADDRESS": "10.77.2.1"},
                             r"host h\d has no address of its own.*TRIBUTARY_HOST_ADDRESS")


def main():
    # SIGTERM takes the lab down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    programs = {mpi: [compile_program("collectives", mpi, arguments)[0], "--sample", SAMPLE] for mpi in MPIS}
    tests = Tests(arguments)
    cases = []
    for mpi in MPIS:
        cases += [(f"{mpi:8} {way}, {per_host} a host",
                   lambda name, mpi=mpi, run=(way, per_host):
                      check_job(run[0], mpi, name, run[1], programs[mpi], arguments))
                  for way, per_host in zip(WAYS, (1, 2))]
        cases.append((f"{mpi:8} without capabilities", lambda name, mpi=mpi:
                      check_job("run", mpi, name, 1, [*WITHOUT_CAPABILITIES, *programs[mpi]], arguments)))
        cases.append((f"{mpi:8} two jobs at once", lambda name, mpi=mpi:
                      check_two_jobs(mpi, name, programs[mpi], arguments)))
        cases += [(f"{mpi:8} {how} killed", lambda name, mpi=mpi, how=how: check_killed(how, mpi, name, arguments))
                  for how in KILLS]
        cases += [(f"{mpi:8} an aggregator of its own", lambda name, mpi=mpi:
                   check_aggregator(mpi, name, programs[mpi], arguments)),
                  (f"{mpi:8} the same, everything killed", lambda name, mpi=mpi:
                   check_killed("everything", mpi, name, arguments, "aggregator"))]
        cases += [(f"{mpi:8} {BLOCKED_HOST} blocked, {verdict}", lambda name, mpi=mpi, verdict=verdict:
                   check_blocked(verdict, mpi, name, programs[mpi], arguments))
                  for verdict in ("drop", "reject with tcp reset")]
        cases += [(f"{mpi:8} {family} beside a blocked network", lambda name, mpi=mpi, family=family:
                   check_further_network(family, mpi, name, programs[mpi], arguments)) for family in FURTHER]
        cases.append((f"{mpi:8} ports of a firewall", lambda name, mpi=mpi:
                      check_ports(mpi, name, programs[mpi], arguments)))
        cases += [(f"{mpi:8} no such interface", lambda name, mpi=mpi:
                   check_left_to_mpi(mpi, name, programs[mpi], arguments, {"TRIBUTARY_INTERFACE": "ib7"},
                                     r"host h\d has no address of its own.*TRIBUTARY_INTERFACE"))]
        cases.append((f"{mpi:8} a misspelt knob", lambda name, mpi=mpi:
                      check_misspelt(mpi, name, programs[mpi], arguments)))
        cases.append((f"{mpi:8} one address for all", lambda name, mpi=mpi:
                      check_wrong_address(mpi, name, programs[mpi], arguments)))
    # MPICH's launcher listens at an address of IPv4 only.
    cases.append(("openmpi  IPv6 alone", lambda name: check_ipv6_alone("openmpi", name, programs["openmpi"], arguments)))
    tests.on_lab(LAB, cases, short=SHORT)
    print(f"{tests.failed} failed")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
