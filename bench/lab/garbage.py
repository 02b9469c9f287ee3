"""What packets of nobody at an aggregation node's port cost a job, whose node is a process or inside the kernel.

A host that is not of the job sends as fast as it can: random bytes, or requests to the job's own group without a capability.
The same packets also go to a port that nobody reads, of another host that is not of the job, so that they take as much of
the machine and nothing of the node. "Before" is without any.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import time

from harness.bench_labs import MPICH_UCX, BenchLab

JOB_HOSTS = 4
CASE = "allreduce:8"
NODES = {"process": (), "kernel": ("--node-kernel",)}
SENDER, IDLE = f"h{JOB_HOSTS}", f"h{JOB_HOSTS + 1}"
IDLE_PORT = 9000

# Binds a port and reads nothing: what comes is dropped, and nobody is told.
IDLE_PROGRAM = """
import socket, sys, time
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("", int(sys.argv[1])))
time.sleep(1e6)
"""

# Sends packets of a kind to an address; requests to the first group that there is.
SENDER_PROGRAM = """
import json, os, socket, struct, subprocess, sys
kind, host, port, program = sys.argv[1:]
if kind == "requests":
    groups = []
    while not groups:
        groups = json.loads(subprocess.run([program, "status", "--json"], check=True, capture_output=True).stdout)["groups"]
    # docs/wire.md: a sum of one int32, by the group's first child, with a capability that nobody was granted.
    packets = [struct.pack("<4sBBBBIIIIIIIIBBBBHH16sI", b"TRIB", 2, 3, 1, 0, 4, groups[0]["group"], groups[0]["epoch"],
                           0, 0, sequence, 1, 0, 1, 3, 1, 0, 0, 0, os.urandom(16), 0) for sequence in range(16)]
else:
    packets = [os.urandom(length) for length in (12, 48, 200, 1400)]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((host, int(port)))
while True:
    for packet in packets:
        sender.send(packet)
"""


@contextlib.contextmanager
def running(lab, member, *words):
    """A program on a host of a lab, until the block ends."""
    process = subprocess.Popen(lab.on(member, sys.executable, "-c", *words))
    try:
        yield
        if process.poll() is not None:
            sys.exit(f"flood: the program on {member} ended with exit code {process.returncode}")
    finally:
        process.terminate()
        process.wait()


def status(lab):
    return json.loads(lab.output("h0", lab.program, "status", "--json"))


def refused(lab):
    """Packets that the node has thrown away, as a process and inside the kernel."""
    counts = status(lab)["nodes"][0]["counts"]
    return counts["dropped"] + (counts.get("kernel") or {}).get("refused", 0)


def measure_flood(programs, arguments):
    """Rows of calls before and during each flood, and how many packets the node threw away meanwhile."""
    rows = []
    for node, options in NODES.items():
        with BenchLab(JOB_HOSTS + 2, arguments, options) as lab:
            host, port = status(lab)["nodes"][0]["registration"]["address"]["tcp"].rsplit(":", 1)
            idle = lab.output(IDLE, "hostname", "-I").split()[0]
            to_node, to_idle = (host, port), (idle, str(IDLE_PORT))
            floods = {"before": None, **{f"{kind} to {name}": (kind, *to) for kind in ("bytes", "requests")
                                         for name, to in (("the node", to_node), ("nobody", to_idle))}}
            found = {name: [] for name in floods}
            with running(lab, IDLE, IDLE_PROGRAM, str(IDLE_PORT)):
                for number in range(arguments.rounds):
                    for name, flood in floods.items():
                        print(f"round {number + 1} of {arguments.rounds}: flood, {node}, {name}", file=sys.stderr,
                              flush=True)
                        found[name].append(measure(lab, flood, programs, arguments))
        rows += [{"table": "flood", "variant": f"{node}, {name}", "case": CASE, "runs": runs,
                  **{key: statistics.median(run[key] for run in runs)
                     for key in ("median_us", "call_median_us", "p99_us", "refused")}}
                 for name, runs in found.items()]
    return rows


def measure(lab, flood, programs, arguments):
    """One run of the job, during a flood if there is one."""
    method = ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"})
    before = refused(lab)
    with contextlib.ExitStack() as stack:
        if flood is not None:
            stack.enter_context(running(lab, SENDER, SENDER_PROGRAM, *flood, lab.program))
            time.sleep(0.2)
        line, = lab.lines("flood", method, JOB_HOSTS, [CASE], programs, arguments)
    # A node tells its counts every second.
    time.sleep(1.5)
    return {**line, "refused": refused(lab) - before}
