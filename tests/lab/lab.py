"""A lab of a test's own, and the commands that run on it."""

import pathlib
import subprocess
import sys


def command(program, verb, name, *words):
    """The command `tributary lab VERB` for the lab of a name."""
    return [program, "lab", verb, "--name", name, *map(str, words)]


class Lab:
    """A lab that is there as long as the test needs it. The options are those of `tributary lab up`."""

    def __init__(self, program, name, *options):
        self.program, self.name = str(pathlib.Path(program).resolve()), name
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
