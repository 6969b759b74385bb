"""Events of summaries: the counts of one connection in a minute, an event for each line of the summary."""

from __future__ import annotations

from typing import Any

from kproxy.observe.exchange import Who
from kproxy.observe.summary_rows import SummaryRow

from .connection_event import connection_columns
from .text import plain, stamp

TIMES = ("minute", "first", "last")
TEXTS = ("client_id", "topic")
DURATIONS = ("latency_ms", "latency_max_ms", "rule_ms", "wait_ms")
AS_THEY_ARE = (
    "api", "version", "topic_id", "partition", "outcome", "answered_by", "error", "errors", "kproxy_errors",
    "error_level", "error_by", "acks", "codec", "idempotent", "count", "records", "bytes",
    "batches", "last_offset", "high_watermark", "empty", "request_bytes", "response_bytes", "latency_buckets",
)  # fmt: skip


def summary_event(line: SummaryRow, who: Who) -> tuple[float, dict[str, Any]]:
    """Return the minute's start, in seconds since 1970, and the data of a `SUMMARY_EVENT`, absent columns left out."""
    data = connection_columns(who)
    for name in TIMES:
        data[name] = stamp(getattr(line, name))
    for name in TEXTS:
        data[name] = plain(getattr(line, name))
    for name in DURATIONS:
        value = getattr(line, name)
        data[name] = None if value is None else round(value, 3)
    for name in AS_THEY_ARE:
        data[name] = getattr(line, name)
    if line.topic is None and line.topic_id is not None:  # the name may have become known since
        data["topic"] = plain(who.topic_of(line.topic_id))
    if data["topic"] is not None:
        data["broker_topic"] = plain(who.broker_topic(data["topic"]))
    return line.minute, {name: value for name, value in data.items() if value is not None}
