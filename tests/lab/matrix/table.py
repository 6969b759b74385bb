"""The table of tests/lab/matrix/RESULTS.md, written from what the last run of the matrix found.

    python -m tests.lab.matrix.table             write the page anew
    python -m tests.lab.matrix.table --forget    what was found before; a whole run begins with it

Strategy: each test keeps its findings in a file of its own in the cache, so that a run can be done in parts; the page
is what the files say, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from kproxy.base.jars import cache_folder
from tests.lab.matrix.matrix import BROKERS, CLIENTS
from tests.lab.pages import plain, write_between

PAGE = Path(__file__).with_name("RESULTS.md")
BEGIN = "<!-- what make matrix found -->\n"
COLUMNS = {"produce": "produce", "consume": "consume", "group": "groups", "transactions": "transactions",
           "admin": "admin", "brokers": "addresses"}  # fmt: skip
WAYS = ("rename", "prefix")
BEGIN_PROFILES = "<!-- what make matrix found behind profiles -->\n"


def folder() -> Path:
    """Where findings are kept."""
    return cache_folder() / "clients" / "found"


def keep(client: str, broker: str, lines: Mapping[str, Any], verdicts: Mapping[str, Mapping[str, str]]) -> None:
    """Keep what a client and a broker came to on each way; `lines` are what the client told without kproxy."""
    folder().mkdir(parents=True, exist_ok=True)
    finding = {
        "client": client,
        "version": lines.get("client", {}).get("version", "unknown"),
        "broker": broker,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "verdicts": verdicts,
    }
    (folder() / f"{client} {broker}.json").write_text(json.dumps(finding))


def keep_profiles(client: str, lines: Mapping[str, Any], verdicts: Mapping[str, Mapping[str, str]]) -> None:
    """Keep what a client did behind each profile, and directly."""
    folder().mkdir(parents=True, exist_ok=True)
    finding = {
        "client": client,
        "version": lines.get("client", {}).get("version", "unknown"),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "profiles": verdicts,
    }
    (folder() / f"{client} profiles.json").write_text(json.dumps(finding))


def cell(verdicts: Mapping[str, Mapping[str, str]], step: str) -> str:
    """Of one step on both ways through kproxy."""
    found = {verdicts[way][step] for way in WAYS}
    if all(one.startswith("missing") for one in found):
        return "–"
    return "yes" if found == {"yes"} else "no"


def row(finding: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """A line of the table, and notes on what did not go, each as the client and the rest."""
    verdicts, client = finding["verdicts"], finding["client"]
    differing = {
        way: [step for step in COLUMNS if verdicts[way][step] not in {"yes", verdicts["direct"][step]}] for way in WAYS
    }
    cells = [finding["client"], finding["version"], finding["broker"], *(cell(verdicts, step) for step in COLUMNS)]
    cells += ["no" if differing[way] else "yes" for way in WAYS]
    notes = [
        (client, f"directly, {COLUMNS[step]}: {verdicts['direct'][step]}")
        for step in COLUMNS
        if verdicts["direct"][step] != "yes"
    ]
    notes += [(client, f"{way}, {COLUMNS[step]}: {verdicts[way][step]}") for way in WAYS for step in differing[way]]
    cells.append("differs" if any(differing.values()) else "as direct")
    return f"| {' | '.join(cells)} |", notes


def render(findings: list[Mapping[str, Any]], left: list[tuple[str, str]]) -> str:
    """The table, with a row for the pairs that are left to run, and the notes below it."""
    head = ["client", "version", "Kafka", *COLUMNS.values(), *WAYS, "result"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    notes: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        line, more = row(finding)
        lines.append(line)
        for note in more:
            notes.setdefault(note, []).append(finding["broker"])
    lines += [f"| {client} | | {broker} |{' |' * (len(head) - 4)} not run |" for client, broker in left]
    days = sorted({finding["day"] for finding in findings})
    lines += ["", f"{len(findings)} pairs, found on {' and '.join(days)}. Exceptions:", ""]
    lines += [f"- {client} with {', '.join(brokers)}, {plain(note)}" for (client, note), brokers in notes.items()] or [
        "- nothing"
    ]
    return "\n".join(lines) + "\n"


def profile_cell(verdicts: Mapping[str, str], direct: Mapping[str, str]) -> str:
    """Return the steps that fail behind a profile and work directly; `all` if there are none."""
    failed = [name for step, name in COLUMNS.items() if verdicts[step] not in {"yes", direct[step]}]
    return f"all except {', '.join(failed)}" if failed else "all"


def render_profiles(findings: list[Mapping[str, Any]]) -> str:
    """Return the table of clients behind profiles, and the reasons of steps that fail there."""
    names = sorted({name for finding in findings for name in finding["profiles"]} - {"direct"})
    lines = [f"| {' | '.join(['client', 'version', *names])} |", "|" + "---|" * (len(names) + 2)]
    notes = []
    for finding in findings:
        client, profiles = finding["client"], finding["profiles"]
        cells = [profile_cell(profiles[name], profiles["direct"]) for name in names]
        lines.append(f"| {' | '.join([client, finding['version'], *cells])} |")
        notes += [
            f"- {client}, {name}, {COLUMNS[step]}: {plain(one)}"
            for name in names
            for step, one in profiles[name].items()
            if one not in {"yes", profiles["direct"][step]}
        ]
    left = [client for client in CLIENTS if client not in {finding["client"] for finding in findings}]
    lines += [f"| {client} | |{' |' * (len(names) - 1)} not run |" for client in left]
    days = " and ".join(sorted({finding["day"] for finding in findings}))
    return (
        "\n".join([*lines, "", f"By profile, found on {days}. Steps that fail:", "", *(notes or ["- nothing"])]) + "\n"
    )


def main() -> int:
    """Write the page; the exit code."""
    if sys.argv[1:] == ["--forget"]:
        for file in folder().glob("*.json"):
            file.unlink()
        return 0
    findings = [json.loads(file.read_text()) for file in folder().glob("*.json")]
    if not findings:
        sys.stderr.write("the matrix has not been run: make matrix\n")
        return 1
    profiles = sorted((one for one in findings if "profiles" in one), key=lambda finding: str(finding["client"]))
    if profiles:
        write_between(PAGE, BEGIN_PROFILES, render_profiles(profiles))
    findings = [one for one in findings if "profiles" not in one]
    findings.sort(key=lambda finding: (finding["client"], [int(part) for part in finding["broker"].split(".")]))
    done = {(finding["client"], finding["broker"]) for finding in findings}
    left = [pair for pair in product(CLIENTS, BROKERS) if pair not in done]
    if findings:
        write_between(PAGE, BEGIN, render(findings, left))
    return 0


if __name__ == "__main__":
    sys.exit(main())
