"""A lab of a test's own, and the commands that run on it."""

import collections
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

# What a cut member drops.
CUT = """table inet cut {{
  chain in {{ type filter hook input priority -10; {incoming} }}
  chain out {{ type filter hook output priority -10; {outgoing} }}
}}"""


def command(program, verb, name, *words):
    """The command `tributary lab VERB` for the lab of a name."""
    return [program, "lab", verb, "--name", name, *map(str, words)]


def labs_folder():
    """The folder of this user's labs (docs/lab.md)."""
    if os.geteuid() == 0:
        return pathlib.Path("/run/tributary-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = pathlib.Path(f"/tmp/tributary-lab-{os.geteuid()}")
    return pathlib.Path(runtime) / "tributary-lab" if runtime else own


@contextlib.contextmanager
def taken_down_on_sigterm():
    """SIGTERM ends this process as an interrupt of the keyboard does, so that its labs are taken down."""
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
