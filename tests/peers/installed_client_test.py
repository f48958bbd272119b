"""Installs the client library and builds a program with it, as users do: by
find_package and by pkg-config. Both run against a server.

  installed_client_test.py --build DIR --example FILE --matrix FILE \
      --compiler FILE --cmake FILE
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile

import gemmd_process


def by_cmake(options, prefix, folder):
    source = pathlib.Path(__file__).with_name("installed_client")
    subprocess.run([options.cmake, "-G", "Ninja", "-S", source, "-B", folder,
                    f"-DCMAKE_PREFIX_PATH={prefix}",
                    f"-DCMAKE_CXX_COMPILER={options.compiler}",
                    f"-DEXAMPLE={options.example}"], check=True)
    subprocess.run([options.cmake, "--build", folder], check=True)
    return folder / "by_cmake"


def by_pkg_config(options, prefix, folder):
    library = next(prefix.rglob("gemmd-client.pc")).parent
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "gemmd-client"], check=True,
        capture_output=True, text=True,
        env=dict(os.environ, PKG_CONFIG_PATH=str(library))).stdout.split()
    program = folder / "by_pkg_config"
    subprocess.run([options.compiler, "-std=c++20", options.example, "-o",
                    program, *flags, f"-Wl,-rpath,{library.parent}"],
                   check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--build", "--example", "--matrix", "--compiler", "--cmake"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prefix = folder / "prefix"
        subprocess.run([options.cmake, "--install", options.build,
                        "--component", "client", "--prefix", prefix],
                       check=True)
        programs = [by_cmake(options, prefix, folder / "build")]
        if shutil.which("pkg-config"):
            programs.append(by_pkg_config(options, prefix, folder))
        with gemmd_process.server() as server:
            for program in programs:
                result = subprocess.run(
                    [program, server.address, options.matrix], check=True,
                    capture_output=True, text=True)
                print(program.name, result.stdout)
                assert "= 1866 by" in result.stdout


if __name__ == "__main__":
    main()
