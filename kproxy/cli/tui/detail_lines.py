"""An exchange's details in lines of text: its title, where its time went, its records."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from kproxy.cli.exchange_rows import milliseconds
from kproxy.cli.exchange_tree import key_or_value, moment

from .frame_fields import batch_text
from .paint import TextPart

MOST_LINES = 1000
"""Partitions of one exchange whose records are shown."""


def title_of(event: Mapping[str, Any]) -> str:
    """Return an exchange in a line: API, connection, client, node, and its time with its parts."""
    said = [f"{event.get('api')} v{event.get('version')}"]
    if event.get("connection") is not None:
        said.append(f"connection {event['connection']}")
    if event.get("client_id"):
        said.append(str(event["client_id"]))
    if event.get("node") is not None:
        said.append(f"node {event['node']}")
    said.append(str(event.get("outcome")).replace("_", " "))
    if isinstance(event.get("latency_ms"), (int, float)):
        said.append(f"{milliseconds(event['latency_ms'])}{' = ' + parts if (parts := time_parts(event)) else ''}")
    return " · ".join(said)


def time_parts(event: Mapping[str, Any]) -> str:
    """Return the parts of an exchange's time in words, `rules 200ms + broker 52.8ms`."""
    named = (("rules", "rule_ms"), ("broker", "broker_ms"), ("kproxy", "wait_ms"))
    return " + ".join(
        f"{name} {milliseconds(event[key])}"
        for name, key in named
        if isinstance(event.get(key), (int, float)) and event[key]
    )


TIMES = (("request_in", "the request came"), ("request_out", "it went to the broker"),
         ("response_in", "the response came"), ("response_out", "it went to the client"))  # fmt: skip


def timing_lines(event: Any) -> Iterator[TextPart]:
    """Yield when each frame came and went, then where the time went."""
    if not isinstance(event, Mapping):
        return
    for name, words in TIMES:
        yield f"{words:24} {event.get(name, '-')}", ""
    yield "", ""
    for name, words in (("latency_ms", "from in to out"), ("rule_ms", "rules held it"), ("broker_ms", "at the broker"),
                        ("wait_ms", "kproxy held it"), ("throttle_ms", "throttle_time_ms"),
                        ("mute_ms", "channel muted")):  # fmt: skip
        value = event.get(name)
        yield f"{words:24} {milliseconds(value) if isinstance(value, (int, float)) else '-'}", ""
    rules = event.get("rules")
    if rules:
        yield "", ""
        yield f"{'rules that acted':24} {', '.join(map(str, rules))}", "magenta"


def record_lines(detail: Mapping[str, Any]) -> Iterator[TextPart]:
    """Yield the lines of an exchange's records: each partition, its batches, and their records."""
    found = detail.get("records")
    partitions = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    if not partitions:
        yield "there are no records", "italic"
    for one in partitions[:MOST_LINES]:
        if one.get("topic") is not None:
            yield f"{one['topic']}[{one.get('partition')}]: {one.get('bytes')} bytes of records", "bold"
        if one.get("why"):
            yield f"not shown: {one['why']}", "italic yellow"
        batches = one.get("batches")
        for batch in batches if isinstance(batches, list) else ():
            if isinstance(batch, Mapping):
                yield from batch_lines(batch)


def batch_lines(batch: Mapping[str, Any]) -> Iterator[TextPart]:
    """Yield the header of a batch in words, and a line for each of its records."""
    crc = f", crc {batch['crc']}" if batch.get("crc") else ""
    yield f"  {batch_text(batch)}{crc}", ""
    records = batch.get("records")
    for record in records if isinstance(records, list) else ():
        if isinstance(record, Mapping):
            yield f"    {record_text(record)}", ""
    omitted = batch.get("omitted", 0)
    if omitted != 0:
        yield f"    … {'more' if omitted is None else f'{omitted} more'}", "dim"
    if batch.get("why"):
        yield f"    cannot be read: {batch['why']}", "italic yellow"


def record_text(record: Mapping[str, Any]) -> str:
    """Return a record in a line, as `kproxy show` has it: offset, time, key, value, headers."""
    when = record.get("time")
    headers = record.get("headers")
    pairs = [pair for pair in headers if isinstance(pair, list) and len(pair) == 2] if isinstance(headers, list) else []
    said = (
        f"{record.get('offset')!s:>6}", moment(when) if isinstance(when, int) else "-",
        shown_bytes(record.get("key")), shown_bytes(record.get("value")),
        " ".join(f"{name}={shown_bytes(value)}" for name, value in pairs),
    )  # fmt: skip
    return "  ".join(said).rstrip()


def shown_bytes(encoded: Any) -> str:
    """Return bytes that come in base64 as text, `null` for None."""
    try:
        return key_or_value(None if encoded is None else b64decode(encoded))
    except (ValueError, TypeError):
        return "?"
