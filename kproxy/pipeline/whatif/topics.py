"""The topics that a request is about, for what is told of it.

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
from kproxy.rules.entity_reader import Seen as Sighting
from kproxy.rules.entity_reader import entity_reader, sightings
from kproxy.wire import layout, schema
from kproxy.wire.head import body_start
from kproxy.wire.layout import ZERO_UUID
from kproxy.wire.shapes import shape
from kproxy.wire.walk import Hits, walk

from .recorded import Recorded

MOST_TOPICS = 20
"""Topics of one request that are named."""
MOST_KNOWN = 10_000
"""Values that are known by their bytes."""
NAMES = frozenset(("topic", "topic_id"))

Topics = Mapping[UUID, str]
Named = UUID | str
Reader = Callable[[bytes, int, int], Iterable[Named]]


def topics_of(recorded: Recorded, topics: Topics) -> tuple[str, ...]:
    """Topics that a request is about, each once; ids whose names are not known as they are."""
    read = reader(recorded.api_key, recorded.version)
    if read is None:
        return ()
    frame = recorded.request
    version = header_version(recorded.api_key, recorded.version)
    try:
        body = body_start(frame, 0, len(frame), version, "request")
        found = read(frame, body or len(frame), len(frame))
    except DecodeError:
        return ()
    names = dict.fromkeys(topics.get(one, str(one)) if isinstance(one, UUID) else one for one in found)
    return tuple(names) if len(names) <= MOST_TOPICS else tuple(names)[:MOST_TOPICS]


@cache
def header_version(key: int, version: int) -> int:
    return schema.load(key).header_version("request", version)


@cache
def reader(key: int, version: int) -> Reader | None:
    """How topics are read; None for what the protocol table lacks."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    form = shape(key, version)
    slots = {slot.path: slot for slot in layout.body(key, version, "request").everywhere()}
    seen = dict(sightings(form, slots))
    places = {path: one for path, one in seen.items() if one.role in NAMES}
    special = any(one.role in SPECIAL for one in seen.values())
    return by_entities(key, version) if special or len(places) > 1 else by_walk(key, version, places)


def by_entities(key: int, version: int) -> Reader:
    entities = entity_reader(key, version)

    def read(frame: bytes, body: int, end: int) -> list[Named]:
        found: list[Named] = []
        for one in entities.read(frame, body, end):
            if one.topic:
                found.append(one.topic)
            elif one.topic is None and one.topic_id is not None and one.topic_id != ZERO_UUID:
                found.append(one.topic_id)
        return found

    return read


def by_walk(key: int, version: int, places: Mapping[str, Sighting]) -> Reader | None:
    """Of an API whose topics stand at one place; None: at none."""
    if not places:
        return None
    ((path, sighting),) = places.items()
    value = sighting.read
    assert value is not None, "a name or an id"
    found = walk(key, version, "request", frozenset((path,)))
    run, number = found.run, found.find("value", path)
    known: dict[bytes, Named | None] = {}

    def named(frame: bytes, start: int, stop: int) -> Named | None:
        raw = frame[start:stop]
        if raw not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            said = value(frame, start, stop)
            known[raw] = None if said == ZERO_UUID else said or None
        return known[raw]

    def read(frame: bytes, body: int, end: int) -> list[Named]:
        hits: Hits = []
        run(frame, body, end, hits)
        said = [named(frame, start, stop) for mark, start, stop in hits if mark == number]
        return [one for one in said if one is not None]

    return read
