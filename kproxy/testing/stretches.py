"""The longest stretch of work that a session does without a place to stop, for large messages of any API.

    watch = Stopwatch()
    with watch:
        talk.client(large(3, 12, "request", 100_000))
    watch.longest       # seconds of CPU between two places where others may run (wire/breath.py)

`python -m kproxy.testing.stretches` prints the table of docs/operations.md.

CPU time is measured, for other programs do not count; the garbage collector is off, for its work is not of a message.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from time import thread_time
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from kproxy.core.commands import BROKER
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.live import LiveRule
from kproxy.wire import Message, breath, encode, layout, schema
from kproxy.wire.layout import Slot, Struct
from kproxy.wire.records.batch import encode_batch
from kproxy.wire.records.record import Record

from .dialogue import Dialogue, sized
from .random_rules import acts_on, example, loads

READ = 262144
"""Bytes that a driver gives to a session at once."""


class Stopwatch:
    """Measures between places to stop. `longest` in seconds; `where`: what was called at its end, if `trace`."""

    def __init__(self, trace: bool = False) -> None:
        self.longest = self.last = self.total = 0.0
        self.looks = 0
        self.trace, self.where = trace, ""

    def look(self) -> None:
        """A place to stop: what came before it is a stretch."""
        now = thread_time()
        took = now - self.last
        self.total += took
        self.looks += 1
        if took > self.longest:
            self.longest = took
            if self.trace and took > 0.02:
                self.where = "".join(traceback.format_stack(limit=14)[:-1])
        self.last = thread_time()

    def __enter__(self) -> Stopwatch:
        self.before = breath.use(self.look)
        self.enabled = gc.isenabled()
        gc.disable()
        self.last = thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.look()
        breath.use(self.before)
        if self.enabled:
            gc.enable()


PARTITION = ("partition", "partition_index", "partition_indexes", "index", "partition_id")
"""Fields with a partition's number; other numbers are few, since a response may not name many nodes."""


class Large:
    """Makes bodies in which one array has many elements. `deep`: the one inside the first element.

    Elements are called by their place in that array, so an answer is about what its request has asked for.
    """

    def __init__(self, count: int, deep: bool, records: bytes = b"") -> None:
        self.count, self.deep, self.records = count, deep, records
        self.number = 0

    def struct(self, struct: Struct, depth: int, many: bool) -> dict[str, Any]:
        return {slot.name: self.slot(slot, depth, many) for slot in struct.slots} | {
            slot.name: slot.default() for slot in struct.tagged
        }

    def slot(self, slot: Slot, depth: int, many: bool) -> Any:
        if not slot.array:
            return self.value(slot, depth, many)
        inner = slot.struct is not None and any(one.array and one.struct is not None for one in slot.struct.slots)
        here = many and not (self.deep and inner)
        count = self.count if here else 1
        made = []
        for number in range(count):
            self.number = number if here else self.number
            made.append(self.value(slot, depth + 1, many and not here))
        if here:
            self.number = 0
        return made

    def value(self, slot: Slot, depth: int, many: bool) -> Any:
        if slot.struct is not None:
            if not slot.array and slot.nullable:
                return None
            return self.struct(slot.struct, depth, many)
        if slot.type == "string":
            return f"name-{self.number}"
        if slot.type == "uuid":
            return UUID(int=(self.number + 1) | 4 << 76)
        if slot.type == "records":
            return self.records
        if slot.type == "bytes":
            return b""
        if slot.name in PARTITION:
            return self.number
        return 0 if slot.name == "error_code" or slot.type == "bool" or depth == 0 else self.number % 100


def body(key: int, version: int, direction: str, count: int, *, deep: bool = False, records: bytes = b"") -> Any:
    """The values of a message with `count` elements."""
    return Large(count, deep, records).struct(layout.body(key, version, direction), 0, many=True)


def large(
    key: int, version: int, direction: str, count: int, *, deep: bool = False, records: bytes = b"", **values: Any
) -> bytes:
    """A frame of `count` elements, with its size."""
    api = schema.load(key)
    header: dict[str, Any] = {"correlation_id": 1}
    if direction == "request":
        header |= {"request_api_key": key, "request_api_version": version}
        if api.header_version("request", version):
            header["client_id"] = "tester"
    made = body(key, version, direction, count, deep=deep, records=records) | values
    return sized(encode(Message(api, version, header, made)))


def batch(count: int, codec: int = 0) -> bytes:
    """A batch of so many small records."""
    records = [Record(n, 1_700_000_000_000 + n, b"k", b"v" * 20) for n in range(count)]
    return encode_batch(records, codec=codec)


class Length(bytearray):
    """Stands for what came out, which a driver hands to the kernel without copying it: only its length is kept."""

    length = 0

    def __iadd__(self, more: Any) -> Self:  # type: ignore[misc]  # it is never added to anything
        self.length += len(more)
        return self

    def __bool__(self) -> bool:
        return self.length > 0


@dataclass(frozen=True)
class Case:
    """A rule of one kind, and an exchange of which one frame is long, or both are."""

    kind: str
    rules: str
    api: str
    version: int
    way: str
    deep: bool

    def __str__(self) -> str:
        return f"{self.kind}, {self.api} {self.version}, {'deep' if self.deep else 'wide'} {self.way}"

    def measure(self, count: int, trace: bool = False) -> Stopwatch:
        """Have a session pass both frames; one has `count` elements."""
        key = schema.names()[self.api]
        talk, watch = Dialogue(self.rules), Stopwatch(trace)
        talk.out = {side: Length() for side in talk.out}
        counts = {way: count if self.way in (way, BOTH) else 1 for way in WAYS}
        asked, said = (frame(key, self.version, way, counts[way], self.deep) for way in WAYS)
        with watch:
            talk.client(asked, READ)
        if talk.closed is None and talk.out[BROKER]:
            with watch:
                talk.broker(said, READ)
        talk.session.end(0.0)
        return watch


WAYS, BOTH = ("request", "response"), "both"
MATCHES: tuple[dict[str, str] | None, ...] = (None, {"topic": "name-*"}, {"group": "name-*"})
NAMED = ("Metadata", "Produce", "Fetch", "OffsetFetch", "DescribeTopicPartitions", "CreateTopics", "DescribeGroups")
"""APIs that are measured for kinds that bind when a connection opens."""
SMALL_BATCH = batch(2)


@lru_cache(8)
def frame(key: int, version: int, way: str, count: int, deep: bool) -> bytes:
    return large(key, version, way, count, deep=deep, records=SMALL_BATCH)


def broad(kind: str) -> list[str]:
    """Documents with a rule of this kind that is about as much as may be: the example with other selectors."""
    rule = {name: value for name, value in example(kind).items() if name not in ("when", "match")}
    found = [rule if match is None else rule | {"match": match} for match in MATCHES]
    texts = [text for text in (json.dumps({"rules": [one]}) for one in found) if loads(text)]
    return texts or [json.dumps({"rules": [example(kind)]})]


def cases(everything: bool = False) -> Iterator[Case]:
    """Each kind with one API and both long frames; `everything`: with all APIs, versions, forms and selectors."""
    every = tuple(sorted(schema.load(key).name for key in schema.paths()))  # not under the names that they once had
    for number, (kind, model) in enumerate(KINDS.items()):
        apis = acts_on(kind, every) if issubclass(model, LiveRule) else list(NAMED)
        rules = broad(kind)
        if not everything:
            preferred = [name for name in NAMED if name in apis] or apis
            apis, rules = preferred[number % max(1, len(preferred)) :][:1], rules[:1]
        for rule, api in product(rules, apis):
            key = schema.names()[api]
            versions = schema.load(key).versions
            named = max((version for version in versions if not by_id(key, version)), default=versions.last)
            chosen = sorted({versions.first, named, versions.last})
            for version, way, deep in product(chosen, (*WAYS, BOTH), (False, True)):
                if everything or (version == named and deep == bool(number % 2)):
                    yield Case(kind, rule, api, version, way, deep)


def by_id(key: int, version: int) -> bool:
    """Return True if the request says ids for topics: what they are called would have to be asked for."""
    return any(slot.type == "uuid" for slot in layout.body(key, version, "request").everywhere())


GROUPS = {
    "names": ("rename_", "prefix", "advertise", "limit_versions"),
    "access": ("deny", "read_only", "require", "quota"),
    "whole exchanges": (
        "error", "delay", "disconnect", "drop", "throttle_time", "reorder_responses", "duplicate_response",
        "wrong_correlation_id", "python", "set",
    ),
    "bytes": ("truncate", "short_body", "bad_length", "trailing_bytes", "unknown_tag", "corrupt"),
    "records": (
        "drop_records", "reorder_records", "duplicate_records", "corrupt_records", "poison_records", "set_record",
        "malformed_batch", "empty_fetch", "set_watermark", "short_session",
    ),
}  # fmt: skip
"""Kinds by what they are about; a word ending in `_` stands for all that begin with it. The others are about clusters
and groups."""
OTHERS = "clusters and groups"


def group_of(kind: str) -> str:
    """The group in whose row of the table a kind is."""
    for group, words in GROUPS.items():
        if any(kind == word or (word.endswith("_") and kind.startswith(word)) for word in words):
            return group
    return OTHERS


TRIES = 3
"""A stretch is as long as the shortest of so many attempts, if the first is not short: others use the machine."""
SHORT = 0.02


def table(count: int = 100_000) -> str:
    """The longest stretch of any case by group of kinds and by which frame is long, as a table of Markdown."""
    found: dict[tuple[str, str], tuple[float, float, Case]] = {}
    for case in cases():
        watches = [case.measure(count)]
        while watches[-1].longest > SHORT and len(watches) < TRIES:
            watches.append(case.measure(count))
        longest, total = min(one.longest for one in watches), min(one.total for one in watches)
        place = group_of(case.kind), case.way
        if place not in found or longest > found[place][0]:
            found[place] = longest, total, case
    lines = ["| kinds | long frame | longest stretch, ms | all of it, ms | with |", "|---|---|---|---|---|"]
    for (group, way), (longest, total, case) in sorted(found.items(), key=lambda one: one[0]):
        what = f"`{case.kind}`, {case.api} {case.version}"
        lines.append(f"| {group} | {way} | {longest * 1000:.0f} | {total * 1000:.0f} | {what} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
