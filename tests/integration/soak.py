"""A mixed load for a while, after which everything must be as it was: nothing
queued, held, staged or resident, no connection and no region left, and no more
memory than in the first half.

  soak.py [--seconds S]        600 where S is not given; ctest runs 10

Clients multiply inline, by resident matrices and in shared memory, verify their
answers, ask more than the queue takes, give up early, upload and leave, and are
killed in the middle of it all. Progress is printed every ten seconds.
"""

import argparse
import os
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

import gemmd_process

CLIENTS = 4
SHAPES = ("1x256x256", "16", "64", "17x33x129", "128", "300x200x100", "512",
          "700")
# What must be zero when nobody asks for anything.
IDLE = ("gemmd_queue_depth", "gemmd_queue_bytes", "gemmd_held_bytes",
        "gemmd_staging_bytes", "gemmd_matrices", "gemmd_matrix_store_bytes",
        "gemmd_matrix_form_bytes")
IDLE_SECONDS = 60
# Of resident memory, from the most of the first half to the end: the allocator
# keeps some of what is freed. A run of less than a minute says nothing of it,
# nor does one under a sanitizer.
GROWTH_BYTES = 64 << 20
GROWTH_SECONDS = 60


class Soak:
    def __init__(self, server, socket, seconds, seed):
        self.server, self.socket = server, socket
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.random = random.Random(seed)
        self.done = {}
        self.faults = []

    def bench(self, *flags, server=None, kill_after=None, codes=(0,)):
        """Runs gemmctl bench, which ends with one of these exit codes; kills it
        after so many seconds, if any."""
        command = [gemmd_process.BIN / "gemmctl", "--server",
                   server or self.server.address, "bench", "--warmup", "10ms",
                   *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = process.communicate(timeout=kill_after or 120)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            if kill_after:
                return
        if process.returncode not in codes:
            self.faults.append(f"{' '.join(map(str, command))}: exit code "
                               f"{process.returncode}\n{output}")

    def inline(self):
        self.bench("--shape", self.random.choice(SHAPES), "--verify", "1",
                   "--concurrency", str(self.random.choice((1, 4, 16))),
                   "--duration", "500ms")

    def resident(self):
        self.bench("--shape", self.random.choice(SHAPES), "--operands",
                   self.random.choice(("resident-b", "resident")),
                   "--concurrency", "4", "--duration", "500ms")

    def shared_memory(self):
        self.bench("--shape", self.random.choice(SHAPES), "--operands",
                   "shared-memory", "--concurrency", "2", "--duration",
                   "500ms", server=f"unix:{self.socket}")

    def too_much(self):
        self.bench("--shape", "64", "--rate", "20000", "--poisson",
                   "--keep-going", "--duration", "300ms", codes=(0, 1, 3, 4, 5))

    def killed(self):
        where = self.random.choice(("inline", "resident", "shared-memory"))
        self.bench("--shape", "700", "--operands", where, "--concurrency", "8",
                   "--duration", "30s",
                   server=f"unix:{self.socket}" if where == "shared-memory"
                   else None,
                   kill_after=self.random.uniform(0.05, 0.6))

    def client(self):
        while time.monotonic() < self.end and not self.faults:
            action = self.random.choice(
                (self.inline, self.resident, self.shared_memory, self.too_much,
                 self.killed))
            action()
            name = action.__name__
            self.done[name] = self.done.get(name, 0) + 1

    def metrics(self):
        address = re.search(r"http listening on (\S+)", self.server.log())[1]
        with urllib.request.urlopen(f"http://{address}/metrics",
                                    timeout=30) as reply:
            text = reply.read().decode()
        values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def run(self):
        self.metrics()
        before = self.metrics()
        half = time.monotonic() + (self.end - time.monotonic()) / 2
        threads = [threading.Thread(target=self.client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        memory_at_half = 0
        shown = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            memory = self.metrics()["process_resident_memory_bytes"]
            now = time.monotonic()
            if now < half:
                memory_at_half = max(memory_at_half, memory)
            if now - shown >= 10:
                shown = now
                print(f"{self.end - now:.0f} s left, {memory / 2**20:.0f} MiB,"
                      f" done {self.done}", flush=True)
        for thread in threads:
            thread.join()
        self.check(before, memory_at_half)

    def check(self, before, memory_at_half):
        if self.faults:
            raise AssertionError("\n".join(self.faults) + self.server.log())
        give_up = time.monotonic() + IDLE_SECONDS
        while True:
            after = self.metrics()
            left = {name: after[name] for name in IDLE if after[name] != 0}
            if after["process_open_fds"] > before["process_open_fds"]:
                left["open files"] = (before["process_open_fds"],
                                      after["process_open_fds"])
            left.update(self.unfinished(after))
            if not left or time.monotonic() > give_up:
                break
            time.sleep(0.2)
        assert not left, f"not given back: {left}"
        memory = after["process_resident_memory_bytes"]
        print(f"memory {memory_at_half / 2**20:.0f} MiB at most in the first "
              f"half, {memory / 2**20:.0f} MiB at the end; done {self.done}")
        if self.seconds >= GROWTH_SECONDS:
            assert memory < memory_at_half + GROWTH_BYTES

    @staticmethod
    def unfinished(after):
        """The methods whose calls have not all ended once: began and ended."""
        began = re.compile(r'grpc_server_call_started_total\{grpc_method="('
                           r'gemmd[^"]*)"\}')
        left = {}
        for name, value in after.items():
            if method := began.match(name):
                ended = sum(v for n, v in after.items() if n.startswith(
                    'grpc_server_call_completed_total{grpc_method="'
                    f'{method[1]}"'))
                if value != ended:
                    left[method[1]] = (value, ended)
        return left


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        socket = pathlib.Path(name) / "gemmd.sock"
        with gemmd_process.server(
                "--unix-socket", str(socket), "--shared-memory",
                "--queue-max-requests", "256", "--matrix-ttl", "2s",
                "--log-level", "error") as server:
            Soak(server, socket, options.seconds, seed).run()
            code = server.stop()
            assert code == 0, f"gemmd ended with {code}: {server.log()}"


if __name__ == "__main__":
    main()
