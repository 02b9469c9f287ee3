"""What a report says of a job: shared by the tests of the packages."""

import json

# What mpirun needs where cores are fewer than ranks, and where it runs as root.
MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
          "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
RANKS = 4
ROUNDS = 20


def require(report, path):
    """Fails unless every allreduce of app.py on MPI_COMM_WORLD took `path`; the line to print."""
    [world] = [each for each in json.loads(report.read_text())["communicators"] if each["label"] == "world"]
    counts = world["collectives"]["allreduce"]
    assert world["ranks"] == RANKS and counts[path] == ROUNDS, world
    return f"{counts[path]} allreduces of {world['ranks']} ranks on {world['hosts']} host(s) went {path}"
