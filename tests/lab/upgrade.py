#!/usr/bin/env python3
"""Upgrades all nodes of a lab one after the other with examples/rolling-upgrade.sh, as docs/operating.md shows it, under a
program that checks every result. It must not see an error. Prints the program's pauses.
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import nemesis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.compiling import compile_soak  # noqa: E402, their folder is on the path only now
from harness.places import ROOT, parser_of  # noqa: E402

SCRIPT = ROOT / "examples/rolling-upgrade.sh"
# Seconds the script may take for one step of one node.
LIMIT = 30


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--hosts-per-leaf", type=int, default=2)
    arguments = parser.parse_args()
    fixed = {"mpi": "mpich", "ranks_per_host": 1, "channel": "auto", "depth": 1, "pause_ms": 5,
             "seed": 1, "seconds": 600.0, "only": None}
    vars(arguments).update(fixed)
    return arguments


class Restarts(threading.Thread):
    """Restarts the node whose name somebody writes into a file, and removes the file: what a service manager would do
    on the node's machine."""

    def __init__(self, lab, folder):
        super().__init__(daemon=True)
        self.lab, self.order, self.events = lab, folder / "restart", []

    @property
    def command(self):
        return (f'echo "$NODE" > {self.order}.new && mv {self.order}.new {self.order} && '
                f'while [ -e {self.order} ]; do sleep 0.05; done')

    def run(self):
        while True:
            if self.order.exists():
                name = self.order.read_text(encoding="utf-8").strip()
                self.events.append(name)
                node = self.lab.nodes[name]
                node.signal("TERM")
                node.session.wait()
                node.start()
                self.order.unlink()
            time.sleep(0.02)


def upgrade(lab, folder):
    """Runs the script where the hosts are; its output, and the nodes that were restarted."""
    restarts = Restarts(lab, folder)
    restarts.start()
    path = pathlib.Path(lab.program).parent
    words = lab.on("h0", "env", f"PATH={path}:/usr/bin:/bin", SCRIPT, "--seconds", LIMIT, "--restart", restarts.command)
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    return ended, restarts.events


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    program = compile_soak(arguments.mpi, arguments)
    with tempfile.TemporaryDirectory(prefix="tributary-upgrade-") as temporary:
        folder = pathlib.Path(temporary)
        log = open(folder / "log", "w", encoding="utf-8")
        with nemesis.NemesisLab(arguments, log) as lab:
            # The program ends by itself once it has run for so long.
            arguments.seconds = 20.0 + 10 * len(lab.nodes)
            running = nemesis.start_program(lab, program, folder, arguments)
            nemesis.await_rounds(folder, running, 20)
            began = time.monotonic_ns()
            ended, restarted = upgrade(lab, folder)
            over = time.monotonic_ns()
            was_running = running.poll() is None
            code = running.wait(timeout=arguments.seconds + 180)
        problems = []
        if ended.returncode != 0 or sorted(restarted) != sorted(lab.nodes):
            problems.append(f"the script: exit code {ended.returncode}, restarted {restarted}\n{ended.stdout}{ended.stderr}")
        if code != 0:
            problems.append(f"the program: exit code {code}\n{(folder / 'output').read_text()[-4000:]}")
        if not was_running:
            problems.append("the program ended before the nodes were upgraded")
        if problems:
            print(*problems, sep="\n", file=sys.stderr)
            return 1
        report = json.loads((folder / "report.json").read_text())
        ends = [int(line) for line in (folder / "ends").read_text().splitlines()]
    lost = sum(entry.get("failovers", {}).get("lost", 0) for entry in report["communicators"])
    if lost == 0:
        print("no tree was lost: the nodes served nobody", file=sys.stderr)
        return 1
    rounds = sorted(((b - a) / 1e6 for a, b in zip(ends, ends[1:]) if began <= b <= over), reverse=True)
    print(f"{len(restarted)} nodes upgraded in {(over - began) / 1e9:.1f} s, {len(rounds)} rounds meanwhile without an "
          f"error, {lost} trees lost; longest pauses in ms: {', '.join(f'{it:.0f}' for it in rounds[:len(restarted)])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
