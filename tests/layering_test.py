"""Checks who includes whom: the rules of the layout, one a line.

usage: layering_test.py [ROOT]

Prints each include that breaks a rule and exits with 1 when there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".cc", ".cu", ".cuh"}

# Folder -> folders of the project that it may include. The longest folder that
# holds the including file decides.
MAY_INCLUDE = {
    "proto": ["proto"],
    "kernels": ["kernels"],
    "client": ["client", "gemmd", "proto"],
    "client/include": ["gemmd"],
    "server": ["server", "proto", "kernels"],
    "server/schedule": ["server", "proto", "kernels"],
    "server/execute": ["server", "proto", "kernels"],
    "server/store": ["server", "proto", "kernels"],
    "server/observe": ["server", "kernels"],
    "server/auth": ["server", "proto"],
    "tests": ["client", "gemmd", "kernels", "proto", "server", "tests"],
}

# A folder of the server sees itself, the top level, and these folders.
SERVER_MAY_INCLUDE = {
    "rpc": ["auth", "schedule", "execute", "observe", "store"],
    "schedule": ["execute", "store"],
    "execute": ["schedule", "store"],
    "store": ["execute"],
    "observe": ["schedule", "execute", "store"],
}

# (what is included, which files may, why); the status codes of
# grpcpp/support/status_code_enum.h are names of labels to server/observe.
ONLY = [
    (r"(cuda|cublas|nvml|nvtx|mma|cooperative_groups|cub/|cutlass|cute/)",
     r"(.*/cuda/.*|tests/(gpu|bench)/.*)",
     "only cuda folders, tests/gpu and tests/bench see CUDA"),
    (r"(grpc\+\+/|grpcpp/(?!support/status_code_enum)|grpc/[a-z_]+\.h|grpc/(impl|support)/|.*\.grpc\.pb\.h)",
     r"(server/rpc/.*|proto/[^/]+|client/(?!include/).*|tests/.*)",
     "only server/rpc, proto and the client's sources see gRPC"),
    (r".*\.pb\.h",
     r"(server/rpc/.*|proto/[^/]+|client/(?!include/).*|tests/.*)",
     "only server/rpc, proto and the client's sources see messages"),
    (r"prometheus/.*",
     r"(server/observe/.*|tests/.*)",
     "only server/observe sees prometheus-cpp"),
    (r"(cblas|openblas_config|lapacke?)\.h",
     r"(kernels/cpu/.*|tests/.*|client/blas/.*)",
     "only kernels/cpu sees OpenBLAS"),
]

OURS = ("client/", "gemmd/", "kernels/", "proto/", "server/", "tests/")


def longest_rule(path):
    folders = [f for f in MAY_INCLUDE if path.startswith(f + "/")]
    return max(folders, key=len, default=None)


def server_folder(path):
    match = re.match(r"server/([a-z_]+)/", path)
    return match.group(1) if match else None


def faults_of(path, included, quoted):
    """Yields why the file at `path` may not include `included`."""
    for what, who, why in ONLY:
        if re.match(what, included) and not re.fullmatch(who, path):
            yield why
    if not quoted or not included.startswith(OURS):
        return
    if included.startswith("gemmd/v1/"):  # generated messages: see ONLY
        return
    rule = longest_rule(path)
    top = included.split("/")[0]
    if rule and top not in MAY_INCLUDE[rule]:
        yield f"{rule} may include {', '.join(MAY_INCLUDE[rule])} alone"
    mine, theirs = server_folder(path), server_folder(included)
    if mine and theirs and theirs != mine:
        if theirs not in SERVER_MAY_INCLUDE.get(mine, []):
            yield f"server/{mine} does not know server/{theirs}"


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    faults = files = 0
    for top in ("client", "kernels", "proto", "server", "tests"):
        for source in sorted((root / top).rglob("*")):
            if source.suffix not in SOURCES:
                continue
            files += 1
            path = source.relative_to(root).as_posix()
            lines = source.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                for why in faults_of(path, match.group(2), match.group(1) == '"'):
                    faults += 1
                    print(f"{path}:{number}: {match.group(2)}: {why}")
    print(f"{files} files, {faults} includes that break a rule")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
