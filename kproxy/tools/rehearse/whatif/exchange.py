"""Recorded exchange as a rehearsal needs it: its packed form, whether rules can be about it, and its topics.

Strategy. An exchange that no rule can be about need not be rehearsed. Topics: in most APIs a topic is a name, or an id,
at one place. A walk finds these, and results are cached by their bytes. For APIs that have both a name and an id, or a
type field that decides if a name is a topic, the rules' own reader of entities is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from uuid import UUID

import msgspec

from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import body_start
from kproxy.protocol.scan.walk import Hits, walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import shape
from kproxy.rules.entity import SPECIAL, Sighting, entity_reader, sightings
from kproxy.rules.exchange import Facts
from kproxy.session.plan import HEAD, MOST_STEPS, Plan, Step

MOST_TOPICS = 20
"""Topics of one request that are named."""
MOST_KNOWN = 10_000
"""Values that are known by their bytes."""
NAMES = frozenset(("topic", "topic_id"))

TopicNames = Mapping[UUID, str]
TopicOrId = UUID | str
ReadTopics = Callable[[bytes, int, int], Iterable[TopicOrId]]


@dataclass(frozen=True, slots=True)
class RecordedClient:
    """Client of a recorded connection; `key` identifies the connection."""

    key: str
    facts: Facts
    client_software: str | None = None


class PackedExchange(msgspec.Struct, array_like=True, gc=False, eq=False):
    """Recorded exchange. Frames are whole and without their length; times are seconds since 1970.

    No response: the broker sent none, or it was not recorded.
    """

    number: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: bytes
    request_time: float
    response: bytes | None = None
    response_time: float | None = None


class ExchangeChunk(msgspec.Struct, array_like=True):
    """Chunk of a connection's exchanges that follow each other, in the order of their requests, and its client."""

    listener: str | None
    cluster: str | None
    client_address: str
    node: int | None
    exchanges: list[PackedExchange]


class CaptureSummary(msgspec.Struct):
    """Summary of a capture.

    `began`: time of its first request. `topics`: names by topic id, as its Metadata responses show them. `opaque`:
    number of exchanges that the rules cannot affect; they are not processed further. `unfit`: how many cannot be
    rehearsed, by reason.
    """

    began: float = 0.0
    topics: dict[str, str] = {}
    opaque: int = 0
    unfit: dict[str, int] = {}


pack = msgspec.msgpack.Encoder().encode
unpack_chunk = msgspec.msgpack.Decoder(ExchangeChunk).decode
unpack_summary = msgspec.msgpack.Decoder(CaptureSummary).decode


class Opaque(dict[int, bool]):
    """Table of the exchanges that none of some plans looks into.

    `api key << 16 | version` → True if so; filled in as they come.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        super().__init__()
        self.plans = plans

    def __missing__(self, code: int) -> bool:
        opaque = all(is_opaque(plan[code]) for plan in self.plans)
        if len(self) < MOST_STEPS:
            self[code] = opaque
        return opaque


def is_opaque(step: Step) -> bool:
    """Return True if both frames would pass unchanged whatever they contain (except for acks, which is only read)."""
    return (
        step.request in (None, HEAD) and step.rewrite_request is None and step.response is None and step.program is None
    )


def topics_of(recorded: PackedExchange, topics: TopicNames) -> tuple[str, ...]:
    """Return the topics of a request, each once; an id without a known name is returned as the id."""
    read = reader(recorded.api_key, recorded.version)
    if read is None:
        return ()
    frame = recorded.request
    version = header_version(recorded.api_key, recorded.version)
    try:
        body = body_start(frame, 0, len(frame), version, "request")
        values = read(frame, body or len(frame), len(frame))
    except DecodeError:
        return ()
    names = dict.fromkeys(topics.get(one, str(one)) if isinstance(one, UUID) else one for one in values)
    return tuple(names) if len(names) <= MOST_TOPICS else tuple(names)[:MOST_TOPICS]


@cache
def header_version(key: int, version: int) -> int:
    return schema.load(key).header_version("request", version)


@cache
def reader(key: int, version: int) -> ReadTopics | None:
    """Return the reader of a request's topics; None if the protocol table lacks them."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    form = shape(key, version)
    slots = {slot.path: slot for slot in layout.body(key, version, "request").everywhere()}
    seen = dict(sightings(form, slots))
    places = {path: one for path, one in seen.items() if one.role in NAMES}
    special = any(one.role in SPECIAL for one in seen.values())
    return by_entities(key, version) if special or len(places) > 1 else by_walk(key, version, places)


def by_entities(key: int, version: int) -> ReadTopics:
    entities = entity_reader(key, version)

    def read(frame: bytes, body: int, end: int) -> list[TopicOrId]:
        topics: list[TopicOrId] = []
        for entity in entities.read(frame, body, end):
            if entity.topic:
                topics.append(entity.topic)
            elif entity.topic is None and entity.topic_id is not None and entity.topic_id != ZERO_UUID:
                topics.append(entity.topic_id)
        return topics

    return read


def by_walk(key: int, version: int, places: Mapping[str, Sighting]) -> ReadTopics | None:
    """Return the reader of an API whose topics are at one place; None: at none."""
    if not places:
        return None
    ((path, sighting),) = places.items()
    value = sighting.read
    assert value is not None, "a name or an id"
    program = walk(key, version, "request", frozenset((path,)))
    run, number = program.run, program.find("value", path)
    known: dict[bytes, TopicOrId | None] = {}

    def named(frame: bytes, start: int, stop: int) -> TopicOrId | None:
        raw = frame[start:stop]
        if raw not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            topic = value(frame, start, stop)
            known[raw] = None if topic == ZERO_UUID else topic or None
        return known[raw]

    def read(frame: bytes, body: int, end: int) -> list[TopicOrId]:
        hits: Hits = []
        run(frame, body, end, hits)
        topics = [named(frame, start, stop) for mark, start, stop in hits if mark == number]
        return [one for one in topics if one is not None]

    return read
