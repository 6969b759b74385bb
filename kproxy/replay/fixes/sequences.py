"""Sequence numbers of idempotent producers, counted anew for each partition.

A broker takes a batch only if it begins where the producer's last one on that partition ended (KIP-98). A recording may
begin in the middle of a producer's life, or lack a batch that was cut short, so the recorded numbers may have gaps that
the target would refuse. A batch that the client sent twice keeps one number, for the broker to find the duplicate: it
remembers five batches, and so do we.
"""

from __future__ import annotations

from collections import OrderedDict

from kproxy.wire.records import Batch

REMEMBERED = 5
"""Batches of a producer and partition that a broker knows again: Kafka's ProducerStateEntry keeps so many."""
MOST = 2**31
"""Sequences begin at 0 again after 2³¹ - 1."""

Where = tuple[int, int, str, int]
"""Recorded producer id and epoch, topic (name or id as text) and partition."""


class Sequences:
    """Of all producers of a replay."""

    def __init__(self) -> None:
        self.next: dict[Where, int] = {}
        self.recent: dict[Where, OrderedDict[int, int]] = {}

    def number(self, where: Where, batch: Batch) -> int:
        """The base sequence that this batch is sent with; -1 for one that has none."""
        if batch.base_sequence < 0:
            return batch.base_sequence
        recent = self.recent.setdefault(where, OrderedDict())
        if batch.base_sequence not in recent:
            number = self.next.get(where, 0)
            self.next[where] = (number + batch.last_offset_delta + 1) % MOST
            recent[batch.base_sequence] = number
            if len(recent) > REMEMBERED:
                recent.popitem(last=False)
        return recent[batch.base_sequence]
