"""Runs MPI programs on hosts of a lab, under Open MPI and MPICH, and checks results and report."""

import json
import os
import sys

import pytest
from harness import bench_labs
from harness.compiling import compile_c
from harness.jobs import on, program_words, run_program, world_of
from harness.labs import command, labs_folder
from harness.places import ROOT, mpicc
from harness.running import Failure, bounded

MPIS = ("openmpi", "mpich")
short = pytest.mark.short
# Parts of the programs' combinations.
COLLECTIVES, FURTHER = ("--sample", "18"), ("--sample", "256")

ONE_LEAF = ("--hosts", "4", "--hosts-per-leaf", "4")
TWO_LEAVES = ("--hosts", "4", "--hosts-per-leaf", "2")

# Collectives in which every rank has a part of its own, at every length: the MPI, the path between hosts, ranks, ranks a host.
PARTS = [("mpich", "tree", 8, 2), ("mpich", "direct", 8, 2), ("openmpi", "direct", 4, 1)]

# Datagrams with results by multicast, over two levels: the labs' options, and whether multicast arrives.
# If links drop it, the root must notice and log it.
MULTICAST_LABS = [
    pytest.param(TWO_LEAVES, True, marks=short),
    pytest.param((*TWO_LEAVES, "--block-multicast"), False, marks=short),
    ((*TWO_LEAVES, "--authenticate-frames"), True),
]

# Nodes that take short segments inside the kernel, one alone and one below another, on links that lose packets and on others: the labs'
# options, and the node. Each takes half a minute; a short run has DELAY_KERNEL_LAB.
IN_KERNEL = ("--node-kernel", "--rings", "xdp")
KERNEL_LABS = [((*lab, *IN_KERNEL, *loss), "leaf0-an") for lab in (ONE_LEAF, TWO_LEAVES) for loss in ((), ("--loss", "0.5"))]
KERNEL_LABS += [((*ONE_LEAF, *IN_KERNEL, "--nodes", "inside"), "leaf0"),
                ((*TWO_LEAVES, *IN_KERNEL, "--nodes", "inside", "--loss", "0.5"), "leaf0")]

# What carries the members' data there: UDP sockets, and AF_XDP. What is named in the report.
KERNEL_CHANNELS = {"auto": "udp", "xdp": "xdp"}

# Prints what a node counts inside the kernel.
KERNEL_COUNTS = """
import os, urllib.request
token = open(os.environ["TRIBUTARY_TOKEN_FILE"]).read().strip()
request = urllib.request.Request("http://127.0.0.1:7479/metrics",
                                 headers={"Authorization": "Bearer " + token})
text = urllib.request.urlopen(request, timeout=30).read().decode()
print(*[line for line in text.splitlines() if line.startswith("tributary_node_kernel_")], sep="\\n")
"""

# Asks the manager over plain HTTP, from another host, with the right token.
PLAIN_HTTP = """
import os, urllib.error, urllib.request
token = open(os.environ["TRIBUTARY_TOKEN_FILE"]).read().strip()
request = urllib.request.Request("http://" + os.environ["TRIBUTARY_MANAGER"] + "/v1/status",
                                 headers={"Authorization": "Bearer " + token})
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""

# Labs whose network takes the time: their options, and their numbers of hosts. By each way every operation goes: a plain MPI, over direct
# links, through a tree of one level and of two.
DELAY_LABS = [pytest.param(("--hosts", str(hosts), "--hosts-per-leaf", str(per_leaf), "--delay", "1ms", *further), hosts,
                           marks=[pytest.mark.long] if hosts > 8 else [])
              for hosts, per_leaf, further in [(8, 8, ()), (8, 4, ("--spine-delay", "200us", "--jitter", "50us")),
                                               (16, 16, ()), (32, 32, ())]]
DELAY_WAYS = ("plain", "direct", "tree")
# With 32 ranks that yield on two cores, Linux 6.18 keeps some of them, and its own threads, from the cores for a minute now
# and then (docs/decisions/0019). So this is no test; in a loop of 11 it failed once.
STARVING = ("mpich", "direct", 32)
# The vector instructions of Open MPI 5.0 saturate sums of 8-bit integers: 255 instead of 2 from 32 ranks.
PLAIN = {"OMPI_MCA_op": "^avx"}
# Every operation takes milliseconds there.
DELAYED = ("--sample", "512")
# There the node inside the kernel meets packets behind the losses, each receiver's own.
DELAY_KERNEL_LAB = (*ONE_LEAF, *IN_KERNEL, "--delay", "1ms", "--loss", "0.5")

LOSSY_CASE = "allreduce:65536"

# Datagrams, except to one host that drops them: its link goes on over TCP, the others by datagram.
BLOCKED_HOST = "h1"
BLOCK = ("table inet blocked { chain input { type filter hook input priority 0; "
         "meta l4proto udp counter drop; }; }")

# On a direct link between two hosts, with frames authenticated and without, somebody on the way alters
# one byte: in the first packet that comes to a host with a request (kind 3) for a sum (1) of i32 (3)
# behind TCP's header of 32 bytes, the first byte behind the frame's header of 64.
TAMPERED_LABS = [(("--hosts", "2", "--authenticate-frames"), True), (("--hosts", "2"), False)]
TAMPERED_HOST = "h1"
TAMPER = ("add table inet tampered; delete table inet tampered; table inet tampered { "
          "chain input { type filter hook input priority 0; tcp doff 8 @th,256,32 0x54524942 "
          "@th,296,8 3 @th,584,16 0x0301 @th,768,8 != 0x5a limit rate 1/day burst 1 packets "
          "counter @th,768,8 set 0x5a; }; }")
NOT_AUTHENTIC = "a frame was not authentic, on or near host h0@"


def check_paths(mpi, name, ranks, per_host, hosts, tree_only, program, arguments):
    """Runs a program: checks results, paths and the number of hosts."""
    environment = {"TRIBUTARY_BETWEEN_HOSTS": "tree" if tree_only else "auto"}
    counts = run_program(mpi, name, ranks, per_host, program, arguments, environment)
    world = world_of(counts)
    if (world["ranks"], world["hosts"]) != (ranks, hosts):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts, expected {ranks} on "
                      f"{hosts}")
    if counts["in_tree"] == 0:
        raise Failure(f"nothing ran in_tree: {counts}")
    if (counts["direct"] == 0) != tree_only:
        raise Failure(f"{counts['direct']} ran direct: {counts}")
    return (f"{counts['in_host']} in_host, {counts['in_tree']} in_tree, "
            f"{counts['direct']} direct")


def parameters_of_runs(runs, short_ones):
    """Parameters of each run (ranks, ranks a host, hosts) under each MPI; a short run takes those of some numbers of ranks."""
    return [pytest.param(mpi, *run, marks=[short] if (mpi, run[0]) in short_ones else []) for mpi in MPIS for run in runs]


@pytest.mark.lab(*TWO_LEAVES)
class TestTwoLeaves:
    @pytest.mark.parametrize("mpi, ranks, per_host, hosts", parameters_of_runs(
        [(4, 1, 4), (8, 2, 4), (3, 1, 3)], [("openmpi", 8), ("mpich", 3)]))
    def test_every_operation_goes_through_the_tree(self, mpi, ranks, per_host, hosts, lab, arguments, compiled, tell):
        program = [compiled("collectives", mpi), *COLLECTIVES]
        tell(check_paths(mpi, lab, ranks, per_host, hosts, True, program, arguments))

    @short
    @pytest.mark.parametrize("mpi, method, ranks, per_host", PARTS)
    def test_parts_of_ranks_go_by_the_method(self, mpi, method, ranks, per_host, lab, arguments, compiled, tell):
        """Every such collective goes by the method; on communicators inside a host, in its memory."""
        environment = {**bench_labs.ALL_LENGTHS, "TRIBUTARY_BETWEEN_HOSTS": method}
        counts = run_program(mpi, lab, ranks, per_host, [compiled("further", mpi), *FURTHER], arguments, environment)
        path = {"tree": "in_tree", "direct": "direct"}[method]
        found = world_of(counts)["collectives"]
        for collective in ("reduce_scatter", "allgather", "scan", "exscan"):
            if found[collective][path] == 0:
                raise Failure(f"no {collective} of the world ran {path}: {found}")
        tell(f"{counts[path]} {path}, {counts['in_host']} in_host")


@pytest.mark.lab("--hosts", "6", "--hosts-per-leaf", "6", "--nodes", "spine")
class TestOneLeaf:
    @pytest.mark.parametrize("mpi, ranks, per_host, hosts", parameters_of_runs([(6, 1, 6)], [("mpich", 6)]))
    def test_both_ways_are_taken_by_length(self, mpi, ranks, per_host, hosts, lab, arguments, compiled, tell):
        program = [compiled("collectives", mpi), *COLLECTIVES]
        tell(check_paths(mpi, lab, ranks, per_host, hosts, False, program, arguments))


# Open MPI's launcher sometimes fails on links that lose packets (docs/lab.md).
@pytest.mark.lab("--hosts", "3", "--loss", "0.5", "--rate", "1gbit")
class TestSlowLinks:
    @short
    def test_every_operation_goes_through_the_tree(self, lab, arguments, compiled, tell):
        tell(check_paths("mpich", lab, 3, 1, 3, True, [compiled("collectives", "mpich"), *COLLECTIVES], arguments))


@pytest.mark.parametrize("lab, arrives", MULTICAST_LABS, indirect=["lab"], scope="class")
class TestMulticast:
    def test_results_come_by_multicast_if_it_arrives(self, lab, arrives, arguments, compiled, tell):
        """If not, the group goes on without it."""
        environment = {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_BETWEEN_HOSTS": "tree"}
        program = [compiled("collectives", "mpich"), *COLLECTIVES]
        counts = run_program("mpich", lab, 4, 1, program, arguments, environment)
        world = world_of(counts)
        results = world.get("multicast_results", 0)
        if counts["in_tree"] == 0 or world["carriers"] != "udp":
            raise Failure(f"nothing ran in_tree by datagram: {counts}")
        if (results > 0) != arrives:
            raise Failure(f"{results} results came by multicast")
        # Counts are those of the host of a communicator's first rank: another leaf's in the reversed one.
        reversed_ = [entry for entry in counts["communicators"]
                     if entry["label"] == "split" and entry["ranks"] == 4]
        far = sum(entry.get("multicast_results", 0) for entry in reversed_)
        if not reversed_ or (far > 0) != arrives:
            raise Failure(f"{far} results came by multicast below the other leaf")
        log = (labs_folder() / lab / "log/spine-an").read_text()
        if ("nobody receives group" in log) == arrives:
            raise Failure(f"the root's log on multicast:\n{log}")
        tell(f"{counts['in_tree']} in_tree, {results} and {far} results by multicast")

    def test_the_manager_refuses_plain_http(self, lab, arrives, arguments):
        """Even with the right token; it serves control over TLS."""
        code, text = bounded(on(lab, "h0", arguments, sys.executable, "-c", PLAIN_HTTP), arguments.timeout)
        if code != 0 or not text.startswith("400 ") or "tls-required" not in text:
            raise Failure(f"exit code {code}: {text}")
        code, text = bounded(on(lab, "h0", arguments, arguments.tributary, "status", "--json"), arguments.timeout)
        if code != 0 or "spine-an" not in text:
            raise Failure(f"exit code {code}: {text}")


def check_kernel(lab, node, program, arguments, is_chosen=True):
    """Short segments are completed inside the kernel or gathered there, the others by the process, and all are right,
    whatever carries them. Without a path named, four hosts meet there too, or elsewhere where the network takes the time."""
    for channel, carrier in KERNEL_CHANNELS.items():
        environment = {"TRIBUTARY_CHANNEL": channel, "TRIBUTARY_BETWEEN_HOSTS": "tree"}
        counts = run_program("mpich", lab, 4, 1, program, arguments, environment)
        if world_of(counts)["carriers"] != carrier:
            raise Failure(f"{channel}: carried by {world_of(counts)['carriers']!r}")
    chosen = run_program("mpich", lab, 4, 1, program, arguments, {"TRIBUTARY_BETWEEN_HOSTS": "auto"})
    barriers = world_of(chosen)["collectives"]["barrier"]
    if ((barriers["direct"] == 0) != is_chosen) or (barriers["in_tree"] == 0) == is_chosen:
        raise Failure(f"barriers do not go where nodes are inside the kernel: {barriers}")
    code, text = bounded(on(lab, node, arguments, sys.executable, "-c", KERNEL_COUNTS), 60)
    found = dict(line.split() for line in text.splitlines() if line.startswith("tributary_node_kernel_"))
    results, gathered, passed = (int(found.get(f"tributary_node_kernel_{what}_total", 0))
                                 for what in ("results", "gathered", "passed"))
    if code != 0 or 0 in (counts["in_tree"], results, gathered, passed):
        raise Failure(f"{counts['in_tree']} in_tree; exit code {code}\n{text}")
    return (f"{counts['in_tree']} in_tree, {results} segments inside the kernel, {gathered} gathered there, "
            f"{passed} requests passed on")


@pytest.mark.parametrize("lab, node", KERNEL_LABS, indirect=["lab"], scope="class")
class TestKernelPath:
    def test_short_segments_are_completed_in_the_kernel(self, lab, node, arguments, compiled, tell):
        tell(check_kernel(lab, node, [compiled("collectives", "mpich"), *COLLECTIVES], arguments))


@pytest.mark.parametrize("lab, hosts", DELAY_LABS, indirect=["lab"], scope="class")
class TestDelayedLinks:
    @pytest.mark.parametrize("mpi, way", [
        pytest.param(mpi, way, marks=[short] if mpi == "mpich" and way != "plain" else []) for mpi in MPIS for way in DELAY_WAYS])
    def test_results_are_right_where_frames_take_long(self, mpi, way, lab, hosts, arguments, compiled, tell):
        """Operations go the way that they should."""
        if (mpi, way, hosts) == STARVING:
            pytest.skip("the kernel starves ranks that yield")
        program = [compiled("collectives", mpi), *DELAYED]
        if way == "plain":
            code, text = bounded(program_words(mpi, lab, hosts, 1, program, arguments, "--plain"), arguments.timeout, PLAIN)
            if code != 0:
                raise Failure(f"exit code {code}\n{text}")
            return
        counts = run_program(mpi, lab, hosts, 1, program, arguments, {"TRIBUTARY_BETWEEN_HOSTS": way})
        path, other = ("in_tree", "direct") if way == "tree" else ("direct", "in_tree")
        if counts[path] == 0 or counts[other] != 0 or world_of(counts)["hosts"] != hosts:
            raise Failure(f"{counts[path]} ran {path}, {counts[other]} {other}: {counts}")
        tell(f"{counts[path]} {path}")

    @short
    def test_frames_take_the_time_that_was_asked_for(self, lab, hosts, arguments, tell):
        """They lose what they should, and stay in order."""
        code, text = bounded(command(arguments.tributary, "check", lab, "--frames", 2000), arguments.timeout)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        tell(text.splitlines()[-1])


@short
@pytest.mark.lab(*DELAY_KERNEL_LAB)
class TestDelayedKernelPath:
    def test_hosts_meet_elsewhere_where_the_network_takes_the_time(self, lab, arguments, compiled, tell):
        tell(check_kernel(lab, "leaf0-an", [compiled("collectives", "mpich"), *DELAYED], arguments, is_chosen=False))


# What goes over direct links as a rule goes through the tree there, once losses were seen.
@short
@pytest.mark.lab("--hosts", "6", "--hosts-per-leaf", "6", "--single-packets", "--loss", "1")
class TestLossyLinks:
    def test_ranks_agree_to_avoid_them(self, lab, arguments, tell):
        """Sums of floats, too, as they are asked to."""
        program = [bench_labs.compile_program("mpich", arguments), LOSSY_CASE]
        counts = run_program("mpich", lab, 6, 1, program, arguments,
                             {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_AVOID_LOSSES": "all"})
        avoiding = world_of(counts).get("avoiding_losses", 0)
        if counts["direct"] == 0 or avoiding <= counts["direct"]:
            raise Failure(f"{avoiding} operations avoided losses: {counts}")
        tell(f"{counts['direct']} direct, {avoiding} in_tree because links lose packets")


@short
@pytest.mark.lab(*TWO_LEAVES)
class TestBlockedHost:
    def test_a_host_that_datagrams_do_not_reach_uses_tcp(self, lab, arguments, compiled, tell):
        """The report says so; links of others go on by datagram."""
        code, text = bounded(on(lab, BLOCKED_HOST, arguments, "nft", BLOCK), 60)
        if code != 0:
            raise Failure(f"nft: exit code {code}\n{text}")
        environment = {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_BETWEEN_HOSTS": "tree"}
        program = [compiled("collectives", "mpich"), *COLLECTIVES]
        counts = run_program("mpich", lab, 4, 1, program, arguments, environment)
        carriers = world_of(counts)["carriers"]
        if counts["in_tree"] == 0 or not carriers.startswith(f"udp, but tcp at {BLOCKED_HOST}@"):
            raise Failure(f"carried by {carriers!r}: {counts}")
        dropped = bounded(on(lab, BLOCKED_HOST, arguments, "nft", "list", "table", "inet", "blocked"), 60)[1]
        if "counter packets" not in dropped or "packets 0 " in dropped:
            raise Failure(f"no datagram was dropped:\n{dropped}")
        tell(f"{counts['in_tree']} in_tree, carried by {carriers}")


@short
@pytest.mark.parametrize("lab, is_authenticated", TAMPERED_LABS, indirect=["lab"], scope="class")
class TestTamperedFrames:
    @pytest.mark.parametrize("mpi", MPIS)
    def test_an_altered_frame_ends_the_program(self, mpi, lab, is_authenticated, arguments, compiled, tell):
        """Or, without codes, makes a result wrong."""
        code, text = bounded(on(lab, TAMPERED_HOST, arguments, "nft", TAMPER), 60)
        if code != 0:
            raise Failure(f"nft: exit code {code}\n{text}")
        program = [compiled("collectives", mpi), *COLLECTIVES]
        code, text = bounded(program_words(mpi, lab, 2, 1, program, arguments), arguments.timeout)
        altered = bounded(on(lab, TAMPERED_HOST, arguments, "nft", "list", "table", "inet", "tampered"), 60)[1]
        if "counter packets 1 " not in altered:
            raise Failure(f"not one frame was altered:\n{altered}\n{text}")
        is_wrong, is_told = "FAIL collectives" in text, NOT_AUTHENTIC in text
        if code == 0 or (is_told, is_wrong) != (is_authenticated, not is_authenticated):
            raise Failure(f"exit code {code}\n{text}")
        tell("ended by an error" if is_told else "a wrong result")


@short
def test_the_example_runs_a_program_in_its_tree(arguments, tell):
    """examples/lab.sh makes a lab of its own."""
    binaries = mpicc(arguments, "openmpi").parent
    program = compile_c(binaries / "mpicc", [ROOT / "examples/allreduce.c"], arguments.build / "example-allreduce")
    path = f"{arguments.tributary.parent}:{binaries}:{os.environ['PATH']}"
    code, text = bounded([ROOT / "examples/lab.sh", program], arguments.timeout, {"PATH": path})
    if code != 0 or "4 ranks: 1000 sums" not in text or "1000 in_tree, 0 direct" not in text:
        raise Failure(f"exit code {code}\n{text}")
    tell("1000 in_tree")


@short
def test_a_soak_of_seconds(arguments, tell):
    """On a lossy lab of its own whose frames are authenticated."""
    code, text = bounded(
        [sys.executable, ROOT / "tests/lab/soak.py", "--tributary", arguments.tributary, "--venvs", arguments.venvs,
         "--build", arguments.build, "--mpi", "mpich", "--hosts", "6", "--hosts-per-leaf", "3", "--ranks-per-host", "2",
         "--seconds", "5", "--authenticate-frames"], arguments.timeout)
    if code != 0:
        raise Failure(f"exit code {code}\n{text}")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    tell(f"{found['operations']} operations, {found['in_tree']} of one process in_tree")
