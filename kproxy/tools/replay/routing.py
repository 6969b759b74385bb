"""Routing of recorded requests to partition leaders or coordinators, and gates that keep the recorded order.

Recorded nodes and addresses do not exist in the target. A request about partitions with several leaders is split, one
part for each leader, and the responses are merged. If the partitions of a fetch session (KIP-227) have several
leaders, no session is used. Requests without partitions and groups go to the bootstrap server, since brokers forward
requests for the controller (KIP-590). A ShareFetch goes as a whole to the leader of most of its partitions, since its
session belongs to one broker (KIP-932).

A request that succeeded in the recording is repeated while the target reports that it is not ready. Such an error
means that the target changed nothing.

A gate counts the responses that came before a request in the recording. The request passes once as many of them have
come again. `all` waits for responses of all connections. `connection` waits for responses of the request's own
connection, and for responses that other connections depend on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.elements import partitions
from kproxy.protocol.table.api_keys import FETCH, NEW_HEARTBEATS, PRODUCE
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.schema import keys_of
from kproxy.protocol.table.shapes import Level, shape
from kproxy.rules.entity import Entity, entities
from kproxy.session.respond import without
from kproxy.tools.replay.recording import RecordedExchange, Recording
from kproxy.tools.replay.target import GROUP, TRANSACTION, CoordinatorKey, NodeAddress, TargetCluster

from .recording import codes
from .target import OnResponse

GIVERS = NEW_HEARTBEATS | keys_of("""
    Metadata FindCoordinator JoinGroup SyncGroup CreateTopics DeleteTopics CreatePartitions InitProducerId
    AddPartitionsToTxn AddOffsetsToTxn EndTxn
""")
"""APIs whose results are used by requests on other connections."""


class ResponseGate:
    """Gate of some exchanges, `awaited`, whose responses count."""

    __slots__ = ("done", "places", "reached", "times")

    def __init__(self, awaited: Iterable[RecordedExchange]) -> None:
        answered = sorted((one.seen.response.last, one.place) for one in awaited if one.seen.response is not None)
        self.times = [time for time, _ in answered]
        self.places = {place: number for number, (_, place) in enumerate(answered)}
        self.done = bytearray(len(answered))
        self.reached = 0
        """Number of responses, from the first on, that are done."""

    def needs(self, exchange: RecordedExchange) -> int:
        """Return how many responses had come before this request."""
        return bisect_left(self.times, exchange.sent)

    def open_for(self, exchange: RecordedExchange) -> bool:
        """Return True if the request may pass."""
        return self.reached >= self.needs(exchange)

    def finish(self, exchange: RecordedExchange) -> None:
        """Count an exchange as done: its response has come, or will not come."""
        number = self.places.get(exchange.place)
        if number is None:
            return
        self.done[number] = 1
        self.advance()

    def force(self, exchange: RecordedExchange) -> None:
        """Mark all exchanges that this request waits for as done, after a timeout."""
        needed = self.needs(exchange)
        self.done[self.reached : needed] = b"\x01" * max(needed - self.reached, 0)
        self.advance()

    def advance(self) -> None:
        first_open = self.done.find(0, self.reached)
        self.reached = len(self.done) if first_open < 0 else first_open


class RecordingGates:
    """Gates of a recording. `apart`: requests wait for their own connection only."""

    def __init__(self, recording: Recording, *, apart: bool) -> None:
        self.apart = apart
        self.common = ResponseGate(one for one in recording.exchanges if not apart or one.key in GIVERS)
        self.own = {line.number: ResponseGate(line.exchanges) for line in recording.lines} if apart else {}

    def of(self, exchange: RecordedExchange) -> tuple[ResponseGate, ...]:
        return (self.common, self.own[exchange.line.number]) if self.apart else (self.common,)

    def open_for(self, exchange: RecordedExchange) -> bool:
        return all(gate.open_for(exchange) for gate in self.of(exchange))

    def finish(self, exchange: RecordedExchange) -> None:
        for gate in self.of(exchange):
            gate.finish(exchange)

    def force(self, exchange: RecordedExchange) -> None:
        for gate in self.of(exchange):
            gate.force(exchange)


SHARED = keys_of("ShareFetch ShareAcknowledge")
LED = SHARED | keys_of("Produce Fetch ListOffsets DeleteRecords OffsetForLeaderEpoch DescribeProducers")
"""APIs that partitions' leaders answer."""
GROUPED = keys_of("""
    OffsetCommit OffsetFetch OffsetDelete TxnOffsetCommit JoinGroup SyncGroup Heartbeat LeaveGroup DescribeGroups
    DeleteGroups ConsumerGroupHeartbeat ConsumerGroupDescribe ShareGroupHeartbeat ShareGroupDescribe
    StreamsGroupHeartbeat StreamsGroupDescribe DescribeShareGroupOffsets AlterShareGroupOffsets DeleteShareGroupOffsets
""")
"""APIs that a group's coordinator answers."""
TRANSACTED = keys_of("InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn DescribeTransactions")
"""APIs that a transaction's coordinator answers."""


@dataclass(frozen=True, slots=True)
class RequestSubject:
    """Subject of a request: partitions by topic name, or a coordinator's key, or neither."""

    partitions: tuple[tuple[str, int], ...] = ()
    coordinator: CoordinatorKey | None = None


ANYWHERE = RequestSubject()


def subject_of(request: Message | None, names: Mapping[UUID, str]) -> RequestSubject:
    """Return the subject of a recorded request; `names` are those of recorded topic ids."""
    if request is None:
        return ANYWHERE
    key = request.api.key
    if key in LED:
        named = [(one.topic or names.get(one.topic_id or ZERO_UUID), one.partition) for one in entities(request)]
        return RequestSubject(tuple((topic, number) for topic, number in named if topic and number is not None))
    if key in GROUPED:
        groups = [one.group for one in entities(request) if one.group]
        group = groups[0] if groups else request.body.get("group_id")
        return RequestSubject(coordinator=(GROUP, group)) if group else ANYWHERE
    if key in TRANSACTED:
        ids = [one.transactional_id for one in entities(request) if one.transactional_id]
        return RequestSubject(coordinator=(TRANSACTION, ids[0])) if ids else ANYWHERE
    return ANYWHERE


class RequestRouter:
    """Router of a replay's requests to brokers.

    `spread`: numbers of the lines whose fetches go to several; `astray`: partitions of share groups that were asked of
    a broker which does not lead them.
    """

    def __init__(self, target: TargetCluster, names: Mapping[UUID, str]) -> None:
        self.target, self.names = target, names
        self.spread: set[int] = set()
        self.fetched: dict[int, RequestSubject] = {}
        """Number of a line → all partitions that its fetches name."""
        self.shared: dict[int, NodeAddress] = {}
        """Number of a line → where its share fetches go."""
        self.astray = 0

    def of(self, exchange: RecordedExchange) -> RequestSubject:
        """Return the request's subject; a Fetch is about all that its connection fetches."""
        if exchange.key != FETCH:
            return subject_of(exchange.request, self.names)
        line = exchange.line
        if line.number not in self.fetched:
            partitions: dict[tuple[str, int], None] = {}
            for fetch in line.exchanges:
                if fetch.key == FETCH and not fetch.unfit:
                    partitions.update(dict.fromkeys(subject_of(fetch.request, self.names).partitions))
                    fetch.forget()
            self.fetched[line.number] = RequestSubject(tuple(partitions))
        return self.fetched[line.number]

    def unknown(self, wanted: RequestSubject) -> set[str | CoordinatorKey]:
        """Return the topics and coordinators that must be looked up first."""
        known = self.target.looked_up
        missing: set[str | CoordinatorKey] = {topic for topic, _ in wanted.partitions if topic not in known}
        if wanted.coordinator is not None and wanted.coordinator not in known:
            missing.add(wanted.coordinator)
        return missing

    def forget(self, wanted: RequestSubject) -> None:
        """Schedule a new lookup of a subject that has moved."""
        self.target.looked_up.difference_update(topic for topic, _ in wanted.partitions)
        if wanted.coordinator is not None:
            self.target.looked_up.discard(wanted.coordinator)

    def addresses(self, exchange: RecordedExchange, wanted: RequestSubject) -> list[NodeAddress]:
        """Return the addresses for the parts of the request, by the current metadata; at least one."""
        if wanted.coordinator is not None:
            node = self.target.coordinators.get(wanted.coordinator)
            return [self.target.address_of(node) or self.target.bootstrap]
        if exchange.key in SHARED:
            return [self.majority(exchange, wanted)]
        leaders = dict.fromkeys(self.leader(one) for one in wanted.partitions)
        known = [one for one in leaders if one is not None]
        if exchange.key == FETCH and len(known) > 1:
            self.spread.add(exchange.line.number)
        return known or [self.target.bootstrap]

    def leader(self, partition: tuple[str, int]) -> NodeAddress | None:
        """Return the address of a partition's leader; None if it has none, or none that is known."""
        return self.target.address_of(self.target.leaders.get(partition))

    def parts(self, request: Message, addresses: list[NodeAddress]) -> list[tuple[NodeAddress, Message]]:
        """Split the request, with the target's ids, for these brokers; parts without a leader go to the first of
        them."""
        if len(addresses) == 1:
            return [(addresses[0], request)]
        groups: dict[NodeAddress, list[Entity]] = {}
        for entity in entities(request):
            topic = entity.topic or self.target.names.get(entity.topic_id or ZERO_UUID, "")
            led = None if entity.partition is None else self.leader((topic, entity.partition))
            groups.setdefault(led if led in addresses and led is not None else addresses[0], []).append(entity)
        parts = []
        for address, group in groups.items():
            part = without(request, [entity for other in groups.values() if other is not group for entity in other])
            if part is not None:
                parts.append((address, part))
        return parts or [(addresses[0], request)]

    def majority(self, exchange: RecordedExchange, wanted: RequestSubject) -> NodeAddress:
        """Return the leader of most of the partitions of a share group's request, for it and those after it."""
        number = exchange.line.number
        if number not in self.shared:
            led = Counter(leader for part in wanted.partitions if (leader := self.leader(part)) is not None)
            if not led:
                return self.target.bootstrap
            ((self.shared[number], most),) = led.most_common(1)
            self.astray += led.total() - most
        return self.shared[number]


class ResponseGatherer:
    """Collector of the responses to `count` parts of a request.

    It hands on one frame, or None if a part has no response.
    """

    def __init__(self, request: Message, count: int, then: OnResponse) -> None:
        self.request, self.count, self.then = request, count, then
        self.frames: list[bytes] = []

    def part(self, frame: bytes | None, now: float) -> None:
        if self.count <= 0:
            return
        if frame is None:
            self.count = 0
            self.then(None, now)
            return
        self.frames.append(frame)
        if len(self.frames) == self.count:
            self.count = 0
            self.then(merged_response(self.request, self.frames), now)


def merged_response(request: Message, frames: list[bytes]) -> bytes:
    """Merge the frames into one; the first stays unchanged if one of them cannot be read."""
    form = shape(request.api.key, request.version)
    try:
        first, *others = (decode_response(one, request.api.key, request.version, trailing=True) for one in frames)
    except DecodeError:
        return frames[0]
    for other in others:
        if form.code is not None and not first.body[form.code]:
            first.body[form.code] = other.body[form.code]
        add_elements(form.response, first.body, other.body)
    return encode(first)


def add_elements(levels: tuple[Level, ...], into: dict[str, Any], other: dict[str, Any]) -> None:
    """Add the elements of `other` to `into`, those with the same keys into each other."""
    level = levels[0]
    known = {tuple(level.roles(element).values()): element for element in into[level.array]}
    for element in level.elements(other):
        same = known.get(tuple(level.roles(element).values()))
        if same is None:
            into[level.array].append(element)
        elif len(levels) > 1:
            add_elements(levels[1:], same, element)


NOT_YET = frozenset((5, 14, 15, 51))
"""LEADER_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, CONCURRENT_TRANSACTIONS."""
MOVED = frozenset((6, 16))
"""NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR: the location is looked up again."""
NO_TOPIC = frozenset((3, 100))
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: for topics that the replay has just created."""
REPEATED = keys_of("""
    Produce OffsetCommit JoinGroup SyncGroup InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit
""")
"""APIs of requests that do something. A retry of a refused request, in addition to the client's own recorded retry,
would do it twice: write records again, or leave a member without a client in a group."""
WAS_REFUSED = "the recorded cluster was not ready for it, and its client asked again"


def was_refused(exchange: RecordedExchange) -> bool:
    """Return True if a request had no effect when it was recorded, because the cluster was not ready or had moved."""
    if exchange.key not in REPEATED or exchange.response is None:
        return False
    recorded_codes = codes(exchange.response)
    return (
        bool(recorded_codes)
        and recorded_codes <= NOT_YET | MOVED
        and not partly_written(exchange.key, exchange.response)
    )


def partly_written(key: int, response: Message) -> bool:
    """Return True if some partition of a Produce went well."""
    return key == PRODUCE and any(not partition.error_code for partition in partitions(response))


def not_ready(exchange: RecordedExchange, now: Message, target: TargetCluster) -> bool:
    """Return True if the request should be sent again.

    A Produce that partly went well should not, nor a Fetch, which the next Fetch repeats.
    """
    now_codes = codes(now)
    if not now_codes or not now_codes <= NOT_YET | MOVED | NO_TOPIC or exchange.key == FETCH:
        return False
    if partly_written(exchange.key, now):
        return False
    if exchange.response is None or now_codes & codes(exchange.response):
        return False
    if not now_codes & NO_TOPIC:
        return True
    topics = {topic for topic, _ in subject_of(exchange.request, {}).partitions}
    return bool(topics) and topics <= target.created
