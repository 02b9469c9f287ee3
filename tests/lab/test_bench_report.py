"""Measures 4 hosts of a lab by `tributary bench -- LAUNCHER` without a manager, under Open MPI and MPICH, and checks
the file to pass on.

Every row is there, quartiles are in order, no element is wrong, operations went between hosts over direct links, and
nothing in the file names a host, an address, a path or a user, also where the library's report does. A wrong element
that is planted makes the measurement fail.
"""

import getpass
import json
import pathlib
import re
import tempfile

import pytest
from harness.labs import command
from harness.places import mpirun
from harness.running import Failure, bounded
from harness.undeployed import HOSTS, LAB, WITHOUT_MANAGER

MPIS = ("openmpi", "mpich")
PER_HOST = 2
RANKS = PER_HOST * len(HOSTS)
COLLECTIVES = ("allreduce", "reduce", "bcast", "barrier", "allgather", "reduce_scatter", "scan")
SIZES = (8, 65536)
ROUNDS, BLOCKS = 2, 20
# Each measurement: its options, whether it has nonblocking forms, whether in place, whether beside the plain MPI.
RUNS = {"all forms, beside the plain MPI": (["--nonblocking", "--peer"], True, False, True),
        "in place": (["--in-place"], False, True, False)}
# What has a form in place.
WITHOUT_PLACE = ("barrier", "bcast")
IN_ORDER = ("min_us", "q1_us", "median_us", "q3_us", "p99_us", "max_us")
# As nccl-tests define bus bandwidth, over the algorithm's.
BUS = {"allreduce": 2 * (RANKS - 1) / RANKS, "reduce": 1, "bcast": 1, "allgather": (RANKS - 1) / RANKS,
       "reduce_scatter": (RANKS - 1) / RANKS}
# No text of the file may hold these. A lab's hosts are named h0, h1 and so on.
NEVER = {"a host's name": re.compile(r"\bh\d+\b"), "an IPv4 address": re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b"),
         "an IPv6 address": re.compile(r"[0-9a-f]*::[0-9a-f]|([0-9a-f]+:){3,}", re.IGNORECASE),
         "a path": re.compile(r"/"), "an address of mail or a login": re.compile(r"@")}
COLUMNS = 80


def measure(mpi, name, options, folder, arguments, environment=None):
    """Runs a measurement on a lab; its exit code and what it wrote."""
    launcher = [mpirun(arguments, mpi), "-n", RANKS]
    words = [arguments.tributary, "bench", "--folder", folder, "--report", folder / "file.json",
             "--rounds", ROUNDS, "--iters", BLOCKS, "--sizes", ",".join(map(str, SIZES)), *options, "--", *launcher]
    words = command(arguments.tributary, "run", name, "--plain", "--ranks-per-host", PER_HOST, "--",
                    *WITHOUT_MANAGER, *words)
    return bounded(words, arguments.timeout, environment)


def check_file(mpi, name, run, arguments):
    """A whole measurement of all collectives, and the file that it leaves."""
    options, nonblocking, in_place, peer = RUNS[run]
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        folder = pathlib.Path(path)
        code, text = measure(mpi, name, ["--collectives", ",".join(COLLECTIVES), *options], folder, arguments)
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        left = [entry.name for entry in folder.iterdir()]
        if left != ["file.json"]:
            raise Failure(f"files are left: {left}")
        written = (folder / "file.json").read_text()
    table = text[text.index(f"# {RANKS} ranks on {len(HOSTS)} hosts"):]
    wide = [line for line in table.splitlines() if len(line) > COLUMNS]
    if wide:
        raise Failure(f"lines of the table are longer than {COLUMNS} columns: {wide}")
    found = json.loads(written)
    check_names(written, found)
    check_hosts(found)
    check_rows(found["results"], nonblocking, in_place, peer)
    return f"{len(found['results'])} rows, {found['fabric']['direct']} direct, {found['mpi']['library']}"


def check_names(written, found):
    """Nothing personal is in the file: neither in its text, nor in a text of it."""
    user = getpass.getuser()
    for what, pattern in {**NEVER, "the user's name": re.compile(rf"\b{re.escape(user)}\b")}.items():
        for text in (written, *texts_of(found)):
            # JSON of its own has colons, and no two without a blank between.
            match = pattern.search(text)
            if match:
                raise Failure(f"{what} is in the file: {text[max(0, match.start() - 60):match.end() + 60]!r}")


def texts_of(value):
    """All texts in a value of JSON, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from texts_of(one)


def check_hosts(found):
    """The lab's hosts are counted and described, and its links carried what was measured."""
    if (found["ranks"], found["hosts"], found["rounds"]) != (RANKS, len(HOSTS), ROUNDS):
        raise Failure(f"{found['ranks']} ranks on {found['hosts']} hosts in {found['rounds']} rounds")
    if (found["ranks_per_host_least"], found["ranks_per_host_most"]) != (PER_HOST, PER_HOST):
        raise Failure(f"not {PER_HOST} ranks on each host: {found}")
    kinds = found["kinds_of_hosts"]
    if sum(kind["hosts"] for kind in kinds) != len(HOSTS) or not all(
            kind["cores"] > 0 and re.fullmatch(r"\d+\.\d+[\d.]*", kind["kernel"]) for kind in kinds):
        raise Failure(f"hosts are not described: {kinds}")
    links = [adapter for kind in kinds for adapter in kind["adapters"] if adapter["driver"] == "veth"]
    if not links or not all(link["mtu_bytes"] >= 1500 and link["speed_mbps"] for link in links):
        raise Failure(f"links are not described: {kinds}")
    if sum(link["sent_bytes"] for link in links) < 10**6:
        raise Failure(f"links did not carry what was measured: {links}")
    fabric = found["fabric"]
    world = max(fabric["communicators"], key=lambda one: one["ranks"])
    if fabric["manager_is_named"] or fabric["in_tree"] != 0 or (world["ranks"], world["hosts"]) != (RANKS, len(HOSTS)):
        raise Failure(f"the job did not join its hosts itself: {fabric}")
    if any(world["collectives"][kind]["direct"] == 0 for kind in ("allreduce", "reduce", "bcast", "barrier")):
        raise Failure(f"not over direct links: {fabric}")


def check_rows(rows, nonblocking, in_place, peer):
    """Every row that was asked for is there once and makes sense."""
    wanted = {(who, collective, form, in_place and collective not in WITHOUT_PLACE, size)
              for who in ("tributary", *(("plain_mpi",) if peer else ()))
              for collective in COLLECTIVES
              for form in ((False, True) if nonblocking else (False,))
              for size in ((0,) if collective == "barrier" else sizes_of(collective))}
    have = [(row["with"], row["collective"], row["nonblocking"], row["in_place"], row["size_bytes"]) for row in rows]
    if sorted(have) != sorted(wanted):
        raise Failure(f"missing rows: {wanted - set(have)}; not asked for: {set(have) - wanted}")
    for row in rows:
        check_row(row, peer)


def sizes_of(collective):
    """Every rank gets whole elements of a reduce_scatter."""
    least = 4 * RANKS if collective == "reduce_scatter" else 0
    return [max(least, size) for size in SIZES]


def check_row(row, peer):
    times = [row[name] for name in IN_ORDER]
    if times != sorted(times) or times[0] <= 0 or not times[0] <= row["mean_us"] <= times[-1]:
        raise Failure(f"times are not in order: {row}")
    if row["blocks"] != ROUNDS * BLOCKS or row["calls_per_block"] < 1:
        raise Failure(f"not {ROUNDS} rounds of {BLOCKS} blocks: {row}")
    if row["wrong_elements"] != 0 or (row["checked_elements"] == 0) != (row["collective"] == "barrier"):
        raise Failure(f"wrong elements, or none checked: {row}")
    check_bandwidth(row)
    if peer and row["with"] == "tributary":
        ratio, least, most = (row[f"plain_times_as_long{end}"] for end in ("", "_least", "_most"))
        if not 0 < least <= ratio <= most:
            raise Failure(f"ratios are not in order: {row}")


def check_bandwidth(row):
    collective, algorithm, bus = row["collective"], row["algorithm_mbytes_per_s"], row["bus_mbytes_per_s"]
    if collective == "barrier":
        expected = (None, None)
    else:
        total = row["size_bytes"] * (RANKS if collective == "allgather" else 1)
        by_mean = total / row["mean_us"]
        expected = (by_mean, by_mean * BUS[collective] if collective in BUS else None)
    for have, want in zip((algorithm, bus), expected):
        if (have is None) != (want is None) or (have is not None and abs(have - want) > 1e-6 * want):
            raise Failure(f"bandwidths are not {expected}: {row}")


def check_reasons(mpi, name, arguments):
    """The library's report names a host without an address; the file says why nothing was offloaded, and names none."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        folder = pathlib.Path(path)
        code, text = measure(mpi, name, ["--nonblocking"], folder, arguments, {"TRIBUTARY_INTERFACE": "ib7"})
        if code != 0:
            raise Failure(f"exit code {code}\n{text}")
        written = (folder / "file.json").read_text()
    found = json.loads(written)
    check_names(written, found)
    fabric = found["fabric"]
    why = " ".join(fabric["reasons"])
    if fabric["direct"] != 0 or fabric["passed_through"] == 0 or "host [removed] has no address" not in why:
        raise Failure(f"the file does not say why nothing was offloaded: {fabric}")
    if "TRIBUTARY_INTERFACE" not in fabric["knobs_set"] or "ib7" in written:
        raise Failure(f"a knob is to be named without its value: {fabric}")
    return f"{fabric['passed_through']} passed_through"


def check_planted(mpi, name, arguments):
    """A wrong element is counted, told and makes the measurement fail."""
    with tempfile.TemporaryDirectory(prefix="tributary-lab-") as path:
        folder = pathlib.Path(path)
        options = ["--collectives", "allreduce,bcast"]
        code, text = measure(mpi, name, options, folder, arguments, {"MEASURE_PLANT_WRONG": "bcast"})
        rows = json.loads((folder / "file.json").read_text())["results"]
    if code != 1 or f"{ROUNDS * len(SIZES)} elements of results are wrong" not in text:
        raise Failure(f"exit code {code} with a wrong element\n{text}")
    wrong = {(row["collective"], row["size_bytes"]): row["wrong_elements"] for row in rows if row["wrong_elements"]}
    # One of a case in each round.
    if wrong != {("bcast", size): ROUNDS for size in SIZES}:
        raise Failure(f"counted wrong elements: {wrong}")
    return f"exit code {code}"


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.lab(*LAB)
class TestBenchReport:
    @pytest.mark.parametrize("run", RUNS)
    def test_the_file_to_pass_on_is_whole_and_names_nobody(self, mpi, run, lab, arguments, tell):
        tell(check_file(mpi, lab, run, arguments))

    def test_it_says_why_nothing_was_offloaded(self, mpi, lab, arguments, tell):
        tell(check_reasons(mpi, lab, arguments))

    def test_a_wrong_element_makes_the_measurement_fail(self, mpi, lab, arguments, tell):
        tell(check_planted(mpi, lab, arguments))
