"""stale_metadata: earlier Metadata responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yielding
from kproxy.protocol.codec.message import copied
from kproxy.protocol.table.api_keys import DESCRIBE_CLUSTER, METADATA
from kproxy.rules.bodies import DESCRIBING
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.rule import Decisions, Effect
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import Seconds

STALE = DESCRIBING | {DESCRIBE_CLUSTER}
MOST_SHAPES = 200
"""Different requests with remembered responses; beyond that the least recently used one is evicted."""
MOST_BACK = 100
"""Answers back that a rule may go; each is kept whole."""
MOST_KEPT = 32
"""Answers kept of one request when they go by age: closer together than that part of the age they are not kept."""
THROTTLE = "throttle_time_ms"


class StaleMetadata(ResponseRule):
    """Replays an older response to the same Metadata, DescribeCluster or DescribeTopicPartitions request.

    `age`: the newest stored response of at least this age, or the oldest one; a long age freezes the first response.
    `count`: the response so many requests ago, or the oldest one. The first response passes unchanged. Requests are
    equal if version, topics, all other fields, listener, cluster, client address, SNI, certificate and principal are
    equal. Only responses of requests that fire the rule are stored.
    """

    apis: ClassVar = dict.fromkeys(STALE, 0)
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: metadata is half a minute behind
  kind: stale_metadata
  age: 30s
"""

    kind: Literal["stale_metadata"] = Field(description="kind of the rule")
    age: Seconds | None = Field(default=None, description="minimum age of the response")
    count: int | None = Field(default=None, ge=1, le=MOST_BACK, description="number of responses to go back")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if ("age" in raw) == ("count" in raw):
            yield (), 'expected either "age" or "count" of older responses'

    def start(self) -> Effect:
        return OldAnswers(self)


class OldAnswers(Effect):
    """Effect that remembers responses by request and client."""

    def __init__(self, rule: StaleMetadata) -> None:
        self.age, self.count = rule.age, rule.count
        self.kept: BoundedMap[object, deque[tuple[float, dict[str, Any]]]] = BoundedMap(
            MOST_SHAPES, lambda: deque(maxlen=rule.count)
        )

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body = exchange.response.body
        before = self.remembered(exchange)
        old = self.by_count(before, body, now) if self.count is not None else self.by_age(before, body, now)
        if old is None:
            return ()
        throttle = {THROTTLE: body[THROTTLE]} if THROTTLE in body else {}
        body.clear()
        body.update(copied(old), **throttle)
        return (Edit(),)

    def remembered(self, exchange: Exchange) -> deque[tuple[float, dict[str, Any]]]:
        connection = exchange.connection
        question = frozen(exchange.request.body) if exchange.api.key != METADATA else metadata_shape(exchange)
        facts = connection.facts
        who = facts.listener, facts.cluster, facts.client_address, facts.sni, facts.certificate, connection.principal
        key = (exchange.api.key, exchange.version, question, who)
        return self.kept[key]

    def by_count(
        self, before: deque[tuple[float, dict[str, Any]]], body: dict[str, Any], now: float
    ) -> dict[str, Any] | None:
        old = before[0][1] if before else None
        before.append((now, copied(body)))  # lets the oldest go when there are `count` of them
        return old

    def by_age(
        self, before: deque[tuple[float, dict[str, Any]]], body: dict[str, Any], now: float
    ) -> dict[str, Any] | None:
        assert self.age is not None
        while len(before) > 1 and now - before[1][0] >= self.age:
            before.popleft()
        old = before[0][1] if before else None
        if not before or now - before[-1][0] >= self.age / MOST_KEPT:
            before.append((now, copied(body)))
        return old


def metadata_shape(exchange: Exchange) -> object:
    """Return the content of a Metadata request as a key, regardless of the order of topics."""
    body = exchange.request.body
    topics = body["topics"]
    rest = frozen({name: value for name, value in body.items() if name != "topics"})
    return rest, None if topics is None else frozenset(frozen(topic) for topic in yielding(topics))


def frozen(value: Any) -> Any:
    """Return a plain value as one that can be a key."""
    if isinstance(value, dict):
        return tuple((name, frozen(one)) for name, one in value.items())
    return tuple(map(frozen, yielding(value))) if isinstance(value, list) else value
