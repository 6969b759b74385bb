"""Elements of a message's arrays that belong to some of its entities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from kproxy.base.cooperative import yield_point, yielding, yielding_range
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.shapes import Level, Shape, shape
from kproxy.rules.entity import Entity, maker
from kproxy.rules.select.selected import topic_id
from kproxy.rules.values.model import found, unknown
from kproxy.rules.values.source import nearest

Lets = Callable[[Any, int], bool]
"""Asked with an array and an index into it."""

SAID = tuple(field.name for field in fields(Entity) if field.name != "where")


def elements_of(message: Message, entities: Sequence[Entity]) -> Lets:
    """Return a test for elements: those of levels of entities (`protocol/shapes.yaml`) pass if they are, or hold, one
    of
    these.

    Elements of all other arrays pass. The entities are those of the request, whatever the direction of the message is.
    """
    form = shape(message.api.key, message.version)
    levels = form.request if message.direction == "request" else form.lists
    refused: set[tuple[int, int]] = set()
    top = {role: message.body[field] for role, field in form.top} if message.direction == "request" else {}
    if levels:
        refuse(form, levels, message.body, top, Sorted(form, entities), refused)
    return lambda array, index: (id(array), index) not in refused


def refuse(
    form: Shape,
    levels: Sequence[Level],
    parent: dict[str, Any],
    around: dict[str, Any],
    entities: Sorted,
    refused: set[tuple[int, int]],
) -> None:
    level, place = levels[0], 0
    for name in level.arrays:
        array = parent.get(name) or []
        for index, element in enumerate(array):
            roles = {**around, **level.roles(element)}
            inside = [one for one in entities.near(roles, place) if is_about(form, one, roles, place)]
            if not inside:
                refused.add((id(array), index))
            elif len(levels) > 1 and level.struct is not None:
                refuse(form, levels[1:], element, roles, Sorted(form, inside), refused)
            place += 1


class Sorted:
    """Entities by their keys, so that each element is compared with few. The key is their index in arrays that are tied
    by it, or their first role."""

    def __init__(self, form: Shape, entities: Sequence[Entity]) -> None:
        self.form = form
        self.by: dict[str, dict[Any, list[Entity]]] = {}
        names = (
            ("where",) if form.positional else ("topic", "topic_id", *(name for name in SAID if name[:5] != "topic"))
        )
        for name in names:
            sorted_: dict[Any, list[Entity]] = {}
            for entity in entities:
                value = entity.where[:1] if name == "where" else getattr(entity, name)
                sorted_.setdefault(value, []).append(entity)
            self.by[name] = sorted_
        self.entities = entities

    def near(self, roles: dict[str, Any], place: int) -> Sequence[Entity]:
        """Return the fewest entities among which are all that an element can be about."""
        if self.form.positional:
            return [*self.by["where"].get((), ()), *self.by["where"].get((place,), ())]
        known, best = maker(self.form)(roles, ()), self.entities
        for name, sorted_ in self.by.items():
            value = getattr(known, name)
            if value is None or (name == "topic_id" and not value.int):
                continue
            some = [sorted_.get(None, ()), sorted_.get(value, ())]
            if name == "topic_id" and known.topic is not None:  # a name decides, where both have one
                continue
            if sum(map(len, some)) < len(best):
                best = [*some[0], *some[1]]
        return best


def is_about(form: Shape, entity: Entity, roles: dict[str, Any], place: int) -> bool:
    """Return True if nothing that is known of an element speaks against this entity."""
    if form.positional:
        return entity.where[:1] in ((), (place,))
    known = maker(form)(roles, ())
    if known.topic is not None and entity.topic is not None:
        if known.topic != entity.topic:
            return False
    elif known.topic_id and known.topic_id.int and entity.topic_id and known.topic_id != entity.topic_id:
        return False
    rest = (name for name in SAID if name not in ("topic", "topic_id"))
    return all(
        getattr(known, name) is None or getattr(entity, name) is None or getattr(known, name) == getattr(entity, name)
        for name in rest
    )


EVERY = -1
"""The index that `[]` is."""

_PART = re.compile(r"([a-z][a-z0-9_]*)(?:\[([0-9]*)\])?")


@dataclass(frozen=True, slots=True)
class PathStep:
    """Name in a path; `index` is None without brackets, EVERY for `[]`."""

    name: str
    index: int | None = None

    def __str__(self) -> str:
        return self.name + ("" if self.index is None else "[]" if self.index == EVERY else f"[{self.index}]")


Path = tuple[PathStep, ...]


def parse_path(text: str) -> Path:
    """Return the steps of a path. Raises ValueError."""
    steps = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(
                f'expected a path such as topics[].partitions[0].leader_epoch ([]: all elements), got "{text}"'
            )
        index = None if match[2] is None else int(match[2]) if match[2] else EVERY
        steps.append(PathStep(match[1], index))
    return tuple(steps)


def plain(path: Path) -> str:
    """Return the path as layouts spell it, every index left out."""
    return ".".join(step.name + ("" if step.index is None else "[]") for step in path)


@cache
def slots(key: int, version: int, direction: str) -> dict[str, Slot]:
    """Return the fields of a message by their paths; none for a version that the table lacks."""
    return {slot.path: slot for slot in layout.body(key, version, direction).everywhere()}


def slot_at(path: Path, key: int, version: int, direction: str) -> Slot | None:
    """Return the field that a path leads to; None if this version has none. A path may name an array without its
    brackets."""
    fields, text = slots(key, version, direction), plain(path)
    if path[-1].index is None and f"{text}[]" in fields:
        return fields[f"{text}[]"]
    return fields.get(text)


def nearest_path(path: Path, key: int, versions: Iterable[int], direction: str) -> str | None:
    """Return the path of this message that is most like a wrong one: with the same last name, or spelled alike."""
    known = list(dict.fromkeys(text for version in versions for text in slots(key, version, direction)))
    last = path[-1].name
    same = [text for text in known if text.rpartition(".")[2].removesuffix("[]") == last]
    return nearest(plain(path), same) or (same[0] if same else nearest(plain(path), known))


FieldPlaces = Iterator[tuple[Any, Any]]


class FieldFinder:
    """Finder of the places that a path leads to in a body: (container, key) pairs, so that container[key] can be set.

    `lets` is asked for each element of an array on the way, as (the array, index).
    """

    def __init__(self, struct: Struct, path: Path) -> None:
        self.struct, self.path = struct, path

    def find(self, body: dict[str, Any], lets: Any = None) -> FieldPlaces:
        """Yield all places that the path leads to, in the order of the body."""
        yield from self.below(self.struct, body, 0, lets)

    def below(self, struct: Struct, parent: dict[str, Any], depth: int, lets: Any) -> FieldPlaces:
        step, last = self.path[depth], depth + 1 == len(self.path)
        slot = next(slot for slot in struct.all_slots if slot.name == step.name)
        if step.index is None:
            if last:
                yield parent, step.name
            else:
                assert slot.struct is not None, f"{slot.path} has no fields"
                if parent.get(step.name) is None:  # a struct that may be null gets its defaults, to be set in
                    parent[step.name] = slot.struct.defaults()
                yield from self.below(slot.struct, parent[step.name], depth + 1, lets)
            return
        array = parent.get(step.name) or []
        one = range(step.index, min(step.index + 1, len(array)))
        for index in yielding_range(len(array)) if step.index == EVERY else one:
            if lets is not None and not lets(array, index):
                continue
            if last:
                yield array, index
            else:
                assert slot.struct is not None, f"elements of {slot.path} have no fields"
                yield from self.below(slot.struct, array[index], depth + 1, lets)


BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


def field_value(slot: Slot, value: Any, *, element: bool) -> Any:
    """Return the value as `kproxy.protocol` has it; `element`: of one element of an array. Raises ValueError.

    Bytes are written as text, for its UTF-8, or as `hex:0a0b`; ids as Kafka's tools print them.
    """
    if slot.array and not element:
        if value is None:
            return nothing(slot, "array")
        if not isinstance(value, list):
            raise ValueError(f"expected a list for {slot.path}, got {found(value)}")
        return [field_value(slot, one, element=True) for one in yielding(value)]
    if value is None:
        return nothing(slot, "field") if not slot.array else nothing(slot, "element")
    if slot.struct is not None:
        return struct_value(slot, slot.struct, value)
    return plain_value(slot, value)


def nothing(slot: Slot, what: str) -> None:
    """Check that null is legal for a field (or array). Raises ValueError if it is not, and for each null element."""
    if not slot.nullable or what == "element":
        raise ValueError(f"null is not legal for this {what} ({slot.path})")


def struct_value(slot: Slot, struct: Struct, value: Any) -> dict[str, Any]:
    """Return the fields of a struct from a mapping; those that are left out have their defaults. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping of fields for {slot.path}, got {found(value)}")
    yield_point()
    fields = {inner.name: inner for inner in struct.all_slots}
    for name in value:
        if name not in fields:
            raise ValueError(unknown("field", name, fields))
    return {
        name: field_value(inner, value[name], element=False) if name in value else inner.default()
        for name, inner in fields.items()
    }


def plain_value(slot: Slot, value: Any) -> Any:
    """Return a number, text, truth value, id or bytes of the slot's type. Raises ValueError for a value of another
    type."""
    kind = slot.type
    if kind in BITS:
        return whole_number(slot, value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "float64" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "uuid":
        return topic_id(value)
    if kind in ("bytes", "records") and isinstance(value, str):
        return bytes.fromhex(value.removeprefix("hex:")) if value.startswith("hex:") else value.encode()
    raise ValueError(f"expected {WANTED[kind]} for {slot.path}, got {found(value)}")


def whole_number(slot: Slot, value: Any) -> int:
    bits = BITS[slot.type]
    low = 0 if slot.type.startswith("u") else -1 << (bits - 1)
    high = low + (1 << bits) - 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number for {slot.path}, got {found(value)}")
    if not low <= value <= high:
        raise ValueError(f"expected {slot.type} from {low} to {high} for {slot.path}, got {value}")
    return value


WANTED = {
    "bool": "true or false",
    "float64": "a number",
    "string": "text",
    "bytes": "text or hex:0a0b",
    "records": "text or hex:0a0b",
}
