"""Numbers of topics of which only the id is known so far, kept until a name is.

Strategy. Clients since Kafka 3.1 write and read by topic id. Whose Metadata came before kproxy was started, or by way
of another worker, has said the id and no name. So such numbers wait; whoever gathers asks the brokers for the names
(`to_ask`), and what no name is found for in time counts as `other`. Only ids that a broker has answered without an
error come here, so clients cannot fill it with ids that they make up: not those of acks=0, which nobody answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kproxy.record.fanout import ClusterMetadata

from .table import OTHER, LabelLine, label_text
from .totals import LabelTotals

PATIENCE = 60.0
"""Seconds for which numbers wait for a name."""
AGAIN = 20.0
"""Seconds until the brokers are asked for it once more."""
MOST_UNNAMED = 1000
"""Topics whose numbers wait; those of more count as `other` at once. A label has at most 500 names."""
MOST_ASKED = 100
"""Names that a broker is asked for at a time."""

TopicId = tuple[str, bytes]
"""(cluster, the id's 16 bytes)"""


class UnnamedTopic:
    """Numbers of one topic by line. `since`: when the first came. `ask_at`: when the brokers are to be asked."""

    __slots__ = ("ask_at", "numbers", "since")

    def __init__(self, now: float) -> None:
        self.since = self.ask_at = now
        self.numbers: dict[LabelLine, float] = {}


class UnnamedTopics:
    """Topics whose numbers wait for a name, on their way to `totals`. `pictures`: what is known of each cluster."""

    def __init__(self, totals: LabelTotals, pictures: Mapping[str, ClusterMetadata]) -> None:
        self.totals, self.pictures = totals, pictures
        self.waiting: dict[TopicId, UnnamedTopic] = {}

    def add(self, cluster: str, topic_id: bytes, lines: list[tuple[LabelLine, float]], now: float) -> None:
        """Add numbers to those of a topic that has no name."""
        key = cluster, topic_id
        topic = self.waiting.get(key)
        if topic is None:
            if len(self.waiting) >= MOST_UNNAMED:
                self.totals.add("topic", OTHER, lines, now)
                return
            topic = self.waiting[key] = UnnamedTopic(now)
        for line, number in lines:
            topic.numbers[line] = topic.numbers.get(line, 0) + number

    def settle(self, now: float) -> None:
        """Count what has a name by now under it, and what has waited long enough as `other`."""
        for (cluster, topic_id), topic in list(self.waiting.items()):
            picture = self.pictures.get(cluster)
            name = None if picture is None else picture.by_id.get(str(UUID(bytes=topic_id)))
            if name is not None or now - topic.since >= PATIENCE:
                del self.waiting[cluster, topic_id]
                self.count(topic, OTHER if name is None else label_text(name), now)

    def give_up(self, now: float) -> None:
        """Count all that waits as `other`: topics are told no more."""
        waiting, self.waiting = self.waiting, {}
        for topic in waiting.values():
            self.count(topic, OTHER, now)

    def count(self, topic: UnnamedTopic, label: str, now: float) -> None:
        """Count the numbers of a topic under this name; without any it takes nobody's place."""
        if topic.numbers:
            self.totals.add("topic", label, list(topic.numbers.items()), now)

    def to_ask(self, now: float) -> dict[str, list[bytes]]:
        """Return the ids, by cluster, whose names are to be asked for now: each when it comes, and again if nobody has
        said it for a while."""
        wanted: dict[str, list[bytes]] = {}
        for (cluster, topic_id), topic in self.waiting.items():
            ids = wanted.setdefault(cluster, [])
            if topic.ask_at <= now and len(ids) < MOST_ASKED:
                topic.ask_at = now + AGAIN
                ids.append(topic_id)
        return {cluster: ids for cluster, ids in wanted.items() if ids}
