"""Cache of templates, all with the same bounds and the same limit on failed learning; and the place of record batches.

`place_of_batch` and its neighbours locate the only record batch of a Produce request or a Fetch response.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Generic, TypeVar

from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import known_body_start, short_uvarint
from kproxy.protocol.primitives import Buffer, read_uvarint
from kproxy.protocol.records.entry import BATCH, LENGTH_AT, MAGIC_AT, OVERHEAD, batch_fields
from kproxy.protocol.scan.sketch import RecordsDigest
from kproxy.protocol.scan.walk import walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, PRODUCE

from .credentials import REQUEST, RESPONSE
from .observation import signed

LONGEST_HEAD = 1024
"""Bytes of a frame that are searched for its first batch. Names and ids are far shorter."""
SMALLEST_HEAD, WIDEST = 8, 5
"""Least bytes before the records, and most bytes of their length."""
RECORDS_ASKED = frozenset(("topic_data[].partition_data[].records",))
RECORDS_READ = frozenset(("responses[].partitions[].high_watermark", "responses[].partitions[].records"))
BATCH_ASKED = batch_fields("length", "magic", "attributes", "producer_id", "count")
"""Fields read of the batch header in a request."""
BATCH_READ = batch_fields("base_offset", "length", "magic", "attributes", "last_offset_delta", "count")
"""Fields read of the batch header in a response."""

CONSTANTS = Struct(">" + batch_fields("attributes", "producer_id"))
"""Fields of a batch's header that are the same in all batches of one producer."""


@dataclass(slots=True, frozen=True)
class BatchPlace:
    """Place of the records in frames with one record batch, in bytes without the frame's length field.

    `before`: bytes in front of the records' length, which takes `width` bytes and is a varint if `compact`. `behind`:
    bytes after the records. Of Fetch responses only: `prefix` are the bytes in front of the high watermark, `middle`
    those right before the records' length; both are the same in all frames of this place.
    """

    before: int
    width: int
    behind: int
    compact: bool
    prefix: int = 0
    middle: int = 0

    def of_size(self, size: int) -> BatchPlace:
        """Return the place in a frame of `size` bytes that begins alike: its records' length may take other bytes."""
        width = self.width
        if self.compact:
            width = next(width for width in range(1, 6) if size <= replace(self, width=width).sizes[1])
        return replace(self, width=width)

    @property
    def overhead(self) -> int:
        """Return the difference between a frame's size and the length in its batch's header, in bytes."""
        return self.before + self.width + OVERHEAD + self.behind

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the smallest and the largest size of a frame whose records' length has `width` bytes."""
        if not self.compact:
            return 0, 0x7FFFFFFF
        rest = self.before + self.width + self.behind - 1  # a compact length is one more than the bytes
        low = 1 << 7 * (self.width - 1) if self.width > 1 else 1
        return rest + low, rest + (1 << 7 * self.width) - 1


def asked_form(place: BatchPlace) -> Struct:
    """Return the `struct` of requests with one record batch: the header, the bytes that stay, and BATCH_ASKED."""
    return Struct(f">iIi{place.before - 8}s{place.width}x{BATCH_ASKED}")


def read_form(place: BatchPlace) -> Struct:
    """Return the `struct` of responses with one record batch: header, prefix, high watermark, middle, BATCH_READ."""
    offsets = place.before - place.prefix - place.middle - 8
    return Struct(f">ii{place.prefix - 4}sq{offsets}x{place.middle}s{place.width}x{BATCH_READ}")


def spans(frame: bytes, key: int, version: int, direction: str, paths: frozenset[str]) -> list[tuple[str, int, int]]:
    """Return (path, start, end) of each value at `paths` in a frame without its length field, in wire order."""
    hits: list[tuple[int, int, int]] = []
    walked = walk(key, version, direction, paths)
    start = known_body_start(frame, 0, len(frame), header_version(key, version, direction), direction) or 0
    walked.run(frame, start, len(frame), hits)
    return [(walked.marks[at].path, begin, end) for at, begin, end in hits if walked.marks[at].what == "value"]


def shortened(buf: Buffer, pos: int, n: int, size: int, code: int, direction: str) -> bytes | None:
    """Return the frame at `pos` with its only record batch cut to the header, if as much of it is before `n`.

    None if unknown. The result has to be decoded like any frame: bytes may look like a batch without being one.
    """
    key, version = signed(code >> 16), signed(code & 0xFFFF)
    if version not in schema.load(key).versions:
        return None
    head = bytes(buf[pos + 4 : min(n, pos + 4 + LONGEST_HEAD)])
    flexible = layout.body(key, version, direction).flexible
    behind = 3 if flexible else 0
    for before in range(SMALLEST_HEAD, len(head) - BATCH.size - WIDEST):
        if flexible:
            read = short_uvarint(head, before, before + WIDEST)
            length, start = (read[0] - 1, read[1]) if read is not None else (-1, before)
        else:
            length, start = int.from_bytes(head[before : before + 4], "big", signed=True), before + 4
        if start + length + behind != size or head[start + MAGIC_AT] != 2:
            continue
        if int.from_bytes(head[start + LENGTH_AT : start + LENGTH_AT + 4], "big") + OVERHEAD != length:
            continue
        batch = bytearray(head[start : start + BATCH.size])
        batch[LENGTH_AT : LENGTH_AT + 4] = (BATCH.size - OVERHEAD).to_bytes(4, "big")
        width = bytes([BATCH.size + 1]) if flexible else BATCH.size.to_bytes(4, "big")
        return head[:before] + width + batch + bytes(behind)
    return None


def batch_place(frame: bytes, version: int, direction: str, records: RecordsDigest | None) -> BatchPlace | None:
    """Return the place of the only batch of a frame; None unless that is a whole batch of magic 2 with records."""
    if records is None or records.batches != 1 or records.control or not records.records or records.records < 0:
        return None
    key, paths = (PRODUCE, RECORDS_ASKED) if direction == REQUEST else (FETCH, RECORDS_READ)
    hits = spans(frame, key, version, direction, paths)
    start, end = hits[-1][1:]
    flexible = layout.body(key, version, direction).flexible
    width = read_uvarint(frame, start)[1] - start if flexible else 4
    behind = 3 if flexible else 0
    if end - start - width != records.size or frame[end:] != bytes(behind) or frame[start + width + MAGIC_AT] != 2:
        return None
    if int.from_bytes(frame[start + width + 8 : start + width + 12], "big") + 12 != records.size:
        return None
    prefix = middle = 0
    if direction == RESPONSE:
        prefix = hits[0][1]
        partition = layout.body(key, version, direction).everywhere()
        offsets = sum(slot.name in ("last_stable_offset", "log_start_offset") for slot in partition)
        middle = start - prefix - 8 - 8 * offsets
    found = BatchPlace(start, width, behind, flexible, prefix, middle)
    return found if found.sizes[0] <= len(frame) <= found.sizes[1] else None


Template = TypeVar("Template")

MOST_LEARNT = 200
"""Templates of requests of one API, and of responses to one of these. More partitions on one connection are rare."""
PATIENCE = 16
"""Failures in a row after which only one in as many frames is learned."""


def make_room(known: dict[Any, Any], *others: Any) -> None:
    """Clear `known`, and the data that belongs to it, if it is full."""
    if len(known) >= MOST_LEARNT:
        for each in (known, *others):
            each.clear()


class Learner:
    """Judge of whether frames of one kind are worth learning. `misses`: how often in a row learning failed."""

    __slots__ = ("misses",)

    def __init__(self) -> None:
        self.misses = 0.0

    def worth_learning(self) -> bool:
        """Count a failure, and return True if learning is worth another try: to learn costs more than to read."""
        self.misses = max(self.misses, 0.0) + 1
        return self.misses <= PATIENCE or not int(self.misses) % PATIENCE


class TemplateCache(Learner, Generic[Template]):
    """Templates of one kind of frames on one connection, by the bytes that stay the same in them.

    `known`: by their prefix, or by the place of the record batch and all that stays. `lengths`: of those keys that are
    prefixes. `places`: known places of record batches, each with the `struct` that reads such a frame.
    """

    __slots__ = ("known", "lengths", "places")

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Template] = {}
        self.lengths: list[int] = []
        self.places: dict[BatchPlace, Struct] = {}

    def remember(
        self, key: Any, template: Template, place: BatchPlace | None = None, form: Struct | None = None
    ) -> None:
        """Add a template under a key that is not a prefix. `place`: of its record batch; `form`: reads such frames."""
        make_room(self.known, self.lengths, self.places)
        self.known[key] = template
        if place is not None and form is not None:
            self.places[place] = form

    def remember_prefix(self, prefix: bytes, template: Template) -> None:
        """Add a template of frames that go on with `prefix` behind their header's fixed fields."""
        self.remember(prefix, template)
        if len(prefix) not in self.lengths:
            self.lengths.append(len(prefix))

    def with_prefix(self, buf: Buffer, start: int, n: int) -> Iterator[Template]:
        """Yield the templates whose prefix is at `start`, as far as it ends before `n`."""
        for length in self.lengths:
            template = self.known.get(bytes(buf[start : min(start + length, n)]))
            if template is not None:
                yield template

    def batches(self, buf: Buffer, pos: int, size: int, n: int) -> Iterator[tuple[BatchPlace, tuple[Any, ...]]]:
        """Yield (place, fields of its `struct`) for each place of a batch that fits into the frame at `pos`."""
        for place, form in self.places.items():
            if size + 4 >= form.size and pos + form.size <= n:
                yield place, form.unpack_from(buf, pos)
