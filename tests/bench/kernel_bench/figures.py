#!/usr/bin/env python3
"""Puts the figures that are aimed at beside what was measured.

    figures.py figures.txt kernels.json

Reads the rows that kernel_bench put into kernels.json and writes them back with
a list "figures" before them: name, commit, command, figure, what it is compared
with, ratio, target, and whether it is met. Prints the list. `figures.py
--cases figures.txt` prints the cases, for kernel_bench --cases.
"""
import json
import math
import sys


def read_wanted(path):
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            name, kernel, cases, other, figure, target = [
                x.strip() for x in line.split("|")
            ]
            yield name, kernel, cases.split(), other, figure, float(target)


def case_of(row):
    text = "%dx%dx%d" % (row["m"], row["n"], row["k"])
    if row["transpose"] != "NN":
        text += ":" + row["transpose"]
    return text + ("*%d" % row["batch"] if row["batch"] > 1 else "")


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def figure_of(wanted, rows):
    name, kernel, cases, other, figure, target = wanted
    found = [rows.get((kernel, case)) for case in cases]
    if None in found:
        return None
    tflops = geometric_mean([row["tflops"] for row in found])
    us = geometric_mean([row["us_median"] for row in found])
    result = {
        "name": name + (", " + cases[0] if len(cases) == 1 else ""),
        "kernel": kernel,
        "commit": found[0]["commit"],
        "command": found[0]["command"],
        "figure": "%.2f us" % us if figure == "us" else "%.2f TFLOP/s" % tflops,
    }
    value = {"tflops": tflops, "us": us}.get(figure)
    if other != "-":
        # A row's ratio is to the cuBLAS of its own run.
        value = geometric_mean([row["ratio_to_cublas"] for row in found])
        result["compared_with"] = "%s, %.2f TFLOP/s" % (
            other, geometric_mean([row["tflops"] / row["ratio_to_cublas"] for row in found]))
        result["ratio"] = round(value, 3)
    result["target"] = {"ratio": "%.2fx", "tflops": "%g TFLOP/s", "us": "%g us"}[figure] % target
    result["met"] = value <= target if figure == "us" else value >= target
    return result


def main():
    if sys.argv[1] == "--cases":
        cases = [case for wanted in read_wanted(sys.argv[2]) for case in wanted[2]]
        print("\n".join(dict.fromkeys(cases)))
        return
    data = json.load(open(sys.argv[2]))
    rows = {(row["kernel"], case_of(row)): row for row in data["results"]}
    figures = [f for f in (figure_of(w, rows) for w in read_wanted(sys.argv[1])) if f]
    # One row a line, the results' as kernel_bench writes them.
    with open(sys.argv[2], "w") as file:
        file.write('{\n  "device": %s,\n  "figures": [\n' % json.dumps(data["device"]))
        file.write(",\n".join("   " + json.dumps(f) for f in figures))
        file.write('\n  ],\n  "results": [\n')
        file.write(",\n".join("    " + json.dumps(row) for row in data["results"]))
        file.write("\n  ]\n}\n")
    for f in figures:
        print("%-58s %16s %7s target %s%s" %
              (f["name"], f["figure"], f.get("ratio", ""), f["target"],
               "" if f["met"] else "  NOT MET"))


if __name__ == "__main__":
    main()
