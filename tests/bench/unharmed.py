#!/usr/bin/python3
"""What clients lose when the server's certificate is replaced, and when the
server is asked to stop, under load.

    tests/bench/unharmed.py

Both with a gemmd of its own (build/dev, or $GEMMD_BUILD) on the CPU:

* certificate: four clients over TLS, two of which connect anew for each product,
  while the certificate is replaced and, 3 s later, its key;
* SIGTERM: eight clients that send as fast as they can until the server's health
  (grpc.health.v1, watched) says that it is leaving, with --drain-delay 1s.

Prints the products done and failed; exits with 1 if one failed.
"""

import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
GEMMD = ROOT / os.environ.get("GEMMD_BUILD", "build/dev") / "bin" / "gemmd"
N = 32


def varint(number):
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def product():
    """A gemmd.v1.SgemmRequest: N x N matrices of ones."""
    operand = (varint(1 << 3) + varint(N) + varint(2 << 3) + varint(N)
               + field(100, struct.pack("<f", 1) * (N * N)))
    return field(100, operand) + field(101, operand)


REQUEST = product()


def multiply(channel):
    channel.unary_unary("/gemmd.v1.GemmService/Sgemm")(REQUEST, timeout=20)


class Load:
    """Clients on threads of their own, until stop is set."""

    def __init__(self):
        self.stop = threading.Event()
        self.done, self.failed, self.lock = 0, [], threading.Lock()
        self.threads = []

    def add(self, connect, anew):
        self.threads.append(
            threading.Thread(target=self.run, args=(connect, anew)))
        self.threads[-1].start()

    def run(self, connect, anew):
        channel = connect()
        while not self.stop.is_set():
            if anew:
                channel.close()
                channel = connect()
            try:
                multiply(channel)
                error = None
            except grpc.RpcError as failure:
                error = f"{failure.code().name}: {failure.details()}"
            with self.lock:
                self.done += error is None
                self.failed += [error] if error else []
        channel.close()

    def join(self, what):
        for thread in self.threads:
            thread.join()
        print(f"{what}: {self.done} products, {len(self.failed)} failed")
        for error in sorted(set(self.failed)):
            print("  ", error)
        return not self.failed


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [GEMMD, "--backend", "cpu", "--listen", "localhost:0",
             "--http-listen", "", "--log-level", "error", *flags],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.address = "localhost:" + re.search(r":(\d+)$", line.strip())[1]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise RuntimeError(f"gemmd ended with {self.process.returncode}")


def make_certificate(folder, name):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
        check=True, capture_output=True)


def certificate():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("old", "new"):
            make_certificate(folder, name)
        for kind in ("pem", "key"):
            (folder / f"old.{kind}").rename(folder / f"server.{kind}")
        roots = ((folder / "server.pem").read_bytes()
                 + (folder / "new.pem").read_bytes())
        server = Server("--tls-cert", folder / "server.pem",
                        "--tls-key", folder / "server.key")
        options = [("grpc.use_local_subchannel_pool", 1)]

        def connect():
            return grpc.secure_channel(
                server.address, grpc.ssl_channel_credentials(roots), options)

        load = Load()
        for anew in (False, False, True, True):
            load.add(connect, anew)
        time.sleep(1)
        (folder / "new.pem").rename(folder / "server.pem")
        time.sleep(3)
        (folder / "new.key").rename(folder / "server.key")
        time.sleep(3)
        load.stop.set()
        good = load.join("certificate replaced")
        server.stop()
        return good


def sigterm():
    server = Server("--drain-delay", "1s")
    load = Load()
    serving = threading.Event()

    def watch():
        with grpc.insecure_channel(server.address) as channel:
            health = channel.unary_stream("/grpc.health.v1.Health/Watch")
            try:
                for answer in health(b""):  # field 1, 1: SERVING
                    if answer == b"\x08\x01":
                        serving.set()
                    else:
                        load.stop.set()
            except grpc.RpcError:
                load.stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    serving.wait(20)
    for _ in range(8):
        load.add(lambda: grpc.insecure_channel(
            server.address, [("grpc.use_local_subchannel_pool", 1)]), False)
    time.sleep(2)
    server.stop()
    good = load.join("SIGTERM")
    watcher.join()
    return good


if __name__ == "__main__":
    results = [certificate(), sigterm()]
    sys.exit(not all(results))
