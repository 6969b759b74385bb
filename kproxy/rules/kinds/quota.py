"""quota: how much clients may send, fetch and ask in a second, and how many connections they may open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.kinds.base.frame_rule import of_frames
from kproxy.rules.kinds.base.quota import (
    AT_CONNECT,
    EXEMPT,
    FETCHES,
    RESOURCES,
    LimitedResource,
    Override,
    QuotaEffect,
    QuotaWord,
    has_max_bytes,
    selectors,
)
from kproxy.rules.kinds.base.rule import Direction, Family, LiveRule
from kproxy.rules.select.frame_match import carries
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.quantities import ByteRate, CountRate, Seconds

OF_TOPICS = frozenset(("topic", "topic_id", "partition"))


class Quota(LiveRule):
    """Limits bytes, requests and connections per second, as Kafka's own quotas do (KIP-219).

    The response of a client above its limit reports `throttle_time_ms`, and its channel is muted until the debt is
    paid. Requests that arrive before that wait. No request is refused.
    """

    group = "quotas"
    family: ClassVar[Family] = "quota"
    example: ClassVar[str] = """\
- name: each etl job on its own
  kind: quota
  match: {client_id: "etl-*"}
  per: [client_id]
  produce: 10MB/s
  fetch: 50MB/s
  overrides:
    - {client_id: etl-nightly, produce: 40MB/s}
    - {client_id: "etl-test-*", produce: 100kB/s, fetch: 1MB/s}
"""

    kind: Literal["quota"] = Field(description="kind of the rule")
    per: list[QuotaWord] = Field(
        default_factory=list,
        description="properties with a limit for each value (default: one limit for all matching requests)",
    )
    produce: ByteRate | None = Field(default=None, description="bytes of Produce requests, such as 10MB/s")
    fetch: ByteRate | None = Field(default=None, description="bytes of Fetch and ShareFetch responses")
    requests: CountRate | None = Field(default=None, description="requests of all APIs, such as 200/s")
    connections: CountRate | None = Field(default=None, description="connections being opened, such as 5/s")
    burst: Seconds = Field(default=1.0, gt=0, description="size of the bucket, in seconds of the rate")
    max_throttle: Seconds = Field(
        default=30.0,
        gt=0,
        description="maximum `throttle_time_ms` of a response and wait of a new connection; mutes may be longer",
    )
    overrides: list[Override] = Field(
        default_factory=list, description="limits for some values of `per`; the first matching override applies"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        words, overrides = _list(raw, "per"), _list(raw, "overrides")
        if not any(
            one.get(name) is not None for one in (raw, *overrides) if isinstance(one, dict) for name in RESOURCES
        ):
            yield (), f"a quota limits something: {', '.join(RESOURCES)}"
        for index, word in enumerate(words):
            if word in words[:index]:
                yield ("per", index), f'"{word}" is there already'
        for index, override in enumerate(overrides):
            if isinstance(override, dict):
                yield from _override_mistakes(index, override, words)
        if raw.get("connections") is not None:
            for name, where in of_frames(raw):
                yield (
                    where,
                    (
                        f'"connections" are counted when they open, and "{name}" is not known then; '
                        "write a rule of its own for one of the two"
                    ),
                )

    def warnings(self) -> Iterable[str]:
        if self.by_topic and self.limits("fetch"):
            yield (
                "to divide a Fetch response by topic it has to be seen whole: it is held in memory until it is here, "
                "up to burst's worth of bytes"
            )
        blind = [word for word in self.per if word not in AT_CONNECT]
        if self.limits("connections") and blind:
            yield f"connections are counted when they open, and not per {', '.join(blind)}, which is not known then"

    @property
    def connects(self) -> bool:
        return self.limits("connections")

    @property
    def by_topic(self) -> bool:
        """Return True if topics need their parts of a frame, so that its body is read."""
        sides = [one.of_entities for one in (self.match, self.not_) if one is not None]
        return "topic" in self.per or any(OF_TOPICS & side for side in sides)

    @property
    def reads_principal(self) -> bool:
        """Return True also where each principal has a limit of its own."""
        return "principal" in self.per or super().reads_principal

    @property
    def reads_entities(self) -> bool:
        """Return True if charges are divided by entity: `max_bytes` of a Fetch is for the whole request."""
        return self.by_topic

    @property
    def reads_topics(self) -> bool:
        return self.by_topic

    def limits(self, resource: LimitedResource) -> bool:
        """Return True if this is limited, for all or for some."""
        return any(getattr(one, resource) is not None for one in (self, *self.overrides))

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        whole = FrameDepth.BODY if self.by_topic else FrameDepth.HEADER
        depth = FrameDepth.NOTHING
        if direction == "response":
            return whole if key in FETCHES and self.limits("fetch") else depth
        if self.limits("requests") and key not in EXEMPT:
            depth = FrameDepth.HEADER
            if self.by_topic:
                depth = FrameDepth.BODY if carries(key, version, ("topic",)) else FrameDepth.NOTHING
        if key == PRODUCE and self.limits("produce"):
            depth = max(depth, whole)
        if key in FETCHES and self.limits("fetch"):
            depth = max(depth, FrameDepth.BODY if has_max_bytes(key, version) else whole)
        return depth

    def start(self) -> QuotaEffect:
        return QuotaEffect(self)


def _list(raw: dict[Any, Any], name: str) -> list[Any]:
    value = raw.get(name)
    return value if isinstance(value, list) else []


def _override_mistakes(index: int, raw: dict[Any, Any], words: list[Any]) -> Iterable[Wrong]:
    """Yield errors for selectors that are missing in `per`, since one bucket cannot have two limits."""
    for name in selectors(raw):
        if name not in words:
            yield ("overrides", index, name, KEY), f'"{name}" is not in per, so that these have no limit of their own'
        elif raw.get("connections") is not None and name not in AT_CONNECT:
            yield ("overrides", index, name, KEY), f'"{name}" is not known when a connection opens'
