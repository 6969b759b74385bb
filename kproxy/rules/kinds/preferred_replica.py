"""preferred_replica: consumers are sent to another replica to read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from kproxy.protocol.table.api_keys import FETCH
from kproxy.rules.bodies import partitions_of_answer
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import ResponseRule
from kproxy.rules.kinds.base.rule import Permanent

FIRST_VERSION = 11


class PreferredReplica(ResponseRule):
    """Sends consumers to another replica to read from (KIP-392), existing or not.

    The Fetch response names the broker and has no records, like a leader's that knows a closer replica. A consumer uses
    that replica for a while. If it does not know the broker, it stays, requests Metadata, and is sent away again as
    long as the rule fires. Fetch before version 11 has no such field. Connections to that broker itself are not
    changed.
    """

    apis: ClassVar = {FETCH: FIRST_VERSION}
    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: consumers shall read from a replica that is not there
  kind: preferred_replica
  match: {topic: orders}
  when: {first: 5}
  node: 9
"""

    kind: Literal["preferred_replica"] = Field(description="kind of the rule")
    permanent: Permanent = False
    node: int = Field(ge=0, description="id of the preferred read replica")

    def change(self, exchange: Exchange, entities: Sequence[Entity]) -> bool:
        if exchange.connection.facts.node == self.node:
            return False
        changed = False
        for place in partitions_of_answer(exchange, entities):
            if place.body["error_code"] == 0:
                place.body.update(preferred_read_replica=self.node, records=b"")
                changed = True
        return changed
