"""Target cluster: known nodes, leaders, coordinators, topic ids and versions; and the links of a replay to it.

All knowledge comes from the target's responses, also those to recorded requests. So a topic that the recording creates
is known as soon as it exists.

Commands name links by number. The result of each command is passed to the player as an event. Each link numbers its
correlation ids from 1, because recorded connections may have used an id twice, and requests may be repeated. The id has
a fixed place in every header (bytes 4 to 8 of a request, 0 to 4 of a response), so nothing is decoded for it. Reports
refer to exchanges, which have both ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kproxy.protocol import Message
from kproxy.protocol.elements import partitions_of, topics
from kproxy.protocol.framing import framed
from kproxy.protocol.table.api_keys import API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, FIND_COORDINATOR, METADATA
from kproxy.protocol.table.schema import Api, Versions

from .recording import SHOWING, pairs

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator (KIP-98)."""

NodeAddress = tuple[str, int]
CoordinatorKey = tuple[int, str]
"""A key type, and a group or a transactional id."""


class TargetCluster:
    """Target cluster of a replay.

    Attributes: bootstrap; recorded (the target is the recorded cluster itself, and `bootstrap` an address of its
    recorded requests: all requests go there, without lookups); nodes (id → address); leaders ((topic, partition) → node
    id); ids (topic → id); names (id → topic); coordinators (→ node id); looked_up (topics and coordinators with a
    response of the target, successful or not); created (topics that the replay has created, or may have), missing
    (created topics that never appeared); versions (API key → (first, last), empty: not known).
    """

    def __init__(self, bootstrap: NodeAddress, *, recorded: bool = False) -> None:
        self.bootstrap, self.recorded = bootstrap, recorded
        self.nodes: dict[int, NodeAddress] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.ids: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.coordinators: dict[CoordinatorKey, int] = {}
        self.looked_up: set[str | CoordinatorKey] = set()
        self.created: set[str] = set()
        self.missing: set[str] = set()
        self.versions: dict[int, tuple[int, int]] = {}

    def lacks(self, key: int, version: int) -> str:
        """Return why the target would not understand this request; empty if it will."""
        if not self.versions:
            return ""
        if key not in self.versions:
            return "the target does not have this API"
        first, last = self.versions[key]
        return "" if first <= version <= last else f"the target has versions {first} to {last} of it, not {version}"

    def newest(self, api: Api, most: int) -> int:
        """Return the newest version that both sides support, up to `most`."""
        ours: Versions = api.versions
        first, last = self.versions.get(api.key, (ours.first, ours.first))
        return max(min(last, ours.last, most), first)

    def address_of(self, node: int | None) -> NodeAddress | None:
        """Return a node's address; None for a node that is not known, or not there."""
        return None if node is None else self.nodes.get(node)

    def learn(self, request: Message, response: Message) -> None:
        key, body = response.api.key, response.body
        if key in SHOWING:
            self.names.update(shown := dict(pairs(response)))
            self.ids.update((name, number) for number, name in shown.items())
        if key == METADATA:
            self.metadata(request, response)
        elif key == FIND_COORDINATOR:
            self.find_coordinator(request.body, body)
        elif key == API_VERSIONS and not body["error_code"]:
            self.versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}
        elif key == CREATE_TOPICS:
            created = {topic.name for topic in topics(response) if topic.name and not topic.fields["error_code"]}
            self.missing -= created
            self.make(created)
        elif key == DELETE_TOPICS:
            for topic in topics(response):
                if not topic.fields["error_code"]:
                    self.forget(topic.name)

    def metadata(self, request: Message, response: Message) -> None:
        self.nodes.update((one["node_id"], (one["host"], one["port"])) for one in response.body["brokers"] or ())
        creates = request.body.get("allow_auto_topic_creation", True) and request.body["topics"]
        for topic in topics(response):
            name, failed = topic.name, topic.fields["error_code"]
            if failed and creates and name and name not in self.missing | self.ids.keys():
                self.make([name])  # LEADER_NOT_AVAILABLE, or not yet there: it may be being made
            if failed or not name:
                continue
            leaders = {(name, one.number): one.fields["leader_id"] for one in partitions_of(response, topic)}
            self.leaders.update(leaders)
            if name not in self.created or min(leaders.values(), default=-1) >= 0:
                self.looked_up.add(name)

    def find_coordinator(self, request: dict[str, Any], body: dict[str, Any]) -> None:
        kind = request.get("key_type", GROUP)
        coordinators = body["coordinators"] if "coordinators" in body else [{**body, "key": request["key"]}]
        for coordinator in coordinators or ():
            if not coordinator["error_code"]:
                self.coordinators[kind, coordinator["key"]] = coordinator["node_id"]
                self.nodes.setdefault(coordinator["node_id"], (coordinator["host"], coordinator["port"]))
                self.looked_up.add((kind, coordinator["key"]))

    def make(self, topics: Iterable[str]) -> None:
        """Note topics that requests of the replay create: they may not be there at once."""
        self.created.update(created := set(topics))
        self.looked_up -= created

    def give_up(self, topics: Iterable[str]) -> None:
        """Note topics as missing that have been waited for long enough."""
        self.missing.update(gone := self.created.intersection(topics))
        self.created -= gone

    def forget(self, topic: str | None) -> None:
        if topic:
            self.ids.pop(topic, None)
            self.created.discard(topic)
            self.looked_up.discard(topic)
            for key in [key for key in self.leaders if key[0] == topic]:
                del self.leaders[key]


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Command to connect, authenticate if need be, and call `opened` or `failed`."""

    link: int
    address: NodeAddress


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Command to send these bytes, with their length in front, over this link."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Command to close a link that is not needed any more. No event follows."""

    link: int


@dataclass(frozen=True, slots=True)
class TickAt:
    """Command to call `tick` at this time, or soon after it."""

    when: float


@dataclass(frozen=True, slots=True)
class FinishReplay:
    """Command to end the replay. `reason`: why it could not even begin; empty if it did."""

    reason: str = ""


PlayerCommand = OpenLink | SendRequest | CloseLink | TickAt | FinishReplay


REQUEST_AT, RESPONSE_AT = 4, 0
"""Positions of the correlation id in frames without their length."""
LAST = 2**31 - 1


def renumbered(frame: bytes, number: int) -> bytes:
    """Return a request frame, without its length, with this correlation id."""
    return frame[:REQUEST_AT] + number.to_bytes(4, "big") + frame[REQUEST_AT + 4 :]


def answered(frame: bytes, number: int) -> bytes:
    """Return a response frame, without its length, with this correlation id."""
    return number.to_bytes(4, "big", signed=True) + frame[RESPONSE_AT + 4 :]


def number_of(response: bytes) -> int:
    """Return the correlation id of a response frame. Raises ValueError if it is too short to have one."""
    if len(response) < RESPONSE_AT + 4:
        raise ValueError(f"a response of {len(response)} bytes, expected at least {RESPONSE_AT + 4}")
    return int.from_bytes(response[:4], "big", signed=True)


def following(number: int) -> int:
    """Return the next correlation id; they stay above 0."""
    return 1 if number == LAST else number + 1


OnResponse = Callable[[bytes | None, float], None]
"""Called with the response's frame, without its length, or None when the connection ended before, and the time."""

SCOUT = 0
"""The line of the replay's own requests."""


@dataclass(slots=True)
class ReplayLink:
    """Connection of a replay to the target. `line` is the recorded connection that it replays."""

    number: int
    line: int
    address: NodeAddress
    opened: bool = False
    last: int = 0
    pending: dict[int, OnResponse] = field(default_factory=dict)
    """Correlation id → callback for the response; oldest first."""
    queue: list[tuple[bytes, OnResponse]] = field(default_factory=list)
    """Requests to be sent once the link is open."""


class ReplayLinks:
    """Links of one replay.

    `unreachable`: addresses that could not be connected to, and why; they are not tried again.
    """

    def __init__(self, commands: list[PlayerCommand]) -> None:
        self.commands = commands
        self.by_number: dict[int, ReplayLink] = {}
        self.by_place: dict[tuple[int, NodeAddress], ReplayLink] = {}
        self.unreachable: dict[NodeAddress, str] = {}
        self.opened = 0
        """Number of links opened so far."""

    def to(self, line: int, address: NodeAddress) -> ReplayLink:
        """Return the link of this line to this address; open one if necessary."""
        link = self.by_place.get((line, address))
        if link is None:
            self.opened += 1
            link = self.by_number[self.opened] = self.by_place[line, address] = ReplayLink(self.opened, line, address)
            self.commands.append(OpenLink(link.number, address))
        return link

    def send(self, link: ReplayLink, frame: bytes, then: OnResponse | None) -> None:
        """Send this request, with a correlation id of the link's. `then` None: no response is due."""
        if not link.opened:
            assert then is not None
            link.queue.append((frame, then))
            return
        link.last = following(link.last)
        if then is not None:
            link.pending[link.last] = then
        self.commands.append(SendRequest(link.number, framed(renumbered(frame, link.last))))

    def established(self, number: int) -> None:
        """Send the requests that waited for this link, which is open now."""
        link = self.by_number.get(number)
        if link is not None:
            link.opened = True
            queue, link.queue = link.queue, []
            for frame, then in queue:
                self.send(link, frame, then)

    def received(self, number: int, frame: bytes, now: float) -> str:
        """Take a response; returns its error, or an empty text.

        A response without a request is ignored: some brokers answer Produce with acks=0.
        """
        link = self.by_number.get(number)
        if link is None:
            return ""
        try:
            then = link.pending.pop(number_of(frame), None)
        except ValueError as error:
            return str(error)
        if then is not None:
            then(frame, now)
        return ""

    def lost(self, number: int, now: float, reason: str = "") -> None:
        """Drop a link that has ended, or could not be opened for this reason, and fail all requests that wait for
        it."""
        link = self.by_number.pop(number, None)
        if link is None:
            return
        del self.by_place[link.line, link.address]
        if reason:
            self.unreachable[link.address] = reason
        waiting = [*link.pending.values(), *(then for _, then in link.queue)]
        for then in waiting:
            then(None, now)

    def close(self, link: ReplayLink) -> None:
        """Close a link that is not needed any more."""
        self.by_number.pop(link.number, None)
        self.by_place.pop((link.line, link.address), None)
        self.commands.append(CloseLink(link.number))

    def close_line(self, line: int) -> None:
        """Close all links of a line that needs them no more."""
        for link in [link for link in self.by_number.values() if link.line == line]:
            self.close(link)
