"""Measures hosts of a lab by `tributary tune FILE -- LAUNCHER`, and runs jobs that choose by the file.

The lab's network takes the time, so its hosts are as hosts with cores of their own. Every path is in the file, with prices that
the simulator reads. A job takes what a file says: one that it is named, one that its manager serves, and its user's own.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import tomllib

import pytest
from harness.labs import command
from harness.places import mpirun
from harness.processes import eventually
from harness.running import Failure, bounded
from harness.undeployed import WITHOUT_MANAGER

HOSTS = 4
LAB = ("--hosts", str(HOSTS), "--hosts-per-leaf", str(HOSTS), "--delay", "1ms")
MPI = "mpich"
SIZES = (8, 1024, 65536)
# What is measured of which paths: (method, carrier, algorithm or sizes of groups), and how many lengths.
PATHS = {("direct", "links", "auto"): 3, ("direct", "links", "recursive-doubling"): 3,
         ("direct", "links", "rabenseifner"): 3, ("direct", "links", "ring"): 3, ("direct", "links", "linear"): 3,
         ("direct", "datagrams", "4"): 2, ("direct", "datagrams", "2x2"): 2, ("tree", "links", "auto"): 3}
ROUNDS = 2
# In the mean, what prices are made of may be missed by less than the command itself allows.
MISS_MAX = 0.25
COLUMNS = 80
SECOND_PORT = 7480


def launcher(arguments):
    return [mpirun(arguments, MPI), "-n", HOSTS]


def tune(name, file, folder, arguments):
    words = [arguments.tributary, "tune", "--rounds", ROUNDS, "--iters", 15, "--sizes", ",".join(map(str, SIZES)),
             "--folder", folder, file, "--", *launcher(arguments)]
    return bounded(command(arguments.tributary, "run", name, "--plain", "--", *words), 3 * arguments.timeout)


def check_measuring(name, site, arguments):
    """A whole measurement, and the file that it leaves."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        code, text = tune(name, site, path, arguments)
        left = os.listdir(path)
    if code != 0 or left:
        raise Failure(f"exit code {code}, files left {left}\n{text}")
    table = text[text.index(f"# {HOSTS} ranks on {HOSTS} hosts"):]
    wide = [line for line in table.splitlines() if len(line) > COLUMNS and not line.startswith("TRIBUTARY_TUNING=")]
    if wide:
        raise Failure(f"lines are longer than {COLUMNS} columns: {wide}")
    if not re.search(rf"{ROUNDS * len(PATHS)} starts of the launcher follow, which take about \d+ minutes?", text):
        raise Failure(f"nobody is told how long it takes:\n{text}")
    found = tomllib.loads(site.read_text())
    check_rows(found["measurements"])
    if not found["site"]["one_kernel"] or found["site"]["hosts"] != HOSTS:
        raise Failure(f"the hosts are not described: {found['site']}")
    if "prices" not in found or not found["site"]["prices_miss"][0] <= MISS_MAX:
        raise Failure(f"no prices: {found['site']}")
    return f"{len(found['measurements'])} times, missed by {found['site']['prices_miss'][0]:.0%}"


def check_rows(rows):
    have = {}
    for row in rows:
        key = row["method"], row.get("carrier", "links"), row.get("groups", row["algorithm"])
        have.setdefault(key, []).append(row["len_bytes"])
        low, high = row["quartiles_us"]
        if not 0 < low <= row["time_us"] <= high:
            raise Failure(f"quartiles are not in order: {row}")
        if (row["hosts"], row["ranks"], row["collective"]) != (HOSTS, HOSTS, "allreduce"):
            raise Failure(f"another shape: {row}")
    wanted = {path: list(SIZES[:count]) for path, count in PATHS.items()}
    if {key: sorted(sizes) for key, sizes in have.items()} != wanted:
        raise Failure(f"paths and lengths are {have}, not {wanted}")


def check_simulating(site, arguments):
    """The file is a preset, and the simulator's times are of the order of the measured ones: a delay is 1 ms."""
    words = [arguments.tributary, "sim", "run", "--site", site, "--hosts", HOSTS, "--csv", "--sizes",
             ",".join(map(str, SIZES)), "--operations", 5]
    code, text = bounded(words, arguments.timeout)
    lines = [line.split(",") for line in text.splitlines() if re.match(r'"?hosts alone, 1 leader', line)]
    if code != 0 or len(lines) != len(SIZES):
        raise Failure(f"exit code {code}\n{text}")
    return f"{len(lines)} lengths simulated"


def without(paths, site, folder):
    """The file without these paths."""
    found = tomllib.loads(site.read_text())
    kept = [row for row in found["measurements"] if (row["method"], row.get("carrier", "links")) not in paths]
    lines = []
    for row in kept:
        lines.append("[[measurements]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in row.items()]
    site_lines = ["[site]", *(f"{key} = {json.dumps(value)}" for key, value in found["site"].items())]
    file = folder / f"without-{'-'.join(carrier for _, carrier in sorted(paths))}.toml"
    file.write_text("\n".join([*site_lines, *lines]) + "\n", encoding="utf-8")
    return file


LINKS, DATAGRAMS, TREE = ("direct", "links"), ("direct", "datagrams"), ("tree", "links")


def run_job(name, program, settings, arguments, has_manager):
    """A job; how its world's hosts met: by links, datagrams or the tree."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        report = pathlib.Path(path) / "report.json"
        outside = [] if has_manager else WITHOUT_MANAGER
        words = command(arguments.tributary, "run", name, "--plain", "--", *outside, "env",
                        *(f"{key}={value}" for key, value in settings.items()), arguments.tributary, "run",
                        "--report", report, "--", *launcher(arguments), *program)
        code, text = bounded(words, arguments.timeout)
        if code != 0 or " 0 failed" not in text:
            raise Failure(f"exit code {code}\n{text}")
        counts = json.loads(report.read_text(encoding="utf-8"))
    world = max(counts["communicators"], key=lambda one: one["ranks"])
    allreduce = world["collectives"]["allreduce"]
    if allreduce["in_tree"] > 0:
        return TREE
    return DATAGRAMS if "datagrams" in world.get("carriers", "") else LINKS


def must_take(wanted, found, how):
    if found != wanted:
        raise Failure(f"{how}: hosts met by {found}, not {wanted}")


def check_named(name, site, program, arguments):
    """What a file lacks is not taken, though the model would take datagrams."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        folder = pathlib.Path(path)
        only_links = without({DATAGRAMS, TREE}, site, folder)
        must_take(DATAGRAMS, run_job(name, program, {"TRIBUTARY_TUNING": "off"}, arguments, False), "no file")
        must_take(LINKS, run_job(name, program, {"TRIBUTARY_TUNING": only_links}, arguments, False), "a file")
        only_tree = without({DATAGRAMS, LINKS}, site, folder)
        must_take(TREE, run_job(name, program, {"TRIBUTARY_TUNING": only_tree}, arguments, True), "a file of trees")
    return "links, datagrams and the tree by the file"


def check_own(name, site, program, arguments):
    """A user's own file decides where it was measured among such hosts, and nothing is named."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        folder = pathlib.Path(path)
        own = folder / "tributary"
        own.mkdir()
        file = without({DATAGRAMS, TREE}, site, folder)
        text = file.read_text(encoding="utf-8")
        settings = {"XDG_CONFIG_HOME": folder}
        for one_kernel, wanted in (("true", LINKS), ("false", DATAGRAMS)):
            changed = text.replace("one_kernel = true", f"one_kernel = {one_kernel}")
            (own / "tuning.toml").write_text(changed, encoding="utf-8")
            must_take(wanted, run_job(name, program, settings, arguments, False), f"one_kernel = {one_kernel}")
    return "links by the user's file, datagrams where it is of other hosts"


@contextlib.contextmanager
def second_manager(name, file, arguments):
    """A manager beside the lab's, which serves the file and has no aggregators: its address."""
    first = subprocess.run([str(word) for word in command(arguments.tributary, "exec", name, "h0", "--", "sh", "-c",
                                                          "echo $TRIBUTARY_MANAGER $TRIBUTARY_TOKEN_FILE")],
                           check=True, text=True, capture_output=True).stdout.split()
    address = f"{first[0].rpartition(':')[0]}:{SECOND_PORT}"
    words = command(arguments.tributary, "exec", name, "manager", "--", arguments.tributary, "manager",
                    "--listen", address, "--token-file", first[1], "--tuning", file)
    with tempfile.TemporaryFile("w+") as said:
        manager = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said,
                                   stderr=subprocess.STDOUT)

        def listens():
            said.seek(0)
            return "listens on" in said.read() or manager.poll() is not None

        try:
            if not eventually(listens, arguments.timeout) or manager.poll() is not None:
                said.seek(0)
                raise Failure(f"the manager does not start:\n{said.read()}")
            yield address
        finally:
            manager.terminate()
            manager.wait()


def check_served(name, site, program, arguments):
    """What a manager serves decides for jobs that name no file."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        file = without({DATAGRAMS, TREE}, site, pathlib.Path(path))
        with second_manager(name, file, arguments) as address:
            manager = {"TRIBUTARY_MANAGER": address}
            must_take(LINKS, run_job(name, program, manager, arguments, True), "a manager's file")
            off = {**manager, "TRIBUTARY_TUNING": "off"}
            must_take(DATAGRAMS, run_job(name, program, off, arguments, True), "a file that is refused")
    return "links by the manager's file, datagrams without"


@pytest.fixture(scope="class")
def site(tmp_path_factory):
    """The file that a measurement leaves, which the tests behind the first read."""
    return tmp_path_factory.mktemp("tune") / "site.toml"


@pytest.fixture
def program(compiled):
    return [compiled("collectives", MPI), "--sample", "64"]


@pytest.mark.lab(*LAB)
class TestTune:
    """In this order: the first test writes the file that the others read."""

    def test_every_path_is_measured(self, lab, site, arguments, tell):
        tell(check_measuring(lab, site, arguments))

    def test_the_simulator_reads_the_file(self, lab, site, arguments, tell):
        tell(check_simulating(site, arguments))

    def test_a_job_takes_what_a_file_says(self, lab, site, program, arguments, tell):
        tell(check_named(lab, site, program, arguments))

    def test_a_users_own_file_decides(self, lab, site, program, arguments, tell):
        tell(check_own(lab, site, program, arguments))

    def test_what_a_manager_serves_decides(self, lab, site, program, arguments, tell):
        tell(check_served(lab, site, program, arguments))
