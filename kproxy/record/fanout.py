"""Sinks of exchanges, and the fan-out to all attached sinks, which determines the required depth of observers.

Metadata responses are learned here, independent of the sinks: topic ids need names. They give the metadata of a
cluster: topics with their ids and leaders, and nodes, by the broker's names. Responses about some topics only add to
them. A broker-side response about "all topics" replaces them, so deleted topics disappear.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from kproxy.base.cooperative import run_to_end, yielding, yielding_range
from kproxy.base.errors import InternalError
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import METADATA

from .exchange import Depth, Frame, ObservedExchange, Who
from .filters import ExchangeView, Filter, MakeData

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

NO_ID = UUID(int=0)
MOST_TOPICS = 200_000
"""Topics that are remembered of a cluster, some 60 MB; Kafka's own limit of partitions is about there."""

MOST_MISSING = 100
"""Partitions of a topic that an answer may leave out. Kafka's answers name all of them, from 0 on; in a damaged one an
index may be 2^31 - 1, and that many leaders would stop everything."""


class KnownTopic(NamedTuple):
    """Topic of a cluster. `leaders`: node id by partition, -1: none or not told."""

    topic_id: str | None
    internal: bool
    leaders: tuple[int, ...]


class KnownNode(NamedTuple):
    """Broker of a cluster, as it advertises itself."""

    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class ClusterMetadata:
    """Metadata of one cluster. `version` counts changes. `by_id`: names by topic id in hex and dashes."""

    cluster: str
    cluster_id: str | None = None
    controller: int | None = None
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    nodes: dict[int, KnownNode] = field(default_factory=dict)
    by_id: dict[str, str] = field(default_factory=dict)
    version: int = 0

    def learn(self, body: Mapping[str, Any], broker_name: Callable[[str], str | None], own: bool = False) -> None:
        """Take in the body of a Metadata response, with yield points: it may be of 200,000 partitions.

        `broker_name`: the broker's name of a topic, None: the same. `own`: it came straight from a broker, names all
        topics, and its addresses are the brokers' own.
        """
        listed, before = {}, list(self.topics) if own else []  # names learned by others while this yields are kept
        for topic in yielding(body.get("topics") or ()):
            name = topic.get("name")
            if name and not topic["error_code"]:
                listed[broker_name(name) or name] = topic_metadata(topic)
        if not own:
            self.cluster_id = body.get("cluster_id") or self.cluster_id
        else:
            self.learn_nodes(body)
            if listed.keys() != self.topics.keys():
                self.version += 1
                for name in yielding(before):
                    if name not in listed:
                        self.topics.pop(name, None)
        for name, metadata in yielding(listed.items()):
            known = self.topics.get(name)
            if known != metadata and (known is not None or len(self.topics) < MOST_TOPICS):
                self.topics[name] = metadata
                self.version += 1
                if metadata.topic_id is not None:
                    self.by_id[metadata.topic_id] = name
        if len(self.by_id) > 2 * MOST_TOPICS:  # ids of topics that are gone
            kept = {one.topic_id for one in yielding(list(self.topics.values()))}
            for topic_id in yielding(list(self.by_id)):
                if topic_id not in kept:
                    self.by_id.pop(topic_id, None)

    def learn_names(self, names: Mapping[str, str]) -> None:
        """Store the names of topics that are known only by their ids."""
        for topic_id, name in names.items():
            if len(self.by_id) < 2 * MOST_TOPICS:
                self.by_id.setdefault(topic_id, name)

    def learn_nodes(self, body: Mapping[str, Any]) -> None:
        nodes = {
            broker["node_id"]: KnownNode(broker["host"], broker["port"], broker.get("rack"))
            for broker in yielding(body.get("brokers") or ())
        }
        learnt = nodes, body.get("controller_id"), body.get("cluster_id")
        if learnt != (self.nodes, self.controller, self.cluster_id):
            self.nodes, self.controller, self.cluster_id = learnt
            self.version += 1


def topic_metadata(topic: Mapping[str, Any]) -> KnownTopic:
    partitions = {one["partition_index"]: one["leader_id"] for one in yielding(topic["partitions"] or ())}
    most = min(max(partitions, default=-1) + 1, len(partitions) + MOST_MISSING)
    leaders = tuple(partitions.get(index, -1) for index in yielding_range(most))
    topic_id = topic.get("topic_id", NO_ID)
    return KnownTopic(None if topic_id == NO_ID else str(topic_id), bool(topic.get("is_internal")), leaders)


class Sink(Protocol):
    """Receiver of exchanges. Called in the loop's thread: long work belongs on another thread. Must not raise.

    `broker_side`: `take_behind` is called as well; constant while attached.
    """

    @property
    def broker_side(self) -> bool: ...

    def depth(self, key: int, version: int) -> Depth:
        """Return how much of these frames it wants; asked once for each (api, version) while it is attached."""
        ...

    def take(self, seen: ObservedExchange) -> None:
        """Take an exchange that is over: answered, or known to remain without an answer."""
        ...

    def take_behind(self, seen: ObservedExchange) -> None:
        """Take an exchange as the broker saw it: with kproxy's own requests, without what kproxy answered itself.

        It may come before or after the client's of the same correlation id.
        """
        ...

    def opened(self, who: Who, now: float) -> None:
        """Take note that a client connected at `now`, which may be before the sink was attached."""
        ...

    def closed(self, who: Who, now: float) -> None:
        """Take note that a connection is over; all its exchanges have been taken."""
        ...


class Fanout:
    """Fan-out of one process's exchanges to its sinks.

    `changed` is called when sinks are attached or detached; observers then need the new `depth`. `changed_samplers` is
    called for samplers, without urgency. `steady` sinks receive everything. `samplers` receive exchanges as far as the
    budget allows: none while `looking` is False. `sinks` are those that are shown something now. `turn` counts changes
    of that, which come too often to go through all connections each time: each learns of them before its next bytes.
    `spend` receives the cost of sampling.
    """

    def __init__(self, log: FilteringBoundLogger, changed: Callable[[], None] = lambda: None) -> None:
        self.log, self.changed, self.changed_samplers = log, changed, changed
        self.sinks: tuple[Sink, ...] = ()
        self.steady: tuple[Sink, ...] = ()
        self.samplers: tuple[Sink, ...] = ()
        self.looking = True
        self.turn = 0
        self.spend: Callable[[float], None] = _spend_freely
        self.frame_limit = 1 << 20  # bytes that are kept of a frame at FULL and RAW depth
        self.alone = False
        self.pictures: dict[str, ClusterMetadata] = {}
        self._unsampled: Fanout | None = None
        self.failures = 0
        """Number of times that a sink raised, which none should."""

    def picture(self, cluster: str) -> ClusterMetadata:
        """Return the metadata of a cluster, made when it is first asked for."""
        return self.pictures.setdefault(cluster, ClusterMetadata(cluster))

    def add(self, sink: Sink, *, slowly: bool = False) -> None:
        """Attach a sink; it receives exchanges that begin later. `slowly`: of open connections some at a time, for a
        sink that may miss something."""
        self._check_alone()
        self.steady = (*self.steady, sink)
        self._begin_turn()
        (self.changed_samplers if slowly else self.changed)()

    def add_alone(self, sink: Sink, frame_limit: int) -> None:
        """Attach a sink at RAW depth, and keep `frame_limit` bytes of a frame. No other sink may be attached, since it
        would receive the credentials."""
        if self.wanted:
            raise InternalError("expected no sink before a sink that receives credentials")
        self.frame_limit = frame_limit
        self.add(sink)
        self.alone = True

    def _check_alone(self) -> None:
        if self.alone:
            raise InternalError("expected no sink after a sink that receives credentials")

    def renew_depths(self) -> None:
        """Have observers apply the changed needs of the sinks, in several steps."""
        self._begin_turn()
        self.changed_samplers()

    def add_sampler(self, sink: Sink, spend: Callable[[float], None]) -> None:
        """Attach a sink that receives exchanges within the budget, until `look(False)`. `spend` gets the seconds that
        each call of an observer took while it is attached."""
        self._check_alone()
        self.samplers, self.spend, self.looking = (*self.samplers, sink), spend, True
        self._begin_turn()
        self.changed_samplers()

    def remove(self, sink: Sink, *, slowly: bool = False) -> None:
        changed = self.changed_samplers if slowly or sink in self.samplers else self.changed
        self.steady = tuple(one for one in self.steady if one is not sink)
        self.samplers = tuple(one for one in self.samplers if one is not sink)
        if not self.samplers:
            self.looking, self.spend = True, _spend_freely
        self._begin_turn()
        changed()

    def set_sampling(self, looking: bool) -> None:
        """Start or stop showing exchanges to samplers; connections apply it before their next bytes."""
        if looking is not self.looking:
            self.looking = looking
            self._begin_turn()

    def _begin_turn(self) -> None:
        self.sinks = (*self.steady, *self.samplers) if self.looking else self.steady
        self.turn += 1
        if self._unsampled is not None:
            self._unsampled.steady = self._unsampled.sinks = (*self.steady, *self.samplers)

    def unsampled(self) -> Fanout:
        """Return a fan-out to the same sinks that treats samplers as other sinks, for the few connections with a
        waiting viewer."""
        if self._unsampled is None:
            self._unsampled = Fanout(self.log)
            self._unsampled.pictures = self.pictures
            self._begin_turn()
        return self._unsampled

    @property
    def wanted(self) -> bool:
        """Return True if there are sinks, whether they are shown anything now or not."""
        return bool(self.steady or self.samplers)

    def depth(self, key: int, version: int) -> Depth:
        """Return the greatest depth that any sink wants for this API and version; RAW only for `add_alone`."""
        least = Depth.SKETCH if key == METADATA else Depth.COUNT
        most = Depth.RAW if self.alone else Depth.FULL
        return min(most, max(least, *(sink.depth(key, version) for sink in self.sinks))) if self.sinks else Depth.COUNT

    @property
    def broker_side(self) -> bool:
        """Return True if any sink wants to see what passes between kproxy and the broker."""
        return any(sink.broker_side for sink in self.sinks)

    # ---- calls of the observers' owners

    def take(self, seen: ObservedExchange) -> None:
        with run_to_end():
            if seen.key == METADATA and seen.outcome == "answered":
                self._call(self._learn, seen)
            for sink in self.sinks:
                self._call(sink.take, seen)

    def take_behind(self, seen: ObservedExchange) -> None:
        """Give an exchange as the broker saw it to the sinks that want it."""
        with run_to_end():
            for sink in self.sinks:
                if sink.broker_side:
                    self._call(sink.take_behind, seen)

    def opened(self, who: Who, now: float) -> None:
        for sink in self.sinks:
            self._call(sink.opened, who, now)

    def closed(self, who: Who, now: float) -> None:
        for sink in self.sinks:
            self._call(sink.closed, who, now)

    def _learn(self, seen: ObservedExchange) -> None:
        body = seen.response_body
        if body is not None and seen.who.cluster is not None:
            self.picture(seen.who.cluster).learn(body, seen.who.broker_topic)

    def _call(self, method: Callable[..., None], *arguments: object) -> None:
        """Call a sink, and count and log what it raises: traffic goes on, whatever a sink does."""
        try:
            method(*arguments)
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                self.log.error("bug in kproxy, a sink raised", exc_info=error)


def _spend_freely(seconds: float) -> None:
    """Do nothing: without samplers the time is not counted."""


MOST_WAITING = 10_000
"""Exchanges; a second of a busy proxy."""
MOST_BYTES = 32 << 20
"""Bytes of the frames of exchanges that wait: filters on records want whole ones."""
SMALLEST = 1000
"""Bytes that an exchange counts for at least: the objects that it is made of."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Counts of exchanges that a listener was not shown since its last call.

    `dropped`: those that did not fit; `apis`: the same by API. `unknown`: those that the filter could not judge; `why`:
    the reason of the last one.
    """

    dropped: int = 0
    unknown: int = 0
    why: str = ""
    apis: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dropped or self.unknown)


# `TailSink` serves one listener of live traffic, `kproxy tail`. Its filter is evaluated at the end of an exchange.
# Matches wait unchanged until the listener fetches them; lines are made then, so a slow listener costs traffic nothing.
# Matches that do not fit are dropped and counted: traffic never waits for a listener.
class TailSink:
    """Sink of one listener.

    `make`: an exchange's data as the filter sees it. `wake` is called when there is something to `drain`. `least`: the
    least depth of exchanges that can match. `mask`: returns an exchange as a filter about records sees it.
    """

    broker_side = False

    def __init__(
        self, wanted: Filter, make: MakeData, wake: Callable[[], None], *,
        most: int = MOST_WAITING, most_bytes: int = MOST_BYTES, least: Depth = Depth.SKETCH,
        mask: Callable[[ObservedExchange], ObservedExchange] = lambda seen: seen,
    ) -> None:  # fmt: skip
        self.mask = mask
        self.wanted, self.make, self.wake, self.least = wanted, make, wake, least
        self.most, self.most_bytes = most, most_bytes
        self.waiting: deque[tuple[ObservedExchange, int]] = deque()
        self.bytes = 0
        self.dropped = 0
        self._dropped_apis: Counter[str] = Counter()
        self._missed_before = Missed()

    def depth(self, key: int, version: int) -> Depth:
        """Return `least` or more for exchanges that can match, COUNT for all others."""
        if not self.wanted.possible(key, version):
            return Depth.COUNT
        return max(self.least, self.wanted.depth(key, version))

    def take(self, seen: ObservedExchange) -> None:
        shown = self.mask(seen) if self.wanted.needs_records else seen
        if not self.wanted.holds(ExchangeView(shown, self.make)):
            return
        size = SMALLEST + _kept(seen.request) + _kept(seen.response)
        if len(self.waiting) >= self.most or self.bytes + size > self.most_bytes:
            self.dropped += 1
            if seen.key in schema.paths():  # clients choose the others, without end
                self._dropped_apis[seen.api] += 1
        else:
            self.waiting.append((seen, size))
            self.bytes += size
        self.wake()

    def take_behind(self, seen: ObservedExchange) -> None:
        """Not called: it shows the client side."""

    def opened(self, who: Who, now: float) -> None:
        """Do nothing: connections are not shown."""

    def closed(self, who: Who, now: float) -> None:
        """Do nothing: connections are not shown."""

    def drain(self, most: int) -> list[ObservedExchange]:
        """Remove and return the oldest exchanges that wait, at most `most`."""
        drained: list[ObservedExchange] = []
        while self.waiting and len(drained) < most:
            seen, size = self.waiting.popleft()
            self.bytes -= size
            drained.append(seen)
        return drained

    def missed(self) -> Missed:
        """Return the number of missed exchanges since the last call."""
        now = Missed(self.dropped, self.wanted.unknown, self.wanted.why)
        before, self._missed_before = self._missed_before, now
        apis, self._dropped_apis = self._dropped_apis, Counter()
        return Missed(now.dropped - before.dropped, now.unknown - before.unknown, now.why, apis)


def _kept(frame: Frame | None) -> int:
    return 0 if frame is None else len(frame.data) + len(frame.sketch)
