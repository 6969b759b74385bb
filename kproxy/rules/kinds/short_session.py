"""short_session: clients have to authenticate again soon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.rules.bodies.apis import SASL_AUTHENTICATE
from kproxy.rules.decision import Edit
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base import Direction
from kproxy.rules.kinds.live import Decisions, Effect
from kproxy.rules.kinds.reading import AnswerRule
from kproxy.rules.units import Seconds

FIRST_VERSION = 1


class ShortSession(AnswerRule):
    """Shortens the lifetime of SASL sessions that clients are told (KIP-368).

    They authenticate again on the open connection before it is over, if the broker allows it, which it does with
    `connections.max.reauth.ms` only; else it answers ILLEGAL_SASL_STATE, and clients connect anew. A lifetime that the
    broker gave is never made longer. The broker does not know of the shorter one, so a client that goes on without
    authenticating is not cut off. SaslAuthenticate 0, and tokens that travel without it, cannot say a lifetime.
    """

    example: ClassVar[str] = """\
- name: authenticate again every ten seconds
  kind: short_session
  lifetime: 10s
"""

    kind: Literal["short_session"] = Field(description="what the rule does")
    lifetime: Seconds = Field(ge=0.001, description="how long a session lasts")

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        about = direction == "response" and key == SASL_AUTHENTICATE and version >= FIRST_VERSION
        return Depth.BODY if about else Depth.NOTHING

    def start(self) -> Effect:
        return ShorterSessions(round(self.lifetime * 1000))


class ShorterSessions(Effect):
    """Puts the lifetime into successful answers."""

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        body = exchange.response.body
        given = body["session_lifetime_ms"]
        if body["error_code"] or 0 < given <= self.milliseconds:
            return ()
        body["session_lifetime_ms"] = self.milliseconds
        return (Edit(),)
