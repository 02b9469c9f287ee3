#!/usr/bin/env python3
"""Draws where Tributary wins and where not, from docs/evidence/where-it-wins.json.

    make .venv/plot.stamp && .venv/plot/bin/python bench/where_it_wins.py

Each panel is of one kind of machine, with as many times as fast as what a program has without Tributary. The commands behind
the figures stand beside the picture in docs/introduction.md.
"""

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs/evidence/where-it-wins.json"
TARGET = ROOT / "docs/where-it-wins.svg"
# Markers and dashes tell series apart without colours.
STYLES = ("o-", "s--", "^:")
TICKS = (0.25, 0.5, 1, 2, 4)
RANGE = (0.22, 5.4)


def draw(axes, panel):
    for style, series in zip(STYLES, panel["series"], strict=False):
        hosts, ratios = zip(*series["points"], strict=True)
        axes.plot(hosts, ratios, style, label=series["name"])
    places = sorted({hosts for series in panel["series"] for hosts, _ in series["points"]} - {15, 512})
    axes.axhline(1, color="black", linewidth=1)
    axes.axhspan(RANGE[0], 1, color="0.93", zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="hosts", ylabel=f"times as fast {panel['against']}", ylim=RANGE)
    axes.set_title(panel["title"], fontsize=10)
    axes.set_xticks(places, [str(hosts) for hosts in places])
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="lower right" if min(ratios) > 1 else "lower left")


def main():
    # Text stays text, and the same input gives the same file.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tributary"})
    panels = json.loads(SOURCE.read_text(encoding="utf-8"))["panels"]
    figure, all_axes = plt.subplots(1, len(panels), figsize=(12, 4), layout="constrained")
    for axes, panel in zip(all_axes, panels, strict=True):
        draw(axes, panel)
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
