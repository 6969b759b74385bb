"""The protocol's table: `messages/*.yaml` read into frozen objects. One file an API, loaded when first asked for.

The notation, in short (a field is one line, a struct's line ends in a colon and nests its fields):

    - name type versions [null RANGE] [tag N [RANGE]] [default V] [is KIND] [ignorable] [classic]

Nothing here knows how bytes look; `layout.py` resolves a message for one version, and the codec is made from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

import yaml

MESSAGES = files("kproxy.protocol") / "messages"
FIXED_WIDTH = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
TYPES = frozenset((*FIXED_WIDTH, "string", "bytes", "records", "struct"))


@dataclass(frozen=True, slots=True)
class Versions:
    """Set of versions as written: `3`, `0-2`, `4+`, several joined by a comma, or `none`."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: object) -> Versions:
        words = str(text)
        if words == "none":
            return cls()
        ranges = []
        for part in words.split(","):
            if part.endswith("+"):
                ranges.append((int(part[:-1]), 32767))
            else:
                low, _, high = part.partition("-")
                ranges.append((int(low), int(high or low)))
        return cls(tuple(ranges))

    def __contains__(self, version: int) -> bool:
        return any(low <= version <= high for low, high in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        return self.ranges[-1][1]

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __getitem__(self, index: int) -> int:
        """Return the version at this place in ascending order, from the end for a negative one."""
        place = index if index >= 0 else index + len(self)
        for low, high in self.ranges:
            if 0 <= place <= high - low:
                return low + place
            place -= high - low + 1
        raise IndexError(f"index {index} of {len(self)} versions")

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __repr__(self) -> str:
        return f"Versions({str(self)!r})"

    def __str__(self) -> str:
        return ",".join(
            f"{low}" if low == high else f"{low}+" if high == 32767 else f"{low}-{high}" for low, high in self.ranges
        )


NONE = Versions()


@dataclass(frozen=True, slots=True)
class ProtocolField:
    """Line of the table. `default` is the text after the word `default`; None without it."""

    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions = NONE
    tag: int | None = None
    tagged: Versions = NONE
    default: str | None = None
    kind: str | None = None
    ignorable: bool = False
    classic: bool = False
    fields: tuple[ProtocolField, ...] = ()


@dataclass(frozen=True, slots=True)
class Api:
    """API of the table: its key, its names, its versions, and the fields of both directions.

    `releases` maps a Kafka release to the version range brokers have from it on (None: removed), `previews` to those of
    them that brokers of that release do not list by default, since they were not final yet (None: no more).
    """

    key: int
    name: str
    aliases: tuple[str, ...]
    versions: Versions
    flexible: Versions
    unstable: Versions
    listeners: tuple[str, ...]
    releases: Mapping[str, Versions | None]
    previews: Mapping[str, Versions | None]
    headers: Mapping[str, Mapping[int, int]]
    request: tuple[ProtocolField, ...]
    response: tuple[ProtocolField, ...]

    def fields(self, direction: str) -> tuple[ProtocolField, ...]:
        """Return the fields of `"request"` or `"response"`, in wire order, of all versions."""
        return self.request if direction == "request" else self.response

    def header_version(self, direction: str, version: int) -> int:
        """Return the header version of a frame (KIP-482; the exceptions are written in the table)."""
        exception = self.headers[direction].get(version)
        if exception is not None:
            return exception
        return (version in self.flexible) + (direction == "request")

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, versions {self.versions})"

    def __str__(self) -> str:
        return self.name


def parse_field(entry: Any) -> ProtocolField:
    """Return a field from its YAML form: a string, or a mapping from the struct's line to the list of its fields."""
    line = entry
    children: tuple[ProtocolField, ...] = ()
    if isinstance(entry, dict):
        ((line, nested),) = entry.items()
        children = tuple(parse_field(child) for child in nested)
    name, type_, versions, *marks = str(line).split()
    array = type_.startswith("[]")
    type_ = type_.removeprefix("[]")
    if type_ not in TYPES or (type_ == "struct") != bool(children):
        raise ValueError(f"bad type in field line {line!r}")
    values: dict[str, Any] = {"versions": Versions.parse(versions)}
    while marks:
        mark = marks.pop(0)
        if mark == "null":
            values["nullable"] = Versions.parse(marks.pop(0))
        elif mark == "tag":
            values["tag"] = int(marks.pop(0))
            ranged = bool(marks) and marks[0][0].isdigit()
            values["tagged"] = Versions.parse(marks.pop(0)) if ranged else values["versions"]
        elif mark == "default":
            values["default"] = marks.pop(0)
        elif mark == "is":
            values["kind"] = marks.pop(0)
        elif mark in ("ignorable", "classic"):
            values[mark] = True
        else:
            raise ValueError(f"unknown mark {mark!r} in field line {line!r}")
    return ProtocolField(name, type_, array, fields=children, **values)


def parse_fields(entries: Any) -> tuple[ProtocolField, ...]:
    return tuple(parse_field(entry) for entry in entries or ())


def read_yaml(path: Traversable) -> Any:
    """Read a file of the package, which may lie in a zip, as wheels do for Spark."""
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def paths() -> Mapping[int, Traversable]:
    """Return the file of each API key, from the files' names alone, so that nothing is read before it is needed."""
    files = {path.name: path for path in MESSAGES.iterdir() if path.name[0].isdigit()}
    return MappingProxyType({int(name[:3]): files[name] for name in sorted(files)})


def parse_headers(entry: Any) -> Mapping[int, int]:
    return {version: int(number) for text, number in (entry or {}).items() for version in bounded(Versions.parse(text))}


def parse_releases(entry: Any) -> Mapping[str, Versions | None]:
    return {release: None if text == "none" else Versions.parse(text) for release, text in (entry or {}).items()}


def bounded(versions: Versions, limit: int = 99) -> Iterator[int]:
    return (version for low, high in versions.ranges for version in range(low, min(high, limit) + 1))


@cache
def load(key: int) -> Api:
    """Return the API of this key. Raises KeyError if the table has none."""
    data = read_yaml(paths()[key])
    return Api(
        key=data["key"],
        name=data["name"],
        aliases=tuple(data.get("aka", ())),
        versions=Versions.parse(data["versions"]),
        flexible=Versions.parse(data["flexible"]),
        unstable=Versions.parse(data.get("unstable", "none")),
        listeners=tuple(data["listeners"]),
        releases=parse_releases(data["releases"]),
        previews=parse_releases(data.get("previews")),
        headers={
            "request": parse_headers(data.get("request_header")),
            "response": parse_headers(data.get("response_header")),
        },
        request=parse_fields(data["request"]),
        response=parse_fields(data["response"]),
    )


@cache
def apis() -> tuple[Api, ...]:
    """Return every API of the table, by key."""
    return tuple(load(key) for key in paths())


@cache
def names() -> Mapping[str, int]:
    keys = {alias: api.key for api in apis() for alias in api.aliases}
    return MappingProxyType(keys | {api.name: api.key for api in apis()})


def keys_of(text: str) -> frozenset[int]:
    """Return the keys of the APIs named in `text`, separated by spaces. Raises KeyError for unknown names."""
    return frozenset(names()[name] for name in text.split())


@dataclass(frozen=True, slots=True)
class EmbeddedMessage:
    """Message inside a bytes field or a control record: named, versioned, with `prefix` in front (or none)."""

    name: str
    versions: Versions
    flexible: Versions
    prefix: tuple[ProtocolField, ...]
    control_types: tuple[int, ...]
    fields: tuple[ProtocolField, ...]


@cache
def embedded() -> Mapping[str, EmbeddedMessage]:
    """Return the messages of `embedded.yaml` by name."""
    return {
        name: EmbeddedMessage(
            name=name,
            versions=Versions.parse(data["versions"]),
            flexible=Versions.parse(data["flexible"]),
            prefix=(parse_field(f"{data['prefix']} 0+"),) if "prefix" in data else (),
            control_types=tuple(data.get("control_type", ())),
            fields=parse_fields(data["fields"]),
        )
        for name, data in read_yaml(MESSAGES / "embedded.yaml").items()
    }


@cache
def headers() -> Mapping[str, tuple[Versions, tuple[ProtocolField, ...]]]:
    """Return flexible versions and fields of the frame header, for `request` and for `response`."""
    return {
        direction: (Versions.parse(data["flexible"]), parse_fields(data["fields"]))
        for direction, data in read_yaml(MESSAGES / "headers.yaml").items()
    }
