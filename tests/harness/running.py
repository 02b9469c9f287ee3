"""Runs commands, and MPI programs on this machine: sets the environment that they need, and ends every run in time."""

import os
import pathlib
import signal
import subprocess

# Containers run as root and have fewer cores than ranks, so ranks that wait must yield. Reports tell no
# times: programs run without, and a call that is measured takes another way through the library.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "10",
    "TRIBUTARY_TIMES": "off",
    # Programs that test the library make many communicators and use each a few times.
    "TRIBUTARY_COMMUNICATORS_EAGER": "32",
    "TRIBUTARY_COMMUNICATORS_AFTER": "1",
}

# Variables that a surrounding run of tributary, or a person, may have set. A test must not inherit them.
FOREIGN = ("TRIBUTARY_MANAGER", "TRIBUTARY_REPORT", "TRIBUTARY_TIMES", "TRIBUTARY_OFFLOAD",
           "TRIBUTARY_HOSTS", "LD_PRELOAD")


# Lines that are shown of what a failed run has printed.
SHOWN_LINES = 40


class Failure(AssertionError):
    """Why a test failed; `output` is what a run had printed."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.reason, self.output = reason, output

    def __str__(self):
        return "\n".join([self.reason, *(f"    | {line}" for line in self.output.splitlines()[-SHOWN_LINES:])])


class TimedOut(Failure):
    """A run was ended because it took too long."""

    def __init__(self, timeout, output):
        super().__init__(f"did not end within {timeout:g} s", output)


def environment(**extra):
    """This process's environment with the settings for mpirun; variables that are set take precedence."""
    own = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return SETTINGS | own | extra


def children_of(parents):
    """All descendants of the processes `parents`, from /proc."""
    parent_of = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                parent_of[int(folder.name)] = int(stat.rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it has ended
    found = set(parents)
    while True:
        more = {child for child, parent in parent_of.items() if parent in found} - found
        if not more:
            return found - set(parents)
        found |= more


def signal_all(number, group, processes):
    """Sends a signal to a process group, and to descendants that are in other groups."""
    for send, target in ((os.killpg, group), *((os.kill, process) for process in processes)):
        try:
            send(target, number)
        except ProcessLookupError:
            pass


def stop(process):
    """Ends a command: first by SIGTERM, so that the launcher ends its ranks."""
    descendants = children_of({process.pid})
    signal_all(signal.SIGTERM, process.pid, ())
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        signal_all(signal.SIGKILL, process.pid, descendants)
        return process.communicate()[0]


def run(command, timeout, env=None, stderr=subprocess.STDOUT):
    """Runs a command to its end; its exit code and its output.

    The output includes standard error, unless `stderr` says otherwise, as in subprocess.Popen. After
    `timeout` seconds, or if the caller is interrupted, all its processes are ended.
    """
    process = subprocess.Popen([str(word) for word in command], env=env or environment(),
                               stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace",
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimedOut(timeout, stop(process)) from None
    except BaseException:
        stop(process)
        raise
    return process.returncode, output


def bounded(words, timeout, environment=None):
    """Runs a command in this process's environment with some variables more; its exit code, and its output on both streams."""
    try:
        ended = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                               env={**os.environ, **(environment or {})}, check=False)
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        raise Failure(f"took more than {timeout:g} s\n{text.decode(errors='replace')}") from error
    return ended.returncode, ended.stdout


def must(words):
    """Runs a command that has to succeed."""
    code, text = bounded(words, 60)
    if code != 0:
        raise Failure(f"{words}: exit code {code}\n{text}")
