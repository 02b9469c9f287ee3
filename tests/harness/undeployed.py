"""Jobs on the four hosts of a lab that are not told of its manager: they join their hosts themselves."""

import json
import os
import pathlib
import subprocess
import tempfile

from .jobs import on
from .labs import command
from .places import mpirun
from .processes import MARK, eventually, is_alive, kill_all, name_of, processes_of
from .running import Failure, bounded, must

LAB = ("--hosts", "4", "--hosts-per-leaf", "4")
HOSTS = ("h0", "h1", "h2", "h3")
# A lab's commands name its manager.
WITHOUT_MANAGER = ["env", "-u", "TRIBUTARY_MANAGER", "-u", "TRIBUTARY_TOKEN_FILE"]
# A rank of root's that may do nothing that other users may not.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
# The job's token lies where no other host sees it.
HIDING = ["sh", "-c", 'mount -t tmpfs none /mnt && TMPDIR=/mnt exec "$@"', "sh"]
# A second network on the lab's links: how each host joins it, by its number, and leaves it, and its name. Labs
# have no IPv6 otherwise.
IPV6_OFF = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
FURTHER = {"IPv4": ("ip addr add 10.88.0.{}/24 dev eth0", "ip addr del 10.88.0.{}/24 dev eth0",
                    "10.88.0.0/16"),
           "IPv6": (f"echo 0 >{IPV6_OFF} && ip addr add fd88::{{}}/64 dev eth0 nodad", f"echo 1 >{IPV6_OFF}",
                    "ipv6")}
# States of a socket in /proc/net/tcp: established, and listening.
STAYING = ("01", "0A")


def job_words(way, mpi, name, ranks, per_host, program, report, arguments):
    """The command that runs a job: by `tributary run`, with an aggregator of its own, or with the library preloaded (`way`)."""
    words = [mpirun(arguments, mpi), "-n", ranks, *program]
    tributary = arguments.tributary.resolve()
    if way in ("run", "aggregator"):
        options = ["--aggregator"] if way == "aggregator" else []
        words = [tributary, "run", *options, "--report", report, "--", *words]
        words = [*HIDING, *words] if way == "aggregator" else words
    else:
        words = [f"LD_PRELOAD={tributary.with_name('libtributary.so')}", f"TRIBUTARY_REPORT={report}", *words]
    return command(tributary, "run", name, "--plain", "--ranks-per-host", per_host, "--", *WITHOUT_MANAGER, *words)


def run_job(way, mpi, name, ranks, per_host, program, arguments, environment=None):
    """Runs a job to its end; its report and what it printed."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as folder:
        report = pathlib.Path(folder) / "report.json"
        words = job_words(way, mpi, name, ranks, per_host, program, report, arguments)
        code, text = bounded(words, arguments.timeout, environment)
        if code != 0 or " 0 failed" not in text:
            raise Failure(f"exit code {code}\n{text}")
        return json.loads(report.read_text()), text


def sockets(name, arguments):
    """Sockets of a lab's hosts that listen or have a connection."""
    found = set()
    for host in HOSTS:
        code, text = bounded(on(name, host, arguments, "cat", "/proc/net/tcp", "/proc/net/tcp6"), 60)
        if code != 0:
            raise Failure(f"the sockets of {host}: exit code {code}\n{text}")
        rows = [line.split() for line in text.splitlines()]
        found.update((host, row[1], row[2]) for row in rows if len(row) > 3 and row[3] in STAYING)
    return found


class Marked:
    """A launched job whose processes carry a mark, until the end of a `with`: then whatever is left of it is killed. A failure
    within it is told with all that the job has said."""

    def __init__(self, job, words, name, folder, arguments):
        self.job, self.name, self.arguments = job, name, arguments
        self.sockets_before = sockets(name, arguments)
        self.said = (pathlib.Path(folder) / "said").open("w+")
        self.launched = subprocess.Popen([str(word) for word in words], env={**os.environ, MARK: job},
                                         stdin=subprocess.DEVNULL, stdout=self.said, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, kind, failure, _):
        kill_all(processes_of(self.job))
        self.launched.kill()
        self.launched.wait()
        with self.said:
            if kind is Failure:
                self.said.seek(0)
                raise Failure(f"{failure}\n{self.said.read()}") from failure

    def alive(self):
        """Its processes."""
        return [pid for pid in processes_of(self.job) if is_alive(pid)]

    def must_be_gone(self):
        """It ends, and no process or socket of it stays."""
        if not eventually(lambda: self.launched.poll() is not None, self.arguments.timeout):
            raise Failure("the job goes on")
        if not eventually(lambda: not self.alive()):
            raise Failure(f"processes stay: {[f'{pid} {name_of(pid)}' for pid in processes_of(self.job)]}")
        left = lambda: sockets(self.name, self.arguments) - self.sockets_before  # noqa: E731
        if not eventually(lambda: not left()):
            raise Failure(f"sockets stay: {left()}")


def run_everywhere(script, name, arguments):
    """Runs a script on every host, with the host's number in it."""
    for number, host in enumerate(HOSTS, start=1):
        must(on(name, host, arguments, "sh", "-c", script.format(number)))
