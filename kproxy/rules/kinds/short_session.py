"""short_session: clients have to authenticate again soon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import SASL_AUTHENTICATE
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.values.quantities import Seconds

FIRST_VERSION = 1


class ShortSession(ResponseRule):
    """Shortens the lifetime of SASL sessions that clients are told (KIP-368).

    They authenticate again on the open connection before it is over, if the broker allows it, which it does with
    `connections.max.reauth.ms` only; else it answers ILLEGAL_SASL_STATE, and clients connect anew. A lifetime that the
    broker gave is never made longer. The broker does not know of the shorter one, so a client that goes on without
    authenticating is not cut off. SaslAuthenticate 0, and tokens that travel without it, cannot say a lifetime.
    """

    apis: ClassVar = {SASL_AUTHENTICATE: FIRST_VERSION}
    whole: ClassVar = True
    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: authenticate again every ten seconds
  kind: short_session
  lifetime: 10s
"""

    kind: Literal["short_session"] = Field(description="what the rule does")
    lifetime: Seconds = Field(ge=0.001, description="how long a session lasts")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body, milliseconds = exchange.response.body, round(self.lifetime * 1000)
        if body["error_code"] or 0 < body["session_lifetime_ms"] <= milliseconds:
            return False
        body["session_lifetime_ms"] = milliseconds
        return True
