"""The longest stretch of work that a session does without a place to stop, for large messages of any API.

    watch = Stopwatch()
    with watch:
        talk.client(large(3, 12, "request", 100_000))
    watch.longest       # seconds of CPU between two places where others may run (wire/breath.py)

CPU time is measured, for other programs do not count; the garbage collector is off, for its work is not of a message.
"""

from __future__ import annotations

import gc
import traceback
from time import thread_time
from types import TracebackType
from typing import Any
from uuid import UUID

from kproxy.wire import Message, breath, encode, layout, schema
from kproxy.wire.layout import Slot, Struct
from kproxy.wire.records.batch import encode_batch
from kproxy.wire.records.record import Record

from .dialogue import sized

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


class Large:
    """Makes bodies in which one array has many elements. `deep`: the one inside the first element."""

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
        return [self.value(slot, depth + 1, many and not here) for _ in range(count)]

    def value(self, slot: Slot, depth: int, many: bool) -> Any:
        self.number += 1
        if slot.struct is not None:
            if not slot.array and slot.nullable:
                return None
            return self.struct(slot.struct, depth, many)
        if slot.type == "string":
            return f"name-{self.number}"
        if slot.type == "uuid":
            return UUID(int=self.number | 4 << 76)
        if slot.type == "records":
            return self.records
        if slot.type == "bytes":
            return b""
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
        header |= {"request_api_key": key, "request_api_version": version, "client_id": "tester"}
    made = body(key, version, direction, count, deep=deep, records=records) | values
    return sized(encode(Message(api, version, header, made)))


def batch(count: int, codec: int = 0) -> bytes:
    """A batch of so many small records."""
    records = [Record(n, 1_700_000_000_000 + n, b"k", b"v" * 20) for n in range(count)]
    return encode_batch(records, codec=codec)
