"""refuse: connections are closed as soon as they are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.exchange import Close, ConnectionView
from kproxy.rules.kinds.base.frame_rule import ConnectionRule, for_connections
from kproxy.rules.kinds.base.rule import Decisions, Permanent
from kproxy.rules.values.model import Wrong


class Refuse(ConnectionRule):
    """Closes new connections as soon as they are made, as if the broker were down.

    Connections that are open stay. What `when` counts are connections.
    """

    group = "connections"
    example: ClassVar[str] = """\
- name: broker 2 is down for half a minute
  kind: refuse
  match: {node: 2}
  when: {for: 30s}
"""

    kind: Literal["refuse"] = Field(description="kind of the rule")
    permanent: Permanent = False
    close_with: Literal["rst", "fin"] = Field(default="rst", description="close by reset or in order")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from for_connections(raw, "connections are refused before there is any frame")

    def warnings(self) -> Iterable[str]:
        if self.not_ is not None and self.not_.client_address is not None and self.when is None and not self.permanent:
            yield (
                "this fault accepts only some addresses: `kproxy faults disable` then accepts all clients; "
                "use kind: allow_from, or permanent: true to keep this rule in force"
            )

    def opened(self, connection: ConnectionView) -> Decisions:
        return (Close(self.close_with),)
