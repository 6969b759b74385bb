"""allow_from: only clients of these networks may connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from kproxy.rules.exchange import FrameDepth
from kproxy.rules.kinds.base.frame_rule import for_connections
from kproxy.rules.kinds.base.rule import Direction, Effect, Family, LiveRule, Scope
from kproxy.rules.select.match import Networks
from kproxy.rules.trigger import When
from kproxy.rules.values.address import address_test
from kproxy.rules.values.model import KEY, Wrong

BEFORE_TLS = ("listener", "cluster", "client_address")
"""Selectors with a value before the TLS handshake. The broker and the certificate are unknown then."""


class AllowFrom(LiveRule):
    """Accepts clients of these networks only. If several rules match a connection, one of them is enough to accept it.

    The rule is evaluated after a PROXY header and before TLS. `kproxy faults disable` does not turn it off.
    """

    group = "access"
    scope: ClassVar[Scope] = "connection"
    family: ClassVar[Family] = "access"
    example: ClassVar[str] = """\
- name: only our own networks reach the outer listener
  kind: allow_from
  match: {listener: outside}
  networks: [10.0.0.0/8, "2001:db8::/32"]
"""

    kind: Literal["allow_from"] = Field(description="kind of the rule")
    when: When | None = Field(default=None, description="not allowed: the rule is always in force")
    networks: Networks = Field(description="networks and addresses of clients that may connect, such as 10.0.0.0/8")
    close_with: Literal["rst", "fin"] = Field(default="rst", description="close others by reset or in order")
    existing: Literal["keep", "close"] = Field(
        default="keep", description="keep or close connections of others that are already open"
    )

    _lets_in: Callable[[str], bool] = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Sort the networks once, for all addresses that are asked about."""
        super().model_post_init(context)
        self._lets_in = address_test(self.networks)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        what = "clients are let in before TLS and before there is any frame"
        yield from for_connections(raw, what, BEFORE_TLS)
        if raw.get("when") is not None:
            yield (
                ("when", KEY),
                "expected no `when`: the rule is always in force; use ttl or a scenario for a limited time",
            )

    @property
    def connects(self) -> bool:
        return True

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.NOTHING

    def lets_in(self, address: str) -> bool:
        return self._lets_in(address)

    def start(self) -> Effect:
        # The gate (`kproxy.rules.rule_set`) evaluates the rule before there is a session.
        return Effect()
