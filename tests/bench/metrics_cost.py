#!/usr/bin/env python3
"""What metrics cost: small products against a server with --metrics on and one
with --metrics off, in turn, and how long a scrape takes meanwhile.

    tests/bench/metrics_cost.py [ROUNDS] [SECONDS]        (20 1.5)

Prints, on against off: requests/s and the server's CPU time a request (medians
of the rounds' ratios), and the scrapes of the busy server. Exits with 1 when
the CPU time a request is over 1.02 or the median scrape over 20 ms. The
verdict is on CPU time, since requests/s also measure whatever else runs.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / os.environ.get("GEMMD_BUILD", "build/dev") / "bin"
SHAPE = "32"
CONCURRENCY = "16"
CPU_LIMIT = 1.02
SCRAPE_LIMIT = 0.020
SCRAPE_EVERY = 0.1


class Server:
    def __init__(self, metrics):
        self.log = tempfile.NamedTemporaryFile("r")
        with open(self.log.name, "w") as log:
            self.process = subprocess.Popen(
                [BIN / "gemmd", "--backend", "cpu", "--metrics", metrics,
                 "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"],
                stdout=log, stderr=log)
        self.grpc = self.address("grpc")
        self.http = self.address("http")

    def address(self, what):
        for _ in range(300):
            for line in open(self.log.name):
                if line.startswith(f"{what} listening on "):
                    return line.split()[-1]
            time.sleep(0.05)
        sys.exit("gemmd did not start: " + open(self.log.name).read())

    def cpu_seconds(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def scrape(self):
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://{self.http}/metrics") as answer:
            answer.read()
        return time.monotonic() - begin


def bench(server, seconds, scrapes=None):
    """Requests/s and the server's CPU seconds a request."""
    before = server.cpu_seconds()
    client = subprocess.Popen(
        [BIN / "gemmctl", "--server", server.grpc, "--json", "bench",
         "--shape", SHAPE, "--concurrency", CONCURRENCY,
         "--warmup", "1ms", "--duration", f"{seconds}s"],
        stdout=subprocess.PIPE)
    while scrapes is not None and client.poll() is None:
        scrapes.append(server.scrape())
        time.sleep(SCRAPE_EVERY)
    result = json.loads(client.communicate()[0])
    cpu = server.cpu_seconds() - before
    return result["requests_per_second"], cpu / result["requests"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.5
    servers = {"on": Server("on"), "off": Server("off")}
    try:
        for server in servers.values():
            bench(server, 0.5)
        rates, cpus, requests = [], [], {"on": [], "off": []}
        for i in range(rounds):
            round_of = {}
            for name in ("on", "off") if i % 2 == 0 else ("off", "on"):
                round_of[name] = bench(servers[name], seconds)
                requests[name].append(round_of[name])
            rates.append(round_of["on"][0] / round_of["off"][0])
            cpus.append(round_of["on"][1] / round_of["off"][1])
        scrapes = []
        bench(servers["on"], 5, scrapes)
    finally:
        for server in servers.values():
            server.process.terminate()
            server.process.wait()
    median = statistics.median
    for name, values in requests.items():
        print(f"metrics {name:3}: {median(v[0] for v in values):8.0f} requests/s, "
              f"{median(v[1] for v in values) * 1e6:6.1f} us of CPU a request")
    print(f"on / off: {median(rates):.3f} of the requests/s, "
          f"{median(cpus):.3f} of the CPU a request "
          f"(medians of {rounds} rounds of {seconds} s)")
    scrapes.sort()
    print(f"{len(scrapes)} scrapes of the busy server: median "
          f"{median(scrapes) * 1e3:.1f} ms, most {scrapes[-1] * 1e3:.1f} ms")
    return median(cpus) > CPU_LIMIT or median(scrapes) > SCRAPE_LIMIT


if __name__ == "__main__":
    sys.exit(main())
