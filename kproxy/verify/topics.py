"""Knowledge of topics that decides whether a finding may have a lawful reason: their ids, and whether they are
compacted, each with the time in which it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .facts import TopicToldFact, Witness
from .recent import RecentMap, SharedRoom
from .terms import CONFIG_APIS, TOPIC_APIS, VerifyTerms

MOST_TOPICS = 100_000
MOST_IDS = 4
BY_ID = {"Fetch": 13, "Produce": 13, "ShareFetch": 0}
"""Versions from which on requests name topics by their ids, so that they are certainly about the topic of this id."""


@dataclass(slots=True)
class ToldStretch:
    """Stretch of time at both ends of which the same was told of a topic: from the end of the first answer that did to
    the beginning of the last. Brokers tell neither that a topic was made anew nor that its configs were altered."""

    since: float = math.inf
    until: float = -math.inf

    def tell(self, witness: Witness) -> None:
        """Take in that an exchange tells it."""
        self.since = min(self.since, witness.began if witness.ended is None else witness.ended)
        self.until = max(self.until, witness.began)

    def meets(self, other: ToldStretch) -> bool:
        """Return True unless this stretch lies wholly outside of another one, or is none."""
        first, last = min(other.since, other.until), max(other.since, other.until)
        return min(self.since, self.until) <= last and first <= max(self.since, self.until) and self.since < math.inf

    def holds(self, witness: Witness) -> bool:
        """Return True if an exchange lies wholly within."""
        return self.since < witness.began and (witness.ended or witness.began) < self.until


@dataclass(slots=True)
class TopicKnowledge:
    """Topic as answers told it. `ids`: when each of them was told. `compacted`: somebody told that it is;
    `not_compacted`: when it was told that it is not. `made`, `deleted`: it was, in this record."""

    ids: dict[str, ToldStretch] = field(default_factory=dict)
    compacted: bool = False
    not_compacted: ToldStretch | None = None
    made: bool = False
    deleted: bool = False


class KnownTopics:
    """Knowledge of all topics of a record."""

    __slots__ = ("altered", "by_name", "terms")

    def __init__(self, terms: VerifyTerms, room: SharedRoom | None = None) -> None:
        self.terms = terms
        self.altered = ToldStretch()
        """Time in which configs were altered that are not in the record."""
        self.by_name: RecentMap[str, TopicKnowledge] = RecentMap(
            MOST_TOPICS, TopicKnowledge, room=room, weigh=lambda topic: 1000 + 300 * len(topic.ids)
        )

    def learn(self, fact: TopicToldFact) -> bool:
        """Take in what an answer tells; return True if it tells another id than before: the topic was made anew."""
        topic = self.by_name[fact.topic]
        topic.made = topic.made or fact.made
        if fact.compacted:
            topic.compacted = True
        elif fact.compacted is not None:
            topic.not_compacted = topic.not_compacted or ToldStretch()
            topic.not_compacted.tell(fact.witness)
        return bool(fact.topic_id) and self.named(fact.topic, fact.topic_id, fact.witness)

    def named(self, name: str, topic_id: str, witness: Witness) -> bool:
        """Take in that a topic has this id; return True if that is another one than before."""
        ids = self.by_name[name].ids
        known = ids.get(topic_id)
        if known is not None:
            known.tell(witness)
            return False
        if len(ids) < MOST_IDS:
            ids[topic_id] = known = ToldStretch()
            known.tell(witness)
        return len(ids) > 1

    def delete(self, name: str) -> None:
        """Take in that a topic was deleted, or may have been."""
        self.by_name[name].deleted = True

    def is_compacted(self, name: str, witnesses: Sequence[Witness], *, ever: bool) -> bool | None:
        """Return whether a topic was compacted during these exchanges; None if that is not known.

        `ever`: or at any time before them.
        """
        if name in self.terms.compacted:
            return True
        topic = self.by_name.get(name)
        if name in self.terms.not_compacted:
            return topic is not None and topic.compacted
        if topic is None or topic.compacted or topic.not_compacted is None:
            return True if topic is not None and topic.compacted else None
        if self.terms.proves_absence(CONFIG_APIS | TOPIC_APIS):
            return False
        told = topic.not_compacted
        known = (topic.made or not ever) and all(map(told.holds, witnesses)) and not self.altered.meets(told)
        return False if known and not self.may_be_another(name, witnesses) else None

    def may_be_another(self, name: str, witnesses: Sequence[Witness]) -> bool:
        """Return True if a topic of this name may have been made anew while these exchanges were."""
        topic = self.by_name.get(name)
        if self.terms.proves_absence(TOPIC_APIS):
            return topic is not None and (topic.deleted or len(topic.ids) > 1)
        if topic is None or len(topic.ids) != 1:
            return True
        (told,) = topic.ids.values()
        return not all(is_by_id(one) or told.holds(one) for one in witnesses)


def is_by_id(witness: Witness) -> bool:
    """Return True if an exchange names its topics by their ids."""
    return witness.version >= BY_ID.get(witness.api, witness.version + 1)
