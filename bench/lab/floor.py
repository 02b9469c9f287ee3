#!/usr/bin/env python3
"""Measures the least that an operation of 8 hosts through one node costs on this machine.

Runs floor.c on a lab: one server in the place of the aggregation node, one client on each host, frames
of the length that 8 bytes need, and only system calls. Prints medians over interleaved runs. floor.c says
what the modes are.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness.bench_labs import finish, start  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_c  # noqa: E402
from harness.labs import Lab  # noqa: E402

SERVER = "10.77.1.1"
MODES = "tcp,udp,multicast"
# What may shorten the waits of plain sockets, for --modes.
WAITS = ("udp,udp-busy,udp-prefer,udp-napi,udp-napi-busy,udp-napi-prefer,udp-uring-clients,udp-uring,"
         "udp-defer,udp-sends,udp-defer-sends,multicast,multicast-prefer,multicast-uring-clients,"
         "multicast-uring,multicast-defer,multicast-sends,multicast-defer-sends")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lab",
                        help="folder for compiled programs (default %(default)s)")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--exchanges", type=int, default=10000, help="exchanges of one run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every mode")
    parser.add_argument("--modes", default=MODES, help="by commas, or 'waits' for busy polling and "
                        "io_uring beside plain calls (default %(default)s)")
    parser.add_argument("--yields", default="64,0",
                        help="how often to yield before sleeping, by commas (default %(default)s)")
    return parser.parse_args()


class FlatLab(Lab):
    """A lab of one switch."""

    def __init__(self, arguments):
        super().__init__(arguments.tributary, f"floor-{os.getpid()}", "--hosts", arguments.hosts,
                         "--hosts-per-leaf", arguments.hosts)

    def start(self, member, words):
        return start(self.on(member, *words))

    def run(self, program, mode, yields, arguments):
        """Microseconds an exchange, and how many of the processes had a NAPI instance to poll; None where
        they did not try."""
        server = self.start("leaf0-an", [program, "server", mode, yields, arguments.hosts,
                                         arguments.exchanges, SERVER])
        time.sleep(0.3)
        clients = [self.start(f"h{host}", [program, "client", mode, yields, arguments.exchanges,
                                           SERVER, f"10.77.2.{host + 1}"])
                   for host in range(arguments.hosts)]
        outputs = finish(f"{mode} with {yields} yields", [server, *clients], 130)
        took, *_ = outputs[0][0].split()
        ids = [int(stdout.split()[-1]) for stdout, _ in outputs if "NAPI" in stdout]
        return float(took), sum(map(bool, ids)) if ids else None


def main():
    arguments = parse_arguments()
    program = compile_c("cc", [HERE / "floor.c"], arguments.build / "floor")
    modes = WAITS if arguments.modes == "waits" else arguments.modes
    cases = [(mode, int(yields)) for yields in arguments.yields.split(",") for mode in modes.split(",")]
    found = {case: [] for case in cases}
    with FlatLab(arguments) as lab:
        for _ in range(arguments.rounds):
            for case in cases:
                found[case].append(lab.run(program, *case, arguments))
    print(f"{arguments.hosts} hosts, {os.cpu_count()} cores, us an exchange: median, least")
    for (mode, yields), runs in found.items():
        wait = f"{yields} yields" if yields else "sleeping"
        took = [us for us, _ in runs]
        polled = runs[-1][1]
        note = "" if polled is None else f"  {polled} processes have a NAPI to poll"
        print(f"{mode:>23} {wait:>10} {statistics.median(took):8.1f} {min(took):8.1f}{note}")


if __name__ == "__main__":
    main()
