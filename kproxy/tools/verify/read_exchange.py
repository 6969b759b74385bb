"""Decoded exchanges, and the names of topics, groups and transactional ids at the broker.

Rules may give one client other names than the broker has, so the clients' view uses the broker's names. A record
contains an exchange twice if its names differ there. A response that kproxy made has the client's names only, which
`BrokerNames` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import intern
from typing import Any
from uuid import UUID

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.elements import Partition, Topic, called, partitions_in, topic_walk
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table.api_keys import METADATA
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.record.exchange import ObservedExchange
from kproxy.session.fetch_sessions import FetchSessions

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
    the client's. `true_names`: kproxy recorded the exchange, so they are known.
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
    true_names: bool = True

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


MOST_CLIENTS = 20_000
MOST_NAMES = 1000  # names of one client

ClientScope = tuple[str | None, str, str | None, str | None]  # listener, address, client id and principal


@dataclass(slots=True)
class BrokerNames:
    """Names at the broker by the names that clients use."""

    by_client: BoundedMap[ClientScope, ClientNames] = field(
        default_factory=lambda: BoundedMap(MOST_CLIENTS, ClientNames)
    )

    def of(self, seen: ObservedExchange) -> ClientNames | None:
        """Names of a client; None if all of them are the same at the broker."""
        return self.by_client.get(scope_of(seen)) if self.by_client else None

    def learn(self, seen: ObservedExchange, front: ReadExchange, behind: ReadExchange) -> None:
        """Add the names of an exchange whose bytes differ at the client (`front`) and at the broker (`behind`)."""
        pairs = [*zip_names(topics_in(front, "request"), topics_in(behind, "request"))]
        by_id = {one.topic_id: one.name for one in topics_in(behind, "response") if one.topic_id}
        pairs += [(one.name, by_id.get(one.topic_id)) for one in topics_in(front, "response") if one.topic_id]
        topics = [(name, other) for name, other in pairs if name and other]
        groups = [*zip(groups_in(front), groups_in(behind), strict=False)]
        name, other = front.request.get("transactional_id"), behind.request.get("transactional_id")
        transactional_ids = [(name, other)] if isinstance(name, str) and isinstance(other, str) else []
        if self.of(seen) is None and all(name == other for name, other in (*topics, *groups, *transactional_ids)):
            return
        names = self.by_client[scope_of(seen)]
        for known, found in (
            (names.topics, topics), (names.groups, groups), (names.transactional_ids, transactional_ids)
        ):  # fmt: skip
            for name, other in found:
                if name == other:
                    known.pop(name, None)
                elif len(known) < MOST_NAMES or name in known:
                    known[name] = other

    def same(self, seen: ObservedExchange, front: ReadExchange) -> None:
        """Remove renames of topics that a Metadata response shows under the same name on both sides."""
        names = self.of(seen)
        if names is not None and seen.key == METADATA and not seen.answered_by_rule:
            for topic in topics_in(front, "response"):
                names.topics.pop(topic.name or "", None)


def scope_of(seen: ObservedExchange) -> ClientScope:
    """Scope of the client of an exchange, in which rules give it names."""
    who = seen.who
    return who.listener, who.client_address, seen.client_id, who.principal


def topics_in(exchange: ReadExchange, direction: str) -> list[Topic]:
    walk = topic_walk(exchange.key, exchange.version, direction)
    body = exchange.request if direction == "request" else exchange.response
    if walk is None or body is None:
        return []
    return [one._replace(topic_id=None if one.topic_id == ZERO_UUID else one.topic_id) for one in walk.find(body)]


def zip_names(front: list[Topic], behind: list[Topic]) -> Iterator[tuple[str | None, str | None]]:
    """Yield the names of a request's topics at both sides; none if their numbers differ."""
    if len(front) == len(behind):
        yield from ((one.name, other.name) for one, other in zip(front, behind, strict=True))


def groups_in(exchange: ReadExchange) -> list[str]:
    request = exchange.request
    names = [request.get("group_id"), *(request.get("groups_names") or ())]
    groups = request.get("groups") or ()
    names += [one.get("group_id") if isinstance(one, dict) else one for one in groups]
    return [name for name in names if isinstance(name, str)]
