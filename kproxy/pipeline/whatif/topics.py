"""Topics that a request is about, for findings.

Strategy. In most APIs a topic is a name, or an id, at one place: a walk finds these, and what was found before is known
by its bytes. Where a name and an id stand side by side, or a name is a topic only by a type beside it, the reader of
entities that rules have is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from uuid import UUID

from kproxy.errors import DecodeError
from kproxy.rules.entity import SPECIAL
from kproxy.rules.entity_reader import Sighting, entity_reader, sightings
from kproxy.wire import layout, schema
from kproxy.wire.head import body_start
from kproxy.wire.layout import ZERO_UUID
from kproxy.wire.shapes import shape
from kproxy.wire.walk import Hits, walk

from .packed_exchange import PackedExchange

MOST_TOPICS = 20
"""Topics of one request that are named."""
MOST_KNOWN = 10_000
"""Values that are known by their bytes."""
NAMES = frozenset(("topic", "topic_id"))

TopicNames = Mapping[UUID, str]
TopicOrId = UUID | str
ReadTopics = Callable[[bytes, int, int], Iterable[TopicOrId]]


def topics_of(recorded: PackedExchange, topics: TopicNames) -> tuple[str, ...]:
    """Return the topics that a request is about, each once; ids whose names are not known as they are."""
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
    """Return the reader of a request's topics; None for what the protocol table lacks."""
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
    """Return the reader of an API whose topics stand at one place; None: at none."""
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
