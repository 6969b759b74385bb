"""Exchange whose bodies have been decoded, with what facts are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import intern
from typing import Any
from uuid import UUID

from kproxy.core.live.fetch_sessions import FetchSessions
from kproxy.wire.elements import Partition, Topic, called, partitions_in, topic_walk
from kproxy.wire.table import errors as error_codes

from .facts import PartitionPlace, Result, Witness

NameOfIdText = Callable[[str], str | None]
"""Look-up of a topic's name by its id as text; None for one that is not known."""
LONGEST_NAME = 1000
"""Characters of a name of a group, a member or a topic that is remembered. Kafka's topics have at most 249; longer
names of groups are possible, and never met."""


def codes(*names: str) -> frozenset[int]:
    """Return the codes of these errors. Raises KeyError for a name that the table lacks."""
    return frozenset(error_codes.by_name(name).code for name in names)


UNDECIDED = codes(
    "UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR",
)  # fmt: skip
"""Errors of a coordinator that it also gives when the log has what was asked for already."""


def coordinator_result(error: int | None) -> Result:
    """Return what an error of a coordinator says of what was asked; None: there is no answer."""
    if error is None or error in UNDECIDED:
        return "open"
    return "failed" if error else "ok"


@dataclass(slots=True)
class ClientNames:
    """Names at the broker by the names that rules give one client: topics, groups and transactional ids."""

    topics: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    transactional_ids: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ReadExchange:
    """Exchange whose bodies have been decoded; records are RecordHeaders.

    `response`: None where there is none. `names`: topic ids' names at the broker. `sessions`: fetch sessions of its
    connection. `records`: they are looked at, too. `damaged`: parts of it that make no sense, by count. `others`: names
    at the broker that are not those of the client.
    """

    key: int
    version: int
    witness: Witness
    request: dict[str, Any]
    response: dict[str, Any] | None
    names: NameOfIdText
    sessions: FetchSessions
    records: bool = False
    damaged: int = 0
    others: ClientNames | None = None

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if it is not known."""
        return self.names(str(topic_id))

    def place(self, part: Partition) -> PartitionPlace | None:
        """Return where a partition of a message is; None for a name that no topic has."""
        return self.place_in(part, part.number)

    def place_in(self, topic: Topic | Partition, number: int) -> PartitionPlace | None:
        """Return the place of this partition of a topic; None for a name or number that none has."""
        name = called(topic, self.name_of)
        if self.others is not None and topic[0]:
            name = self.others.topics.get(name, name)
        if len(name) > LONGEST_NAME or number < 0:
            self.damaged += 1
            return None
        return PartitionPlace(intern(name), number)

    def place_by_id(self, topic_id: UUID, number: int) -> PartitionPlace:
        """Return the place of this partition of the topic with this id."""
        return PartitionPlace(self.name_of(topic_id) or str(topic_id), number)

    def asked(self) -> Iterator[tuple[Partition, PartitionPlace]]:
        """Yield the partitions that the request lists, with their places."""
        return self._placed(partitions_in(self.key, self.version, "request", self.request))

    def answered(self) -> Iterator[tuple[Partition, PartitionPlace]]:
        """Yield the partitions that the response lists, with their places."""
        return self._placed(partitions_in(self.key, self.version, "response", self.response))

    def _placed(self, parts: Iterator[Partition]) -> Iterator[tuple[Partition, PartitionPlace]]:
        for part in parts:
            place = self.place(part)
            if place is not None:
                yield part, place

    def answered_topics(self) -> Iterator[tuple[Topic, Iterator[Partition]]]:
        """Yield the topics that the response lists, each with its partitions."""
        walk = topic_walk(self.key, self.version, "response")
        if walk is None or self.response is None:
            return
        for topic in walk.find(self.response):
            yield topic, walk.inside(topic)

    def errors(self) -> dict[PartitionPlace, int] | None:
        """Return the error code of each partition in the response; None without a response."""
        if self.response is None:
            return None
        return {place: part.error_code for part, place in self.answered()}

    def topic(self, value: Any) -> str | None:
        """Return a topic's name at the broker; None for one that is absent, or longer than any."""
        name = self.text(value)
        return name if name is None or self.others is None else self.others.topics.get(name, name)

    def group(self, value: Any) -> str | None:
        """Return a group's name at the broker; None for one that is absent, or longer than any."""
        name = self.text(value)
        return name if name is None or self.others is None else self.others.groups.get(name, name)

    def transactional_id(self, value: Any) -> str | None:
        """Return a transactional id at the broker; None for one that is absent, or longer than any."""
        name = self.text(value)
        return name if name is None or self.others is None else self.others.transactional_ids.get(name, name)

    def text(self, value: Any) -> str | None:
        """Return a name in a message; None for one that is absent, or longer than any."""
        if not isinstance(value, str) or len(value) > LONGEST_NAME:
            self.damaged += isinstance(value, str)
            return None
        return value
