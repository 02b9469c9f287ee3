"""Runs jobs whose replicated groups multicast on hosts of a lab, and what can happen to multicasts. Datagrams come by sockets, or
out of rings that a program of a service fills, which each host has.

Where they come to all hosts of a group they are used. Where they don't, from the start or from some moment on, hosts send
copies. What strangers send to a group's address neither changes a result nor stops a job.
"""

import contextlib
import json
import pathlib
import re
import sys
import tempfile

import pytest
from harness.compiling import compile_soak
from harness.jobs import on, world_of
from harness.processes import eventually
from harness.running import Failure, bounded, must
from harness.undeployed import FURTHER, HOSTS, LAB, WITHOUT_CAPABILITIES, Marked, job_words, run_everywhere, run_job

MPIS = ("openmpi", "mpich")
# Hosts of a lab share a kernel, where `auto` sends copies.
GROUPS = {"TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_GROUPS": "4", "TRIBUTARY_MULTICAST": "on"}
# What carries operations where multicasts come to all hosts, and where they do not.
MULTICASTS, COPIES = "links and multicast datagrams", "links and datagrams"
ALGORITHM = ", mixed_radix:4"
BLOCKING_LAB = (*LAB, "--block-multicast")
# What the report says of where datagrams come from.
IN_RINGS, NO_RINGS = " in rings", " (no ring at h0: no service of rings at @tributary-rings: Connection refused (os error 111))"
# Where the programs of services sit. In the driver not: a lab's hosts take trains.
HOOKS = ("traffic-control", "xdp")
# A name that each host has for itself.
SERVICE = "@tributary-rings"
SERVED = {**GROUPS, "TRIBUTARY_RINGS": SERVICE}
# Two routed leaves: multicasts of the other leaf's hosts do not come. In the order of their numbers hosts of different leaves meet at
# both levels. Host h0 has 10.77.2.1.
LEAVES = (("h0", "h3"), ("h1", "h2"))
ROUTED = ("table inet routed {{ chain input {{ type filter hook prerouting priority 0; "
          "ip daddr 239.192.0.0/14 ip saddr != {{ {} }} drop; }}; }}")
NAMES_LEAF = ["sh", "-c", 'case $(hostname) in h[03]) leaf=outer;; *) leaf=inner;; esac; TRIBUTARY_LEAF=$leaf exec "$@"', "sh"]
IN_PAIRS = {**GROUPS, "TRIBUTARY_GROUPS": "2x2"}
# What tells a host's kernel in its name.
KERNEL = re.compile("@[0-9a-f]{8}")
# A part of the program's combinations.
SAMPLE = ("--sample", "256")
DEAF_HOST = "h1"
STRANGER = "h3"
# From some moment on a host gets no multicasts, as behind a switch that forgot that it subscribes.
DEAFEN = ("table inet deaf { counter multicasts {}; chain input { type filter hook prerouting priority 0; "
          "ip daddr { %s } counter name multicasts drop; }; }")
# A group's address and port, among what a host listens at.
LISTENS = re.compile(r"^\s*\d+: ([0-9A-F]{8}):([0-9A-F]{4}) ", re.MULTILINE)
# Floods an address with datagrams that no member can have sent, for some seconds; says how many.
FLOOD = """
import socket, sys, time
address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
sent, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(100):
        out.sendto(bytes([sent % 256]) * 200, (address, port))
        sent += 1
print(sent)
"""
FLOOD_SECONDS = 3
# Where what a host sends may have to be sent again, which is so for every other operation of four hosts.
LOSSY_LAB = (*LAB, "--loss", "3", "--tcp-rto-min", "5")
COMPUTES_SECONDS = 10


def check_carried(carried, mpi, name, program, arguments, settings=GROUPS):
    """What carries short operations, as the report says; their results are right."""
    counts, _ = run_job("run", mpi, name, len(HOSTS), 1, program, arguments, settings)
    world = world_of(counts)
    if KERNEL.sub("", world["carriers"]) != carried or world["collectives"]["allreduce"]["direct"] == 0:
        raise Failure(f"carried by {world['carriers']!r}, not by {carried!r}: {world['collectives']}")
    return f"{counts['direct']} direct"


class Running:
    """A job in the middle of its operations, whose groups multicast."""

    def __init__(self, what, mpi, name, folder, arguments, settings=GROUPS, confined=()):
        folder = pathlib.Path(folder)
        self.ends, self.report = folder / "ends", folder / "report.json"
        program = [*confined, compile_soak(mpi, arguments), "--seconds", 8, "--depth", 1, "--ends", self.ends]
        words = job_words("run", mpi, name, len(HOSTS), 1, program, self.report, arguments)
        settings = [f"{knob}={value}" for knob, value in settings.items()]
        self.marked = Marked(f"{name}-{what}", ["env", *settings, *words], name, folder, arguments)

    def await_operations(self):
        if not eventually(lambda: self.ends.exists() and self.ends.stat().st_size > 0, 60):
            raise Failure("no operation ran")

    def end(self):
        """It ends well, with right results; its report."""
        launched = self.marked.launched
        if not eventually(lambda: launched.poll() is not None, self.marked.arguments.timeout):
            raise Failure("the job goes on")
        if launched.returncode != 0:
            raise Failure(f"exit code {launched.returncode}")
        return json.loads(self.report.read_text())


def multicasts_dropped(name, arguments):
    code, text = bounded(on(name, DEAF_HOST, arguments, "nft", "list counter inet deaf multicasts"), 60)
    if code != 0:
        raise Failure(f"the counter: exit code {code}\n{text}")
    return int(re.search(r"packets (\d+)", text)[1])


def check_forgotten(mpi, name, arguments):
    """Multicasts stop to come to one host while operations run: after a while the others send it copies."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        running = Running("forgotten", mpi, name, folder, arguments)
        with running.marked:
            running.await_operations()
            # Bridges without a querier bring it those of other groups as well.
            own = ", ".join(sorted({address for address, _ in multicast_addresses(name, DEAF_HOST, arguments)}))
            must(on(name, DEAF_HOST, arguments, "nft", DEAFEN % own))
            try:
                settled = lambda: multicasts_dropped(name, arguments)  # noqa: E731
                first = settled()
                if not eventually(lambda: settled() > first, 10):
                    raise Failure("nothing was multicast")
                counts = running.end()
                dropped = settled()
            finally:
                must(on(name, DEAF_HOST, arguments, "nft", "delete table inet deaf"))
    # In each communicator up to 63 operations until it is judged that multicasts do not come, of which each host multicasts one.
    groups = own.count(",") + 1
    allreduces = world_of(counts)["collectives"]["allreduce"]["direct"]
    if dropped > groups * 63 * (len(HOSTS) - 1) or allreduces < 1000:
        raise Failure(f"{dropped} multicasts to a host that none came to, of {groups} groups and {allreduces} allreduces "
                      "of all hosts")
    return f"{dropped} multicasts of {groups} groups dropped, {allreduces} allreduces"


def multicast_addresses(name, host, arguments):
    """Where a host takes multicasts: addresses and ports."""
    code, text = bounded(on(name, host, arguments, "cat", "/proc/net/udp"), 60)
    if code != 0:
        raise Failure(f"the sockets: exit code {code}\n{text}")
    found = [(bytes.fromhex(address)[::-1], int(port, 16)) for address, port in LISTENS.findall(text)]
    found = [(".".join(map(str, octets)), port) for octets, port in found if octets[0] == 239]
    if not found:
        raise Failure(f"nobody listens at a group's address:\n{text}")
    return found


def check_flooded(mpi, name, arguments):
    """A stranger sends to the group's address as fast as it can."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        running = Running("flooded", mpi, name, folder, arguments)
        with running.marked:
            running.await_operations()
            address, port = multicast_addresses(name, HOSTS[0], arguments)[0]
            code, text = bounded(on(name, STRANGER, arguments, sys.executable, "-c", FLOOD, address, str(port),
                                    str(FLOOD_SECONDS)), 60)
            if code != 0 or int(text) < 1000:
                raise Failure(f"the flood: exit code {code}\n{text}")
            counts = running.end()
    return f"{int(text)} datagrams of a stranger, {counts['direct']} direct"


@contextlib.contextmanager
def services(name, hosts, arguments, hook=HOOKS[0]):
    """Services of rings at these hosts, whose programs sit at a hook; they are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder, contextlib.ExitStack() as stack:
        for host in hosts:
            of_host = pathlib.Path(folder, host)
            of_host.mkdir()
            words = on(name, host, arguments, arguments.tributary, "rings", "--socket", SERVICE, "--hook", hook)
            stack.enter_context(Marked(f"{name}-rings-{host}", words, name, of_host, arguments))
            if not eventually(lambda said=of_host / "said": SERVICE in said.read_text(), 30):
                raise Failure(f"no service at {host}")
        yield


def check_served(mpi, name, kind, program, arguments):
    """A job without privileges has rings where each host has a service, and says which host has none; whatever it has, its results
    are right."""
    program = [*WITHOUT_CAPABILITIES, *program]
    with services(name, HOSTS, arguments):
        check_carried(kind + IN_RINGS + ALGORITHM, mpi, name, program, arguments, SERVED)
    with services(name, HOSTS[:1], arguments):
        said = f"{kind} (no ring at {HOSTS[1]}: it has no service of rings){ALGORITHM}"
        check_carried(said, mpi, name, program, arguments, SERVED)
    return check_carried(kind + ALGORITHM, mpi, name, program, arguments, SERVED)


def check_rings_of_ipv6(mpi, name, program, arguments):
    """Over IPv6 hosts send copies, and these come by rings."""
    join, leave, interface = FURTHER["IPv6"]
    carried = COPIES + IN_RINGS + ALGORITHM
    settings = {**SERVED, "TRIBUTARY_INTERFACE": interface}
    run_everywhere(join, name, arguments)
    try:
        with services(name, HOSTS, arguments):
            return check_carried(carried, mpi, name, [*WITHOUT_CAPABILITIES, *program], arguments, settings)
    finally:
        run_everywhere(leave, name, arguments)


def check_services_killed(mpi, name, arguments):
    """The services die in the middle of a job, and its datagrams come by sockets."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        with contextlib.ExitStack() as stack:
            with services(name, HOSTS, arguments):
                running = Running("served", mpi, name, folder, arguments, SERVED, WITHOUT_CAPABILITIES)
                stack.enter_context(running.marked)
                running.await_operations()
            counts = running.end()
    carried = KERNEL.sub("", world_of(counts)["carriers"])
    if " in rings," not in carried:
        raise Failure(f"carried by {carried!r}")
    return f"{counts['direct']} direct"


def check_routed(mpi, name, program, arguments):
    """Leaves are routed. If hosts name theirs, those of one meet first and multicast there; else they meet across."""
    for leaf in LEAVES:
        addresses = ", ".join(f"10.77.2.{int(host[1:]) + 1}" for host in leaf)
        for host in leaf:
            must(on(name, host, arguments, "nft", ROUTED.format(addresses)))
    try:
        check_carried("links and datagrams, mixed_radix:2x2", mpi, name, program, arguments, IN_PAIRS)
        carried = "links and datagrams, some of them multicast, mixed_radix:2x2 by 2 leaves"
        return check_carried(carried, mpi, name, [*NAMES_LEAF, *program], arguments, IN_PAIRS)
    finally:
        for host in HOSTS:
            must(on(name, host, arguments, "nft", "delete table inet routed"))


def check_computing(name, program, arguments, settings):
    """One host computes while the others need it."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        words = [*program, pathlib.Path(folder) / "progress", COMPUTES_SECONDS]
        counts, text = run_job("run", "mpich", name, len(HOSTS), 1, words, arguments, settings)
    if counts["direct"] == 0:
        raise Failure(f"nothing went by groups: {counts}\n{text}")
    return re.search(r"computing: (.*)", text)[1]


@pytest.fixture
def program(mpi, compiled):
    """A program of checked collectives, and the part of them that runs."""
    return [compiled("collectives", mpi), *SAMPLE]


under_each_mpi = pytest.mark.parametrize("mpi", MPIS)
under_mpich = pytest.mark.parametrize("mpi", ["mpich"])


class Carried:
    """What carries operations on a lab, whatever datagrams come by."""

    kind = None

    @under_each_mpi
    def test_groups_exchange_datagrams(self, mpi, lab, program, arguments, tell):
        tell(check_carried(self.kind + ALGORITHM, mpi, lab, program, arguments))

    @pytest.mark.parametrize("hook", HOOKS)
    @under_each_mpi
    def test_datagrams_come_by_rings(self, mpi, hook, lab, program, arguments, tell):
        with services(lab, HOSTS, arguments, hook):
            tell(check_carried(self.kind + IN_RINGS + ALGORITHM, mpi, lab, program, arguments, SERVED))

    @under_each_mpi
    def test_a_job_that_wants_rings_says_where_there_is_no_service(self, mpi, lab, program, arguments, tell):
        settings = {**SERVED, "TRIBUTARY_RECEIVE": "ring"}
        tell(check_carried(self.kind + NO_RINGS + ALGORITHM, mpi, lab, program, arguments, settings))


@pytest.mark.short
@pytest.mark.lab(*LAB)
class TestMulticast(Carried):
    kind = MULTICASTS

    @under_mpich
    def test_hosts_of_one_kernel_send_copies(self, mpi, lab, program, arguments, tell):
        tell(check_carried(COPIES + ALGORITHM, mpi, lab, program, arguments, {**GROUPS, "TRIBUTARY_MULTICAST": "auto"}))

    @under_mpich
    def test_hosts_send_copies_after_multicasts_stop_to_come(self, mpi, lab, arguments, tell):
        tell(check_forgotten(mpi, lab, arguments))

    @under_mpich
    def test_hosts_of_a_routed_leaf_meet_first(self, mpi, lab, program, arguments, tell):
        tell(check_routed(mpi, lab, program, arguments))

    @under_mpich
    def test_a_strangers_flood_changes_nothing(self, mpi, lab, arguments, tell):
        tell(check_flooded(mpi, lab, arguments))

    @under_each_mpi
    def test_a_job_has_rings_of_its_hosts_services(self, mpi, lab, program, arguments, tell):
        tell(check_served(mpi, lab, self.kind, program, arguments))

    @under_each_mpi
    def test_datagrams_of_ipv6_come_by_rings(self, mpi, lab, program, arguments, tell):
        tell(check_rings_of_ipv6(mpi, lab, program, arguments))

    @under_mpich
    def test_a_job_outlives_its_hosts_services(self, mpi, lab, arguments, tell):
        tell(check_services_killed(mpi, lab, arguments))


@pytest.mark.short
@pytest.mark.lab(*BLOCKING_LAB)
class TestBlockedMulticast(Carried):
    kind = COPIES


@pytest.mark.short
@pytest.mark.lab(*LOSSY_LAB)
class TestComputing:
    @pytest.mark.parametrize("multicast", ["on", "off"])
    def test_one_host_computes_while_the_others_need_it(self, multicast, lab, arguments, compiled, tell):
        tell(check_computing(lab, [compiled("computing", "mpich"), "--sample", "1"], arguments,
                             {**GROUPS, "TRIBUTARY_MULTICAST": multicast}))
