"""Goal: settings, aggregation nodes and the report work as for MPI programs. Method: jobs under `tributary run`
on emulated hosts, and with a report of their own; the counts are compared with what the job did."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import ranks

JOB = pathlib.Path(__file__).with_name("job.py")
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/numpy_allreduce.py"
# The program that the wheel brings.
PROGRAM = pathlib.Path(sys.executable).with_name("tributary")
ROUNDS = 4
# What mpirun needs where cores are fewer than ranks, and where it runs as root.
MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
          "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def execute(*command, **variables):
    """Runs a command to its end; its standard error."""
    own = {name: value for name, value in os.environ.items() if name not in ranks.FOREIGN}
    done = subprocess.run([str(word) for word in command], env={**own, **MPIRUN, **variables}, text=True,
                          capture_output=True, timeout=ranks.TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def counts(path, label="world"):
    """How often each collective of a communicator took each path."""
    report = json.loads(path.read_text())
    assert report["jobs"] == 1
    [found] = [each for each in report["communicators"] if each["label"] == label]
    return found


@pytest.mark.parametrize("hosts, path", [(1, "in_host"), (2, "in_tree")])
def test_operations_go_where_the_report_says(tmp_path, hosts, path):
    report = tmp_path / "report.json"
    told = execute(PROGRAM, "run", "--hosts", hosts, "--report", report, "--", sys.executable, JOB, "address",
                   ROUNDS, 4, TRIBUTARY_BETWEEN_HOSTS="tree")
    found = counts(report)
    assert (found["ranks"], found["hosts"]) == (4, hosts)
    for collective in ("allreduce", "allgather", "reduce_scatter", "bcast", "barrier"):
        assert found["collectives"][collective][path] == ROUNDS, collective
    assert "world" in told
    # The report of times is there too, from every rank.
    assert json.loads(report.read_text())["times"]


def test_the_example_with_numpy(tmp_path):
    report = tmp_path / "report.json"
    execute(PROGRAM, "run", "--hosts", 2, "--report", report, "--", sys.executable, EXAMPLE, 4, TRIBUTARY_BETWEEN_HOSTS="tree")
    found = counts(report, "rendezvous")["collectives"]
    assert found["allreduce"]["in_tree"] == 2 and found["allgather"]["in_tree"] == 1


def test_mpi4py(tmp_path):
    mpirun = pathlib.Path(sys.executable).with_name("mpirun")
    report = tmp_path / "report.json"
    execute(PROGRAM, "run", "--hosts", 2, "--report", report, "--", mpirun, "-n", 4, sys.executable, JOB, "mpi",
            ROUNDS, TRIBUTARY_BETWEEN_HOSTS="tree")
    # The preload library, which the wheel brings too, has carried what mpi4py did.
    by_label = {each["label"]: each for each in json.loads(report.read_text())["communicators"]}
    assert by_label["world"]["collectives"]
    assert by_label["python"]["collectives"]["allreduce"]["in_tree"] == ROUNDS


def test_a_report_without_a_run(tmp_path):
    for _ in range(2):  # another run replaces it
        execute(sys.executable, JOB, "address", ROUNDS, 3, TRIBUTARY_REPORT=str(tmp_path / "report.json"))
        found = counts(tmp_path / "report.json")
        assert found["collectives"]["allreduce"]["in_host"] == ROUNDS
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_a_forked_child_does_not_count_again(tmp_path):
    report = tmp_path / "report.json"
    forks = ("import os, sys, tributary; c = tributary.Communicator.connect('127.0.0.1:1', 0, 1, label='world'); "
             "c.barrier(); child = os.fork(); child and os.waitpid(child, 0)")
    execute(sys.executable, "-c", forks, TRIBUTARY_REPORT=str(report))
    assert sum(counts(report)["collectives"]["barrier"][path] for path in ("in_host", "direct")) == 1


def test_a_report_on_standard_error():
    told = execute(sys.executable, JOB, "address", ROUNDS, 3, TRIBUTARY_REPORT="-")
    assert told.count("world: 3 ranks, 1 hosts") == 1
