"""Layouts of messages in one version: the fields in wire order.

All code that reads or writes bytes (codec, walk, head readers, grammar, the tree of `kproxy decode`) uses the `Struct`
of this module, and no longer depends on versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from . import schema
from .schema import ProtocolField, Versions

INTEGERS = frozenset(("int8", "int16", "uint16", "int32", "uint32", "int64"))
FIXED = {  # type → (struct format, bytes); a uuid is 16 bytes, taken as `16s`
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
ZERO_UUID = UUID(int=0)


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """Field in one version.

    `type` is the element's type if `array`. `compact`: its length is an unsigned varint of length + 1 (KIP-482).
    `nullable`: null is legal (readers accept null everywhere). A nullable struct outside of an array follows one INT8
    (negative: null). `default()` makes a new value for an absent field.
    """

    name: str
    path: str  # dotted, arrays marked: topics[].partitions[].error_code
    type: str
    array: bool
    compact: bool
    nullable: bool
    tag: int | None
    kind: str | None
    ignorable: bool
    default: Callable[[], Any]
    struct: Struct | None

    @property
    def nests(self) -> bool:
        """Return True if an element holds arrays, tagged ones included."""
        return self.struct is not None and any(slot.array for slot in self.struct.everywhere())


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Layout of a struct: slots in wire order; if `flexible`, a tag buffer follows them (also when `tagged` is
    empty)."""

    slots: tuple[Slot, ...]
    tagged: tuple[Slot, ...]  # by ascending tag
    flexible: bool

    @property
    def all_slots(self) -> tuple[Slot, ...]:
        """Return all slots, those of the tag buffer last."""
        return (*self.slots, *self.tagged)

    def defaults(self) -> dict[str, Any]:
        """Return a new value with the default of every field."""
        return {slot.name: slot.default() for slot in self.all_slots}

    def paths(self, kind: str) -> frozenset[str]:
        return frozenset(slot.path for slot in self.everywhere() if slot.kind == kind)

    def everywhere(self) -> Iterator[Slot]:
        """Yield the slots of this struct and those in it, in wire order, tagged ones last."""
        for slot in self.all_slots:
            yield slot
            if slot.struct is not None:
                yield from slot.struct.everywhere()


def loop_over(slot: Slot, count: str) -> str:
    """Return the head of a compiled loop over `count` elements. Bodies of nested loops have to call `yield_point`."""
    return f"for _ in {'range' if slot.nests else 'yielding_range'}({count}):"


def plain_default(slot_type: str, array: bool, struct: Struct | None) -> Callable[[], Any]:
    if array:
        return list
    if struct is not None:
        return struct.defaults
    constants: dict[str, Any] = {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": ""}
    constants |= {"bytes": b"", "records": b""}
    value = constants.get(slot_type, 0)
    return lambda: value


def stated_default(text: str, slot_type: str) -> Callable[[], Any]:
    value: Any
    if text == "null":
        value = None
    elif slot_type == "bool":
        value = text == "true"
    elif slot_type == "float64":
        value = float(text)
    elif slot_type in INTEGERS:
        value = int(text, 0)
    elif slot_type == "uuid":
        value = UUID(text)
    else:
        value = "" if text == '""' else text
    return lambda: value


def resolve(field: ProtocolField, version: int, flexible: bool, parent: str) -> Slot:
    path = f"{parent}.{field.name}" if parent else field.name
    if field.array:
        path += "[]"
    struct = build(field.fields, version, flexible, path) if field.type == "struct" else None
    nullable = version in field.nullable
    if field.default is None or (field.default == "null" and not nullable):
        default = plain_default(field.type, field.array, struct)
    else:
        default = stated_default(field.default, field.type)
    return Slot(
        name=field.name,
        path=path,
        type=field.type,
        array=field.array,
        compact=flexible and not field.classic,
        nullable=nullable,
        tag=field.tag if version in field.tagged else None,
        kind=field.kind,
        ignorable=field.ignorable,
        default=default,
        struct=struct,
    )


def build(fields: tuple[ProtocolField, ...], version: int, flexible: bool, parent: str = "") -> Struct:
    slots = [resolve(field, version, flexible, parent) for field in fields if version in field.versions]
    return Struct(
        slots=tuple(slot for slot in slots if slot.tag is None),
        tagged=tuple(sorted((slot for slot in slots if slot.tag is not None), key=lambda slot: slot.tag or 0)),
        flexible=flexible,
    )


@cache
def body(key: int, version: int, direction: str) -> Struct:
    """Return the body of a request or response. Raises KeyError for an API or a version that the table lacks."""
    api = schema.load(key)
    if version not in api.versions:
        raise KeyError(f"{api.name} has versions {api.versions}, not {version}")
    return build(api.fields(direction), version, version in api.flexible)


@cache
def header(direction: str, version: int) -> Struct:
    """Return the header of a frame, in the header's own version (see `Api.header_version`)."""
    flexible, fields = schema.headers()[direction]
    return build(fields, version, version in flexible)


@cache
def embedded(name: str, version: int) -> Struct:
    """Return a message of `embedded.yaml`, without its prefix. A version newer than the newest is read as the
    newest."""
    entry = schema.embedded()[name]
    version = min(version, entry.versions.last)
    return build(entry.fields, version, version in entry.flexible)


def kinds(key: int, direction: str) -> dict[str, Versions]:
    """Return the kinds of value that an API carries in this direction, each with the versions of the field."""
    versions: dict[str, Versions] = {}

    def visit(fields: tuple[ProtocolField, ...]) -> None:
        for field in fields:
            if field.kind:
                ranges = versions.get(field.kind, schema.NONE).ranges + field.versions.ranges
                versions[field.kind] = Versions(ranges)
            visit(field.fields)

    visit(schema.load(key).fields(direction))
    return versions


WORDS = {"bool": "BOOLEAN", "bytes": "BYTES", "records": "RECORDS", "string": "STRING"}


def word(slot: Slot) -> str:
    """Return the guide's name of a primitive type, such as COMPACT_NULLABLE_STRING."""
    name = WORDS.get(slot.type, slot.type.upper())
    if slot.type in ("string", "bytes") and slot.nullable and not slot.array:
        name = f"NULLABLE_{name}"
    return f"COMPACT_{name}" if slot.compact and slot.type in WORDS and slot.type != "bool" else name


def sequence(struct: Struct) -> str:
    names = [f"[{slot.name}]" if slot.array else slot.name for slot in struct.slots]
    return " ".join([*names, "TAG_BUFFER"] if struct.flexible else names)


def lines(struct: Struct, depth: int = 1) -> Iterator[str]:
    """Yield a line for each field, fields of structs one level deeper."""
    for slot in struct.slots:
        yield f"{'  ' * depth}{slot.name} => {word(slot) if slot.struct is None else sequence(slot.struct)}"
        if slot.struct is not None:
            yield from lines(slot.struct, depth + 1)


def printed(title: str, struct: Struct) -> str:
    return "\n".join([f"{title} => {sequence(struct)}".rstrip(), *lines(struct)])


def grammar(api_key: int, version: int, direction: str) -> str:
    """Return the guide's text for a `"request"` or `"response"`. Raises KeyError for an api or a version the table
    lacks."""
    if direction not in ("request", "response"):
        raise KeyError(f"expected request or response, got {direction!r}")
    api = schema.load(api_key)
    return printed(f"{api.name} {direction.capitalize()} (Version: {version})", body(api_key, version, direction))


def header_grammar(direction: str, version: int) -> str:
    """Return the guide's text for a frame header: `Request Header v2 => …`."""
    return printed(f"{direction.capitalize()} Header v{version}", header(direction, version))
