"""A consumer in a group that knows for itself what has to come next.

Strategy: with each assignment it asks what the group has committed, and begins there; what it is given that does not
come next (left over from before a rebalance) is let go. So nothing that is passed over or comes twice can hide.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from tests.lab.soak.clients.common import Client

AT_ONCE = 500
"""Records of one read."""


class GroupReader:
    """Of the topic and the group that `client` was given."""

    def __init__(self, client: Client, **more: Any) -> None:
        self.client, self.topic = client, client.arguments["topic"]
        self.next: dict[int, int] = {}
        self.consumer = Consumer(client.settings(**{
            "group.id": client.arguments["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000, "max.poll.interval.ms": 120000, **more,
        }))  # fmt: skip
        self.consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._begin(places)

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.next.clear()
        self.client.note(revoked=[place.partition for place in places])
        consumer.unassign()

    def _begin(self, places: list[TopicPartition]) -> None:
        asked = time.monotonic()
        found = self.client.insist(lambda: self.consumer.committed(places, 20)) if places else []
        for place in found:
            if place.error is not None:
                raise RuntimeError(f"what is committed of partition {place.partition}: {place.error}")
            place.offset = max(place.offset, 0)  # below zero: nothing is committed
        self.next = {place.partition: place.offset for place in found}
        self.client.note(begins=self.next, asked=asked)
        self.consumer.assign(found)

    def rewind(self) -> None:
        """Go on from what is committed."""
        self._begin([TopicPartition(self.topic, partition) for partition in self.next])

    def read(self, *, contiguous: bool) -> list[Message]:
        """Records that come next. `contiguous`: every offset has a record, as where nobody writes in transactions."""
        taken = []
        for message in self.consumer.consume(AT_ONCE, 0.3):
            partition, offset = message.partition(), message.offset()
            due = self.next.get(partition)
            if message.error() is None and due is not None and (offset == due or (offset > due and not contiguous)):
                self.next[partition] = offset + 1
                taken.append(message)
        return taken

    def places(self, read: list[Message]) -> list[TopicPartition]:
        """What is to be committed after these."""
        behind = {message.partition(): message.offset() + 1 for message in read}
        return [TopicPartition(self.topic, partition, offset) for partition, offset in behind.items()]
