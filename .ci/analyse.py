"""Lets a compiler parse every source that a build would compile, without
making code: for its warnings and analyses, in a third of a build's time.

    analyse.py COMPILE_COMMANDS JOBS

Generated sources (those in the build's folder) are left out. Prints what the
compiler says of each source that it refuses; exits 1 when there is one.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def parse(entry):
    words = shlex.split(entry["command"])
    output = words.index("-o")
    del words[output:output + 2]
    return entry["file"], subprocess.run(
        words + ["-fsyntax-only"], cwd=entry["directory"],
        stderr=subprocess.PIPE, text=True)


def main():
    commands, jobs = sys.argv[1], int(sys.argv[2])
    build = os.path.dirname(os.path.abspath(commands)) + os.sep
    with open(commands) as file:
        entries = [e for e in json.load(file)
                   if not e["file"].startswith(build)]
    refused = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, result in pool.map(parse, entries):
            if result.returncode:
                refused += 1
                print(source, result.stderr, sep="\n", flush=True)
    print(f"{len(entries)} sources, {refused} refused")
    return 1 if refused or not entries else 0


sys.exit(main())
