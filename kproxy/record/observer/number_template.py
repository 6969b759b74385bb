"""Templates of whole frames that differ in a few numbers only, for exchanges that are recorded one by one.

Strategy. A `NumberTemplate` is one `struct` over the head of a frame: bytes that have to be the same, bytes that no
line of the record depends on, and numbers that the line has. So one `unpack` and one look-up of the constant bytes
identify the exchange and give all new values. Record batches are the only part of a frame with a variable length. A
frame has at most one; the struct contains its header, and the bytes after it are compared as well.

A frame that a template takes has to be read by the decoder in the same way as the one that it was learnt of. Hence the
length before the records is compared with its expected value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Any

from kproxy.base.cooperative import yielding
from kproxy.protocol.primitives import write_uvarint
from kproxy.protocol.records.entry import BATCH, MAGIC_AT, OVERHEAD, batch_fields
from kproxy.protocol.scan.sketch import RecordsDigest
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import FETCH, OFFSET_COMMIT, PRODUCE

from .credentials import REQUEST
from .template_cache import spans

PARTITION_WRITTEN, PARTITION_READ = "responses[].partition_responses[]", "responses[].partitions[]"
PARTITION_ASKED = "topics[].partitions[]"
RECORDS_AT = {
    (PRODUCE, "request"): "topic_data[].partition_data[].records",
    (FETCH, "response"): f"{PARTITION_READ}.records",
}
"""Paths of record batches, by (API key, direction)."""
NUMBERS = {
    (PRODUCE, "response"): (f"{PARTITION_WRITTEN}.base_offset", f"{PARTITION_WRITTEN}.log_start_offset"),
    (FETCH, "request"): (f"{PARTITION_ASKED}.fetch_offset",),
    (FETCH, "response"): tuple(
        f"{PARTITION_READ}.{name}" for name in ("high_watermark", "last_stable_offset", "log_start_offset")
    ),
    (OFFSET_COMMIT, "request"): (f"{PARTITION_ASKED}.committed_offset",),
}
"""Fields of 64 bits that differ between frames and are part of the line of an exchange, by (API key, direction)."""
IGNORED = {
    (PRODUCE, "response"): (f"{PARTITION_WRITTEN}.log_append_time_ms",),
    (FETCH, "request"): ("session_epoch",),
}
"""Fields that differ between frames and are not part of a line, by (API key, direction)."""

LONGEST = 1024
"""Bytes of a frame at most that a template is made of."""
MOST_NUMBERS = 24
BATCH_FIELDS = (
    "base_offset", "length", "magic", "crc", "attributes", "last_offset_delta", "producer_id", "producer_epoch",
    "base_sequence", "count",
)  # fmt: skip


@dataclass(slots=True)
class LearntFrame:
    """Template of one frame that was read, with the values that a frame like it must have (`constants`).

    `told`: for each number of the template after the size and the correlation id, (path of its field, number of earlier
    fields with that path). For numbers of a batch, the path is the attribute's name in its `RecordsDigest`.
    """

    template: NumberTemplate
    constants: Any
    told: list[tuple[str, int]]


class NumberTemplate:
    """Struct over frames of one API, version and direction.

    `unpack(buffer, position of the length field)` returns fields. `constants` selects those that have to be the same,
    `numbers` those that a line has: the size, the correlation id, those of the batch if there is one, and those of
    `NUMBERS`. `known`: learned results for frames of this form, by their constants.
    """

    __slots__ = ("batch", "behind", "compact", "constants", "form", "known", "length_at", "numbers", "overhead",
                 "reach", "unpack")  # fmt: skip

    def __init__(self, form: str, constants: list[int], numbers: list[int]) -> None:
        struct = Struct(form)
        self.form: tuple[Any, ...] = (form, tuple(constants), tuple(numbers))
        self.unpack, self.reach = struct.unpack_from, struct.size
        self.constants: Callable[[Any], Any] = itemgetter(*constants)
        self.numbers: Callable[[Any], tuple[int, ...]] = itemgetter(*numbers)
        self.known: dict[Any, Any] = {}
        self.batch = self.compact = False
        self.length_at = self.overhead = 0
        self.behind = b""

    def with_batch(self, length_at: int, compact: bool, overhead: int, behind: bytes) -> None:
        """Have the template match frames with one record batch.

        `length_at`: index of the field that is the records' length, a varint if `compact`. `overhead`: a frame's size
        less the length in the batch's header. `behind`: the bytes after the records.
        """
        self.batch, self.length_at, self.compact, self.overhead = True, length_at, compact, overhead
        self.behind = behind
        self.form = (*self.form, compact, overhead, behind)

    def fits(self, buf: Any, end: int, fields: Any, numbers: tuple[int, ...]) -> bool:
        """Return True if the batch is all that the frame, which ends at `end`, has beyond its constants."""
        length, behind = numbers[2], self.behind
        return (
            numbers[0] == length + self.overhead
            and numbers[3] > 0
            and fields[self.length_at] == records_length(length, self.compact)
            and (not behind or buf[end - len(behind) : end] == behind)
        )


@lru_cache(maxsize=4096)
def records_length(length: int, compact: bool) -> bytes:
    """Return the length field of records that are one batch of this length."""
    size = length + OVERHEAD
    return write_uvarint(size + 1) if compact else size.to_bytes(4, "big")


def learn_frame(frame: bytes, key: int, version: int, direction: str, body: dict[str, Any]) -> LearntFrame | None:
    """Return the template of a frame (without its length field) that was decoded as `body`; None if it can have none.

    The body must pass `has_one_place`. Raises DecodeError where a walk does not read what the decoder did.
    """
    records_path = RECORDS_AT.get((key, direction), "")
    digests = records_in(body, key, direction)
    writer = FormWriter(frame, direction == REQUEST)
    paths = changing_paths(key, version, direction)
    for path, start, end in spans(frame, key, version, direction, paths) if paths else ():
        if path == records_path:
            if digests and end - start > digests[0].size:
                writer.batch(start, end, digests[0], layout.body(key, version, direction).flexible)
        elif writer.behind is None:
            writer.number(path, start, end, told=path in NUMBERS.get((key, direction), ()))
        elif path in NUMBERS[key, direction]:
            return None  # its place depends on the batch's length, which no struct can follow
    return writer.learnt()


def records_in(body: dict[str, Any], key: int, direction: str) -> list[RecordsDigest]:
    """Return those records fields of a body that are not empty."""
    fields = (holder[name] for holder, name in holders(body, RECORDS_AT.get((key, direction), "")))
    return [digest for digest in fields if digest is not None and digest.size]


def has_one_place(body: dict[str, Any], key: int, direction: str) -> bool:
    """Return True unless a body has more records than one batch, which templates do not support."""
    digests = records_in(body, key, direction)
    return not digests or (len(digests) == 1 and is_one_batch(digests[0]))


def is_one_batch(digest: RecordsDigest) -> bool:
    """Return True if records are one batch of users' records."""
    return digest.batches == 1 and not digest.control and (digest.records or 0) > 0


def holders(body: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield (struct, name of its field) for each field at `path`, in wire order."""
    if not path:
        return
    first, _, rest = path.partition("[].")
    if not rest:
        yield body, first
        return
    for element in yielding(body[first] or ()):
        yield from holders(element, rest)


def changing_paths(key: int, version: int, direction: str) -> frozenset[str]:
    """Return the paths of the fields that may differ in frames that are alike."""
    where = key, direction
    paths = {*NUMBERS.get(where, ()), *IGNORED.get(where, ()), *((RECORDS_AT[where],) if where in RECORDS_AT else ())}
    return frozenset(paths & {slot.path for slot in layout.body(key, version, direction).everywhere()})


class FormWriter:
    """Writer of the form of a `NumberTemplate`, along a frame without its length field."""

    def __init__(self, frame: bytes, request: bool) -> None:
        self.frame, self.request = frame, request
        self.at = 8 if request else 4  # behind the correlation id
        self.form = ">iIi" if request else ">ii"
        self.fields = 3 if request else 2
        self.constants: list[int] = [1] if request else []
        self.numbers = [0, self.fields - 1]
        self.of_batch: list[tuple[str, int]] = []  # (attribute, place in the fields)
        self.told: list[tuple[str, int, int]] = []  # (path, how many of it came before, place in the fields)
        self.met: Counter[str] = Counter()
        self.behind: bytes | None = None
        self.length_at = self.overhead = 0
        self.compact = self.wrong = False

    def up_to(self, place: int) -> None:
        """Add a field of the bytes in front of `place` that no other field has: they have to be the same."""
        if place > self.at:
            self.form += f"{place - self.at}s"
            self.constants.append(self.fields)
            self.fields += 1
        self.at = place

    def number(self, path: str, start: int, end: int, *, told: bool) -> None:
        """Add the field in frame[start:end] that may differ, to `told` numbers or to the bytes that do not matter.

        A number below zero means "absent", so it has to be the same: it becomes part of the bytes around it.
        """
        if not told:
            self.up_to(start)
            self.form += f"{end - start}x"
            self.at = end
        elif end - start == 8 and self.frame[start] < 0x80:
            self.up_to(start)
            self.form += "q"
            self.told.append((path, self.met[path], self.fields))
            self.fields += 1
            self.at = end
        self.met[path] += 1

    def batch(self, start: int, end: int, digest: RecordsDigest, compact: bool) -> None:
        """Add the records field in frame[start:end], its length in front, which is one batch."""
        begin = end - digest.size
        if self.frame[begin + MAGIC_AT] != 2:
            self.wrong = True
            return
        self.up_to(start)
        first = self.fields + 1
        self.form += f"{begin - start}s{batch_fields(*BATCH_FIELDS)}"
        self.length_at, self.compact, self.behind = self.fields, compact, self.frame[end:]
        self.fields = first + len(BATCH_FIELDS)
        base, length, magic, crc, attributes, delta, producer, epoch, sequence, count = range(first, self.fields)
        self.constants += [magic, attributes]
        self.of_batch = [("size", length), ("records", count)]
        if not self.request:
            self.of_batch += [("base_offset", base), ("last_offset", delta)]
        if digest.producer_id is None:
            self.constants.append(producer)
        else:
            self.of_batch += [("producer_id", producer), ("producer_epoch", epoch), ("base_sequence", sequence)]
        self.of_batch.append(("crc", crc))
        self.at = begin + BATCH.size
        self.overhead = begin + OVERHEAD + len(self.behind)

    def learnt(self) -> LearntFrame | None:
        """Return the template with its constants; None if it is too large or a number in it is below zero."""
        if self.behind is None:
            self.up_to(len(self.frame))
            self.constants.insert(0, 0)  # the size
        if self.wrong or self.at > LONGEST or len(self.told) > MOST_NUMBERS or len(self.behind or b"") > LONGEST:
            return None
        told = [(path, 0, at) for path, at in self.of_batch] + self.told
        template = NumberTemplate(self.form, self.constants, self.numbers + [at for _, _, at in told])
        if self.behind is not None:
            template.with_batch(self.length_at, self.compact, self.overhead, self.behind)
        fields = template.unpack(len(self.frame).to_bytes(4, "big") + self.frame, 0)
        numbers = template.numbers(fields)
        if min(numbers[2:], default=0) < 0:
            return None
        return LearntFrame(template, template.constants(fields), [(path, before) for path, before, _ in told])
