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
    """Shortens the lifetime of SASL sessions in responses to clients (KIP-368).

    Clients authenticate again on the open connection before the end of the lifetime, if the broker allows it with
    `connections.max.reauth.ms`. Otherwise the broker returns ILLEGAL_SASL_STATE, and clients reconnect. A lifetime of
    the broker is never extended. The broker does not know the shorter lifetime, so a client that does not authenticate
    again stays connected. SaslAuthenticate 0, and tokens outside of it, have no lifetime.
    """

    apis: ClassVar = {SASL_AUTHENTICATE: FIRST_VERSION}
    whole: ClassVar = True
    group = "groups, offsets and transactions"
    example: ClassVar[str] = """\
- name: authenticate again every ten seconds
  kind: short_session
  lifetime: 10s
"""

    kind: Literal["short_session"] = Field(description="kind of the rule")
    lifetime: Seconds = Field(ge=0.001, description="lifetime of a session")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        body, milliseconds = exchange.response.body, round(self.lifetime * 1000)
        if body["error_code"] or 0 < body["session_lifetime_ms"] <= milliseconds:
            return False
        body["session_lifetime_ms"] = milliseconds
        return True
