"""Exchanges as watchers hand them out, made of bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import unpack_from
from typing import Any
from uuid import UUID

from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.protocol.table import schema
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import ExchangeOutcome, Form, Frame, ObservedExchange
from kproxy.rules.rule_set import MatchingRules
from tests.support.frames import message


@dataclass
class FakeWho:
    """A connection. `topics`: id → the client's name; `renamed`: the client's name → the broker's."""

    number: int = 3
    cluster: str | None = "main"
    listener: str | None = "inside"
    client_address: str = "10.1.2.3"
    client_port: int = 40000
    node: int | None = 1
    broker: str | None = "b1:9092"
    principal: str | None = "User:alice"
    software_name: str | None = "librdkafka"
    software_version: str | None = "2.16.0"
    topics: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    standing: object = None
    bound: MatchingRules = field(default_factory=MatchingRules)

    def broker_topic(self, topic: str) -> str | None:
        return self.renamed.get(topic)

    def broker_group(self, group: str) -> str | None:
        return self.renamed.get(group)

    def topic_of(self, topic_id: str) -> str | None:
        return self.topics.get(topic_id)


def wall(now: float) -> float:
    """The clock of these tests began on 2026-11-21T10:00:00Z."""
    return 1795255200.0 + now


def seen(
    api: str,
    version: int,
    request: dict[str, Any] | None,
    response: dict[str, Any] | None = None,
    *,
    who: FakeWho | None = None,
    outcome: ExchangeOutcome | None = None,
    **more: Any,
) -> ObservedExchange:
    """An exchange whose request came at 1.0 and was here at 1.001, answered from 1.011 to 1.0125."""
    key = schema.names()[api]
    found = ObservedExchange(who or FakeWho(), 1, key, version, 7, "tester", None, **more)
    if request is not None:
        data = message(key, version, "request", request)
        found.request = Frame(len(data) + 4, 1.0, 1.001, data, Form.WHOLE)
    if response is not None:
        data = message(key, version, "response", response)
        found.response = Frame(len(data) + 4, 1.011, 1.0125, data, Form.WHOLE)
    found.outcome = outcome or ("answered" if response is not None else "unanswered")
    return found


HEADER = frozenset(
    (
        "connection", "cluster", "listener", "client_address", "client_port", "node", "broker", "principal",
        "software_name", "software_version", "client_id", "correlation_id", "api", "api_key", "version", "outcome",
        "responder", "request_bytes", "response_bytes", "request_in", "request_out", "response_in", "response_out",
        "latency_ms", "broker_ms", "rule_ms", "wait_ms",
    )
)  # fmt: skip
"""Columns that the events of all exchanges have."""

ORDERS = UUID("0a000000-0000-0000-0000-000000000001")
KNOWN = FakeWho(topics={str(ORDERS): "orders"}, renamed={"orders": "prod.orders", "billing": "prod.billing"})
NAMED = {"topic": "orders", "broker_topic": "prod.orders"}


def said(exchange: ObservedExchange, most: int = 100) -> dict[str, Any]:
    """The event without what all have."""
    return {name: value for name, value in request_event(exchange, wall, most).items() if name not in HEADER}


def headed(data: bytes) -> dict[str, int]:
    """The columns of the first batch that its bytes say by themselves."""
    crc, attributes = unpack_from(">Ih", data, 17)
    return {"attributes": attributes, "crc": crc}


def batch(count: int, *, base: int = 0, codec: int = 0, producer: Producer | None = None) -> bytes:
    records = [Record(base + number, 1000, None, b"secret") for number in range(count)]
    return encode_batch(records, codec=codec, base_offset=base, producer=producer or Producer())


class TimedEvents:
    """Event sink that keeps events of one type with their times."""

    blocked = False

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self.events: list[tuple[float, Mapping[str, Any]]] = []
        self.counters: dict[str, Any] = {}

    def put(self, type_name: str, time: float, data: Mapping[str, Any]) -> None:
        assert type_name == self.type_name
        self.events.append((time, data))

    def close(self, timeout: float) -> bool:
        return True
