"""Names of topics, groups and transactional ids at the broker, for clients to which rules give other names.

Two clients may use one name for different topics, or two names for one. So the clients' view uses the names at the
broker. A record has an exchange twice if the names differ there. A response that kproxy made itself has the client's
names only; other exchanges of the client translate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.observe.exchange import ObservedExchange
from kproxy.wire.elements import Topic, topic_walk
from kproxy.wire.table.api_keys import METADATA
from kproxy.wire.table.layout import ZERO_UUID

from .lru_map import RecentMap
from .read_exchange import ClientNames, ReadExchange

MOST_CLIENTS = 20_000
MOST_NAMES = 1000  # names of one client

ClientScope = tuple[str | None, str, str | None, str | None]  # listener, address, client id and principal


@dataclass(slots=True)
class BrokerNames:
    """Names at the broker by the names that clients use."""

    by_client: RecentMap[ClientScope, ClientNames] = field(default_factory=lambda: RecentMap(MOST_CLIENTS, ClientNames))

    def of(self, seen: ObservedExchange) -> ClientNames | None:
        """Names of a client; None if all of them are the same at the broker."""
        return self.by_client.get(scope_of(seen)) if self.by_client.entries else None

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
