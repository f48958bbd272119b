#!/usr/bin/env python3
"""Fits the constants of sm90_ffma_plan.cc to what ffma_plans measured.

    fit_plans.py plans.csv

Prints them, and how far the plans they choose are from the fastest ones.
"""
import csv
import math
import random
import sys

SMS = 132
ONE_AN_SM = [0, 132, 66, 39, 30, 22, 17, 15, 15]  # clusters, by their blocks
THREE_AN_SM = [0, 396, 198, 124, 92, 69, 62, 47, 45]
TWO_AN_SM = [0, 264, 132, 78, 60, 44, 34, 30, 30]
# tile, clusters at once
PLANS = {
    "cluster_128": (128, ONE_AN_SM),
    "cluster_96": (96, ONE_AN_SM),
    "cluster_64": (64, ONE_AN_SM),
    "cluster_light": (64, THREE_AN_SM),
    "cluster_32": (32, THREE_AN_SM),
    "copy_64": (64, ONE_AN_SM),
    "copy_light": (64, TWO_AN_SM),
    "copy_32": (32, TWO_AN_SM),
}


def ceil_div(x, y):
    return -(-x // y)


def usable(plan, slices):
    """Clusters of an odd number of blocks share SMs while others idle."""
    if slices == 1 or plan == "stream_k":
        return True
    return PLANS[plan][1] is ONE_AN_SM or slices % 2 == 0


def predict(plan, m, n, k, slices, c):
    steps = ceil_div(k, 32)
    if plan == "stream_k":
        each = max(1.0, ceil_div(m, 128) * ceil_div(n, 128) * steps / (2 * SMS))
        return c[0] + each * c[1] + steps / each * c[2]
    tile, at_once = PLANS[plan]
    tiles = ceil_div(m, tile) * ceil_div(n, tile)
    launch, a_round, a_slice, step, busy, traffic = c

    def round_time(on_an_sm):
        return (a_round + slices * a_slice +
                ceil_div(steps, slices) * max(step, on_an_sm * busy))

    mebibytes = tiles * steps * tile * 2 * 32 * 4 / 2**20
    time = launch + traffic * mebibytes
    most = at_once[1] // SMS
    rounds, rest = divmod(tiles, at_once[slices])
    time += rounds * round_time(most)
    if rest > 0:
        load = rest / ONE_AN_SM[slices]
        if rounds > 0:
            on_an_sm = 1 if load < 1 / 8 else most
        else:
            on_an_sm = crowd(load, slices, most)
        time += round_time(on_an_sm)
    return time


def crowd(load, slices, most):
    """Blocks on the busiest SM where each could have `load`, if spread evenly."""
    if load <= 1:
        return 1
    # Clusters are stacked while SMs elsewhere are idle.
    return min(most, 2 if load <= (1.7 if slices == 1 else 1.25) else 3)


def fit(plan, rows, best):
    # Rows far from the best plan of their shape matter little.
    rows = [(r, (best[r[:3]] / r[5])**2) for r in rows]

    def loss(c):
        return sum(w * abs(math.log(max(predict(plan, *r[:3], r[4], c), 0.1) / r[5]))
                   for r, w in rows) / sum(w for _, w in rows)

    rng = random.Random(1)
    c = [5, 2, 0.5] if plan == "stream_k" else [1, 2, 0.1, 1, 1, 0.01]
    lowest = loss(c)
    width = 0.5
    for i in range(6000):
        if i % 1000 == 999:
            width /= 2
        trial = [x * math.exp(rng.gauss(0, width)) if rng.random() < 0.5 else x for x in c]
        trial_loss = loss(trial)
        if trial_loss < lowest:
            c, lowest = trial, trial_loss
    return c, lowest


def main():
    everything = [(int(r["m"]), int(r["n"]), int(r["k"]), r["plan"], int(r["slices"]),
                   float(r["us"]), int(r["tb"])) for r in csv.DictReader(open(sys.argv[1]))]
    rows = [r for r in everything if usable(r[3], r[4])]
    fitted = {}
    for copies in (False, True):
        of_group = [r for r in rows if r[3].startswith("copy") == copies and r[6] == copies]
        best = {}
        for r in of_group:
            best[r[:3]] = min(best.get(r[:3], 1e30), r[5])
        for plan in dict.fromkeys(r[3] for r in of_group):
            c, lowest = fit(plan, [r for r in of_group if r[3] == plan], best)
            fitted[plan] = c
            print(plan, ["%.3g" % x for x in c], "mean error %.1f %%" % (100 * lowest))
        regret = {}
        for r in of_group:
            regret.setdefault(r[:3], []).append(
                (predict(r[3], *r[:3], r[4], fitted[r[3]]), r[5], r[3], r[4]))
        worst = sorted(((min(v)[1] / best[s], s, min(v)[2:]) for s, v in regret.items()),
                       reverse=True)
        if worst:
            print("chosen over best: mean %.3f" %
                  (sum(w[0] for w in worst) / len(worst)), worst[:8])
    # What it costs to bring B into form first.
    plain = {r[:5]: r[5] for r in everything if r[6] == 0}
    more = [(r[1] * r[2], r[5] - plain[r[:5]]) for r in everything
            if r[6] == 1 and r[:5] in plain]
    n = len(more)
    x, y = sum(m[0] for m in more) / n, sum(m[1] for m in more) / n
    slope = (sum((m[0] - x) * (m[1] - y) for m in more) / sum((m[0] - x)**2 for m in more))
    print("form: launch %.3g, an element %.3g" % (y - slope * x, slope))


if __name__ == "__main__":
    main()
