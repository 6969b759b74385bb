"""throttle_time: throttle times in responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table import layout, schema
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth, Throttle
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, LiveRule, Permanent
from kproxy.rules.select.selected import chosen, spans
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import Seconds

LONGEST = (2**31 - 1) / 1000
"""Seconds; the field has 32 bits of milliseconds."""


class ThrottleTimeRule(LiveRule):
    """Sets `throttle_time_ms` in responses, like a broker after an exceeded quota.

    Only clients that obey it slow down. With `mute`, kproxy also reads nothing from the client for that time (KIP-219).
    """

    group = "errors and delays"
    example: ClassVar[str] = """\
- name: the billing service is told to wait
  kind: throttle_time
  match: {api: [Produce, Fetch], client_id: "billing-*"}
  delay: 3s
"""

    kind: Literal["throttle_time"] = Field(description="kind of the rule")
    permanent: Permanent = False
    delay: Annotated[Seconds, Field(gt=0, le=LONGEST)] = Field(
        description="throttle time in responses; if several rules apply, the longest wins"
    )
    mute: bool = Field(
        default=False, description="nothing is read from the client for that time, whether it obeys or not"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if raw.get("mute") is True:
            return
        for choice in chosen(raw):
            if (
                choice.by_name
                and choice.versions
                and not any(says(choice.api.key, version) for version in choice.versions)
            ):
                able = [version for version in choice.api.versions if says(choice.api.key, version)]
                hint = f"versions {spans(able)} have" if able else '"mute: true" would stop reading from the client'
                yield (
                    choice.where,
                    f"a response of {choice.api.name} {spans(choice.versions)} has no throttle_time_ms; {hint}",
                )

    def warnings(self) -> Iterable[str]:
        match = self.match
        if self.mute or match is None:
            return
        if match.acks is not None and 0 in match.acks:
            yield "a Produce request with acks 0 has no response for the throttle time"
        for choice in chosen({"match": match.model_dump(include={"api", "version"}, mode="json")}):
            lacking = [version for version in choice.versions if not says(choice.api.key, version)]
            if choice.by_name and lacking and match.version is not None:  # else only what no client of today speaks
                yield f"{choice.api.name} {spans(lacking)} has no throttle_time_ms"

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        # The engine knows the position of `throttle_time_ms`, so the body is not decoded.
        if not (self.mute or says(key, version)):
            return FrameDepth.NOTHING
        return FrameDepth.HEADER if (direction == "response") == self.judged_late(key) else FrameDepth.NOTHING

    def start(self) -> Effect:
        return ThrottleTimeEffect(Throttle(self.delay, self.delay if self.mute else 0.0))


class ThrottleTimeEffect(Effect):
    """Effect that decides the same for every exchange."""

    always_acts = True

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return (self.throttle,)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return (self.throttle,)


def says(key: int, version: int) -> bool:
    """Return True if responses of this version have the field."""
    if version not in schema.load(key).versions:
        return False
    return any(slot.name == "throttle_time_ms" for slot in layout.body(key, version, "response").slots)
