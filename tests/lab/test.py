#!/usr/bin/env python3
"""Runs MPI programs on hosts of a lab, under Open MPI and MPICH, and checks results and report.

If this machine does not let this user make a lab, it says so and ends; with CI=true that is a failure.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import labs
from lab import command, parser_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MPI_TESTS = ROOT / "tests/mpi"
SOURCES = ["check.c", "plain.c", "sample.c", "shapes.c", "values.c", "layouts.c"]
# The programs, each with the part of its combinations that runs.
SAMPLES = {"collectives": "18", "further": "256", "computing": "1"}

# Each lab: its options, the runs on it (ranks, ranks per host, hosts expected), the MPIs, and whether
# every operation goes through the tree; else both ways are taken, by length. Open MPI's launcher sometimes
# fails on links that lose packets (docs/lab.md).
LABS = [
    (["--hosts", "4", "--hosts-per-leaf", "2"], [(4, 1, 4), (8, 2, 4), (3, 1, 3)],
     ("openmpi", "mpich"), True),
    (["--hosts", "6", "--hosts-per-leaf", "6", "--nodes", "spine"], [(6, 1, 6)],
     ("openmpi", "mpich"), False),
    (["--hosts", "3", "--loss", "0.5", "--rate", "1gbit"], [(3, 1, 3)], ("mpich",), True),
]

# A short run takes these of them: several ranks a host, and one a host under the other MPI.
LABS_SHORT = ("openmpi  8 ranks", "mpich    3 ranks", "mpich    6 ranks")

# Collectives in which every rank has a part of its own, at every length, by either way between hosts.
FURTHER_LAB = ["--hosts", "4", "--hosts-per-leaf", "2"]
FURTHER = [("mpich", "tree", 8, 2), ("mpich", "direct", 8, 2), ("openmpi", "direct", 4, 1)]

# Datagrams with results by multicast, over two levels: the labs' options, and whether multicast arrives.
# If links drop it, the root must notice and log it.
MULTICAST_LABS = [
    (["--hosts", "4", "--hosts-per-leaf", "2"], True),
    (["--hosts", "4", "--hosts-per-leaf", "2", "--block-multicast"], False),
    (["--hosts", "4", "--hosts-per-leaf", "2", "--authenticate-frames"], True),
]

# Nodes that take short segments inside the kernel, one alone and one below another, on links that lose packets and
# on others. Each takes half a minute; a short run has the one of DELAY_KERNEL_LAB.
KERNEL_LABS = [["--hosts", "4", "--hosts-per-leaf", "4", "--node-kernel"],
               ["--hosts", "4", "--hosts-per-leaf", "4", "--node-kernel", "--loss", "0.5"],
               ["--hosts", "4", "--hosts-per-leaf", "2", "--node-kernel"],
               ["--hosts", "4", "--hosts-per-leaf", "2", "--node-kernel", "--loss", "0.5"],
               ["--hosts", "4", "--hosts-per-leaf", "4", "--node-kernel", "--nodes", "inside"],
               ["--hosts", "4", "--hosts-per-leaf", "2", "--node-kernel", "--nodes", "inside", "--loss", "0.5"]]

# What carries the members' data there: UDP sockets, and AF_XDP behind and in the driver. What is named in the report.
KERNEL_CHANNELS = {"auto": "udp", "xdp": "xdp", "xdp-native": "xdp"}

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

# Labs whose network takes the time, with their numbers of hosts, and by which way every operation goes: a plain MPI, over
# direct links, through a tree of one level and of two.
DELAY_LABS = [(hosts, ["--hosts", str(hosts), "--hosts-per-leaf", str(per_leaf), "--delay", "1ms", *further])
              for hosts, per_leaf, further in [(8, 8, []), (8, 4, ["--spine-delay", "200us", "--jitter", "50us"]),
                                               (16, 16, []), (32, 32, [])]]
# There the node inside the kernel meets packets behind the losses, each receiver's own.
DELAY_KERNEL_LAB = ["--hosts", "4", "--hosts-per-leaf", "4", "--node-kernel", "--delay", "1ms", "--loss", "0.5"]
DELAY_WAYS = ("plain", "direct", "tree")
DELAY_SHORT = ("mpich    direct", "mpich    tree", "links")
# With 32 ranks that yield on two cores, Linux 6.18 keeps some of them, and its own threads, from the cores for a minute now
# and then (docs/decisions/0019). So this is no test; in a loop of 11 it failed once.
STARVING = ("mpich", "direct", 32)
# The vector instructions of Open MPI 5.0 saturate sums of 8-bit integers: 255 instead of 2 from 32 ranks.
PLAIN = {"OMPI_MCA_op": "^avx"}
# Every operation takes milliseconds there.
DELAY_SAMPLE = "512"

# Links that lose packets: what goes over direct links as a rule goes through the tree there, once that was seen.
LOSSY_LAB = ["--hosts", "6", "--hosts-per-leaf", "6", "--single-packets", "--loss", "1"]
LOSSY_CASE = "allreduce:65536"

# Datagrams, except to one host that drops them: its link goes on over TCP, the others by datagram.
BLOCKED_LAB = ["--hosts", "4", "--hosts-per-leaf", "2"]
BLOCKED_HOST = "h1"
BLOCK = ("table inet blocked { chain input { type filter hook input priority 0; "
         "meta l4proto udp counter drop; }; }")

# A direct link between two hosts, with frames authenticated and without, where somebody on the way alters
# one byte: in the first packet that comes to a host with a request (kind 3) for a sum (1) of i32 (3)
# behind TCP's header of 32 bytes, the first byte behind the frame's header of 64.
TAMPERED_LABS = [(["--hosts", "2", "--authenticate-frames"], True), (["--hosts", "2"], False)]
TAMPERED_HOST = "h1"
TAMPER = ("add table inet tampered; delete table inet tampered; table inet tampered { "
          "chain input { type filter hook input priority 0; tcp doff 8 @th,256,32 0x54524942 "
          "@th,296,8 3 @th,584,16 0x0301 @th,768,8 != 0x5a limit rate 1/day burst 1 packets "
          "counter @th,768,8 set 0x5a; }; }")
NOT_AUTHENTIC = "a frame was not authentic, on or near host h0@"


class Failure(Exception):
    """Why a run failed, in a few lines."""


def parse_arguments(further=()):
    """The options of tests on labs, and further ones: pairs of a name and what argparse has to know."""
    parser = parser_of(__doc__.splitlines()[0])
    for option, terms in further:
        parser.add_argument(option, **terms)
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds a run may take")
    parser.add_argument("--short", action="store_true", help="run the tests that matter most, as `make test` does")
    return parser.parse_args()


def compile_program(name, mpi, arguments):
    """The words that run a program of the MPI tests."""
    arguments.build.mkdir(parents=True, exist_ok=True)
    target = arguments.build / f"{name}-{mpi}"
    sources = [MPI_TESTS / source for source in (f"{name}.c", *SOURCES)]
    subprocess.run([arguments.venvs / mpi / "bin/mpicc", "-std=gnu11", "-O1", "-g", *sources,
                    "-o", target, "-lm", "-lpthread"], check=True)
    return [target.resolve(), "--sample", SAMPLES[name]]


def bounded(words, timeout, environment=None):
    """Runs a command; its exit code, and its output on both streams."""
    try:
        ended = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                               env={**os.environ, **(environment or {})}, check=False)
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        raise Failure(f"took more than {timeout:g} s\n{text.decode(errors='replace')}") from error
    return ended.returncode, ended.stdout


def on(name, member, arguments, *words):
    """The command that runs a command on a member."""
    return command(arguments.tributary, "exec", name, member, "--", *words)


def lab_up(name, options, arguments):
    code, text = bounded(command(arguments.tributary, "up", name, *options), 120)
    if code == 2 and os.environ.get("CI") != "true":
        print(f"NOT RUN: {text}", file=sys.stderr)
        sys.exit(0)
    if code != 0:
        raise Failure(f"lab up: exit code {code}\n{text}")


def check(mpi, name, ranks, per_host, hosts, tree_only, program, arguments):
    """One program on one lab: checks results, paths and the number of hosts."""
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


def check_further(mpi, name, method, ranks, per_host, program, arguments):
    """Every such collective goes by the method; on communicators inside a host, in its memory."""
    environment = {**labs.ALL_LENGTHS, "TRIBUTARY_BETWEEN_HOSTS": method}
    counts = run_program(mpi, name, ranks, per_host, program, arguments, environment)
    path = {"tree": "in_tree", "direct": "direct"}[method]
    found = world_of(counts)["collectives"]
    for collective in ("reduce_scatter", "allgather", "scan", "exscan"):
        if found[collective][path] == 0:
            raise Failure(f"no {collective} of the world ran {path}: {found}")
    return f"{counts[path]} {path}, {counts['in_host']} in_host"


def check_multicast(name, arrives, program, arguments):
    """Results come by multicast if it arrives; if not, the group goes on without it."""
    environment = {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_BETWEEN_HOSTS": "tree"}
    counts = run_program("mpich", name, 4, 1, program, arguments, environment)
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
    log = (labs_folder() / name / "log/spine-an").read_text()
    if ("nobody receives group" in log) == arrives:
        raise Failure(f"the root's log on multicast:\n{log}")
    return f"{counts['in_tree']} in_tree, {results} and {far} results by multicast"


def check_kernel(name, node, program, arguments, is_chosen=True):
    """Short segments are completed inside the kernel or gathered there, the others by the process, and all are right,
    whatever carries them. Without a path named, four hosts meet there too, or elsewhere where the network takes the time."""
    for channel, carrier in KERNEL_CHANNELS.items():
        environment = {"TRIBUTARY_CHANNEL": channel, "TRIBUTARY_BETWEEN_HOSTS": "tree"}
        counts = run_program("mpich", name, 4, 1, program, arguments, environment)
        if world_of(counts)["carriers"] != carrier:
            raise Failure(f"{channel}: carried by {world_of(counts)['carriers']!r}")
    chosen = run_program("mpich", name, 4, 1, program, arguments, {"TRIBUTARY_BETWEEN_HOSTS": "auto"})
    barriers = world_of(chosen)["collectives"]["barrier"]
    if ((barriers["direct"] == 0) != is_chosen) or (barriers["in_tree"] == 0) == is_chosen:
        raise Failure(f"barriers do not go where nodes are inside the kernel: {barriers}")
    code, text = bounded(on(name, node, arguments, sys.executable, "-c", KERNEL_COUNTS), 60)
    found = dict(line.split() for line in text.splitlines() if line.startswith("tributary_node_kernel_"))
    results, gathered, passed = (int(found.get(f"tributary_node_kernel_{what}_total", 0))
                                 for what in ("results", "gathered", "passed"))
    if code != 0 or 0 in (counts["in_tree"], results, gathered, passed):
        raise Failure(f"{counts['in_tree']} in_tree; exit code {code}\n{text}")
    return (f"{counts['in_tree']} in_tree, {results} segments inside the kernel, {gathered} gathered there, "
            f"{passed} requests passed on")


def check_delayed(mpi, name, way, hosts, program, arguments):
    """The results of a part of the program are right where frames take long; its operations go the way they should."""
    program = [program[0], "--sample", DELAY_SAMPLE]
    if way == "plain":
        code, text = bounded(program_words(mpi, name, hosts, 1, program, arguments, "--plain"),
                             arguments.timeout, PLAIN)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        return "results right"
    counts = run_program(mpi, name, hosts, 1, program, arguments, {"TRIBUTARY_BETWEEN_HOSTS": way})
    path = {"tree": "in_tree", "direct": "direct"}[way]
    other = {"tree": "direct", "direct": "in_tree"}[way]
    if counts[path] == 0 or counts[other] != 0 or world_of(counts)["hosts"] != hosts:
        raise Failure(f"{counts[path]} ran {path}, {counts[other]} {other}: {counts}")
    return f"{counts[path]} {path}"


def check_links(name, arguments):
    """Frames take the time that was asked for, lose what they should and stay in order."""
    code, text = bounded(command(arguments.tributary, "check", name, "--frames", 2000), arguments.timeout)
    if code != 0:
        raise Failure(f"exit code {code}\n{text}")
    return text.splitlines()[-1]


def check_lossy(name, arguments):
    """Ranks agree that links lose packets, and avoid them; sums of floats, too, as they are asked to."""
    program = [labs.compile_program("mpich", arguments).resolve(), LOSSY_CASE]
    counts = run_program("mpich", name, 6, 1, program, arguments,
                         {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_AVOID_LOSSES": "all"})
    avoiding = world_of(counts).get("avoiding_losses", 0)
    if counts["direct"] == 0 or avoiding <= counts["direct"]:
        raise Failure(f"{avoiding} operations avoided losses: {counts}")
    return f"{counts['direct']} direct, {avoiding} in_tree because links lose packets"


def check_plain_http(name, arguments):
    """The manager refuses control over plain HTTP, even with the right token, and serves it over TLS."""
    code, text = bounded(on(name, "h0", arguments, sys.executable, "-c", PLAIN_HTTP), arguments.timeout)
    if code != 0 or not text.startswith("400 ") or "tls-required" not in text:
        raise Failure(f"exit code {code}: {text}")
    code, text = bounded(on(name, "h0", arguments, arguments.tributary, "status", "--json"), arguments.timeout)
    if code != 0 or "spine-an" not in text:
        raise Failure(f"exit code {code}: {text}")
    return "400 tls-required"


def check_example(arguments):
    """examples/lab.sh makes a lab of its own, and runs a program in its tree."""
    binaries, program = arguments.venvs.resolve() / "openmpi/bin", arguments.build / "example-allreduce"
    subprocess.run([binaries / "mpicc", "-O2", ROOT / "examples/allreduce.c", "-o", program], check=True)
    path = f"{arguments.tributary.resolve().parent}:{binaries}:{os.environ['PATH']}"
    code, text = bounded([ROOT / "examples/lab.sh", program.resolve()], arguments.timeout, {"PATH": path})
    if code != 0 or "4 ranks: 1000 sums" not in text or "1000 in_tree, 0 direct" not in text:
        raise Failure(f"exit code {code}\n{text}")
    return "1000 in_tree"


def check_soak(mpi, arguments):
    """A soak of seconds, on a lossy lab of its own whose frames are authenticated."""
    code, text = bounded(
        [sys.executable, HERE / "soak.py", "--tributary", arguments.tributary, "--venvs",
         arguments.venvs, "--build", arguments.build, "--mpi", mpi, "--hosts", "6",
         "--hosts-per-leaf", "3", "--ranks-per-host", "2", "--seconds", "5", "--authenticate-frames"],
        arguments.timeout)
    if code != 0:
        raise Failure(f"exit code {code}\n{text}")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    return f"{found['operations']} operations, {found['in_tree']} of one process in_tree"


def check_blocked(name, program, arguments):
    """A host that datagrams do not reach uses TCP, and the report says so."""
    code, text = bounded(on(name, BLOCKED_HOST, arguments, "nft", BLOCK), 60)
    if code != 0:
        raise Failure(f"nft: exit code {code}\n{text}")
    environment = {"TRIBUTARY_CHANNEL": "auto", "TRIBUTARY_BETWEEN_HOSTS": "tree"}
    counts = run_program("mpich", name, 4, 1, program, arguments, environment)
    carriers = world_of(counts)["carriers"]
    if counts["in_tree"] == 0 or not carriers.startswith(f"udp, but tcp at {BLOCKED_HOST}@"):
        raise Failure(f"carried by {carriers!r}: {counts}")
    dropped = bounded(on(name, BLOCKED_HOST, arguments, "nft", "list", "table", "inet", "blocked"), 60)[1]
    if "counter packets" not in dropped or "packets 0 " in dropped:
        raise Failure(f"no datagram was dropped:\n{dropped}")
    return f"{counts['in_tree']} in_tree, carried by {carriers}"


def check_tampered(mpi, name, is_authenticated, program, arguments):
    """A switch that alters a frame of a direct link ends the program, or without codes makes it wrong."""
    code, text = bounded(on(name, TAMPERED_HOST, arguments, "nft", TAMPER), 60)
    if code != 0:
        raise Failure(f"nft: exit code {code}\n{text}")
    code, text = bounded(program_words(mpi, name, 2, 1, program, arguments), arguments.timeout)
    altered = bounded(on(name, TAMPERED_HOST, arguments, "nft", "list", "table", "inet", "tampered"), 60)[1]
    if "counter packets 1 " not in altered:
        raise Failure(f"not one frame was altered:\n{altered}\n{text}")
    is_wrong, is_told = "FAIL collectives" in text, NOT_AUTHENTIC in text
    if code == 0 or (is_told, is_wrong) != (is_authenticated, not is_authenticated):
        raise Failure(f"exit code {code}\n{text}")
    return "ended by an error" if is_told else "a wrong result"


def labs_folder():
    """The folder of this user's labs (docs/lab.md)."""
    if os.geteuid() == 0:
        return pathlib.Path("/run/tributary-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = pathlib.Path(f"/tmp/tributary-lab-{os.geteuid()}")
    return pathlib.Path(runtime) / "tributary-lab" if runtime else own


def world_of(counts):
    return next(entry for entry in counts["communicators"] if entry["label"] == "world")


def program_words(mpi, name, ranks, per_host, program, arguments, *options):
    """The command that runs the program on a lab."""
    return command(arguments.tributary, "run", name, "--ranks-per-host", per_host, *options, "--",
                   arguments.venvs.resolve() / mpi / "bin/mpirun", "-n", ranks, *program)


def run_program(mpi, name, ranks, per_host, program, arguments, environment=None):
    """Runs the program on a lab; its report."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        report = pathlib.Path(folder) / "report.json"
        code, text = bounded(
            program_words(mpi, name, ranks, per_host, program, arguments, "--report", report),
            arguments.timeout, environment)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        return json.loads(report.read_text())


class Tests:
    """Runs tests on labs, one lab after the other, and counts failures."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.failed = 0
        self.labs = 0

    def on_lab(self, options, tests, short=None):
        """Runs tests on one lab. Each test: its title, and a function of the lab's name. With --short, those whose titles begin
        with one of the words of `short`, or all if it is none."""
        if self.arguments.short and short is not None:
            tests = [test for test in tests if test[0].startswith(tuple(short))]
        if not tests:
            return
        name = f"mpi{self.labs}-{os.getpid()}"
        self.labs += 1
        try:
            lab_up(name, options, self.arguments)
            for title, test in tests:
                self.run(f"{title} {' '.join(options)}", test, name)
        except Failure as failure:
            self.failed += 1
            print(f"{' '.join(options)}: FAILED: {failure}", flush=True)
        finally:
            subprocess.run(command(self.arguments.tributary, "down", name), check=False,
                           stderr=subprocess.DEVNULL)

    def run(self, title, test, name):
        started = time.monotonic()
        try:
            outcome = test(name)
        except Failure as failure:
            self.failed += 1
            outcome = f"FAILED: {failure}"
        print(f"{title} {time.monotonic() - started:6.1f} s  {outcome}", flush=True)


def main():
    # SIGTERM takes the labs down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    programs, further = ({mpi: compile_program(name, mpi, arguments)
                          for mpi in ("openmpi", "mpich")} for name in ("collectives", "further"))
    tests = Tests(arguments)
    for options, runs, mpis, tree_only in LABS:
        tests.on_lab(options, [
            (f"{mpi:8} {ranks} ranks {hosts} hosts",
             lambda name, mpi=mpi, run=(ranks, per_host, hosts, tree_only):
                check(mpi, name, *run, programs[mpi], arguments))
            for mpi in mpis for ranks, per_host, hosts in runs], short=LABS_SHORT)
    tests.on_lab(FURTHER_LAB, [
        (f"{mpi:8} {ranks} ranks, parts, {method}",
         lambda name, mpi=mpi, run=(method, ranks, per_host):
            check_further(mpi, name, *run, further[mpi], arguments))
        for mpi, method, ranks, per_host in FURTHER])
    for at, (options, arrives) in enumerate(MULTICAST_LABS):
        tests.on_lab(options, [
            ("mpich    multicast", lambda name, arrives=arrives:
                check_multicast(name, arrives, programs["mpich"], arguments)),
            ("plain HTTP", lambda name: check_plain_http(name, arguments))], short=() if at > 1 else None)
    for options in KERNEL_LABS:
        node = "leaf0" if "inside" in options else "leaf0-an"
        tests.on_lab(options, [
            ("mpich    kernel path", lambda name, node=node: check_kernel(name, node, programs["mpich"], arguments))],
            short=())
    for hosts, options in DELAY_LABS:
        tests.on_lab(options, [
            *[(f"{mpi:8} {way}", lambda name, mpi=mpi, run=(way, hosts):
                check_delayed(mpi, name, *run, programs[mpi], arguments))
              for mpi in ("openmpi", "mpich") for way in DELAY_WAYS if (mpi, way, hosts) != STARVING],
            ("links", lambda name: check_links(name, arguments))], short=DELAY_SHORT if hosts == 8 else ())
    short = [programs["mpich"][0], "--sample", DELAY_SAMPLE]
    tests.on_lab(DELAY_KERNEL_LAB, [
        ("mpich    kernel path", lambda name: check_kernel(name, "leaf0-an", short, arguments, is_chosen=False))])
    tests.on_lab(LOSSY_LAB, [("mpich    lossy links", lambda name: check_lossy(name, arguments))])
    tests.on_lab(BLOCKED_LAB, [
        (f"mpich    no UDP into {BLOCKED_HOST}",
         lambda name: check_blocked(name, programs["mpich"], arguments))])
    for options, is_authenticated in TAMPERED_LABS:
        tests.on_lab(options, [
            (f"{mpi:8} altered frame", lambda name, mpi=mpi, is_authenticated=is_authenticated:
                check_tampered(mpi, name, is_authenticated, programs[mpi], arguments))
            for mpi in ("openmpi", "mpich")])
    tests.run("openmpi  example", lambda _: check_example(arguments), None)
    tests.run("mpich    soak", lambda _: check_soak("mpich", arguments), None)
    print(f"{tests.failed} failed")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
