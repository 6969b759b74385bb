"""client_rack: the zone of clients without `client.rack`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from kproxy.rules.kinds.base.rule import Direction, Rule, VisiblePart

LONGEST = 249
"""Characters of a rack: names of topics may be as long, those of zones have some ten."""


def _rack(text: str) -> str:
    if not text or len(text) > LONGEST or not text.isprintable() or text != text.strip():
        raise ValueError(f'a rack is 1 to {LONGEST} characters without control characters or blanks around them, found '
                         f'"{text:.50}"')  # fmt: skip
    return text


class ClientRack(Rule):
    """Tells brokers the zone of clients that do not say it, so that they read from replicas there.

    Fills in what `client.rack` would say, where a client left it empty: in Fetch from version 11 on, and in what
    members say that join a group, by the newer protocols or in a consumer's subscription from version 3 on. What a
    client says is never changed, and a Fetch only of clients that name their library in ApiVersions, as those do
    that know how to read from followers. Brokers need `broker.rack` and
    `replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector`. Of several such rules that match
    a connection the first is taken.
    """

    group = "addresses and versions"
    directions: ClassVar[tuple[Direction, ...]] = ("request",)
    needs: ClassVar[tuple[VisiblePart, ...]] = ("client racks",)
    example: ClassVar[str] = """\
- name: pods of zone a
  kind: client_rack
  match: {client_address: 10.1.0.0/16}
  rack: euc1-az1
"""

    kind: Literal["client_rack"] = Field(description="what the rule does")
    rack: Annotated[str, AfterValidator(_rack)] = Field(
        description="rack of the clients that say none, as the brokers of their zone have it in broker.rack"
    )
