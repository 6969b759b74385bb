"""Fields of messages that a user names by a path, `topics[].partitions[0].leader_epoch`, and the values to put there,
checked against the field's type, range and nullability.

`[]` stands for every element of an array, `[0]` for one. Names are those of the protocol's table; a field that is an
array and is set as a whole, or whose elements are numbers or text, may end in neither or in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kproxy.protocol.breath import breathe, each, steps
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.rules.select.selected import topic_id
from kproxy.rules.values.model import found, unknown
from kproxy.rules.values.source import nearest

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
    """Return the steps of a path. Raises ValueError for text that is none."""
    steps = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(
                f'"{text}" is no path: names joined by dots, [] for every element of an array or [0] for one, such as '
                "topics[].partitions[0].leader_epoch"
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
        for index in steps(len(array)) if step.index == EVERY else one:
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
            raise ValueError(f"a list is wanted for {slot.path}, found {found(value)}")
        return [field_value(slot, one, element=True) for one in each(value)]
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
        raise ValueError(f"a mapping of fields is wanted for {slot.path}, found {found(value)}")
    breathe()
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
    raise ValueError(f"{WANTED[kind]} is wanted for {slot.path}, found {found(value)}")


def whole_number(slot: Slot, value: Any) -> int:
    bits = BITS[slot.type]
    low = 0 if slot.type.startswith("u") else -1 << (bits - 1)
    high = low + (1 << bits) - 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"a whole number is wanted for {slot.path}, found {found(value)}")
    if not low <= value <= high:
        raise ValueError(f"{slot.path} is {slot.type}, from {low} to {high}, found {value}")
    return value


WANTED = {
    "bool": "true or false",
    "float64": "a number",
    "string": "text",
    "bytes": "text, or hex:0a0b,",
    "records": "text, or hex:0a0b,",
}
