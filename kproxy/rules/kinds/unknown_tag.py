"""unknown_tag: an unknown tagged field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding, yielding_sort
from kproxy.protocol.table import schema
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, FrameDepth
from kproxy.rules.kinds.base.frame_rule import FrameRule
from kproxy.rules.kinds.base.rule import Decisions, Direction
from kproxy.rules.select.selected import keys_of
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import ByteCount

KAFKAS_OWN = 100
"""Tags below this are Kafka's to give: its highest is 3 so far."""
MOST = 1 << 20
"""Bytes; beyond that it is a question of memory, not of reading."""
TAGS = "_tagged_fields"


class UnknownTag(FrameRule):
    """Adds an unknown tagged field to the end of a body, as a newer Kafka may do (KIP-482).

    Versions of an API that have no tagged fields are left as they are.
    """

    group = "frames"
    always_acts: ClassVar[bool] = False  # a response may have an older version than its request
    example: ClassVar[str] = """\
- name: brokers from the future
  kind: unknown_tag
  match: {api: [Metadata, Fetch]}
  tag: 9999
  bytes: 8
"""

    kind: Literal["unknown_tag"] = Field(description="kind of the rule")
    tag: int = Field(default=9999, ge=KAFKAS_OWN, lt=2**31, description="its number")
    bytes: Annotated[ByteCount, Field(le=MOST)] = Field(default=8, description="how many zero bytes it holds")
    at: Direction = Field(default="response", description="changed frame")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        match = raw.get("match")
        apis = match.get("api") if isinstance(match, dict) else None
        for text in apis if isinstance(apis, list) else [apis]:
            keys = _keys(text)
            if keys and not any(schema.load(key).flexible for key in keys):
                yield ("match", "api"), f"no version of {text} has tagged fields"

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return super().depth(direction, key, version) if version in schema.load(key).flexible else FrameDepth.NOTHING

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        message = exchange.request if self.at == "request" else exchange.response
        if message.version not in message.api.flexible:  # an answer in a lower version (KIP-511)
            return ()
        others = [field for field in yielding(message.body.get(TAGS) or ()) if field[0] != self.tag]
        message.body[TAGS] = list(yielding_sort([*others, (self.tag, bytes(self.bytes))]))
        return (Edit(),)


def _keys(text: Any) -> frozenset[int]:
    try:
        return keys_of(text) if isinstance(text, str | int) else frozenset()
    except ValueError:  # the type of the selector reports it
        return frozenset()
