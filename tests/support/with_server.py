"""Runs a command against a server of its own.

  with_server.py COMMAND [ARGUMENT...]

SERVER among the arguments stands for the server's address.
"""

import subprocess
import sys

import gemmd_process

with gemmd_process.server() as server:
    command = [server.address if argument == "SERVER" else argument
               for argument in sys.argv[1:]]
    sys.exit(subprocess.run(command, check=False).returncode)
