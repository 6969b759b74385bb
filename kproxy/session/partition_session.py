"""One fetch session (KIP-227) or share session (KIP-932): the client's state, and the broker's.

The two differ while rules answer for some partitions, or for whole requests, in the broker's place. The client lists
only changes since its last request, so changes not yet forwarded to the broker are owed to it with the next request.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from kproxy.base.cooperative import free_by_parts, yielding
from kproxy.rules.exchange import Facts
from kproxy.rules.values.address import network_of
from kproxy.session.counters import Counters

Key = tuple[str | UUID, int]
"""A partition: its topic's name, or its id in the versions that have ids, and its number."""

LAST_EPOCH: Final = 2**31 - 1
OPENING: Final = 0
CLOSING: Final = -1


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after this one; it never comes back to 0 or -1."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


OWNER_SHARE = 3
"""Times the free room that one client network, or one of several clusters, may have: three quarters if it is alone."""


class SessionPartitionLimit:
    """Partitions that all sessions of a process may cache together (`limit`), and do cache (`used`).

    `several`: the config has several clusters, which have shares as well.
    """

    def __init__(self, limit: int = 250_000) -> None:
        self.limit = limit
        self.used = 0
        self.several = False
        self.used_by: Counter[tuple[str, str]] = Counter()

    @property
    def refusal(self) -> str:
        return f"no room for its partitions among the {self.limit} of all connections"

    def holds(self, more: int, *owners: tuple[str, str]) -> bool:
        """Return True if `more` partitions of these owners fit."""
        used = self.used + more
        most = OWNER_SHARE * (self.limit - used)
        return used <= self.limit and all(self.used_by[owner] + more <= most for owner in owners)

    def take(self, more: int, *owners: tuple[str, str]) -> None:
        """Count `more` partitions of these owners as cached, or fewer if it is below 0."""
        self.used += more
        for owner in owners:
            self.used_by[owner] += more
            if not self.used_by[owner]:
                del self.used_by[owner]


class SessionPartitionShare:
    """Room for the sessions of one connection; its network and its cluster have a share."""

    __slots__ = ("cluster", "network", "room")

    def __init__(self, room: SessionPartitionLimit, facts: Facts) -> None:
        self.room = room
        self.network, self.cluster = ("network", network_of(facts.client_address)), ("cluster", facts.cluster)

    @property
    def refusal(self) -> str:
        return self.room.refusal

    def holds(self, more: int) -> bool:
        """Return True if `more` partitions fit."""
        if self.room.several:
            return self.room.holds(more, self.network, self.cluster)
        return self.room.holds(more, self.network)

    def take(self, more: int) -> None:
        """Count `more` partitions as cached, or fewer if it is below 0."""
        self.room.take(more, self.network, self.cluster)


class Listing:
    """Names of the fields that list partitions in requests of one API.

    `number` is the field of the partition's number; `once` are fields of a partition that apply to this request alone
    (acknowledgements), and are not owed.
    """

    __slots__ = ("number", "once")

    def __init__(self, number: str, once: Mapping[str, Any]) -> None:
        self.number, self.once = number, once

    def listed(self, body: Mapping[str, Any]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Yield the partitions that a request names, in its order, each with its fields."""
        for topic in yielding(body["topics"] or ()):
            name = _topic(topic)
            for partition in yielding(topic["partitions"] or ()):
                yield (name, partition[self.number]), partition

    def forgotten(self, body: Mapping[str, Any]) -> Iterator[Key]:
        """Yield the partitions that a request takes out of the session."""
        for topic in yielding(body.get("forgotten_topics_data") or ()):
            name = _topic(topic)
            for number in yielding(topic["partitions"] or ()):
                yield name, number

    def topics(self, partitions: Iterable[tuple[Key, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Return the value of `topics` that lists these partitions: neighbours of the same topic together."""
        found: list[dict[str, Any]] = []
        last: object = self  # no topic, not even one that is null
        for (name, _), partition in yielding(partitions):
            if name != last:
                found.append({_field(name): name, "partitions": []})
                last = name
            found[-1]["partitions"].append(dict(partition))
        return found

    def forgotten_topics(self, keys: Iterable[Key]) -> list[dict[str, Any]]:
        """Return the value of `forgotten_topics_data` that lists these partitions."""
        found: dict[str | UUID, list[int]] = {}
        for name, number in yielding(keys):
            found.setdefault(name, []).append(number)
        return [{_field(name): name, "partitions": numbers} for name, numbers in found.items()]


@free_by_parts
class PartitionSession:
    """Fetch or share session: its partitions in the order of the client's first mention, each with its latest state."""

    __slots__ = (
        "asked", "awaited", "broker_epoch", "client_epoch", "dropped", "followed", "forgotten", "known", "listing",
        "number", "owed", "selection",
    )  # fmt: skip

    def __init__(self, listing: Listing, body: Mapping[str, Any]) -> None:
        """Begin with the partitions that the opening request `body` lists."""
        self.listing = listing
        self.number = 0  # its id, once a broker has given one
        self.awaited = False  # one of its requests is with the broker, and not answered yet
        self.followed = True  # False: it has been given up, and no request may continue it
        self.selection: Any = None  # partitions that rules select (see selection.py)
        self.forgotten: list[Key] = []  # by the last request
        self.asked: dict[Key, dict[str, Any]] = {}  # by the client
        self.known: set[Key] = set()  # to the broker
        self.owed: dict[Key, None] = {}  # told by the client, not yet to the broker; in order
        self.dropped: dict[Key, None] = {}  # known to the broker, and the client has forgotten them
        self.client_epoch = self.broker_epoch = OPENING  # epochs of the next request
        self.update({**body, "forgotten_topics_data": []})  # brokers begin with the listed partitions

    def update(self, body: Mapping[str, Any]) -> None:
        """Take over the partitions of a request of the client, which had the expected epoch."""
        once = self.listing.once
        for key, partition in self.listing.listed(body):
            self.asked[key] = {**partition, **once} if once else dict(partition)
            self.owed[key] = None
            self.dropped.pop(key, None)
        self.forgotten = list(self.listing.forgotten(body))
        for key in yielding(self.forgotten):  # brokers also add before they forget
            self.asked.pop(key, None)
            self.owed.pop(key, None)
            if key in self.known:
                self.dropped[key] = None
        self.pass_epoch()

    @property
    def opening(self) -> bool:
        """Return True if its last request was the one that opened it, which lists all that it is about."""
        return self.client_epoch == next_epoch(OPENING)

    def pass_epoch(self) -> None:
        """Count a request of the client that changes none of the session's partitions."""
        self.client_epoch = next_epoch(self.client_epoch)

    def broker_takes(self) -> int:
        """Return the epoch that the broker expects of the next request, which is sent to it now."""
        epoch, self.broker_epoch = self.broker_epoch, next_epoch(self.broker_epoch)
        return epoch

    def forward(self, body: Mapping[str, Any], removed: Collection[Key]) -> dict[str, Any] | None:
        """Return the body to send to the broker, when rules have removed some partitions; None: the request is
        unchanged.

        Partitions removed before and not now are added to the broker's session; partitions removed now are taken out of
        it.
        """
        listed = dict(self.listing.listed(body))
        forgotten = list(dict.fromkeys(self.listing.forgotten(body)))
        owed = [key for key in yielding(self.owed) if key not in listed and key not in removed]
        kept = [key for key in yielding(listed) if key not in removed]
        dropped = [*self.dropped, *(key for key in yielding(removed) if key in self.known)]
        forget = list(dict.fromkeys(yielding((*forgotten, *dropped))))
        epoch = self.broker_takes()
        self.owed = {key: None for key in yielding(removed) if key in self.asked}
        self.dropped = {}
        self.known.update(yielding(kept), yielding(owed))
        self.known.difference_update(yielding(forget))
        field = "session_epoch" if "session_epoch" in body else "share_session_epoch"
        if body[field] == epoch and not owed and len(kept) == len(listed) and len(forget) == len(forgotten):
            return None
        partitions = [(key, listed[key]) for key in yielding(kept)] + [(key, self.asked[key]) for key in yielding(owed)]
        return {
            **body,
            field: epoch,
            "topics": self.listing.topics(partitions),
            "forgotten_topics_data": self.listing.forgotten_topics(forget),
        }


def _topic(entry: Mapping[str, Any]) -> str | UUID:
    found: str | UUID = entry["topic_id"] if "topic_id" in entry else entry["topic"]
    return found


def _field(name: str | UUID) -> str:
    return "topic_id" if isinstance(name, UUID) else "topic"


SessionKey = TypeVar("SessionKey", bound=Hashable)


class SessionTable(Generic[SessionKey]):
    """Sessions of one connection by the broker's key, and the number of partitions in all of them.

    `absent`: why the last request's session was not known.
    """

    __slots__ = ("absent", "counters", "room", "sessions", "size")

    def __init__(self, counters: Counters, room: SessionPartitionLimit | SessionPartitionShare | None = None) -> None:
        self.counters, self.room = counters, room if room is not None else SessionPartitionLimit()
        self.absent = ""
        self.sessions: OrderedDict[SessionKey, PartitionSession] = OrderedDict()
        self.size = 0

    def forget_at(self, key: SessionKey, session: PartitionSession | None) -> None:
        """Stop following `session`, if there is one, so that the client cannot continue it."""
        if session is None:
            return
        session.followed = False
        if self.sessions.get(key) is session:
            del self.sessions[key]
            self.grow(-len(session.asked))

    def grow(self, more: int) -> None:
        """Count `more` partitions as cached, or fewer if it is below 0, here and in the room of all connections."""
        self.size += more
        self.room.take(more)

    def end(self) -> None:
        """Remove all sessions when the connection has ended, and give back their room."""
        self.sessions.clear()
        self.grow(-self.size)
