"""The input that aggregation nodes take with one core each, beside the rates of the machine's memory and
loopback, measured in the same minute. A node has one data thread, so two threads are two nodes."""

import contextlib
import ctypes
import os
import socket
import statistics
import sys
import time

from harness.bench_labs import MPICH_UCX, BenchLab

INPUT_BYTES = 16 << 20
SEGMENTS, STREAM = {}, {"TRIBUTARY_STREAM_MIN": "1"}
# How many nodes take the hosts' input, each its share of the hosts; and whether long segments one by one or a stream.
VARIANTS = {"segments": (1, SEGMENTS), "stream": (1, STREAM),
            "segments, two nodes": (2, SEGMENTS), "stream, two nodes": (2, STREAM)}

COPIED_BYTES = 64 << 20
COPIES = 8
BLOCK_BYTES = 256 << 10
# The longest datagram.
DATAGRAM_BYTES = 65507
LOOPBACK_SECONDS = 1.0


def copy_rate():
    """GB/s of memcpy between buffers that are larger than the caches."""
    source = ctypes.create_string_buffer(b"\1", COPIED_BYTES)
    target = ctypes.create_string_buffer(COPIED_BYTES)
    ctypes.memmove(target, source, COPIED_BYTES)
    started = time.monotonic()
    for _ in range(COPIES):
        ctypes.memmove(target, source, COPIED_BYTES)
    return COPIES * COPIED_BYTES / (time.monotonic() - started) / 1e9


def loopback_rate(kind):
    """GB/s that one process receives from another over the loopback."""
    receiver = socket.socket(socket.AF_INET, kind)
    receiver.bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        receiver.listen(1)
    sender = os.fork()
    if sender == 0:
        send_until_killed(kind, receiver.getsockname())
    try:
        source = receiver.accept()[0] if kind == socket.SOCK_STREAM else receiver
        source.settimeout(10)
        buffer = bytearray(BLOCK_BYTES)
        source.recv_into(buffer)
        taken, started = 0, time.monotonic()
        while time.monotonic() < started + LOOPBACK_SECONDS:
            taken += source.recv_into(buffer)
        return taken / (time.monotonic() - started) / 1e9
    finally:
        os.kill(sender, 9)
        os.waitpid(sender, 0)
        receiver.close()


def send_until_killed(kind, address):
    """The sending process, which never returns."""
    try:
        with socket.socket(socket.AF_INET, kind) as link:
            link.connect(address)
            block = bytes(BLOCK_BYTES if kind == socket.SOCK_STREAM else DATAGRAM_BYTES)
            while True:
                link.send(block)
    finally:
        os._exit(1)


def measure_throughput(programs, arguments):
    """GB of input for each second of processor time that the nodes used, and the machine's rates."""
    found = {(variant, "allreduce"): [] for variant in VARIANTS}
    rates = {"memory copy": copy_rate,
             "TCP loopback": lambda: loopback_rate(socket.SOCK_STREAM),
             "UDP loopback": lambda: loopback_rate(socket.SOCK_DGRAM)}
    found |= {(rate, "machine"): [] for rate in rates}
    hosts = arguments.also_hosts
    with contextlib.ExitStack() as stack:
        labs = {nodes: stack.enter_context(BenchLab(hosts, arguments, ("--hosts-per-leaf", str(hosts // nodes))))
                for nodes in sorted({nodes for nodes, _ in VARIANTS.values()})}
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}: throughput", file=sys.stderr, flush=True)
            for variant, (nodes, settings) in VARIANTS.items():
                found[variant, "allreduce"].append(
                    taken_each_second(labs[nodes], nodes, settings, programs, arguments))
            for rate, measured in rates.items():
                found[rate, "machine"].append(measured())
    return [{"table": "throughput", "variant": variant, "case": case, "runs": runs,
             "gb_per_second": statistics.median(runs)}
            for (variant, case), runs in found.items()]


def taken_each_second(lab, nodes, settings, programs, arguments):
    """GB of hosts' input for each second of processor time that these nodes used."""
    members = [f"leaf{leaf}-an" for leaf in range(nodes)]
    environment = {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree", **settings}
    before = sum(map(lab.node_cpu_seconds, members))
    line, = lab.lines("throughput", ("mpich", False, environment), arguments.also_hosts,
                      [f"allreduce:{INPUT_BYTES}"], programs, arguments)
    used = sum(map(lab.node_cpu_seconds, members)) - before
    return line["calls_in_all"] * arguments.also_hosts * INPUT_BYTES / used / 1e9
