"""Summaries of tests/lab/*/RESULTS.md for the page on compatibility."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

LAB = Path(__file__).parents[1] / "tests" / "lab"
OUTCOMES = ("recovered", "raised", "doubled", "lost", "lied", "hung", "died", "not exercised")


def table_rows(name: str, head: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table in `tests/lab/NAME/RESULTS.md` whose first line begins with `head`."""
    text = (LAB / name / "RESULTS.md").read_text()
    table = text[text.index(f"\n| {head} |") :].strip().partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of a page."""
    first, *lines = [f"| {' | '.join(row)} |" for row in [head, *rows]]
    return "\n".join([first, "|" + "---|" * len(head), *lines]) + "\n"


def tested_clients() -> str:
    """Return a row for each client of the matrix: its version, the Kafka versions, unsupported features, the result."""
    rows: dict[tuple[str, str], list[list[str]]] = {}
    for client, version, *cells in table_rows("matrix", "client"):
        rows.setdefault((client, version), []).append(cells)
    found = []
    for (client, version), runs in rows.items():
        names = ("produce", "consume", "groups", "transactions", "admin")
        lacks = ", ".join(name for name, cell in zip(names, runs[0][1:], strict=False) if cell == "–") or "none"
        results = sorted({run[-1] for run in runs})
        found.append([client, version, ", ".join(run[0] for run in runs), lacks, ", ".join(results)])
    return table(["client", "version", "Kafka", "features that the client lacks", "result through kproxy"], found)


def profile_results() -> str:
    """Return a row for each client that the matrix ran behind profiles: the steps that work behind each of them."""
    text = (LAB / "matrix" / "RESULTS.md").read_text().partition("<!-- what make matrix found behind profiles -->")[2]
    lines = [line for line in text.partition("<!-- end -->")[0].splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return table(rows[0], [row for row in rows[1:] if row[-1] != "not run"])


def fault_outcomes() -> str:
    """Return a row for each client of the conformance runs: the number of faults with each outcome."""
    text = (LAB / "conformance" / "RESULTS.md").read_text()
    rows = []
    for client, tally in re.findall(rf"^- (.+): (\d+ (?:{'|'.join(OUTCOMES)}).*)$", text, re.MULTILINE):
        counts = {outcome: count for count, outcome in re.findall(r"(\d+) ([a-z ]+)", tally)}
        rows.append([client, *(counts.get(outcome, "0") for outcome in OUTCOMES)])
    return table(["client", *OUTCOMES], rows)


def suite_differences() -> str:
    """Return a row for each project: tests that pass directly, and tests that differ on each way through kproxy."""
    suites: dict[str, dict[str, list[str]]] = {}
    for name, _, way, passed, *cells in table_rows("suites", "suite"):
        suites.setdefault(name, {})[way] = [passed, cells[-1]]
    ways = [way for way in next(iter(suites.values())) if way != "direct"]
    rows = [[name, found["direct"][0], *(found[way][1] for way in ways)] for name, found in suites.items()]
    return table(["project", "passed directly", *ways], rows)
