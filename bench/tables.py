#!/usr/bin/env python3
"""Reads the JSON of bench/lab/bench.py --output and writes Markdown tables into a document, between two
markers."""

import argparse
import json
import pathlib

BEGIN = "<!-- bench/tables.py: begin -->\n"
END = "<!-- bench/tables.py: end -->\n"

PLAIN = {"openmpi": "Open MPI", "mpich-ucx": "MPICH, UCX", "mpich-ofi": "MPICH, OFI"}
# A column has the smaller median of the two MPIs.
OURS = {"ours": ("tributary-openmpi", "tributary-mpich"), "TCP": ("tcp-openmpi", "tcp-mpich")}


# Tables that compare every path, one row a case.
PATHS_TABLES = ("paths", "parts")

# How many times faster than the best plain MPI the best node is to be, by hosts and case, and how many medians its
# 99th percentile is to be at most.
KERNEL_TARGETS = {("kernel", 8, "allreduce:8"): 4.0, ("kernel", 8, "barrier:0"): 4.0}
KERNEL_TAIL = 2.5
# Tables of nodes as processes and inside the kernel, with what stands above their hosts; and their columns.
NODES_TABLES = {"kernel": "hosts", "levels": "hosts, two levels"}
NODES = {"process": "node: process", "kernel": "node: kernel", "kernel, AF_XDP": "kernel, members by AF_XDP",
         "chosen": "kernel, path as chosen"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=pathlib.Path, help="the JSON file")
    parser.add_argument("document", type=pathlib.Path, help="the document with the markers")
    return parser.parse_args()


def length(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def case_name(operation, size):
    return operation if operation == "barrier" else f"{operation} {length(size)}"


def figure(us):
    return f"{us:,.1f}" if us < 100 else f"{us:,.0f}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def command(words):
    """The command without the paths of its files."""
    places = [at for at, word in enumerate(words) if word in ("--tributary", "--output", "--venvs", "--build")]
    left_out = {at + further for at in places for further in (0, 1)}
    return " ".join(word for at, word in enumerate(words) if at not in left_out)


def head_line(measured):
    machine, options = measured["machine"], measured["options"]
    peers = ", ".join(machine["mpis"].values())
    return [f"{options['rounds']} rounds of `{command(measured['command'])}`: {machine['cpu']}, {machine['cores']} "
            f"cores, Linux {machine['kernel']}, TCP {machine['congestion_control']}, load "
            f"{machine['load_before']:.1f} before; {peers}. Medians in us.", ""]


def cases(measured):
    rows = []
    for row in measured["cases"]:
        medians = row["median_us"]
        ratio = max(row["ratios"].values())
        target = row["target"]
        verdict = "" if target is None else f"{target:g}, {'met' if ratio >= target else 'missed'}"
        ours = [min(medians[method] for method in methods) for methods in OURS.values()]
        rows.append([str(row["hosts"]), split_case(row["case"]),
                     *(figure(medians[method]) for method in PLAIN), *map(figure, ours),
                     f"{ratio:.2f}", verdict])
    return table(["hosts", "case", *PLAIN.values(), *OURS, "ratio", "target"], rows)


def split_case(case):
    operation, *rest = case.split(":")
    pattern = ", apart" if rest[1:] == ["apart"] else ""
    return (case_name(operation, int(rest[0])) if rest else operation) + pattern


def paths(measured, name):
    """A table of every path; none if it was not measured."""
    rows = [row for row in measured["also"] if row["table"] == name]
    if not rows:
        return []
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    holds = {check["case"]: check["holds"] for check in measured["choice"]
             if check.get("table", "paths") == name}
    found = {(row["case"], row["variant"]): figure(row["median_us"]) for row in rows}
    lines = [[split_case(case), *(found[case, variant] for variant in variants),
              "yes" if holds[case] else "no"] for case in holds]
    return table([f"{measured['options']['also_hosts']} hosts", *variants, "within a tenth of the best"], lines)


def of_nodes(measured, name):
    """Nodes as processes and inside the kernel; none if they were not measured. All figures are of single calls."""
    rows = {(row["hosts"], row["case"], row["variant"]): row for row in measured["also"] if row["table"] == name}
    if not rows:
        return []
    lines = []
    for hosts, case in dict.fromkeys((hosts, case) for hosts, case, _ in rows):
        plain = min((rows[hosts, case, name] for name in ("Open MPI", "MPICH, UCX")),
                    key=lambda row: row["call_median_us"])
        nodes = [rows[hosts, case, name] for name in NODES]
        best = min(nodes, key=lambda row: row["call_median_us"])
        ratio = plain["call_median_us"] / best["call_median_us"]
        target = KERNEL_TARGETS.get((name, hosts, case.removesuffix(":apart")))
        verdict = ""
        if target is not None:
            tail = "met" if best["p99_us"] <= KERNEL_TAIL * best["call_median_us"] else "missed"
            verdict = f"{target:g}, {'met' if ratio >= target else 'missed'}; tail {tail}"
        figures = [f"{figure(row['call_median_us'])} / {figure(row['p99_us'])}" for row in (plain, *nodes)]
        lines.append([str(hosts), split_case(case), *figures, f"{ratio:.2f}", verdict])
    return table([NODES_TABLES[name], "case", "best plain MPI", *NODES.values(), "ratio", "target"], lines)


def remarks(row):
    """The last column: figures of a row other than times."""
    said = []
    if "overlap_percent" in row:
        said.append(f"overlap {row['overlap_percent']:.0f}%")
    if "cores_a_process" in row:
        said.append(f"{row['cores_a_process']:.2f} cores a process")
    if "peak_kib" in row:
        said.append(f"{row['peak_kib'] / 1024:.1f} MiB at most")
    if "refused" in row:
        said.append(f"{row['refused']:,.0f} packets refused")
    if "ratio" in row:
        said.append(f"ratio of pairs {row['ratio']:.3f}")
    if "gb_per_second" in row:
        said.append(f"{row['gb_per_second']:.2f} GB/s")
    return ", ".join(said)


def others(measured):
    rows = []
    for row in measured["also"]:
        if row["table"] not in (*PATHS_TABLES, *NODES_TABLES):
            times = [figure(row[key]) if key in row else ""
                     for key in ("median_us", "call_median_us", "p99_us")]
            rows.append([row["table"], row["variant"], split_case(row["case"]), *times, remarks(row)])
    return table(["table", "variant", "case", "blocks", "calls", "p99 of calls", ""], rows)


def main():
    arguments = parse_arguments()
    measured = json.loads(arguments.measured.read_text(encoding="utf-8"))
    of_paths = [line for name in PATHS_TABLES for line in paths(measured, name)]
    of_kernel = [line for name in NODES_TABLES for line in of_nodes(measured, name)]
    lines = [*head_line(measured), *cases(measured), *of_paths, *of_kernel, *others(measured)]
    text = arguments.document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{arguments.document} lacks the markers {BEGIN.strip()} and {END.strip()}")
    tables = "\n" + "\n".join(lines) + "\n"
    arguments.document.write_text(before + begin + tables + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
