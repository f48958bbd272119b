#!/usr/bin/env python3
"""Draws the charts of kernels/README.md from kernel_bench's results.

    draw_charts.py RESULTS.json FOLDER

Writes FOLDER/tflops.svg (TFLOP/s over M = N at K = 1024, with the measured FFMA
ceiling) and FOLDER/ratio_to_cublas.svg. Needs matplotlib (Debian:
python3-matplotlib).
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of backend)

# Colours that the colour-blind can tell apart (Okabe and Ito), and a marker and
# a dash pattern each, so that a print in grey is legible too.
STYLES = {
    "naive": ("#000000", "x", (0, (1, 1))),
    "block_tiled": ("#E69F00", "s", (0, (3, 1, 1, 1))),
    "conflict_free": ("#56B4E9", "^", (0, (5, 2))),
    "double_buffered": ("#0072B2", "o", "solid"),
    "cublas": ("#D55E00", "D", (0, (6, 2))),
    "sm90_ffma": ("#009E73", "v", "solid"),
    "sm90_bf16x6": ("#CC79A7", "P", (0, (4, 1))),
}


def lines_of(results, value):
    """{kernel: [(n, value of its row)]} of the square C at K = 1024."""
    lines = {}
    for row in results:
        is_square = row["m"] == row["n"] and row["k"] == 1024
        if is_square and row["batch"] == 1 and row["transpose"] == "NN":
            lines.setdefault(row["kernel"], []).append((row["m"], row[value]))
    return {kernel: sorted(set(points)) for kernel, points in lines.items()}


def new_axes(sizes, label):
    figure, axes = plt.subplots(figsize=(8, 4.8))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes], rotation=45)
    axes.set_xlabel("M = N (K = 1024)")
    axes.set_ylabel(label)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    return figure, axes


def draw(lines, axes):
    for kernel, points in lines.items():
        if kernel not in STYLES:
            continue
        color, marker, dashes = STYLES[kernel]
        axes.plot(*zip(*points), label=kernel, color=color, marker=marker,
                  markersize=5, linestyle=dashes, linewidth=1.6)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(sys.argv[2])
    # Text as text, and the same file for the same data.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gemmd"})
    device = data["device"]

    tflops = lines_of(data["results"], "tflops")
    sizes = sorted({n for points in tflops.values() for n, _ in points})
    figure, axes = new_axes(sizes, "TFLOP/s (10^12)")
    draw(tflops, axes)
    ceiling = device["ffma_ceiling_tflops"]
    axes.axhline(ceiling, color="#888888", linewidth=1)
    axes.text(sizes[0], ceiling + 0.7, f"FFMA ceiling, measured: {ceiling:.1f}",
              color="#555555", fontsize=9)
    highest = max(y for points in tflops.values() for _, y in points)
    axes.set_ylim(0, max(ceiling, highest) + 5)
    axes.set_title(f"SGEMM on an {device['name']}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.92), fontsize=9)
    figure.tight_layout()
    figure.savefig(folder / "tflops.svg", metadata={"Date": None})

    figure, axes = new_axes(sizes, "speed as a ratio to cuBLAS")
    draw(lines_of(data["results"], "ratio_to_cublas"), axes)
    axes.set_ylim(0, None)
    axes.set_title(f"Against cuBLAS {device['cublas']} in the same run")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.13), fontsize=9)
    figure.tight_layout()
    figure.savefig(folder / "ratio_to_cublas.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
