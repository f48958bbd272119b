#!/usr/bin/env python3
"""How many replicas a load needs, from what was measured (SIZING.md).

    deploy/kubernetes/size.py RATE SHAPE [--precision fp32|fp32_emulated]
                              [--network-gbit N] [--utilisation U] [...]

RATE: products a second, of one SHAPE (N or MxNxK), operands inline. Prints what
one replica (one H200) can do by each bound, and the replicas at which the
tightest is used to U.
"""

import argparse
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests/bench/results/h200/kernels.json"
# tests/bench/results/overhead.md, n = 1024: 8 MiB decoded and copied in 1.46 ms
# by one thread; the echo of 12 MiB took 4.4 ms on one connection.
COPY_BYTES_PER_SECOND = (8 << 20) / 1.46e-3
CONNECTION_BYTES_PER_SECOND = (12 << 20) / 4.4e-3
# tests/bench/results/metrics_cost.md: CPU time of a server for a small product.
REQUEST_SECONDS = 29.2e-6


def flop_rate(m, n, k, precision):
    """Of the measured case that is closest in work, from below if there is."""
    rows = [r for r in json.loads(KERNELS.read_text())["results"]
            if r["transpose"] == "NN" and r["batch"] == 1
            and r["precision"] == "PRECISION_" + precision.upper()
            and r["kernel"] != "cublas" and r.get("tflops")]
    work = m * n * k
    size = {id(r): r["m"] * r["n"] * r["k"] for r in rows}
    below = [s for s in size.values() if s <= work] or [min(size.values())]
    best = max((r for r in rows if size[id(r)] == max(below)),
               key=lambda r: r["tflops"])
    return best["tflops"] * 1e12, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rate", type=float)
    parser.add_argument("shape")
    parser.add_argument("--precision", default="fp32",
                        choices=["fp32", "fp32_emulated"])
    parser.add_argument("--network-gbit", type=float, default=25)
    parser.add_argument("--utilisation", type=float, default=0.6)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--copy-threads", type=int, default=8)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    sizes = [int(x) for x in arguments.shape.split("x")]
    m, n, k = sizes * 3 if len(sizes) == 1 else sizes
    received, sent = 4 * (m * k + k * n), 4 * m * n
    speed, case = flop_rate(m, n, k, arguments.precision)
    network = arguments.network_gbit * 1e9 / 8
    bounds = {
        f"compute ({case['kernel']} at {speed / 1e12:.1f} TFLOP/s)":
            speed / (2 * m * n * k),
        f"network ({arguments.network_gbit:g} Gbit/s each way)":
            network / max(received, sent),
        f"handling calls ({arguments.cores} cores)":
            arguments.cores / REQUEST_SECONDS,
        f"copying operands ({arguments.copy_threads} threads)":
            arguments.copy_threads * COPY_BYTES_PER_SECOND / received,
        f"connections ({arguments.connections})":
            arguments.connections * CONNECTION_BYTES_PER_SECOND
            / (received + sent),
    }
    for name, most in bounds.items():
        print(f"{most:12.0f} products/s by {name}")
    most = min(bounds.values())
    replicas = math.ceil(arguments.rate / (most * arguments.utilisation))
    print(f"{replicas:12d} replicas for {arguments.rate:g} products/s of "
          f"{m}x{n}x{k} at {arguments.utilisation:.0%}, one more to lose one")


if __name__ == "__main__":
    main()
