"""gemmd on the CPU, a stand-in for one on a GPU, Prometheus, and load on them.

The stand-in serves tests/h200_metrics.txt, which a gemmd on an H200 once
answered; its counters grow, 2 % of what they were each second.
"""

import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import grpc

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = ROOT / os.environ.get("GEMMD_BUILD", "build/dev") / "bin"
H200 = HERE / "tests" / "h200_metrics.txt"
GROWTH = 0.02
# Small, so that a little load fills them.
QUEUE = 16
MAX_INLINE_BYTES = 1 << 20


def metric_types(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def family_of(series, types):
    if series in types:
        return series
    return re.sub(r"_(bucket|sum|count)$", "", series)


def grown(text, factor):
    types = metric_types(text)

    def line(match):
        name, value = match.group(1), float(match.group(3))
        kind = types.get(family_of(name, types))
        if kind in ("counter", "histogram"):
            value *= factor
        return f"{name}{match.group(2)} {value!r}"

    return re.sub(r"^([a-zA-Z_]\w*)(\{.*\})? (\S+)$", line, text, flags=re.M)


class StandIn(http.server.ThreadingHTTPServer):
    def __init__(self):
        text, begin = H200.read_text(), time.monotonic()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seconds = time.monotonic() - begin
                body = grown(text, 1 + GROWTH * seconds).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Stack:
    """Ends what it started when its `with` block ends."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-live-"))
        self.processes = []
        try:
            self.start_gemmd()
            self.stand_in = StandIn()
            self.start_prometheus()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        if hasattr(self, "stand_in"):
            self.stand_in.shutdown()
        shutil.rmtree(self.folder)

    def spawn(self, name, command):
        log = open(self.folder / f"{name}.log", "w")
        self.processes.append(
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def log_line(self, name, pattern):
        for _ in range(300):
            text = (self.folder / f"{name}.log").read_text()
            if found := re.search(pattern, text):
                return found.group(1)
            time.sleep(0.1)
        raise RuntimeError(f"{name} did not start:\n{text[-2000:]}")

    def start_gemmd(self):
        self.spawn("gemmd", [
            BIN / "gemmd", "--backend", "cpu", "--listen", "127.0.0.1:0",
            "--http-listen", "127.0.0.1:0",
            "--queue-max-requests", str(QUEUE),
            "--max-inline-bytes", str(MAX_INLINE_BYTES)])
        self.grpc = self.log_line("gemmd", r"grpc listening on (\S+)")
        self.http = self.log_line("gemmd", r"http listening on (\S+)")

    def start_prometheus(self):
        target = "127.0.0.1:%d" % self.stand_in.server_port
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(HERE / "rules" / "*.yaml")],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [where]}]}
                for name, where in (("gemmd", self.http),
                                    ("gemmd-h200", target))]}
        path = self.folder / "prometheus.yml"  # JSON is YAML
        path.write_text(json.dumps(config))
        # Debian's 2.42 does not say which port it took when asked for any.
        with http.server.HTTPServer(("127.0.0.1", 0), None) as free:
            address = "127.0.0.1:%d" % free.server_port
        self.spawn("prometheus", [
            "prometheus", f"--config.file={path}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address={address}"])
        self.prometheus = address
        self.log_line("prometheus", "(Server is ready)")

    def api(self, path, **parameters):
        """The data of an answer of Prometheus; an error raises its text."""
        url = f"http://{self.prometheus}/api/v1/{path}"
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error).get("error")) from error

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics") as answer:
            return answer.read().decode()

    def gemmctl(self, *arguments):
        return subprocess.Popen(
            [BIN / "gemmctl", "--server", self.grpc, *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def shed(self):
        """Whether each kind of shed that the load is to bring has come."""
        text = self.metrics()
        return all(re.search(rf'shed_total{{reason="{reason}"}} [1-9]', text)
                   for reason in ("queue_full", "too_large", "deadline"))

    def drive(self, seconds, pause):
        """Steady load, and with pauses bursts that overflow the queue and what
        must fail; twice or three times, where some of it has not come."""
        begin = time.monotonic()
        rounds = 0
        while rounds == 0 or (rounds < 3 and not self.shed()):
            steady = self.steady(seconds)
            rounds += 1
            while time.monotonic() + pause < begin + rounds * seconds:
                time.sleep(pause)
                self.burst(rounds)
            for process in steady:
                process.wait()

    def steady(self, seconds):
        """Inline products, and rows by a resident matrix, that go on whatever
        the bursts do to them."""
        on = ("--duration", f"{seconds}s", "--keep-going")
        return [
            self.gemmctl("--retries", "20", "bench", "--shape", "256",
                         "--concurrency", "3", *on),
            self.gemmctl("--retries", "20", "bench", "--shape", "4x512x512",
                         "--operands", "resident-b", "--concurrency", "2",
                         *on)]

    def burst(self, rounds):
        self.bursts = getattr(self, "bursts", 0) + 1
        # The patience that ends in the queue depends on the machine's speed.
        patience = [rounds * wait << self.bursts % 4 for wait in (5, 10, 20)]
        failing = [
            # Not found; late; refused by a full queue.
            self.gemmctl("bench", "--kernel", "none", "--shape", "64",
                         "--count", "1"),
            *(self.gemmctl("--timeout", f"{wait}ms", "--retries", "0", "bench",
                           "--shape", "280", "--concurrency", "12",
                           "--duration", "2s") for wait in patience),
            self.gemmctl("--retries", "100", "bench", "--shape", "200",
                         "--concurrency", str(40 + 20 * (self.bursts % 3)),
                         "--count", "300"),
            self.gemmctl("info"), self.gemmctl("health")]
        self.send_too_much()
        for process in failing:
            process.wait()

    def send_too_much(self):
        """A message over the limit: gemmctl would send it in pieces."""
        with grpc.insecure_channel(self.grpc) as channel:
            sgemm = channel.unary_unary("/gemmd.v1.GemmService/Sgemm")
            try:
                sgemm(bytes(MAX_INLINE_BYTES + 1), timeout=10)
            except grpc.RpcError:
                pass
