"""Events of requests, singly or summed: everything that request and response say, but for what users wrote and secrets.

Keys and values of records, values of configs, tokens and passwords have no column, so they cannot get into an event;
the names of configs and the numbers of batches have. An event is of bounded size, however long the request is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproxy.record.audit.extract.exchange import column_extractor, error_columns
from kproxy.record.exchange import Form, ObservedExchange, Who
from kproxy.record.observer.response_errors import LISTS, LONGEST_LIST
from kproxy.record.observer.summary_rows import SummaryRow

from .lines import milliseconds, plain, stamp
from .state_events import connection_columns

if TYPE_CHECKING:
    from kproxy.record.captures.writer import ToWallTime

MOST = 100
"""Topics, partitions and resources that one event tells one by one."""


SUMMED_TIMES = ("minute", "first", "last")
SUMMED_TEXTS = ("client_id", "topic", "throttle_rule")
SUMMED_DURATIONS = ("latency_ms", "latency_max_ms", "rule_ms", "wait_ms", "mute_ms")
SUMMED_AS_THEY_ARE = (
    "api", "version", "topic_id", "partition", "outcome", "answered_by", "error", "errors", "kproxy_errors",
    "error_level", "error_by", "acks", "codec", "idempotent", "count", "records", "bytes",
    "batches", "last_offset", "high_watermark", "empty", "request_bytes", "response_bytes", "latency_buckets",
    "throttled", "throttle_ms",
)  # fmt: skip


def request_event(
    seen: ObservedExchange, wall: ToWallTime, most: int = MOST, longest: int = LONGEST_LIST
) -> dict[str, Any]:
    """Return the data of a `REQUEST_EVENT`, absent columns left out.

    `most`: topics, partitions and resources, each, in it. `longest`: bytes up to which a response with lists is read.
    """
    data = connection_columns(seen.who)
    if seen.client_id:
        data["client_id"] = plain(seen.client_id)
    data["correlation_id"] = seen.correlation_id
    data["api"], data["api_key"], data["version"] = seen.api, seen.key, seen.version
    if seen.depth:
        data["depth"] = seen.depth
    data["outcome"] = seen.outcome
    if seen.answer is not None:
        data["answered_by"] = "kproxy" if seen.answered_by_rule else "broker"
    if seen.acks is not None:
        data["acks"] = seen.acks
    put_times(data, seen, wall)
    if seen.throttler:
        data["throttle_rule"], data["mute_ms"] = plain(seen.throttler), milliseconds(seen.mute)
    if seen.rules:
        data["rules"] = [plain(name) or "" for name in seen.rules]
    long = too_long(seen, longest)
    request, response = seen.request_body, None if long or seen.answer is None else seen.response_body
    if request is not None or response is not None:
        data |= column_extractor(seen.key, seen.version).columns(request, response, seen, most)
    if response is None and seen.answer is not None and not long:
        data |= error_columns(seen.known_errors, seen)
    if response is None and seen.answer is not None and seen.known_throttle:
        data["throttle_ms"] = seen.known_throttle
    why = long or unread(seen)
    if why:
        data["unread"] = plain(why)
    return data


def put_times(data: dict[str, Any], seen: ObservedExchange, wall: ToWallTime) -> None:
    """Set the sizes and times of an exchange: `latency_ms` is the sum of `wait_ms`, `rule_ms` and `broker_ms`."""
    request, response = seen.request, seen.answer
    sent, received, parts = seen.sent, seen.received, seen.parts
    if request is not None:
        data["request_bytes"] = request.size
        data["request_in"] = stamp(wall(request.first))
    if sent is not None:
        data["request_out"] = stamp(wall(sent))
    if response is not None:
        data["response_bytes"] = response.size
        data["response_out"] = stamp(wall(response.last))
    if received is not None:
        data["response_in"] = stamp(wall(received))
    if parts is not None:
        data["latency_ms"] = milliseconds(parts.latency)
        if not seen.answered_by_rule:
            data["broker_ms"] = milliseconds(parts.broker)
    data["rule_ms"] = milliseconds(sum(seen.rule_wait))
    data["wait_ms"] = milliseconds(seen.kproxy_seconds)


def too_long(seen: ObservedExchange, longest: int) -> str:
    """Return why the response is not read although it is here, "" if it is read."""
    response = seen.answer
    if response is None or response.form is not Form.WHOLE or len(response.data) <= longest or seen.key not in LISTS:
        return ""
    return f"response: {response.size} bytes, more than the {longest} that are read of lists"


def unread(seen: ObservedExchange) -> str | None:
    """Return why some fields are missing, None if all could be read."""
    if seen.unread:
        return seen.unread
    for what, frame in (("request", seen.request), ("response", seen.response)):
        if frame is not None and frame.form is Form.HEAD and not frame.sketch:
            return f"{what}: {frame.withheld or f'only {len(frame.data)} of {frame.size} bytes were kept'}"
    return None


def summary_event(line: SummaryRow, who: Who) -> tuple[float, dict[str, Any]]:
    """Return the minute's start, in seconds since 1970, and the data of a `SUMMARY_EVENT`, absent columns left out."""
    data = connection_columns(who)
    for name in SUMMED_TIMES:
        data[name] = stamp(getattr(line, name))
    for name in SUMMED_TEXTS:
        data[name] = plain(getattr(line, name))
    for name in SUMMED_DURATIONS:
        value = getattr(line, name)
        data[name] = None if value is None else round(value, 3)
    for name in SUMMED_AS_THEY_ARE:
        data[name] = getattr(line, name)
    if line.topic is None and line.topic_id is not None:  # the name may have become known since
        data["topic"] = plain(who.topic_of(line.topic_id))
    if data["topic"] is not None:
        data["broker_topic"] = plain(who.broker_topic(data["topic"]))
    return line.minute, {name: value for name, value in data.items() if value is not None}
