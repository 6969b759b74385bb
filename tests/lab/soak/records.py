"""What kproxy itself leaves on record, its log and its audit, and what a group has committed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from kproxy.testing.one_request import ask
from tests.support.audit_reader import by_source, hidden, published, recovered

FIND_COORDINATOR, OFFSET_FETCH = 10, 9
EXPECTED_ERRORS = frozenset({"worker ended, another one is started"})
"""Events of the log at the level error that are right here; how often is counted elsewhere."""


def committed(bootstrap: str, groups: Sequence[str], topic: str, partitions: int) -> list[int]:
    """Offsets of all these groups and partitions; -1 where nothing is committed or nobody knows just now."""
    found = []
    for group in groups:
        topics = [{"name": topic, "partition_indexes": list(range(partitions))}]
        for address in bootstrap.split(","):
            try:
                place = ask(address, FIND_COORDINATOR, 1, {"key": group, "key_type": 0})
                at = f"{place['host']}:{place['port']}"
                (told,) = ask(at, OFFSET_FETCH, 5, {"group_id": group, "topics": topics})["topics"]
            except (OSError, ValueError):  # it is down, or the coordinator moves
                continue
            found += [one["committed_offset"] for one in sorted(told["partitions"], key=itemgetter("partition_index"))]
            break
        else:
            return [-1]
    return found


def log_findings(lines: Sequence[str]) -> list[str]:
    """Errors, tracebacks and lines that are no whole JSON object."""
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            found.append(f"in the log: {line[:300]}")
            continue
        if (
            entry.get("level") in ("error", "critical") and entry["event"] not in EXPECTED_ERRORS
        ) or "exception" in entry:
            found.append(f"in the log: {line[:600]}")
    return found


def ids_of(folder: Path) -> dict[str, set[int]]:
    """The numbers of the published events of each source."""
    return {source: {int(event["id"]) for event in own} for source, own in by_source(published(folder)).items()}


VERIFY_SECONDS = 3600.0
"""Seconds that the verification of a night's events may take."""


def audit(folder: Path, killed: int) -> tuple[list[str], list[str]]:
    """Findings and facts: no number of a source is missing but what was dropped and told; ends of killed workers are on
    record; nothing is left unpublished."""
    events = published(folder)
    sources = by_source(events)
    findings = [f"the audit has left {name}" for name in hidden(folder)]
    findings += [] if events else ["audit: no event is published"]
    told: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event["type"] == "kproxy.audit_gap.v1" and event["data"]["reason"] == "dropped":
            data = event["data"]
            told[data.get("of_source") or event["source"]].update(
                range(int(data["first_id"]), int(data["last_id"]) + 1)
            )
    for source, own in sources.items():
        ids = {int(event["id"]) for event in own}
        missing = set(range(1, max(ids) + 1)) - ids
        if untold := missing - told[source]:
            findings.append(
                f"audit: {len(untold)} of {max(ids)} events of {source} are missing, {min(untold)} the first"
            )
    ends = {data.get("of_source") or data["file"] for data in recovered(events, "unclean_end")}
    if len(ends) > killed:
        findings.append(f"audit: {len(ends)} unclean ends, {killed} workers were killed")
    dropped = sum(map(len, told.values()))
    fact = (
        f"audit: {len(events)} events of {len(sources)} sources, {len(ends)} unclean ends, {dropped} dropped and told"
    )
    return findings, [fact]


def verified(folder: Path) -> tuple[list[str], list[str]]:
    """Findings and facts: what `kproxy verify` proves of the requests in the audit. Parts of it may be missing, since
    workers are killed; what is proved does not depend on them."""
    command = [sys.executable, "-m", "kproxy", "verify", str(folder), "-o", "json", "--fail-on", "proved"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VERIFY_SECONDS)
    if ran.returncode not in (0, 1):
        return [f"kproxy verify ended with {ran.returncode}: {ran.stderr.strip()}"], []
    made = json.loads(ran.stdout)
    levels = {
        level: [f"{one['check']} of {one['about']}: {one['says']}" for one in made["findings"] if one["level"] == level]
        for level in ("proved", "suspect")
    }
    findings = [f"kproxy verify proves {text}" for text in levels["proved"]]
    findings += [] if made["checked"]["acknowledged writes"] else ["kproxy verify has seen no acknowledged write"]
    checked = ", ".join(f"{count} {what}" for what, count in made["checked"].items())
    facts = [f"kproxy verify: {made['exchanges']} exchanges, {checked}, {len(made['findings'])} findings"]
    return findings, [*facts, *(f"kproxy verify suspects {text}" for text in levels["suspect"])]
