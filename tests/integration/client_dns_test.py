"""The client library behind a DNS name whose servers are replaced one after the
other, as a rolling update does it behind a headless Service of Kubernetes.

In network and mount namespaces of its own, for port 50051, a DNS server and
/etc/resolv.conf; skipped where the system gives none.
"""

import fcntl
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from gemmd_process import BIN

WAIT_SECONDS = 60
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # of Linux
UNSHARE = ["unshare", "--net", "--mount",
           *(["--map-root-user"] if os.geteuid() != 0 else [])]


class Names(threading.Thread):
    """A DNS server: every name has these IPv4 addresses, and no others."""

    def __init__(self, *addresses):
        super().__init__(daemon=True)
        self.addresses = addresses
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))

    def run(self):
        while True:
            query, sender = self.socket.recvfrom(512)
            self.socket.sendto(self.answer(query), sender)

    def answer(self, query):
        end = query.index(b"\0", 12) + 5  # of the question
        addresses = self.addresses if query[end - 4:end - 2] == b"\0\1" else ()
        return (query[:2] + struct.pack(">5H", 0x8180, 1, len(addresses), 0, 0)
                + query[12:end]
                + b"".join(struct.pack(">3HIH", 0xc00c, 1, 1, 0, 4)
                           + socket.inet_aton(one) for one in addresses))


class Server:
    def __init__(self, host):
        self.host = host
        self.process = subprocess.Popen(
            [BIN / "gemmd", "--backend=cpu", "--pinned-pool-bytes=64MiB",
             f"--listen={host}:50051", f"--http-listen={host}:9464",
             "--log-level=error"],
            stdout=subprocess.DEVNULL)
        self.page("readyz")

    def page(self, path):
        """Its text, once there is one."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                url = f"http://{self.host}:9464/{path}"
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return answer.read().decode()
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def products(self):
        return int(re.search(r'completed_total\{grpc_method="gemmd.v1.Gemm'
                             r'Service/Sgemm",grpc_status="OK"\} (\d+)',
                             self.page("metrics"))[1])

    def stop(self):
        self.process.terminate()
        return self.process.wait(WAIT_SECONDS)


class DnsTest(unittest.TestCase):
    def setUp(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS,
                        struct.pack("16sh", b"lo", IFF_UP))
        with tempfile.NamedTemporaryFile("w") as resolver:
            resolver.write("nameserver 127.0.0.1\n")
            resolver.flush()
            subprocess.run(["mount", "--bind", resolver.name,
                            pathlib.Path("/etc/resolv.conf").resolve()],
                           check=True)

    def start(self, number):
        server = Server(f"127.0.0.{number}")
        self.addCleanup(server.process.wait)
        self.addCleanup(server.process.kill)
        return server

    def wait_for_products(self, server, load):
        """Of this server, while the load has met no error, which would end it."""
        end = time.monotonic() + WAIT_SECONDS
        while server.products() == 0:
            self.assertIsNone(load.poll(), "the load has ended")
            self.assertLess(time.monotonic(), end, "no product has come")
            time.sleep(0.05)

    def test_a_rolling_update_fails_nobody(self):
        first, second = self.start(2), self.start(3)
        names = Names(first.host, second.host)
        names.start()
        load = subprocess.Popen(
            [BIN / "gemmctl", "--server", "dns:///gemmd.test:50051",
             "--retries", "8", "bench", "--shape", "32", "--concurrency", "2",
             "--duration", "10m"],
            stdout=subprocess.DEVNULL)
        self.addCleanup(load.wait)
        self.addCleanup(load.kill)
        self.wait_for_products(first, load)
        third = self.start(4)
        names.addresses = (second.host, third.host)
        self.assertEqual(first.stop(), 0)
        self.wait_for_products(second, load)
        fourth = self.start(5)
        names.addresses = (third.host, fourth.host)
        # The client knows the first two: it must ask again, soon.
        self.assertEqual(second.stop(), 0)
        self.wait_for_products(third, load)


if __name__ == "__main__":
    if "--inside" in sys.argv:
        sys.argv.remove("--inside")
        unittest.main()
    if subprocess.run([*UNSHARE, "true"], check=False).returncode != 0:
        print("skipped: this system gives no namespaces")
        sys.exit(0)
    os.execvp(UNSHARE[0],
              [*UNSHARE, sys.executable, __file__, "--inside", *sys.argv[1:]])
