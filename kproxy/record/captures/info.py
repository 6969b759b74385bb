"""Summary of a capture in numbers and names: `kproxy capture info`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kproxy.record.exchange import Form, Frame

from .captured_connection import CapturedConnection
from .pcapng import read_note
from .reader import KAFKA_PORT, Capture

MOST_SERVERS = 20
"""Addresses of servers that are told one by one."""


def describe(path: str | Path, ports: Iterable[int] = ()) -> dict[str, Any]:
    """Read a capture to its end and return its summary by label. Raises CaptureError."""
    capture = Capture(path, ports=(KAFKA_PORT, *ports), side="both")
    apis: Counter[str] = Counter()
    servers: Counter[str] = Counter()
    cut = sketched = withheld = unanswered = behind = 0
    for seen in capture:
        if capture.own and isinstance(seen.who, CapturedConnection) and seen.who.interface == "broker":
            behind += 1
            continue
        apis[f"{seen.api} {seen.version}"] += 1
        unanswered += seen.outcome in ("unanswered", "closed")
        for frame in (seen.request, seen.response):
            cut += is_cut(frame)
            sketched += frame is not None and frame.form is Form.SKETCH
            withheld += frame is not None and bool(frame.withheld)
        if isinstance(seen.who, CapturedConnection):
            servers[f"{seen.who.server_address}:{seen.who.server_port}"] += 1
    counts, file = capture.counts, capture.file
    begin = merged(file.notes)
    return {
        "written by": file.application or None,
        "interfaces": [one.name or f"link type {one.link}" for one in file.interfaces],
        "payload": begin.get("payload"),
        "filter": begin.get("filter"),
        "from": clock(counts.began),
        "to": clock(counts.ended),
        "packets": counts.packets,
        "connections": counts.connections,
        "exchanges": counts.exchanges - behind,
        "broker exchanges": behind if capture.own else None,
        "unanswered": unanswered,
        "apis": [f"{name}: {number}" for name, number in apis.most_common()],
        "servers": [f"{name}: {number}" for name, number in servers.most_common(MOST_SERVERS)],
        "frames cut": cut,
        "frames without their records": sketched,
        "frames withheld": withheld,
        "stopped": merged(file.ends).get("stopped"),
        "exchanges dropped": merged(file.ends).get("dropped") if capture.own else None,
        "packets dropped": None if capture.own else file.dropped,
        "packets cut": counts.truncated,
        "packets of other protocols": counts.other_packets,
        "connections without Kafka": counts.not_kafka,
        "gaps": counts.gaps,
        "bytes in gaps": counts.lost_bytes,
        "places lost": counts.lost_places,
        "frames without beginning": counts.unread,
        "responses without request": counts.strangers,
        "raw SASL tokens passed over": counts.tokens,
        "file ends within a packet": file.torn,
    }


def is_cut(frame: Frame | None) -> bool:
    """Return True if not all of the frame is here, for another reason than credentials."""
    return frame is not None and frame.form not in (Form.WHOLE, Form.SKETCH) and not frame.withheld


def merged(comments: Iterable[str]) -> dict[str, Any]:
    """Return the fields of all notes of kproxy's among these comments."""
    return {name: value for one in comments for name, value in read_note(one).items()}


def clock(time: float | None) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
