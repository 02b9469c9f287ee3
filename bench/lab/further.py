"""Tables beside that of targets: paths, copies of results, losses, outstanding operations, overlap with
computation, groups at once, and an aggregation node's memory."""

import os
import statistics
import sys
from typing import NamedTuple

from harness.bench_labs import MPICH_UCX, OPEN_MPI, BenchLab, case_of

# The payload that fits a packet: such a segment goes as a datagram, and its result by multicast.
PACKET_BYTES = "1388"

# Lengths of the table of paths of parts.
PARTS_BYTES = [8, 256, 4096, 16384, 65536]
# Lengths of the table of paths, and of its plot.
PATHS_BYTES = [8, 256, 4096, 16384, 65536, 262144, 1 << 20]
# Cases of the table of the kernel path, which takes up to 1 KiB.
KERNEL_CASES = ["barrier:0", *[f"allreduce:{size}" for size in (8, 64, 256, 1024, 4096)]]
# How much slower than the best single path the chosen one may be.
CHOICE_MAX = 1.1


class Variant(NamedTuple):
    """The ranks' environment, and the options of their lab."""

    environment: dict
    lab: tuple = ()
    mpi: str = "mpich"
    is_plain: bool = False


def with_knobs(**settings):
    """A lab with default options, and ranks with these knobs."""
    return Variant({**MPICH_UCX, **{f"TRIBUTARY_{name}": value for name, value in settings.items()}})


OPEN_MPI_ALONE = Variant(OPEN_MPI, mpi="openmpi", is_plain=True)
MPICH_ALONE = Variant(MPICH_UCX, is_plain=True)


def nodes(*lab):
    """A node as a process and inside the kernel, members past the network stack, and what is chosen where nodes are
    inside the kernel, beside plain MPI."""
    by_tree, in_kernel = with_knobs(BETWEEN_HOSTS="tree"), (*lab, "--node-kernel", "--rings", "xdp")
    return {"Open MPI": OPEN_MPI_ALONE._replace(lab=lab), "MPICH, UCX": MPICH_ALONE._replace(lab=lab),
            "process": by_tree._replace(lab=lab), "kernel": by_tree._replace(lab=in_kernel),
            "kernel, AF_XDP": with_knobs(BETWEEN_HOSTS="tree", CHANNEL="xdp")._replace(lab=in_kernel),
            "chosen": with_knobs()._replace(lab=in_kernel)}


# Tables: the variants, then the cases.
ALSO = {
    "paths": ({"Open MPI": OPEN_MPI_ALONE, "MPICH, UCX": MPICH_ALONE,
               "tree": with_knobs(BETWEEN_HOSTS="tree"),
               "tree, streams": with_knobs(BETWEEN_HOSTS="tree", STREAM_MIN="1"),
               "direct, ring": with_knobs(BETWEEN_HOSTS="direct", DIRECT_ALGORITHM="ring"),
               "direct, Rabenseifner": with_knobs(BETWEEN_HOSTS="direct", DIRECT_ALGORITHM="rabenseifner"),
               "direct, recursive doubling": with_knobs(BETWEEN_HOSTS="direct",
                                                        DIRECT_ALGORITHM="recursive-doubling"),
               "direct, linear": with_knobs(BETWEEN_HOSTS="direct", DIRECT_ALGORITHM="linear"),
               "chosen": with_knobs()},
              [f"allreduce:{size}" for size in PATHS_BYTES]),
    # An algorithm without a form for the collective leaves the choice to the model.
    "parts": ({"Open MPI": OPEN_MPI_ALONE, "MPICH, UCX": MPICH_ALONE,
               "tree": with_knobs(BETWEEN_HOSTS="tree"),
               "direct": with_knobs(BETWEEN_HOSTS="direct"),
               **{f"direct, {name}": with_knobs(BETWEEN_HOSTS="direct", DIRECT_ALGORITHM=name)
                  for name in ("ring", "linear", "recursive-doubling")},
               "chosen": with_knobs()},
              [f"{operation}:{size}" for operation in ("allgather", "reduce_scatter", "scan")
               for size in PARTS_BYTES]),
    # Both with segments of one packet, so that only the copies differ.
    "copies": ({title: with_knobs(PAYLOAD_MAX=PACKET_BYTES)._replace(lab=options)
                for title, options in (("reliable only", ("--no-multicast",)), ("multicast", ()))},
               ["allreduce:8", "allreduce:4096"]),
    "loss": ({f"{title}, {loss}% lost": variant._replace(lab=("--single-packets", "--loss", loss))
              for loss in ("0", "1")
              for title, variant in (
                  ("MPICH, UCX", MPICH_ALONE), ("chosen", with_knobs()),
                  ("chosen, avoiding losses", with_knobs(AVOID_LOSSES="all")),
                  ("tree", with_knobs(BETWEEN_HOSTS="tree")),
                  ("tree, datagrams", with_knobs(BETWEEN_HOSTS="tree", PAYLOAD_MAX=PACKET_BYTES,
                                                 OSOS="32")))},
             ["allreduce:8", "allreduce:65536", "allreduce:1048576"]),
    "osos": ({f"{osos} outstanding": with_knobs(PAYLOAD_MAX="256", OSOS=str(osos))
              for osos in (1, 2, 4, 8)},
             ["allreduce:2048"]),
    # With operations back to back and apart.
    "kernel": (nodes(), [f"{case}{pattern}" for pattern in ("", ":apart") for case in KERNEL_CASES]),
    # Two leaves, and a node above theirs.
    "levels": (nodes("--hosts-per-leaf", "4"), KERNEL_CASES),
    "overlap": ({"plain MPICH": MPICH_ALONE, "tributary": with_knobs()},
                ["overlap:8", "overlap:65536"]),
    # What it costs to outlive aggregation nodes while none dies.
    "failover": ({"off": with_knobs(FAILOVER="off"), "on": with_knobs(FAILOVER="on")},
                 ["allreduce:8", "allreduce:65536"]),
}

# Tables whose variants are compared with their first, run by run: they differ by less than the machine does.
PAIRED = ("failover",)


# Tables that compare every path.
PATHS_TABLES = ("paths", "parts")

# Tables of several numbers of hosts; all others are of --also-hosts.
HOSTS = {"kernel": (2, 4, 8)}

# All further tables, in the order of measurement.
TABLES = [*ALSO, "groups", "memory", "throughput", "flood"]


def measure_also(table, programs, arguments):
    """Measures one of these tables; its rows."""
    host_counts = HOSTS.get(table, (arguments.also_hosts,))
    return [row for hosts in host_counts for row in measure_on(hosts, table, programs, arguments)]


def measure_on(hosts, table, programs, arguments):
    """Measures one of these tables on so many hosts; its rows."""
    variants, cases = ALSO[table]
    found = {(name, case): [] for name in variants for case in cases}
    labs = {}
    try:
        for variant in variants.values():
            if variant.lab not in labs:
                labs[variant.lab] = BenchLab(hosts, arguments, variant.lab)
        for number in range(arguments.rounds):
            for name, variant in variants.items():
                print(f"round {number + 1} of {arguments.rounds}: {table}, {hosts} hosts, {name}",
                      file=sys.stderr, flush=True)
                method = (variant.mpi, variant.is_plain, variant.environment)
                for line in labs[variant.lab].lines(
                        name, method, hosts, cases, programs, arguments):
                    found[name, case_of(line)].append(line)
    finally:
        for lab in labs.values():
            lab.__exit__()
    return [{"table": table, "hosts": hosts, "variant": name, "case": case, "runs": runs,
             **{key: statistics.median(run[key] for run in runs)
                for key in ("median_us", "call_median_us", "p99_us", "overlap_percent") if key in runs[0]},
             **({"ratio": ratio_of_pairs(runs, found[next(iter(variants)), case])} if table in PAIRED else {})}
            for (name, case), runs in found.items()]


def ratio_of_pairs(runs, others):
    """The median over rounds of one variant's time by another's."""
    return statistics.median(run["median_us"] / other["median_us"] for run, other in zip(runs, others))


def measure_groups(programs, arguments):
    """Groups of the same two hosts on one aggregation node: one alone, and four at once."""
    method = ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"})
    found = {1: [], 4: []}
    with BenchLab(2, arguments) as lab:
        for number in range(arguments.rounds):
            for groups, runs in found.items():
                print(f"round {number + 1} of {arguments.rounds}: {groups} groups at once",
                      file=sys.stderr, flush=True)
                runs.append(lab.at_once(groups, method, programs, arguments))
    return [{"table": "groups", "variant": f"{groups} at once", "case": "allreduce:8",
             "runs": runs, "median_us": statistics.median(max(run) for run in runs),
             "cores_a_process": os.cpu_count() / (2 * groups + 1)}
            for groups, runs in found.items()]


def measure_memory(programs, arguments):
    """The peak memory of an aggregation node, for three lengths of vectors."""
    method = ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "tree"})
    rows = []
    for size in (1 << 16, 1 << 20, 1 << 24):
        with BenchLab(arguments.also_hosts, arguments) as lab:
            lab.lines("memory", method, arguments.also_hosts, [f"allreduce:{size}"], programs,
                      arguments)
            rows.append({"table": "memory", "variant": "aggregation node",
                         "case": f"allreduce:{size}", "peak_kib": lab.node_peak_kib()})
    return rows


def check_choice(rows):
    """For each case of the tables of paths: the best single path, and whether the chosen one is near it."""
    ours = [row for row in rows if row["table"] in PATHS_TABLES and row["runs"][0]["is_ours"]]
    checks = []
    for table, case in dict.fromkeys((row["table"], row["case"]) for row in ours):
        medians = {row["variant"]: row["median_us"] for row in ours if row["case"] == case}
        chosen = medians.pop("chosen")
        best = min(medians, key=medians.get)
        checks.append({"table": table, "case": case, "best": best, "best_us": medians[best], "chosen_us": chosen,
                       "holds": chosen <= CHOICE_MAX * medians[best]})
    return checks


def print_also(rows):
    printed = None
    for row in rows:
        if (row["table"], row.get("hosts")) != printed:
            printed = row["table"], row.get("hosts")
            on = f" on {row['hosts']} hosts" if "hosts" in row else ""
            print(f"\n{row['table']}{on}: of blocks, medians; of calls, medians and 99th percentiles; in us")
        if "peak_kib" in row:
            print(f"{row['variant']:>24} {row['case']:>18} {row['peak_kib']:>12} KiB at most")
            continue
        if "gb_per_second" in row:
            print(f"{row['variant']:>24} {row['case']:>18} {row['gb_per_second']:>12.2f} GB/s")
            continue
        p99 = f"{row['call_median_us']:>12.1f}{row['p99_us']:>12.1f}" if "p99_us" in row else ""
        cores = f"  {row['cores_a_process']:.2f} cores each" if "cores_a_process" in row else ""
        refused = f"  {row['refused']:,.0f} packets refused" if "refused" in row else ""
        overlap = f"  overlap {row['overlap_percent']:.0f}%" if "overlap_percent" in row else ""
        ratio = f"  ratio of pairs {row['ratio']:.3f}" if "ratio" in row else ""
        figures = f"{row['median_us']:>12.1f}{p99}{overlap}{cores}{refused}{ratio}"
        print(f"{row['variant']:>24} {row['case']:>18} {figures}")


def print_checks(checks):
    for check in checks:
        verdict = "within a tenth of" if check["holds"] else "MORE than a tenth slower than"
        print(f"{check['case']:>18}: chosen {check['chosen_us']:.1f} us, {verdict} the best single "
              f"path, {check['best']}, {check['best_us']:.1f} us")
