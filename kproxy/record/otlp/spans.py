"""Spans of exchanges: what one read or write of records took, under the trace that the records were written in.

Names of attributes are those of OpenTelemetry's semantic conventions for messaging, version 1.30; they were renamed
more than once, and stand nowhere else. Keys and values of records are read by nobody here, and of headers only the
trace context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import Any

from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.errors import error_name
from kproxy.record.exchange import ObservedExchange
from kproxy.record.observer.records import LIVE, NotKept, records_of
from kproxy.record.observer.response_errors import errors_of

from .payload import Tree, attributes, nanoseconds, sendable
from .trace_context import TraceContext, context_in, is_chosen

CLIENT, ERROR = 3, 2  # SPAN_KIND_CLIENT and STATUS_CODE_ERROR of the proto
LONGEST = 500
"""Characters of a text that a client chose."""


@dataclass
class TracedRecords:
    """Records of one exchange in topics that are traced: how many, of which topics, and the contexts in them."""

    records: int = 0
    topics: dict[str, set[int]] = field(default_factory=dict)
    contexts: dict[TraceContext, None] = field(default_factory=dict)


def traced_records(seen: ObservedExchange, wanted: Callable[[str], bool], fraction: float, most: int) -> TracedRecords:
    """Return what an exchange has of the topics that are `wanted`, with at most `most` contexts that are sampled and
    chosen. Records beyond what may be looked at while traffic passes are left out. Raises NotKept where none is there.
    """
    found = TracedRecords()
    try:
        for one in records_of(seen, LIVE, wanted):
            found.records += 1
            found.topics.setdefault(one.topic, set()).add(one.partition)
            context = context_in(one.record.headers)
            if context is None or not context.sampled or not is_chosen(context.trace_id, fraction):
                continue
            if len(found.contexts) < most:
                found.contexts.setdefault(context)
    except NotKept:
        if not found.records:
            raise
    return found


def span_of(seen: ObservedExchange, found: TracedRecords, wall: Callable[[float], float], links: int) -> Tree:
    """Return the span of an exchange with at least one context: below that, or with up to `links` links to several."""
    operation = "send" if seen.key == PRODUCE else "receive"
    contexts = list(found.contexts)
    topic = next(iter(found.topics)) if len(found.topics) == 1 else None
    request, answer = seen.request, seen.answer
    assert request is not None, "records were read from it"
    end = request.last if answer is None else answer.last
    span: Tree = {
        "traceId": contexts[0].trace_id if len(contexts) == 1 else urandom(16).hex(),
        "spanId": urandom(8).hex(),
        "flags": 1,
        "name": operation if topic is None else f"{operation} {sendable(short(topic))}",
        "kind": CLIENT,
        "startTimeUnixNano": nanoseconds(wall(request.first)),
        "endTimeUnixNano": nanoseconds(wall(max(end, request.first))),
        "attributes": attributes(described(seen, found, operation, topic)),
        "events": events_of(seen, wall),
    }
    if len(contexts) == 1:
        span["parentSpanId"] = contexts[0].span_id
    else:
        span["links"] = [{"traceId": one.trace_id, "spanId": one.span_id} for one in contexts[:links]]
    failed = "unanswered" if seen.outcome in ("unanswered", "closed") else failure(errors_of(seen).codes)
    if failed:
        span["status"] = {"code": ERROR}
        span["attributes"] += attributes({"error.type": failed})
    return span


def described(seen: ObservedExchange, found: TracedRecords, operation: str, topic: str | None) -> dict[str, Any]:
    """Return the attributes of a span, None for those that it does not have."""
    who = seen.who
    partitions = found.topics[topic] if topic is not None else set()
    server, _, port = (who.broker or "").rpartition(":")
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "send" if operation == "send" else "poll",
        "messaging.operation.type": operation,
        "messaging.destination.name": None if topic is None else short(topic),
        "messaging.destination.partition.id": str(next(iter(partitions))) if len(partitions) == 1 else None,
        "messaging.batch.message_count": found.records,
        "messaging.client.id": short(seen.client_id) if seen.client_id else None,
        "server.address": server.strip("[]") or None,
        "server.port": int(port) if port.isdigit() else None,
        "client.address": who.client_address,
        "kproxy.connection": str(who.number),
        "kproxy.listener": who.listener,
        "kproxy.cluster": who.cluster,
        "kproxy.rules": [short(name) for name in seen.rules] or None,
    }


def events_of(seen: ObservedExchange, wall: Callable[[float], float]) -> list[Tree]:
    """Return when the request left for the broker and when its response came, each with its time held by rules."""
    sent, received = seen.sent, seen.received
    if sent is None or received is None:
        return []
    times = (
        ("request to broker", sent, seen.rule_wait[0]),
        ("response from broker", received, seen.rule_wait[1]),
    )
    return [
        {"name": name, "timeUnixNano": nanoseconds(wall(at)), "attributes": attributes({"kproxy.rule_seconds": waited})}
        for name, at, waited in times
    ]


def failure(codes: Sequence[int]) -> str:
    """Return the name of the first error, an empty text if there is none."""
    return next((error_name(code) for code in codes if code), "")


def short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
