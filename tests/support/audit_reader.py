"""Reader of the files that the audit has published, as strict as a test has to be: a torn line or a broken file is an
error."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

Event = dict[str, Any]
"""One event with its CloudEvents envelope; `data` holds the columns."""


def published(folder: Path) -> list[Event]:
    """Return all events in the published files, file by file. Raises AssertionError for a torn line or an empty
    file."""
    events: list[Event] = []
    for path in sorted(folder.glob("dt=*/*.ndjson.gz")):
        lines = gzip.decompress(path.read_bytes()).split(b"\n")
        assert lines.pop() == b"", f"{path.name} ends with a torn line"
        assert lines, f"{path.name} is empty"
        events += [msgspec.json.decode(line) for line in lines]
    return events


def by_source(events: list[Event]) -> dict[str, list[Event]]:
    """Return each source's events in the order of their ids. Raises AssertionError when one is there twice."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: int(event["id"])):
        own = found[event["source"]]
        assert not own or own[-1]["id"] != event["id"], f"event {event['id']} of {event['source']} is there twice"
        own.append(event)
    return dict(found)


def recovered(events: list[Event], reason: str) -> list[Event]:
    wanted = [event["data"] for event in events if event["type"] == "kproxy.audit_gap.v1"]
    return [data for data in wanted if data["reason"] == reason]


def hidden(folder: Path) -> list[str]:
    """Return the names of files that are not published, sorted."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
