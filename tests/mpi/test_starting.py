"""Runs a small MPI program through `tributary run` as others start theirs.

With a profiler preloaded, compiled with AddressSanitizer, from a path with a space, with a long path of temporary
files, without a system call that older kernels lack, behind a launcher instead of before it, on a machine that is too
small for the ranks, with reports to what is no file, and with a rank that lacks the library. Each must work, or say what is
wrong.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import pytest
from harness import running
from harness.compiling import compile_c
from harness.places import MPI_TESTS, mpicc, mpirun
from harness.running import Failure
from programs import environment_of

RANKS = 2
ROUNDS = 20
RIGHT = f"{ROUNDS} of {ROUNDS} right"
# Settings by which the other tests let Open MPI run as root and on few cores.
ALLOWING = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_MCA_rmaps_default_mapping_policy",
            "OMPI_MCA_rmaps_base_oversubscribe")


@pytest.fixture
def starts(mpi, options, compiled):
    with tempfile.TemporaryDirectory(prefix="starting-") as folder:
        yield Starts(options, mpi, compiled("small", mpi), pathlib.Path(folder))


class Starts:
    """The small program under one MPI, and a folder for what it leaves."""

    def __init__(self, options, mpi, small, folder):
        self.options, self.mpi, self.folder, self.small = options, mpi, folder, small
        self.tributary, self.mpirun, self.mpicc = options.tributary, mpirun(options, mpi), mpicc(options, mpi)
        self.settings = environment_of(mpi) | {"TMPDIR": str(folder)}

    def compile(self, compiler, source, target, *flags):
        return compile_c(compiler, [*flags, MPI_TESTS / source], self.small.with_name(target))

    def launch(self, *words, **settings):
        return running.run(words, self.options.timeout, self.settings | settings)

    def ranks(self, program, ranks=RANKS):
        return [self.mpirun, "-n", str(ranks), program]

    def start(self, *command, options=(), tributary=None, **settings):
        """Runs a command through `tributary run`; its output and its report."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        words = [tributary or self.tributary, "run", "--report", report, *options, "--", *command]
        code, output = self.launch(*words, **settings)
        if code != 0:
            raise Failure(f"exit code {code}", output)
        return output, json.loads(report.read_text()) if report.exists() else None

    def expect_offload(self, started):
        output, report = started
        if RIGHT not in output or report is None:
            raise Failure("no right results or no report", output)
        offloaded = report["in_host"] + report["in_tree"] + report["direct"]
        if offloaded < ROUNDS:
            raise Failure(f"{offloaded} of {ROUNDS} were offloaded", output)
        return output


def expect(condition, what, output):
    if not condition:
        raise Failure(what, output)


def test_profiler(starts):
    """A profiler of the user's sees every call, and the library its calls."""
    tool = starts.compile(starts.mpicc, "profiler.c", "libprofiler.so", "-fPIC", "-shared")
    output = starts.expect_offload(starts.start(*starts.ranks(starts.small), LD_PRELOAD=str(tool)))
    expect(f"profiler: 1 started, {ROUNDS} reductions" in output, "the profiler saw other calls", output)


def test_sanitizer(starts):
    """A program with AddressSanitizer starts, and is offloaded."""
    program = starts.compile(starts.mpicc, "small.c", "small-asan", "-fsanitize=address")
    # MPIs leak at their end.
    starts.expect_offload(starts.start(*starts.ranks(program), ASAN_OPTIONS="detect_leaks=0"))


def test_spaces(starts):
    """The program and its library lie in a folder whose name the loader would split."""
    for name in ("my programs", "a:b"):
        place = starts.folder / name
        place.mkdir()
        for file in (starts.tributary, starts.tributary.with_name("libtributary.so")):
            shutil.copy(file, place)
        output = starts.expect_offload(starts.start(*starts.ranks(starts.small), tributary=place / "tributary"))
        expect("has a space or a colon" in output, "no word about the path", output)


def test_long_temporary_path(starts):
    deep = starts.folder / ("x" * 120)
    deep.mkdir()
    # The MPI has sockets of its own there, which are not ours to place.
    command = ["env", f"TMPDIR={starts.folder}", *starts.ranks(starts.small)]
    starts.expect_offload(starts.start(*command, options=("--hosts", "2"), TMPDIR=str(deep)))


def test_no_temporary_folder(starts):
    """Without a folder for its report a job does not start, and is told what to set."""
    missing = starts.folder / "missing"
    code, output = starts.launch(starts.tributary, "run", "--", *starts.ranks(starts.small), TMPDIR=str(missing))
    expect(code != 0 and RIGHT not in output, "it ran", output)
    expect(f"{missing}: " in output and "set TMPDIR" in output, "the folder or the variable is not named", output)


def test_without_pidfd(starts):
    """As on kernels before 5.3: results, exit codes, and no command without a parent."""
    without = [starts.compile("cc", "without.c", "without"), "ENOSYS", "pidfd_open"]
    tried = subprocess.run([*without, "true"], check=False, capture_output=True, text=True)
    expect(tried.returncode == 0, "a filter of system calls is not permitted here", tried.stderr)
    code, output = starts.launch(*without, starts.tributary, "run", "--", "sh", "-c", "exit 7")
    expect(code == 7, f"exit code {code} instead of 7", output)
    code, output = starts.launch(*without, starts.tributary, "run", "--", *starts.ranks(starts.small))
    expect(code == 0 and RIGHT in output, f"exit code {code}", output)


def test_wrong_way_round(starts):
    for words in (["run", starts.small], ["run", "--", starts.small]):
        code, output = starts.launch(*starts.ranks(starts.tributary), *words)
        expect(code != 0, "it ran", output)
        told = f"tributary run -- mpirun -n {RANKS} {starts.small}"
        expect(told in output, "it is not told how it goes", output)


@pytest.mark.mpis("openmpi", "debian-openmpi")
def test_small_machine(starts):
    """What is said to be missing is what is missing."""
    settings = {name: value for name, value in starts.settings.items() if name not in ALLOWING}
    ranks = len(os.sched_getaffinity(0)) + 2
    command = [starts.tributary, "run", "--", *starts.ranks(starts.small, ranks)]
    code, output = running.run(command, starts.options.timeout, settings)
    expect(code != 0, "it ran", output)
    lines = [line for line in output.splitlines() if "is that of Open MPI" in line]
    expect(len(lines) == 1, "nothing is said about Open MPI", output)
    added = [words.split(";")[0].strip() for words in lines[0].split(" add ")[1:]]
    expect(("--allow-run-as-root" in added) == (os.geteuid() == 0), f"to be added is {added}", output)
    command[4:4] = " ".join(added).split()
    code, output = running.run(command, starts.options.timeout, settings)
    expect(code == 0 and RIGHT in output, f"with {added} it does not run", output)


def test_no_file(starts):
    """Reports and grants to what is no file: it stays what it is."""
    folder = starts.folder / "places"
    folder.mkdir()
    link, pipe, device = folder / "link", folder / "pipe", folder / "null"
    link.symlink_to("/proc/self/fd/1")
    os.mkfifo(pipe)
    places = [link, pipe]
    if os.geteuid() == 0:
        # In a folder of this test, and never in /dev.
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        places.append(device)
    before = {place: stat.S_IFMT(place.lstat().st_mode) for place in places}
    command = starts.ranks(starts.small)
    for place in places:
        code, output = starts.launch(starts.tributary, "run", "--hosts", "2", "--report", place, "--", *command)
        # Nobody reads the pipe, which is an error; the program's results are there all the same.
        expect((code == 0 or place == pipe) and RIGHT in output, f"{place.name}: exit code {code}", output)
        _, output = starts.launch(starts.tributary, "run", "--hosts", "2", "--", *command,
                                  TRIBUTARY_EXTERNAL_RECEIVER=str(place))
        expect(RIGHT in output, f"grant to {place.name}", output)
    # Preloaded without `tributary run`, the library writes the report itself.
    library = starts.tributary.with_name("libtributary.so")
    for place in places:
        code, output = starts.launch(starts.mpirun, "-n", str(RANKS), "env", f"LD_PRELOAD={library}",
                                     f"TRIBUTARY_REPORT={place}", starts.small)
        expect(RIGHT in output, f"the library's report to {place.name}: exit code {code}", output)
    after = {place: stat.S_IFMT(place.lstat().st_mode) for place in places}
    expect(before == after and len(list(folder.iterdir())) == len(places), "a place is another now", f"{after}")


def test_one_without_library(starts):
    """As on a host that lacks the file: right results, by the MPI alone, and one line says which rank it is."""
    words = []
    for rank in range(3):
        words += [":"] if rank > 0 else []
        words += ["-n", "1", *(["env", "-u", "LD_PRELOAD"] if rank == 1 else []), starts.small]
    output, _ = starts.start(starts.mpirun, *words)
    expect(RIGHT in output, "no right results", output)
    said = output.count("tributary: 1 of 3 ranks do not have this library (rank 1)")
    expect(said == 1, f"{said} lines say who lacks the library", output)
