"""Base class of kinds that change one frame of an exchange: its random choices, and the frame's bytes with size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import FEW, yield_point, yielding
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import known_body_start
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange, FrameDepth, ShapedDirection, TrafficShape
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.trigger import MOST_COUNTS
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.source import Where

from .rule import Decisions, Direction, Effect, LiveRule, Scope


class Draws:
    """Random generators of the rule's seed: one per rule, connection or client, by `when: count_scope`. All connections
    draw the same numbers, since their order is not deterministic.

    own: suffix of the seed in this process, if several processes have the rule.
    """

    def __init__(self, seed: str, count_scope: Literal["rule", "connection", "client"] = "rule", own: str = "") -> None:
        self.seed, self.count_scope, self.own = seed, count_scope, own
        self.random = Random(seed + own)
        self.clients: BoundedMap[str, Random] = BoundedMap(MOST_COUNTS)

    def of(self, exchange: Exchange) -> Random:
        if self.count_scope == "rule":
            return self.random
        if self.count_scope == "connection":
            memory = exchange.connection.memory
            if self not in memory:
                memory[self] = Random(self.seed)
            generator: Random = memory[self]
            return generator
        client = exchange.client_id or ""
        if client not in self.clients:
            self.clients[client] = Random(f"{self.seed}:{client}{self.own}")
        return self.clients[client]


class FrameRule(LiveRule):
    """Rule that loses, delays, cuts, spoils or repeats frames. Override `decide`, and have a field `at` if it may act
    on requests."""

    seen: ClassVar[FrameDepth] = FrameDepth.BODY
    """How deep the frame has to be seen."""
    always_acts: ClassVar[bool] = True
    """False if `decide` may return nothing."""

    def side(self, key: int) -> Direction | None:
        """Return the direction of the frame that it acts on, by the field `at` if the kind has one, or None."""
        at: Direction = getattr(self, "at", "response")
        return at

    @property
    def own_seed(self) -> int | None:
        """Seed of its own chances; None: the seed of the rule's trigger."""
        return None

    def decide(self, exchange: Exchange, entities: Sequence[Entity], random: Random) -> Decisions:
        """Return the decisions for the matching entities."""
        raise NotImplementedError

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        """Return `seen` on the side that it acts on."""
        return self.seen if direction == self.side(key) else FrameDepth.NOTHING

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    @property
    def reads_entities(self) -> bool:
        """False, since bytes are changed whatever they mean."""
        return False

    def warnings(self) -> Iterable[str]:
        """Yield a warning if the rule is about responses that do not exist."""
        if self.match is not None and 0 in (self.match.acks or ()) and self.side(0) == "response":
            yield "a Produce request with acks=0 has no response, this rule never acts on one"

    def start(self) -> Effect:
        return FrameEffect(self)


class FrameEffect(Effect):
    """Effect that asks its rule on the side that the rule acts on."""

    def __init__(self, rule: FrameRule) -> None:
        self.rule = rule
        self.always_acts = rule.always_acts
        self.draws: Draws | None = None

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.decided("request", exchange, entities)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.decided("response", exchange, entities)

    def decided(self, direction: Direction, exchange: Exchange, entities: Sequence[Entity]) -> Decisions:
        if self.rule.side(exchange.api.key) != direction:
            return ()
        if self.draws is None:
            when, own = self.rule.when, self.rule.own_seed
            seed = self.seed if own is None else str(own)
            count_scope = "rule" if when is None else when.count_scope
            self.draws = Draws(seed, count_scope, "" if self.common is None else self.common.own)
        return self.rule.decide(exchange, entities, self.draws.of(exchange))


SIZE = 4
"""Bytes of a frame's size."""


def body_at(frame: bytes, exchange: Exchange, direction: Direction) -> int:
    """Return the position of the body. It is after the frame if the header is cut."""
    version = header_version(exchange.api.key, exchange.version, direction)
    start = known_body_start(frame, SIZE, len(frame), version, direction)
    return len(frame) if start is None else start


def sized(content: bytes) -> bytes:
    """Return a frame: the content with its size in front."""
    return len(content).to_bytes(SIZE, "big") + content


def kept(length: int, size: int | None, fraction: float) -> int:
    """Return the number of bytes that stay."""
    return min(size, length) if size is not None else int(length * fraction)


def flipped(data: bytes, start: int, end: int, bits: int, random: Random) -> bytes:
    """Return the data with `bits` different bits of data[start:end] flipped, or all if there are fewer."""
    spoilt = bytearray(data)
    first, count = start * 8, (end - start) * 8
    if count <= bits:
        for place in yielding(range(first, first + count)):
            spoilt[place >> 3] ^= 0x80 >> (place & 7)
        return bytes(spoilt)
    left = bits
    while left:
        if not left % FEW:
            yield_point()
        place = first + int(random.random() * count)  # random() alone is the same in every Python
        at, bit = place >> 3, 0x80 >> (place & 7)
        if not (spoilt[at] ^ data[at]) & bit:  # a set of those that were drawn would take as long to free as to fill
            spoilt[at] ^= bit
            left -= 1
    return bytes(spoilt)


Ways = Literal["to_client", "to_broker", "both"]


def ways(way: Ways) -> frozenset[ShapedDirection]:
    return frozenset(("to_client", "to_broker")) if way == "both" else frozenset((way,))


class ConnectionRule(LiveRule):
    """Rule about whole connections, which looks at no frame. Override `flow` or `opened`."""

    scope: ClassVar[Scope] = "connection"

    def flow(self) -> TrafficShape | None:
        """Return how the bytes of a connection flow under this rule; None: as they come."""
        return None

    def opened(self, connection: ConnectionView) -> Decisions:
        """Return the decisions about a new connection."""
        return ()

    @property
    def connects(self) -> bool:
        return type(self).opened is not ConnectionRule.opened

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.NOTHING

    def start(self) -> Effect:
        return ConnectionEffect(self)


class ConnectionEffect(Effect):
    """Effect that treats all connections in the same way."""

    def __init__(self, rule: ConnectionRule) -> None:
        self.rule, self.flow = rule, rule.flow()

    def on_connect(self, connection: ConnectionView, now: float) -> Decisions:
        return self.rule.opened(connection)

    def shape(self, connection: ConnectionView) -> TrafficShape | None:
        return self.flow


OPENING = (*ConnectionMatch.model_fields, "node")
"""Selectors about what is known when a connection opens."""
TIMES = ("after", "for")


def of_frames(raw: dict[Any, Any], known: Sequence[str] = OPENING) -> Iterator[tuple[str, Where]]:
    """Yield the selectors that a new connection has no value for, with their paths. known: selectors with a value."""
    for side in ("match", "not"):
        for name in raw[side] if isinstance(raw.get(side), dict) else ():
            if name in FrameMatch.model_fields and name not in known:
                yield name, (side, name, KEY)


def for_connections(raw: dict[Any, Any], what: str, known: Sequence[str] = OPENING) -> Iterable[Wrong]:
    """Yield an error for each selector of frames."""
    for name, where in of_frames(raw, known):
        yield where, f'{what}, so that "{name}" cannot be selected on, only {", ".join(known)}'


def for_a_time(raw: dict[Any, Any], what: str) -> Iterable[Wrong]:
    """Yield an error for each word of `when` except times: byte limits have no requests to count."""
    when = raw.get("when")
    for word, value in when.items() if isinstance(when, dict) else ():
        if word not in TIMES:
            yield ("when", word, KEY), f'{what}, so that "{word}" cannot be said, only {" and ".join(TIMES)}'
        elif word == "after" and isinstance(value, int):
            yield ("when", word), f"{what}: expected a duration such as {value}s"
