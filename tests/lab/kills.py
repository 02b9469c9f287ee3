#!/usr/bin/env python3
"""Starts MPI jobs on a fabric and kills them at random moments, in random ways, and looks for what stays behind.

Manager and nodes run on this machine, which acts as several hosts. After every job no process of it may be left, and
manager and nodes must have freed everything. At the end the daemons have the descriptors, threads and locks that they
had after the first jobs, and there is nothing new in shared memory or among temporary files but what the MPI leaves.
Everything is drawn from the seed, so a run can be repeated, except what the machine makes of it.
"""

import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import running  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_soak  # noqa: E402
from harness.fabrics import Fabric  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402
from harness.processes import END_WITHIN, MARK, eventually, is_alive, kill_all, name_of, processes_of  # noqa: E402

# Jobs after which the daemons have allocated what they keep.
SETTLED_AFTER = 10
# Longest life of a job before it is killed, in seconds: set-up takes about half of it.
LIFE_MAX = 1.5
# What MPIs leave when they are killed.
OF_MPI = ("mpich_shm", "mpich_shar_tmp", "ucx_shm", "vader_segment", "sm_segment", "ompi.", "prte.", "pmix")


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="mpich")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def kill(draw, pids, program):
    """Kills some of a job's processes, and says which."""
    ranks = [pid for pid in pids if name_of(pid) == program.name[:15]]
    others = [pid for pid in pids if pid not in ranks]
    how = draw.choice(["everything", "a rank", "the ranks", "the launcher first", "everything, politely"])
    groups = {"everything": [pids], "everything, politely": [pids], "a rank": [ranks and [draw.choice(ranks)]],
              "the ranks": [ranks], "the launcher first": [others, ranks]}[how]
    for at, victims in enumerate(groups):
        time.sleep(0.2 * at)
        for pid in draw.sample(victims, len(victims)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if "politely" in how else signal.SIGKILL)
    return how


def run_job(draw, number, fabric, program, arguments):
    """One job from its start to its end; what stays behind, for people."""
    job = f"{os.getpid()}-{number}"
    environment = running.environment(
        TRIBUTARY_MANAGER=fabric.manager, TRIBUTARY_TOKEN_FILE=str(fabric.token), TMPDIR=str(fabric.folder / "tmp"),
        LD_PRELOAD=str(arguments.tributary.resolve().with_name("libtributary.so")),
        TRIBUTARY_HOSTS=str(arguments.hosts), TRIBUTARY_BETWEEN_HOSTS="tree", **{MARK: job})
    words = [mpirun(arguments, arguments.mpi), "-n", str(arguments.ranks), program,
             "--operations", "1e18", "--seconds", "60", "--seed", str(number), "--depth", "4"]
    launched = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True)
    life = draw.uniform(0, LIFE_MAX)
    time.sleep(life)
    how = kill(draw, processes_of(job), program)
    # Where no process had come up yet there was none to kill.
    if not eventually(lambda: launched.poll() is not None, 3):
        how = "nothing, then everything"
        kill_all(processes_of(job))
    with contextlib.suppress(subprocess.TimeoutExpired):
        launched.wait(timeout=END_WITHIN)
    told = f"job {number}, {how} killed after {life:.2f} s"
    alive = lambda: [pid for pid in processes_of(job) if is_alive(pid)]
    if not eventually(lambda: not alive()):
        left = [f"{pid} {name_of(pid)}" for pid in alive()]
        kill_all(alive())
        return how, [f"{told}: processes stay: {left}"]
    if not eventually(lambda: not fabric.held()):
        return how, [f"{told}: {fabric.held()} stay"]
    return how, []


def files_in(*folders):
    return {file for folder in folders for file in pathlib.Path(folder).rglob("*")}


def mapped_files():
    """The files in shared memory that some process has, of this job or of anybody's."""
    found = set()
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                maps = (process / "maps").read_text(encoding="utf-8", errors="replace")
                found.update(re.findall(r"/dev/shm/\S+", maps))
    return found


def remove_what_mpi_left(before):
    """It would fill the memory after some hundred jobs. What others' jobs use stays."""
    left = [file for file in files_in("/dev/shm") - before
            if file.is_file() and any(name in str(file) for name in OF_MPI)]
    used = mapped_files()
    for file in left:
        if str(file) not in used:
            file.unlink(missing_ok=True)


def least_usage(fabric):
    """What the daemons hold while they do nothing: what closes takes a moment."""
    def at_rest():
        time.sleep(0.5)
        return fabric.usage()
    several = [at_rest() for _ in range(6)]
    return [{what: min(rows[at][what] for rows in several) for what in row} for at, row in enumerate(several[0])]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    program = compile_soak(arguments.mpi, arguments)
    draw = random.Random(arguments.seed)
    problems, ways = [], {}
    with tempfile.TemporaryDirectory(prefix="tributary-kills-") as temporary:
        folder = pathlib.Path(temporary)
        (folder / "tmp").mkdir()
        fabric = Fabric(arguments.tributary.resolve(), folder, ["one", "two"])
        try:
            before = files_in("/dev/shm", folder / "tmp")
            settled, settled_kib = None, None
            for number in range(arguments.jobs):
                how, stays = run_job(draw, number, fabric, program, arguments)
                ways[how] = ways.get(how, 0) + 1
                problems += stays
                remove_what_mpi_left(before)
                if number + 1 == min(SETTLED_AFTER, arguments.jobs):
                    settled, settled_kib = least_usage(fabric), fabric.resident_kib()
                if (number + 1) % 50 == 0:
                    print(f"{number + 1} of {arguments.jobs} jobs, {len(problems)} problems", flush=True)
            held = least_usage(fabric)
            if any(now[what] > then[what] for now, then in zip(held, settled) for what in now):
                problems.append(f"daemons hold {held}, after {SETTLED_AFTER} jobs {settled}")
            new = files_in("/dev/shm", folder / "tmp") - before
            names = [str(file) for file in sorted(new)]
            problems += [f"{file} stays" for file in names if not any(name in file for name in OF_MPI)]
            grown = [now - then for now, then in zip(fabric.resident_kib(), settled_kib)]
        finally:
            fabric.stop()
    killed = ", ".join(f"{count} {how}" for how, count in sorted(ways.items()))
    print(f"{arguments.jobs} jobs killed: {killed}; the daemons' memory grew by {grown} KiB; "
          f"{len(problems)} problems")
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
