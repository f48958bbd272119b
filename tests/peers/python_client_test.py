"""Starts a server and runs python_client.py, with its flags, against it."""

import pathlib
import subprocess
import sys

import gemmd_process

with gemmd_process.server() as server:
    sys.exit(subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("python_client.py"),
         "--server", server.address,
         "--gemmctl", gemmd_process.BIN / "gemmctl", *sys.argv[1:]],
        check=False).returncode)
