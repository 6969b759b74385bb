"""Comparison of responses field by field, and of the records that consumers received.

Two responses to the same request are decoded and walked by their layout. Array elements are matched by their keys,
since brokers list in any order. Topic ids are compared by topic name. Partitions without data in a Fetch response are
ignored, because they depend on timing. Ignored fields are listed in `ignored_fields.yaml`, and changed by the user's
options.

The split of a partition's records into responses depends on timing, and so do repeated reads. Records are therefore
collected for each side by offset and contents (key, value, headers), each once, and the sets are compared. Timestamps,
producers and codecs may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any
from uuid import UUID

from kproxy.base.errors import InputError, RecordsError
from kproxy.protocol import Message
from kproxy.protocol.elements import NameOfId, called, partitions
from kproxy.protocol.records import Record, decode, entries
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table.api_keys import FETCH, SHARE_FETCH
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.protocol.table.schema import read_yaml

from .recording import ERROR_CODE, layout_of

TABLE = files("kproxy.tools.replay") / "ignored_fields.yaml"


class NoSuchGroup(InputError):
    """Error for an unknown group of fields."""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Group of fields in the table, which are compared or left out together."""

    name: str
    means: str
    fields: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    compare: bool = False


@cache
def table() -> tuple[dict[str, FieldGroup], frozenset[str]]:
    """Return the groups by name, and the key fields of their elements."""
    entries: dict[str, Any] = dict(read_yaml(TABLE))
    keys = frozenset(entries.pop("keys"))
    groups = {}
    for name, entry in entries.items():
        sets = {each: frozenset(entry.get(each, ())) for each in ("fields", "kinds")}
        groups[name] = FieldGroup(name, entry["means"], compare=entry.get("compare", False), **sets)
    return groups, keys


class IgnoredFields:
    """Fields to leave out when responses are compared. Raises NoSuchGroup for unknown names."""

    def __init__(self, ignore: Collection[str] = (), compare: Collection[str] = ()) -> None:
        groups, self.keys = table()
        for name in (*ignore, *compare):
            if name not in groups:
                raise NoSuchGroup(f'no group of fields is called "{name}", there are: {", ".join(groups)}')
        self.ignored = [
            group for group in groups.values() if group.name in ignore or not (group.compare or group.name in compare)
        ]
        self.fields = frozenset().union(*(group.fields for group in self.ignored))
        self.kinds = frozenset().union(*(group.kinds for group in self.ignored))

    def leaves_out(self, api: str, slot: Slot) -> bool:
        """Return True if this field may differ."""
        return slot.name in self.fields or slot.kind in self.kinds or f"{api}.{slot.name}" in self.fields

    def tells_apart(self, slot: Slot) -> bool:
        """Return True if an element is found by this field."""
        return (slot.name in self.keys or slot.kind in self.keys) and slot.struct is None and not slot.array

    def ignores(self, name: str) -> bool:
        """Return True if this group is left out."""
        return any(one.name == name for one in self.ignored)


def groups_table() -> str:
    """Return the groups as a Markdown table, for the page about replays."""
    rows = (
        f"| `{group.name}` | {group.means} | {'compared' if group.compare else 'left out'} |\n"
        for group in table()[0].values()
    )
    return "| group | fields | default |\n|---|---|---|\n" + "".join(rows)


FETCHES = frozenset((FETCH, SHARE_FETCH))
SHOWN = 60
"""Letters of a value that a difference shows."""


@dataclass(frozen=True, slots=True)
class ResponseDifference:
    """Difference of one field between two responses.

    `path` has the keys of elements, `field` has not: topics[orders].partitions[0].error_code, and
    topics[].partitions[].error_code. Values are text.
    """

    path: str
    field: str
    recorded: str
    now: str
    error: bool = False


class ResponseComparison:
    """Comparison of responses. `recorded_name`, `name`: names of topic ids of the recording and of the target."""

    def __init__(self, normal: IgnoredFields, recorded_name: NameOfId, name: NameOfId) -> None:
        self.normal, self.names = normal, (recorded_name, name)

    def differences(self, recorded: Message, now: Message) -> list[ResponseDifference]:
        """Return the differences of two responses to the same request."""
        if recorded.version != now.version:
            return [ResponseDifference("version", "version", str(recorded.version), str(now.version), error=True)]
        return list(self.structs(recorded.api.name, layout_of(recorded), recorded.body, now.body, "", ""))

    def structs(
        self, api: str, struct: Struct, recorded: Mapping[str, Any], now: Mapping[str, Any], path: str, field: str
    ) -> Iterator[ResponseDifference]:
        for slot in struct.all_slots:
            if slot.type == "records" or self.normal.leaves_out(api, slot):
                continue
            here = f"{path}.{slot.name}" if path else slot.name
            inside = f"{field}.{slot.name}" if field else slot.name
            yield from self.values(api, slot, recorded.get(slot.name), now.get(slot.name), here, inside)

    def values(
        self, api: str, slot: Slot, recorded: Any, now: Any, path: str, field: str
    ) -> Iterator[ResponseDifference]:
        if slot.struct is None or recorded is None or now is None:
            was, is_ = self.plain(slot, recorded, 0), self.plain(slot, now, 1)
            if was != is_:
                yield ResponseDifference(path, field, shown(was), shown(is_), slot.kind == ERROR_CODE)
        elif not slot.array:
            yield from self.structs(api, slot.struct, recorded, now, path, field)
        else:
            yield from self.arrays(api, slot.struct, self.keyed(slot.struct, recorded, 0),
                                   self.keyed(slot.struct, now, 1), path, f"{field}[]")  # fmt: skip

    def arrays(
        self, api: str, struct: Struct, recorded: Mapping[str, Any], now: Mapping[str, Any], path: str, field: str
    ) -> Iterator[ResponseDifference]:
        """Yield the differences of elements that share a key, and those without a counterpart."""
        for key in {**recorded, **now}:
            here = f"{path}[{key}]"
            if key in recorded and key in now:
                yield from self.structs(api, struct, recorded[key], now[key], here, field)
            elif api in ("Fetch", "ShareFetch"):
                blank = struct.defaults()
                pairs = self.structs(api, struct, recorded.get(key, blank), now.get(key, blank), here, field)
                yield from (difference for difference in pairs if difference.error)
            else:
                yield ResponseDifference(
                    here, field, *(("there", "not there") if key in recorded else ("not there", "there"))
                )

    def keyed(self, struct: Struct, elements: list[dict[str, Any]], side: int) -> dict[str, Any]:
        """Return elements by key as text, by their index where they have none or share one."""
        slots = [slot for slot in struct.all_slots if self.normal.tells_apart(slot)]
        by_key: dict[str, Any] = {}
        for number, element in enumerate(elements):
            values = (self.plain(slot, element.get(slot.name), side) for slot in slots)
            key = " ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))
            by_key[f"#{number}" if not key or key in by_key else key] = element
        return by_key

    def plain(self, slot: Slot, value: Any, side: int) -> Any:
        if slot.array and isinstance(value, list):
            return [self.single(slot, one, side) for one in value]
        return self.single(slot, value, side)

    def single(self, slot: Slot, value: Any, side: int) -> Any:
        if isinstance(value, UUID):
            name = self.names[side](value) if slot.kind == "topic_id" else None
            return name if name is not None else None if not value.int else str(value)
        if slot.kind == ERROR_CODE and value is not None:
            return error_name(value)
        return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else value


def error_name(code: int) -> str:
    """Return the error's name, its number if the table lacks it, or NONE for 0."""
    return error_codes.error_name(code) if code else "NONE"


def shown(value: Any) -> str:
    """Return a value as text for a line, shortened if it is long."""
    text = "null" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} letters)"


MOST = 2_000_000
"""Maximum number of records of both sides in memory, some 300 MB; further records are counted and not compared."""

TopicPartition = tuple[str, int]


class ReadRecords:
    """Records read on both sides.

    `offsets`: records at different offsets are different records. `beyond`: records not compared.
    """

    def __init__(self, *, offsets: bool = True) -> None:
        self.offsets = offsets
        self.seen: tuple[dict[TopicPartition, set[bytes]], dict[TopicPartition, set[bytes]]] = ({}, {})
        self.size = self.beyond = 0

    def add(self, side: int, response: Message, name: NameOfId) -> None:
        """Add the records of a Fetch or ShareFetch response; side 0: recorded, 1: now."""
        for partition in partitions(response):
            if partition.records:
                self.records(side, (called(partition, name), partition.number), partition.records)

    def records(self, side: int, where: TopicPartition, field: Any) -> None:
        digests = self.seen[side].setdefault(where, set())
        try:
            for record in readable(field):
                digest = digest_of(record, self.offsets)
                if digest in digests:
                    continue
                if self.size >= MOST:
                    self.beyond += 1
                    continue
                self.size += 1
                digests.add(digest)
        except RecordsError:
            digests.add(b"unreadable")

    def differences(self) -> Iterator[tuple[TopicPartition, int, int, int, int]]:
        """Yield (partition, records then, records now, records of then missing now, records now that are new)."""
        recorded, now = self.seen
        for where in sorted({**recorded, **now}):
            was, is_ = recorded.get(where, set()), now.get(where, set())
            if was != is_:
                yield where, len(was), len(is_), len(was - is_), len(is_ - was)

    def totals(self) -> tuple[int, int]:
        """Return the number of records that were recorded, and that came now."""
        return sum(map(len, self.seen[0].values())), sum(map(len, self.seen[1].values()))


def readable(field: Any) -> Iterator[Record]:
    """Yield the records that a consumer would see, without control batches."""
    for entry in entries(field):
        if not getattr(entry, "is_control", False):
            yield from decode(entry)


def digest_of(record: Record, offsets: bool) -> bytes:
    """Return a digest of the key, value and headers, and of the offset if it counts."""
    parts: list[bytes | None] = [bytes(part) if part is not None else None for part in (record.key, record.value)]
    for key, value in record.headers:
        parts += [key.encode("utf-8", "surrogateescape"), None if value is None else bytes(value)]
    digest = blake2b(str(record.offset).encode() if offsets else b"", digest_size=8)
    for part in parts:
        digest.update(b"-" if part is None else f"{len(part)}:".encode() + part)
    return digest.digest()
