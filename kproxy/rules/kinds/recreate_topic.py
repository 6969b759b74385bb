"""recreate_topic: a topic has another id, as if it had been deleted and made again."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field

from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.message_rule import TopicRule
from kproxy.rules.values.quantities import Seed


class RecreateTopic(TopicRule):
    """Tells clients another id for a topic, as if it had been deleted and made again under its name.

    The brokers do not know that id: Fetch 13, Produce 13 and newer versions, which name topics by id, are answered with
    UNKNOWN_TOPIC_ID, until an answer that the rule leaves alone shows the true id, which is a second change. Clients
    that name topics by name see nothing but the new id. Metadata before version 10 has no ids.
    """

    group = "cluster metadata"
    example: ClassVar[str] = """\
- name: orders was made anew
  kind: recreate_topic
  match: {topic: orders}
  when: {nth: [2, 3]}
"""

    kind: Literal["recreate_topic"] = Field(description="kind of the rule")
    seed: Seed = Field(default=0, description="seed of the topic id; equal seeds give equal ids")

    def change_topic(self, topic: dict[str, Any], exchange: Exchange) -> bool:
        before = topic.get("topic_id", ZERO_UUID)
        if before == ZERO_UUID:
            return False
        topic["topic_id"] = UUID(bytes=sha256(f"{self.seed}:{before}".encode()).digest()[:16])
        return True
