"""Makes digits.npy and labels.txt out of scikit-learn's digits.csv.gz.

  python3 make_digits.py .../sklearn/datasets/data/digits.csv.gz DIRECTORY
"""

import gzip
import pathlib
import sys

import numpy as np


def main(source, directory):
    with gzip.open(source, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",")
    if rows.shape != (1797, 65):
        sys.exit(f"{source} is {rows.shape}; (1797, 65) is wanted")
    directory = pathlib.Path(directory)
    pixels = np.ascontiguousarray(rows[:, :64], dtype="<f4")
    np.save(directory / "digits.npy", pixels)
    labels = "".join(f"{int(label)}\n" for label in rows[:, 64])
    (directory / "labels.txt").write_text(labels)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
