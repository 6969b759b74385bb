"""Summary of a capture for `kproxy capture info`, and its losses: missing traffic, and frames that could not be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kproxy.base.errors import plural
from kproxy.protocol.table import schema
from kproxy.record.exchange import Form, Frame

from .captured_connection import CapturedConnection
from .pcapng import read_note
from .reader import KAFKA_PORT, Capture

MOST_SERVERS = 20
"""Server addresses in the list."""


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


LONGEST_NAME, MOST_APIS = 60, 200
"""Characters of the name of an API in a note, and APIs of all notes; a file may come from anywhere."""


class CaptureLoss(NamedTuple):
    """Traffic that a capture lacks.

    `apis`: the only APIs that it can have; None for any. `within`: APIs of connections that lack it between recorded
    exchanges. It is empty if the traffic precedes or follows all recorded exchanges, and None for any API.
    """

    text: str
    apis: frozenset[str] | None
    within: frozenset[str] | None = frozenset()


def losses(capture: Capture) -> Iterator[CaptureLoss]:
    """Yield each loss of a capture that has been read to its end."""
    counts, file = capture.counts, capture.file
    damaged, older = names(capture.damaged), names(capture.older_apis)
    if file.torn:
        yield CaptureLoss("its last packet is not all there", None)
    if file.dropped and not capture.own:
        # A packet that is lost within a connection leaves a gap, which counts below.
        yield CaptureLoss(f"its writer lost {plural(file.dropped, 'packet')}", None)
    if counts.gaps:
        when = f" from {clock_time(counts.gaps_from)} to {clock_time(counts.gaps_to)}"
        yield CaptureLoss(
            f"{plural(counts.lost_bytes, 'byte')} missing in {plural(counts.gaps, 'place')}{when}", None, damaged
        )
    if counts.lost_places:
        text = f"frames are missing after {plural(counts.lost_places, 'place')} where the next frame could not be found"
        yield CaptureLoss(text, None, damaged)
    if counts.not_kafka:
        yield CaptureLoss(
            f"{counts.not_kafka} of {plural(counts.connections, 'connection')} not Kafka, or encrypted", None
        )
    if counts.unread:
        yield CaptureLoss(f"{plural(counts.unread, 'frame')} without a beginning", None, damaged)
    if counts.requests_lost:
        yield CaptureLoss(f"{plural(counts.requests_lost, 'response')} without requests", None)
    if counts.older:
        text = f"{plural(counts.older, 'connection')} older than it"
        if counts.earlier:
            text += f"; {plural(counts.earlier, 'response')} to earlier requests passed over"
        yield CaptureLoss(text, older)


def noted_losses(capture: Capture) -> Iterator[CaptureLoss]:
    """Yield the traffic that kproxy did not record, by the notes in its own capture."""
    end = merged(capture.file.ends)
    if "stopped" not in end:
        yield CaptureLoss("it has no end: kproxy writes it still, or ended while it did", None)
    parts = [note["part"] for one in capture.file.ends if isinstance((note := read_note(one)).get("part"), dict)]
    dropped, open_at_end = summed(parts, "dropped"), summed(parts, "open")
    total, by_api = end.get("dropped"), sum(dropped.values())
    # the last note can be older than the notes of workers that ended with the proxy
    total = max(total, by_api) if isinstance(total, int) else by_api
    if total > 0:
        known = dropped if by_api == total else None
        apis = None if known is None else frozenset(known)
        text = f"its writer had no time for {plural(total, 'exchange')}" + (f" ({shown(known)})" if known else "")
        yield CaptureLoss(text, apis, apis)
    if open_at_end:
        text = f"{plural(sum(open_at_end.values()), 'request')} in flight at its end ({shown(open_at_end)})"
        yield CaptureLoss(text, frozenset(open_at_end))
    for trouble in dict.fromkeys(str(part["topics"]) for part in parts if part.get("topics")):
        yield CaptureLoss(f"topics and their configs were not all recorded: {trouble}", frozenset())
    writers = end.get("writers")
    if isinstance(writers, int) and writers > len(parts):
        text = (
            f"{writers - len(parts)} of {writers} workers ended before it: up to a second of their traffic is missing"
        )
        yield CaptureLoss(text, None)


def summed(parts: Iterable[dict[str, object]], name: str) -> dict[str, int]:
    """Return the counts by API in this field of several notes, added up. Anything that is not a count is ignored."""
    found: dict[str, int] = {}
    for part in parts:
        counts = part.get(name)
        for api, count in counts.items() if isinstance(counts, dict) else ():
            if isinstance(count, int) and count > 0 and len(api) <= LONGEST_NAME and len(found) < MOST_APIS:
                found[api] = found.get(api, 0) + count
    return found


def shown(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {api}" for api, count in sorted(counts.items()))


def names(keys: Iterable[int]) -> frozenset[str]:
    """Return the names of these API keys, without those that the table lacks."""
    return frozenset(schema.load(key).name for key in keys if key in schema.paths())


def clock_time(time: float | None) -> str:
    """Return the time of day in UTC of seconds since 1970."""
    try:
        return "an unknown time" if time is None else f"{datetime.fromtimestamp(time, UTC):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
