#!/usr/bin/python3
"""Runs every panel's query and every rule against real series.

    deploy/monitoring/check_live.py [--seconds N] [--pause N] [--save FILE]

Starts gemmd (CPU), Debian's Prometheus with the rules, and a stand-in for a GPU
server (live_stack.py says what that is); drives load that is also shed and
fails; then asks Prometheus for each query. An error, an empty answer or one
without a number is a failure, and so is a word of promtool about /metrics.
--pause: seconds between the bursts of what must fail. --save keeps the panels'
answers as JSON, for pictures/draw.mjs.

Which series cannot exist without a GPU is said once, in GPU_ONLY: the check
fails when one of them is in the CPU server's /metrics, and when a query needs
a series that is neither there nor one of them. Queries with one are asked of
the stand-in, all others of the CPU server.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import time

from live_stack import H200, Stack, family_of, metric_types

HERE = pathlib.Path(__file__).resolve().parent
GPU_ONLY = re.compile(
    r"gemmd_driver_info|gemmd_device_(peak_flops|utilization_ratio|"
    r"memory_bytes|power_watts|temperature_celsius|sm_clock_hertz|"
    r"energy_joules_total|xid_errors_total|last_xid)")
# Seen with a scrape a second; Grafana's own rule for the first is four scrapes.
INTERVALS = {"$__rate_interval": "4s", "$__interval": "1s"}
NAME = re.compile(r"(?<![:\w])((?:gemmd|grpc_server|process)_\w+|up)(?![:\w])")
RECORDED = re.compile(r"\b\w+:\w+:\w+\b")
# In this order: what the load must have shown.
INDUCED = [
    'gemmd_requests_shed_total{job="gemmd", reason="queue_full"} > 0',
    'gemmd_requests_shed_total{job="gemmd", reason="too_large"} > 0',
    'gemmd_requests_shed_total{job="gemmd", reason="deadline"} > 0',
    'grpc_server_call_completed_total{grpc_status="RESOURCE_EXHAUSTED"} > 0',
    'grpc_server_call_completed_total{grpc_status="NOT_FOUND"} > 0',
]
PENDING = {"GemmdErrorBudgetBurn", "GemmdShedding"}
# May begin on a slow machine; none of them can fire so soon.
EITHER = {"GemmdLatencyBudgetBurn", "GemmdAbsent", "GemmdUnreachable",
          "GemmdQueueSaturated"}


class Checks:
    def __init__(self, stack, cpu_text):
        self.stack = stack
        self.cpu = metric_types(cpu_text)
        self.gpu = metric_types(H200.read_text())
        self.problems, self.count, self.answers = [], 0, {}

    def expect(self, good, what):
        self.count += 1
        if not good:
            self.problems.append(what)

    def needs_gpu(self, expr, where):
        """Also checks that each series in it exists where it must."""
        gpu = False
        for name in set(NAME.findall(expr)) - {"up"}:
            family = family_of(name, self.cpu)
            if GPU_ONLY.fullmatch(name):
                gpu = True
                self.expect(name in self.gpu, f"{where}: no stand-in {name}")
            else:
                self.expect(family in self.cpu,
                            f"{where}: gemmd has no series {name}")
        return gpu

    def series(self):
        text = self.stack.metrics()
        self.expect(len(re.findall(r"^[^#]", text, re.M)) < 1500,
                    "a server has 1,500 series or more")
        lint = subprocess.run(["promtool", "check", "metrics"], input=text,
                              text=True, capture_output=True, check=False)
        self.expect(lint.returncode == 0 and not lint.stderr,
                    f"promtool check metrics: {lint.stderr}")
        for name in self.cpu:
            self.expect(not GPU_ONLY.fullmatch(name),
                        f"{name} is GPU_ONLY, and a CPU server has it")

    def panels(self, begin, end):
        for path in sorted((HERE / "dashboards").glob("*.json")):
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel.get("targets", []):
                    where = f"{path.stem}: {panel['title']}: {target['refId']}"
                    answer = self.panel(target, where, begin, end)
                    self.answers.setdefault(path.stem, {}).setdefault(
                        str(panel["id"]), {})[target["refId"]] = answer

    def panel(self, target, where, begin, end):
        job = ("gemmd-h200" if self.needs_gpu(target["expr"], where)
               else "gemmd")
        expr = target["expr"].replace("$__range", f"{int(end - begin)}s")
        for name, value in {**INTERVALS, "$cluster": ".*", "$namespace": ".*",
                            "$job": job, "$instance": ".+",
                            "$kernel": ".+"}.items():
            expr = expr.replace(name, value)
        self.expect("$" not in expr, f"{where}: an unknown variable: {expr}")
        return self.ask(expr, where, begin, end)

    def ask(self, expr, where, begin=None, end=None):
        """An error, no series or no finite number is a problem."""
        try:
            if begin is None:
                data = self.stack.api("query", query=expr)
            else:
                data = self.stack.api("query_range", query=expr, start=begin,
                                      end=end, step=1)
        except RuntimeError as error:
            self.expect(False, f"{where}: {error}: {expr}")
            return []
        numbers = [float(value) for one in data["result"]
                   for _, value in one.get("values") or [one["value"]]]
        self.expect(any(map(math.isfinite, numbers)),
                    f"{where}: {'not a number' if numbers else 'empty'}: "
                    f"{expr}")
        return data["result"]

    def rules(self):
        states = {}
        for group in self.stack.api("rules")["groups"]:
            for rule in group["rules"]:
                where = f"rule {rule['name']}"
                self.expect(rule["health"] == "ok",
                            f"{where}: {rule.get('lastError')}")
                self.needs_gpu(rule["query"], where)
                if rule["type"] == "recording":
                    self.ask(rule["name"], where)
                    continue
                states.setdefault(rule["name"], set()).add(rule["state"])
                names = (set(NAME.findall(rule["query"]))
                         | set(RECORDED.findall(rule["query"])))
                for name in names:
                    self.ask(name, where)
        for name, state in states.items():
            if name in PENDING:
                self.expect("pending" in state or "firing" in state,
                            f"{name} is {state} under sheds and errors")
            elif name not in EITHER:
                self.expect(state == {"inactive"}, f"{name} is {state}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=25)
    parser.add_argument("--pause", type=int, default=1)
    parser.add_argument("--save", type=pathlib.Path)
    arguments = parser.parse_args()
    with Stack() as stack:
        time.sleep(3)
        begin = time.time()
        stack.drive(arguments.seconds, arguments.pause)
        end = time.time() - 3  # while there was load
        checks = Checks(stack, stack.metrics())
        checks.series()
        checks.panels(begin, end)
        checks.rules()
        for expr in INDUCED:
            checks.ask(expr, "induced")
        if arguments.save:
            arguments.save.write_text(json.dumps(
                {"begin": begin, "end": end, "panels": checks.answers}))
    print("\n".join(checks.problems))
    print(f"{checks.count - len(checks.problems)} of {checks.count} good")
    return bool(checks.problems)


if __name__ == "__main__":
    sys.exit(main())
