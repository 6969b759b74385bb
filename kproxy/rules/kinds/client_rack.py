"""client_rack: the zone of clients without `client.rack`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from kproxy.rules.kinds.base.rule import Direction, Rule, VisiblePart

LONGEST = 249
"""Characters of a rack: names of topics may be as long, those of zones have some ten."""


def _rack(text: str) -> str:
    if not text or len(text) > LONGEST or not text.isprintable() or text != text.strip():
        raise ValueError(f'expected a rack of 1 to {LONGEST} printable characters without surrounding blanks, got '
                         f'"{text:.50}"')  # fmt: skip
    return text


class ClientRack(Rule):
    """Sets the rack of clients without `client.rack`, so that they read from replicas in their zone.

    Fills in an empty rack in Fetch from version 11 on, and in joins of groups: in the newer protocols, or in a
    consumer's subscription from version 3 on. A client's own rack is never changed. A Fetch is changed only for clients
    that name their library in ApiVersions, since most of these can read from followers. Brokers need `broker.rack` and
    `replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector`. If several such rules match a
    connection, the first applies.
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

    kind: Literal["client_rack"] = Field(description="kind of the rule")
    rack: Annotated[str, AfterValidator(_rack)] = Field(
        description="rack of clients without client.rack: broker.rack of their zone"
    )
