#!/usr/bin/python3
"""Writes prometheusrule.yaml, the Prometheus operator's form of rules/*.yaml:
kustomize cannot, and promtool reads no other than the plain form.

    deploy/monitoring/make_rule_objects.py [--check]

--check writes nothing and exits with 1 when the file is not what would be
written.
"""

import pathlib
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
NOTE = "# Written by make_rule_objects.py from rules/.\n"


def main():
    groups = [group for path in sorted((HERE / "rules").glob("*.yaml"))
              for group in yaml.safe_load(path.read_text())["groups"]]
    made = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
            "metadata": {"name": "gemmd",
                         "labels": {"app.kubernetes.io/name": "gemmd"}},
            "spec": {"groups": groups}}
    text = NOTE + yaml.safe_dump(made, sort_keys=False, width=80)
    path = HERE / "prometheusrule.yaml"
    if "--check" in sys.argv[1:]:
        good = path.exists() and path.read_text() == text
        if not good:
            print(f"{path.name} is not up to date; run {sys.argv[0]}")
        return not good
    path.write_text(text)
    return False


if __name__ == "__main__":
    sys.exit(main())
