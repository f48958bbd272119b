"""Prints how many test cases of a ctest run passed, failed and were skipped.

usage: count_results.py DIRECTORY

DIRECTORY holds ctest.junit, the list of the programs that ran, and for each
program of GoogleTest cases a file <program>.xml. A program without such a file
counts as one case; one that failed without a failed case (it crashed, or timed
out) counts as one failed case more. Exits with 1 when a case failed or none ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_cases(path):
    """Returns [passed, failed, skipped] of a GoogleTest XML file."""
    counts = [0, 0, 0]
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None:
            counts[1] += 1
        elif case.find("skipped") is not None:
            counts[2] += 1
        elif case.get("status") == "run":
            counts[0] += 1
    return counts


def count_program(program, directory):
    """Returns [passed, failed, skipped] of one entry of ctest's list."""
    status = program.get("status")
    cases = directory / (program.get("name") + ".xml")
    if cases.exists():
        counts = count_cases(cases)
        if status == "fail" and counts[1] == 0:
            counts[1] = 1
        return counts
    return [status == "run", status == "fail", status not in ("run", "fail")]


def main():
    directory = pathlib.Path(sys.argv[1])
    report = directory / "ctest.junit"
    totals = [0, 0, 0]
    if report.exists():
        for program in ElementTree.parse(report).iter("testcase"):
            counts = count_program(program, directory)
            totals = [total + count for total, count in zip(totals, counts)]
    passed, failed, skipped = totals
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
