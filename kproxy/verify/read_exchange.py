"""Decoded exchange, from which facts are made."""

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

NameOfIdText = Callable[[str], str | None]  # topic's name by the text of its id, None if unknown
# Longest name of a group, member or topic that is stored. Kafka limits topics to 249 characters, groups not at all.
LONGEST_NAME = 1000


def codes(*names: str) -> frozenset[int]:
    return frozenset(error_codes.by_name(name).code for name in names)


# Coordinators also return these errors after the log has stored the request's effect.
UNDECIDED = codes(
    "UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR",
)  # fmt: skip


def coordinator_result(error: int | None) -> Result:
    """Return the result of a coordinator's error code. None: no response."""
    if error is None or error in UNDECIDED:
        return "open"
    return "failed" if error else "ok"


@dataclass(slots=True)
class ClientNames:
    """Names at the broker by one client's names: topics, groups and transactional ids."""

    topics: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    transactional_ids: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ReadExchange:
    """Decoded exchange; records are RecordHeaders.

    `names`: names of topic ids at the broker. `sessions`: fetch sessions of the connection. `records`: records are
    decoded, not only batch headers. `damaged`: number of invalid parts. `others`: names at the broker that differ from
    the client's.
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
        return self.names(str(topic_id))

    def place(self, part: Partition) -> PartitionPlace | None:
        """Return the place of a partition; None for an invalid name or number."""
        name = called(part, self.name_of)
        if self.others is not None and part[0]:
            name = self.others.topics.get(name, name)
        if len(name) > LONGEST_NAME or part.number < 0:
            self.damaged += 1
            return None
        return PartitionPlace(intern(name), part.number)

    def place_by_id(self, topic_id: UUID, number: int) -> PartitionPlace:
        return PartitionPlace(self.name_of(topic_id) or str(topic_id), number)

    def asked(self) -> Iterator[tuple[Partition, PartitionPlace]]:
        """Yield the request's partitions with their places."""
        return self._placed(partitions_in(self.key, self.version, "request", self.request))

    def answered(self) -> Iterator[tuple[Partition, PartitionPlace]]:
        """Yield the response's partitions with their places."""
        return self._placed(partitions_in(self.key, self.version, "response", self.response))

    def _placed(self, parts: Iterator[Partition]) -> Iterator[tuple[Partition, PartitionPlace]]:
        for part in parts:
            place = self.place(part)
            if place is not None:
                yield part, place

    def answered_topics(self) -> Iterator[tuple[Topic, Iterator[Partition]]]:
        walk = topic_walk(self.key, self.version, "response")
        if walk is None or self.response is None:
            return
        for topic in walk.find(self.response):
            yield topic, walk.inside(topic)

    def errors(self) -> dict[PartitionPlace, int] | None:
        """Return error codes by partition; None without a response."""
        if self.response is None:
            return None
        return {place: part.error_code for part, place in self.answered()}

    def topic(self, value: Any) -> str | None:
        """Return the topic's name at the broker. None: absent or too long, as for all names below."""
        return self._renamed(value, self.others.topics if self.others else None)

    def group(self, value: Any) -> str | None:
        return self._renamed(value, self.others.groups if self.others else None)

    def transactional_id(self, value: Any) -> str | None:
        return self._renamed(value, self.others.transactional_ids if self.others else None)

    def text(self, value: Any) -> str | None:
        if not isinstance(value, str) or len(value) > LONGEST_NAME:
            self.damaged += isinstance(value, str)
            return None
        return value

    def _renamed(self, value: Any, names: dict[str, str] | None) -> str | None:
        name = self.text(value)
        return name if name is None or names is None else names.get(name, name)
