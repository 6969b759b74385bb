"""bandwidth: a slow line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import TrafficShape
from kproxy.rules.kinds.base.frame_rule import ConnectionRule, Ways, for_a_time, for_connections, ways
from kproxy.rules.kinds.base.rule import Permanent
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.quantities import ByteRate


class Bandwidth(ConnectionRule):
    """Limits the byte rate of each connection.

    Each connection has the rate for itself, and clients receive no throttle time. For limits that connections share and
    clients see, use `quota`.
    """

    group = "connections"
    example: ClassVar[str] = """\
- name: a consumer behind a thin line
  kind: bandwidth
  match: {client_address: 10.9.0.0/16}
  rate: 100kB/s
  direction: to_client
"""

    kind: Literal["bandwidth"] = Field(description="kind of the rule")
    permanent: Permanent = False
    rate: ByteRate = Field(description="bytes per second, such as 100kB/s")
    direction: Ways = Field(default="both", description="limited direction; with both, each has the rate")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from for_connections(raw, "a bandwidth is that of a whole connection")
        yield from for_a_time(raw, "a bandwidth is in force for a time")

    def flow(self) -> TrafficShape:
        return TrafficShape(ways=ways(self.direction), rate=self.rate)
