"""The programs where the system gives them less than they expect: streams that
are closed or full, and too little memory."""

import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

from gemmctl_cases import FAILED, USAGE, GemmctlTestCase
from gemmd_process import BIN


def run(command, **options):
    """A shell's command line, in which gemmd and gemmctl are those under test."""
    path = f"{BIN.absolute()}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-c", command], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": path}, **options)


class StandardStreamsTest(GemmctlTestCase):
    def test_a_result_that_cannot_be_written_is_a_failure(self):
        for command in ("gemmctl --help", "gemmctl completion"):
            self.assert_fails(run(f"{command} >/dev/full"), FAILED, "stdout",
                             "No space left")
            self.assert_fails(run(f"{command} >&-"), FAILED, "stdout",
                             "Bad file descriptor")
            self.assertEqual(run(f"{command} 2>&- <&-").returncode, 0)

    def test_a_server_without_streams_serves(self):
        with tempfile.TemporaryDirectory() as folder:
            socket = pathlib.Path(folder) / "gemmd.sock"
            server = subprocess.Popen(
                ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-',
                 BIN.absolute() / "gemmd", "--backend", "cpu", "--listen", "",
                 "--http-listen", "", "--unix-socket", socket])
            try:
                while not socket.exists() and server.poll() is None:
                    time.sleep(0.01)
                # Its log, and the signals that it must not take it for.
                server.send_signal(signal.SIGHUP)
                health = run(f"gemmctl health --server unix:{socket}")
                self.assertEqual(health.returncode, 0, health.stderr)
                self.assertIsNone(server.poll())
            finally:
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(60), 0)


@unittest.skipIf("ASAN_OPTIONS" in os.environ,
                 "the sanitizer ends a program without memory in its own way")
class MemoryTest(GemmctlTestCase):
    def assert_does_not_fit(self, command, *words):
        limit = 4 << 30
        result = run(command, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_AS, (limit, limit)))
        self.assert_fails(result, USAGE, *words)

    def test_a_file_larger_than_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            large = pathlib.Path(folder) / "large.npy"
            small = pathlib.Path(folder) / "small.npy"
            np.save(small, np.ones((2, 2), np.float32))
            shape = (2, 1 << 30)  # 8 GiB, in a file of one block
            with open(large, "wb") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<f4", "fortran_order": False,
                           "shape": shape})
                file.truncate(file.tell() + 4 * shape[0] * shape[1])
            self.assert_does_not_fit(
                f"gemmctl multiply {small} {large} -o {folder}/c.npy "
                "--server 127.0.0.1:1",
                "large.npy", "memory")

    def test_a_shape_larger_than_memory(self):
        self.assert_does_not_fit(
            "gemmctl bench --shape 99999999 --count 1 --server 127.0.0.1:1",
            "memory")


if __name__ == "__main__":
    unittest.main(verbosity=2)
