"""The peer that gemmd is measured against multiplies right.

  peer_torch_test.py --descriptors FILE --matrix FILE
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import gemmd_process
import numpy as np

LISTENING = "grpc listening on "


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--descriptors", required=True)
    parser.add_argument("--matrix", required=True)
    options = parser.parse_args()
    peer = subprocess.Popen(
        [sys.executable, pathlib.Path(__file__).with_name("peer_torch.py"),
         "--descriptors", options.descriptors, "--library", "numpy"],
        stdout=subprocess.PIPE, text=True)
    try:
        line = peer.stdout.readline()
        assert line.startswith(LISTENING), line
        with tempfile.TemporaryDirectory() as folder:
            product = pathlib.Path(folder) / "product.npy"
            subprocess.run(
                [gemmd_process.BIN / "gemmctl", "--server",
                 line.removeprefix(LISTENING).strip(), "multiply",
                 options.matrix, options.matrix, "--transpose-b", "-o",
                 product], check=True)
            digits = np.load(options.matrix)
            np.testing.assert_allclose(np.load(product), digits @ digits.T,
                                       rtol=1e-5)
    finally:
        peer.terminate()
        code = peer.wait(timeout=10)
    assert code == 0, code


if __name__ == "__main__":
    main()
