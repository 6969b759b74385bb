"""Shapes of messages: the arrays of entities in requests and responses, from `shapes.yaml`, for one version.

An *entity* is the smallest unit of a request; a *level* is one array that contains it; a *role* is the meaning of a
field (`topic`, `partition`, `group`, …), equal in request and response, so that elements match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from . import errors as error_codes
from . import layout, schema
from .layout import Slot, Struct

TABLE = files("kproxy.protocol") / "shapes.yaml"
ITSELF = "*"
"""Field of a key with plain values as elements: `partitions []int32`."""

WHOLE = ("top", "each", "both", "first")
ALL = ("never", "null", "empty", "either")
_LEVEL = re.compile(r"(?P<arrays>[a-z0-9_+]+)\[(?P<keys>[^]]*)\]")

RoleFields = tuple[tuple[str, str], ...]
"""(role, field) pairs, in the table's order."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Array on the way to an entity: its name (two in one API), what identifies its elements, and where these carry an
    error.

    `struct` is None if the elements are the values themselves. `code` and `text` are names of fields of `struct`.
    """

    arrays: tuple[str, ...]
    keys: RoleFields
    path: str
    struct: Struct | None
    code: str | None
    text: str | None

    @property
    def array(self) -> str:
        return self.arrays[0]

    def elements(self, parent: Mapping[str, Any]) -> list[Any]:
        """Return the elements in `parent`, none if the array is null."""
        if len(self.arrays) == 1:
            return parent.get(self.arrays[0]) or []
        return [element for array in self.arrays for element in parent.get(array) or ()]

    def roles(self, element: Any) -> dict[str, Any]:
        """Return the value of each role of one element."""
        if self.struct is None:
            return {role: element for role, _ in self.keys}
        return {role: element[field] for role, field in self.keys}


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Shape of one API in one version; the fields are those that the head of `shapes.yaml` explains."""

    api: schema.Api
    version: int
    top: RoleFields
    request: tuple[Level, ...]
    response: tuple[Level, ...]
    lists: tuple[Level, ...]
    described: Level | None
    code: str | None
    text: str | None
    whole: str
    outer: frozenset[int]
    all: str
    positional: bool
    session: tuple[str, str, int] | None
    offset: str | None
    blank: Mapping[str, Any]
    echo: Mapping[str, str]
    others: Mapping[str, str]

    @property
    def carries(self) -> bool:
        """Return True if the response has an error code for each entity."""
        return bool(self.response) and self.response[-1].code is not None

    def asks_all(self, value: object) -> bool:
        """Return True if an array that holds this asks for all there is."""
        return (value is None and self.all in ("null", "either")) or (value == [] and self.all in ("empty", "either"))


@cache
def table() -> Mapping[str, list[dict[str, Any]]]:
    """Return the entries of each API name as written, a list also where the file has only one. Names with a dot hold
    lists."""
    entries = {name: entry for name, entry in schema.read_yaml(TABLE).items() if not name.startswith(".")}
    return MappingProxyType({name: entry if isinstance(entry, list) else [entry] for name, entry in entries.items()})


@cache
def shape(key: int, version: int) -> Shape:
    """Return the shape of this API and version. Raises KeyError for one that the protocol table lacks."""
    api = schema.load(key)
    request, response = layout.body(key, version, "request"), layout.body(key, version, "response")
    entry = written(api, version)
    others = entry.get("others", {})
    response_levels = tuple(levels(entry.get("response", ""), response, others))
    code, text = carriers(response, others)
    name, sign, number = (entry.get("session") or "- - 0").split()
    return Shape(
        api=api,
        version=version,
        top=present(request, parse_keys(entry.get("top", ""))),
        request=tuple(levels(entry.get("request", ""), request, {})),
        response=response_levels,
        lists=tuple(levels(entry["lists"], response, others)) if "lists" in entry else response_levels,
        described=described(entry, response_levels),
        code=code,
        text=text,
        whole=entry.get("whole", "each" if response_levels else "top"),
        outer=frozenset(error_codes.by_name(error).code for error in entry.get("outer", ())),
        all=entry.get("all", "never"),
        positional=entry.get("positional", False),
        session=(name, sign, int(number)) if "session" in entry else None,
        offset=entry.get("offset"),
        blank=MappingProxyType(entry.get("blank", {})),
        echo=MappingProxyType(entry.get("echo", {})),
        others=MappingProxyType(others),
    )


def written(api: schema.Api, version: int) -> dict[str, Any]:
    """Return the entry of the table for this version. Raises KeyError when it has entries, but none for it."""
    entries = table().get(api.name, table()["default"])
    for entry in entries:
        if "versions" not in entry or version in schema.Versions.parse(entry["versions"]):
            return entry
    raise KeyError(f"shapes.yaml has no entry for {api.name} v{version}")


def parse_keys(text: str) -> RoleFields:
    pairs = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return tuple((role, field or role) for role, _, field in pairs)


def present(struct: Struct, keys: RoleFields) -> RoleFields:
    names = {slot.name for slot in struct.slots}
    return tuple((role, field) for role, field in keys if field in names)


def parse_levels(text: str) -> Iterator[tuple[tuple[str, ...], RoleFields]]:
    """Return arrays and keys of each level. Raises ValueError for malformed levels."""
    for part in text.split(" / ") if text else ():
        match = _LEVEL.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"shapes.yaml: expected array[role=field, …], got {part!r}")
        yield tuple(match["arrays"].split("+")), parse_keys(match["keys"])


def levels(text: str, struct: Struct, others: Mapping[str, str]) -> Iterator[Level]:
    """Yield the levels of a chain, in this struct. Raises KeyError for an array or all keys of one that are not
    there."""
    for arrays, keys in parse_levels(text):
        slot = array_slot(struct, arrays[0])
        if slot.struct is None:
            yield Level(arrays, keys, slot.path, None, None, None)
            return
        found = present(slot.struct, keys)
        if keys and not found:
            raise KeyError(f"shapes.yaml: {slot.path} has none of {dict(keys)}")
        code, text_name = carriers(slot.struct, others)
        yield Level(arrays, found, slot.path, slot.struct, code, text_name)
        struct = slot.struct


def described(entry: Mapping[str, Any], response: tuple[Level, ...]) -> Level | None:
    """Return the level that a response describes inside of its innermost elements; None without one.

    Its error codes are among the `others`.
    """
    if "described" not in entry or response[-1].struct is None:
        return None
    (level,) = levels(entry["described"], response[-1].struct, {})
    return level


def array_slot(struct: Struct, name: str) -> Slot:
    for slot in struct.slots:
        if slot.name == name and slot.array:
            return slot
    raise KeyError(f"shapes.yaml: expected one of {[slot.name for slot in struct.slots if slot.array]}, got {name}")


def carriers(struct: Struct, others: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the names of the fields of this struct that hold an error code and its text, None for each that it
    lacks."""
    codes = [slot.name for slot in struct.slots if slot.kind == "error_code" and slot.path not in others]
    if not codes:
        return None, None
    texts = [slot.name for slot in struct.slots if slot.name == codes[0].replace("code", "message")]
    return codes[0], next(iter(texts), None)
