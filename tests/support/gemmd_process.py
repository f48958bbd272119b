"""Runs the programs as a user does, for the tests written in Python.

GEMMD_BIN names the folder of the programs under test.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading

BIN = pathlib.Path(os.environ.get("GEMMD_BIN", "build/dev/bin"))
START_SECONDS = 60
STOP_SECONDS = 30


class Server:
    """A gemmd of its own on free ports."""

    def __init__(self, *flags):
        self._process = subprocess.Popen(
            [BIN / "gemmd", "--backend", "cpu", "--listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = None
        self._log = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._listening.wait(START_SECONDS) or self.address is None:
            self.stop()
            raise RuntimeError("gemmd did not start:\n" + self.log())

    def _read(self):
        for line in self._process.stdout:
            self._log.append(line)
            found = re.search(r"grpc listening on (127\.0\.0\.1:\d+)", line)
            if found:
                self.address = found[1]
                self._listening.set()
        self._listening.set()

    def log(self):
        return "".join(self._log)

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """Ends the server; returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        return code


@contextlib.contextmanager
def server(*flags):
    running = Server(*flags)
    try:
        yield running
    finally:
        running.stop()


def gemmctl(*arguments, timeout=60, cwd=None):
    """Runs gemmctl to its end: returncode, stdout, stderr."""
    return subprocess.run([BIN.absolute() / "gemmctl", *map(str, arguments)],
                          capture_output=True, text=True, timeout=timeout,
                          cwd=cwd, check=False)
