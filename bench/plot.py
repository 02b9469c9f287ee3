#!/usr/bin/env python3
"""Plots the JSON of bench/lab/bench.py --output as PNG: latency by length, one line a path, log-log."""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=pathlib.Path, help="the JSON file")
    parser.add_argument("target", type=pathlib.Path, help="the PNG file to write")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    measured = json.loads(arguments.measured.read_text(encoding="utf-8"))
    lines = {}
    for row in measured["also"]:
        if row["table"] == "paths":
            size = int(row["case"].split(":")[1])
            lines.setdefault(row["variant"], []).append((size, row["median_us"]))
    if not lines:
        raise SystemExit(f"{arguments.measured} has no table of paths: measure it with bench.py --also paths")
    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    for name, points in lines.items():
        sizes, times = zip(*sorted(points))
        is_plain = name in ("Open MPI", "MPICH, UCX")
        style = {"linewidth": 3, "color": "black"} if name == "chosen" else {"linewidth": 1.5}
        axes.plot(sizes, times, "--" if is_plain else "-", marker="o", label=name, **style)
    machine, hosts = measured["machine"], measured["options"]["also_hosts"]
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="microseconds, median",
             title=f"allreduce of floats, {hosts} hosts of a lab on {machine['cores']} cores "
                   f"(kernel {machine['kernel']})")
    axes.set_xscale("log", base=2)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(arguments.target, dpi=120)


if __name__ == "__main__":
    main()
