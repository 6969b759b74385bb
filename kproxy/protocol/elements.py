"""Elements of decoded messages: the one walk over the arrays that `shapes.yaml` names.

`elements` follows any chain of levels. `topics` and `partitions` yield those of most messages, whose arrays have names
that differ by API and version. The yielded dicts may be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.base.cooperative import yielding
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import ITSELF, Level, Shape, shape

Body = Mapping[str, Any]
Roles = Mapping[str, Any]
"""Role → value, of an element and of all that is around it."""

NO_ROLES: Roles = {}
TOPIC, TOPIC_ID, PARTITION = "topic", "topic_id", "partition"


class Element(NamedTuple):
    """Innermost element of nested arrays, or one whose own array is empty or null.

    `where`: its index in each array. `chain`: the enclosing elements, itself last.
    """

    roles: Roles
    where: tuple[int, ...]
    chain: tuple[Any, ...]


def elements(levels: Sequence[Level], body: Body, roles: Roles = NO_ROLES) -> Iterator[Element]:
    """Yield the elements of these levels in order. `roles`: roles of every element."""
    return _inside(levels, 0, body, Element(roles, (), ())) if levels else iter(())


def _inside(levels: Sequence[Level], depth: int, parent: Body, around: Element) -> Iterator[Element]:
    level, deeper = levels[depth], depth + 1
    for index, value in enumerate(yielding(level.elements(parent))):
        element = Element({**around.roles, **level.roles(value)}, (*around.where, index), (*around.chain, value))
        if deeper < len(levels) and levels[deeper].elements(value):
            yield from _inside(levels, deeper, value, element)
        else:
            yield element


def top_roles(form: Shape, body: Body) -> dict[str, Any]:
    """Return the values of a request's roles outside of arrays."""
    return {role: body[field] for role, field in form.top}


def request_elements(request: Message) -> Iterator[Element]:
    """Yield the elements of a request's levels, with the roles at its top; none where its outermost array is empty."""
    form = shape(request.api.key, request.version)
    return elements(form.request, request.body, top_roles(form, request.body))


def element_at(request: Message, where: Sequence[int]) -> Any:
    """Return the element of a request at these indexes, as `elements` yields them."""
    found: Any = request.body
    for level, index in zip(shape(request.api.key, request.version).request, where, strict=False):
        found = level.elements(found)[index]
    return found


class Topic(NamedTuple):
    """Topic in a message. `name` and `id` are None if the version lacks them.

    `fields` is its dict (the bare name in arrays of names), `around` the element that contains its array, such as a
    group; None at the top. `partitions` holds dicts or bare numbers.
    """

    name: str | None
    topic_id: UUID | None
    fields: Any
    around: Any
    partitions: list[Any]


class Partition(NamedTuple):
    """Partition in a message, with name and id of its topic.

    `fields` is its dict or bare number; `around` the dict of its topic.
    """

    topic: str | None
    topic_id: UUID | None
    number: int
    fields: Any
    around: Any

    @property
    def name_or_id(self) -> str | UUID | None:
        """Return the topic's name, its id in versions that have no names."""
        return self.topic_id if self.topic is None else self.topic

    @property
    def records(self) -> Any:
        """Return the records of a Produce request or a Fetch response; None without records."""
        return self.fields["records"]

    @property
    def error_code(self) -> int:
        code: int = self.fields["error_code"]
        return code


NameOfId = Callable[[UUID], str | None]
"""Look-up of a topic's name by its id; None for one that is not known."""


def called(topic: Topic | Partition, name_of: NameOfId) -> str:
    """Return the name of a topic or of a partition's topic; by its id if unnamed; the id as text if unknown."""
    name: str | None = topic[0]
    topic_id = topic.topic_id or ZERO_UUID
    return name or name_of(topic_id) or str(topic_id)


class TopicWalk:
    """Walk over the topics and partitions in messages of one API, version and direction.

    `index` is the field of a partition's number, None where the partition is the number; `flat`: elements name a topic
    and a partition, so that each is a topic with one partition.
    """

    __slots__ = ("around", "arrays", "flat", "index", "name", "partition", "topic_id", "topics")

    def __init__(self, around: Level | None, topics: Level, partitions: Level | None) -> None:
        keys = dict(topics.keys)
        self.around, self.topics = around, topics
        self.name, self.topic_id = keys.get(TOPIC), keys.get(TOPIC_ID) or unkeyed_id(topics)
        self.flat = PARTITION in keys
        self.partition = topics if self.flat else partitions
        self.arrays = () if self.flat or partitions is None else partitions.arrays
        field = ITSELF if self.partition is None else dict(self.partition.keys)[PARTITION]
        self.index = None if field == ITSELF else field

    def find(self, body: Body) -> Iterator[Topic]:
        """Yield the topics of a body in its order."""
        if self.around is None:
            return self._inside(body, None)
        return (topic for element in yielding(self.around.elements(body)) for topic in self._inside(element, element))

    def _inside(self, parent: Body, around: Any) -> Iterator[Topic]:
        name, topic_id, arrays = self.name, self.topic_id, self.arrays
        bare = self.topics.struct is None
        for element in yielding(self.topics.elements(parent)):
            if bare:
                yield Topic(element, None, element, around, [])
                continue
            partitions: list[Any] = [element] if self.flat else []
            if len(arrays) == 1:
                partitions = element.get(arrays[0]) or partitions
            else:
                for array in arrays:
                    partitions += element.get(array) or ()
            yield Topic(
                element[name] if name else None, element[topic_id] if topic_id else None, element, around, partitions
            )

    def inside(self, topic: Topic) -> Iterator[Partition]:
        """Yield the partitions of a topic in its order."""
        name, topic_id, fields, _, elements = topic
        index = self.index
        if index is None:
            for element in yielding(elements):
                yield Partition(name, topic_id, element, element, fields)
        else:
            for element in yielding(elements):
                yield Partition(name, topic_id, element[index], element, fields)


def unkeyed_id(topics: Level) -> str | None:
    """Return the field of an id that a topic has although nothing is found by it, as in CreateTopics."""
    slots = () if topics.struct is None else topics.struct.slots
    return next((slot.name for slot in slots if slot.name == TOPIC_ID), None)


@cache
def topic_walk(key: int, version: int, direction: str) -> TopicWalk | None:
    """Return the walk over the topics of such messages; None where none are listed. Raises KeyError for an API or
    version that the protocol table lacks."""
    form = shape(key, version)
    levels = form.request if direction == "request" else form.lists
    for depth, level in enumerate(levels):
        if {role for role, _ in level.keys} & {TOPIC, TOPIC_ID}:
            deeper = levels[depth + 1] if depth + 1 < len(levels) else None
            if deeper is None and direction == "response":
                deeper = form.described
            return TopicWalk(levels[depth - 1] if depth else None, level, deeper)
    return None


def topics_in(key: int, version: int, direction: str, body: Body | None) -> Iterator[Topic]:
    """Yield the topics of a body, which may also be a sketch's; none for None, whatever the version."""
    walk = None if body is None else topic_walk(key, version, direction)
    return iter(()) if walk is None or body is None else walk.find(body)


def partitions_in(key: int, version: int, direction: str, body: Body | None) -> Iterator[Partition]:
    """Yield the partitions of a body, which may also be a sketch's; none for None, whatever the version."""
    walk = None if body is None else topic_walk(key, version, direction)
    if walk is None or body is None:
        return iter(())
    return (partition for topic in walk.find(body) for partition in walk.inside(topic))


def topics(message: Message) -> Iterator[Topic]:
    """Yield the topics that a message lists, in its order."""
    return topics_in(message.api.key, message.version, message.direction, message.body)


def partitions(message: Message) -> Iterator[Partition]:
    """Yield the partitions that a message lists in topics, in its order."""
    return partitions_in(message.api.key, message.version, message.direction, message.body)


def only_partition(key: int, version: int, direction: str, body: Body) -> Partition | None:
    """Return the only partition of the only topic of a body; None if it has more, or none."""
    walk = topic_walk(key, version, direction)
    found = [] if walk is None else list(walk.find(body))
    return next(walk.inside(found[0])) if walk is not None and [len(one.partitions) for one in found] == [1] else None


def partitions_of(message: Message, topic: Topic) -> Iterator[Partition]:
    walk = topic_walk(message.api.key, message.version, message.direction)
    return iter(()) if walk is None else walk.inside(topic)


def retain(message: Message, wanted: Callable[[Partition], bool]) -> bool:
    """Remove all other partitions from a message in place, and topics without partitions. Returns True if any remain.

    For messages with topics at the top and without null arrays."""
    walk = topic_walk(message.api.key, message.version, message.direction)
    if walk is None or walk.partition is None:
        return False
    kept = []
    for topic in walk.find(message.body):
        topic.fields[walk.partition.array] = [part.fields for part in walk.inside(topic) if wanted(part)]
        if topic.fields[walk.partition.array]:
            kept.append(topic.fields)
    message.body[walk.topics.array] = kept
    return bool(kept)
