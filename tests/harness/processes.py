"""Processes that tests start, find by a mark, and end."""

import contextlib
import os
import pathlib
import signal
import time

# The variable by which the processes of a job are known.
MARK = "TRIBUTARY_KILLED_JOB"
# How long an end may take, in seconds.
END_WITHIN = 20


def processes_that(is_meant):
    """The processes whose folder in /proc says so; those that end meanwhile do not count."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if is_meant(folder):
                found.append(int(folder.name))
    return found


def processes_of(job):
    """The processes that belong to a job, by their environment."""
    mark = f"{MARK}={job}".encode()
    return processes_that(lambda it: mark in (it / "environ").read_bytes().split(b"\0"))


def is_alive(pid):
    with contextlib.suppress(OSError):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        return state != "Z"
    return False


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def kill_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def eventually(condition, within=END_WITHIN):
    """Waits until a condition holds; whether it does."""
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
