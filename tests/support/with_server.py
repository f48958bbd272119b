"""Runs a command against a server of its own.

  with_server.py [--SERVER-FLAG=VALUE...] COMMAND [ARGUMENT...]

SERVER among the arguments stands for the server's address.
"""

import itertools
import subprocess
import sys

import gemmd_process

flags = list(itertools.takewhile(lambda argument: argument.startswith("--"),
                                 sys.argv[1:]))
with gemmd_process.server(*flags) as server:
    command = [server.address if argument == "SERVER" else argument
               for argument in sys.argv[1 + len(flags):]]
    sys.exit(subprocess.run(command, check=False).returncode)
