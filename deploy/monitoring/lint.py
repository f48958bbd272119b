#!/usr/bin/python3
"""What dashboards and alerts must keep to: the rules of Grafana's
dashboard-linter, and a section of the runbook for each alert, which says what
there is to say and names only panels and series that exist.

    deploy/monitoring/lint.py
"""

import json
import pathlib
import re
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
MATCHERS = ('job=~"$job"', 'instance=~"$instance"')
COUNTER = re.compile(r"\w+_(?:total|bucket|sum|count)\{")
RATED = re.compile(
    r"(?:rate|irate|increase)\(\w+_(?:total|bucket|sum|count)\{")
# The page that an alert links to, wherever it is published.
RUNBOOK = re.compile(r"https://[^\s#]+")
SEVERITIES = {"critical", "warning", "info"}
# Quoted in the runbook, and no panel.
ELSEWHERE = {"XID Errors"}


def lint_variables(board):
    variables = {v["name"]: v for v in board["templating"]["list"]}
    source = variables.get("datasource", {})
    if (source.get("type"), source.get("query"), source.get("label")) != (
            "datasource", "prometheus", "Data source"):
        yield "has no variable for the data source"
    for name in ("job", "instance"):
        variable = variables.get(name)
        if variable is None:
            yield f"has no variable {name}"
            continue
        wanted = {"type": "query", "multi": True, "includeAll": True,
                  "allValue": ".+", "label": name.capitalize(), "refresh": 2}
        for key, value in wanted.items():
            if variable.get(key) != value:
                yield f"variable {name}: {key} is {variable.get(key)!r}"
        if variable["datasource"]["uid"] != "${datasource}":
            yield f"variable {name} has a fixed data source"


def lint_target(target):
    expr = target["expr"]
    for selector in re.findall(r"\{([^}]*)\}", expr):
        for matcher in MATCHERS:
            if matcher not in selector:
                yield f"{matcher} is missing in {{{selector}}}"
    # A name without braces has no matchers at all.
    for name in re.findall(r"\b(?:gemmd|grpc_server|process)_\w+\b(?!\{)",
                           expr):
        yield f"{name} is without matchers"
    for window in re.findall(r"rate\([^\[\]]*\[([^\]]*)\]", expr):
        if window != "$__rate_interval":
            yield f"a rate over {window}"
    if len(COUNTER.findall(expr)) != len(RATED.findall(expr)):
        yield "a counter without rate or increase"


def lint_panel(panel):
    if not panel["description"].endswith("."):
        yield "no description, a sentence"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    if not panel["targets"]:
        yield "no query"
    for target in panel["targets"]:
        if target["datasource"]["uid"] != "${datasource}":
            yield "a fixed data source"
        yield from lint_target(target)


def lint_dashboard(board):
    yield from lint_variables(board)
    if board["editable"]:
        yield "can be edited"
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        for problem in lint_panel(panel):
            yield f"{panel['title']}: {problem}"


def lint_runbook(sections, boards):
    panels = {panel["title"] for board in boards for panel in board["panels"]}
    panels |= {board["title"] for board in boards}
    series = (HERE / "tests/h200_metrics.txt").read_text()
    for name, text in sections.items():
        parts = re.findall(r"^\*\*(.*?)\.?\*\*", text, re.M)
        if parts != ["Means", "Look at", "Do"]:
            yield f"runbook, {name}: its parts are {', '.join(parts)}"
        # Words in quotes with a capital are panels; others are lines of the log.
        for title in re.findall(r'"((?:[A-Z]|p\d)[^"]*)"', text):
            if re.sub(r"\s+", " ", title) not in panels | ELSEWHERE:
                yield f"runbook, {name}: no panel is named {title}"
        for metric in re.findall(r"`((?:gemmd|grpc)_\w+)`", text):
            if not re.search(rf"^{metric}\b", series, re.M):
                yield f"runbook, {name}: no series is named {metric}"


def lint_alerts(boards):
    runbook = (HERE / "README.md").read_text()
    titles = re.split(r"^### (\w+)$", runbook, flags=re.M)[1:]
    texts = dict(zip(titles[::2], titles[1::2]))
    yield from lint_runbook(texts, boards)
    sections = {title.lower() for title in texts}
    groups = yaml.safe_load((HERE / "rules/alerts.yaml").read_text())["groups"]
    tests = (HERE / "tests/alerts_test.yaml").read_text()
    names, pages = set(), set()
    for alert in (rule for group in groups for rule in group["rules"]):
        name, notes = alert["alert"], alert["annotations"]
        names.add(name.lower())
        if alert["labels"]["severity"] not in SEVERITIES:
            yield f"{name}: severity {alert['labels']['severity']}"
        for key in ("summary", "description"):
            if not notes.get(key):
                yield f"{name}: no {key}"
        page, _, section = notes.get("runbook_url", "").partition("#")
        pages.add(page)
        if not RUNBOOK.fullmatch(page) or section != name.lower():
            yield f"{name}: runbook_url is {notes.get('runbook_url')}"
        expected = re.findall(rf"alertname: {name}\n\s+exp_alerts:(.*)", tests)
        if "" not in expected or " []" not in expected:
            yield f"{name}: no test in which it fires, or none where not"
    if len(pages) > 1:
        yield f"runbook_url names several pages: {', '.join(sorted(pages))}"
    for name in names ^ sections:
        yield f"{name} is an alert or a section of the runbook, not both"


def main():
    boards = {path.name: json.loads(path.read_text())
              for path in sorted((HERE / "dashboards").glob("*.json"))}
    problems = list(lint_alerts(boards.values()))
    for name, board in boards.items():
        problems += [f"{name}: {p}" for p in lint_dashboard(board)]
    print("\n".join(problems) or "nothing to say")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
