"""Templates of frames that differ in a few numbers only: one lookup identifies a frame and returns its numbers.

A `NumberTemplate` is one `struct` over the head of a frame, with constant bytes, ignored bytes and numbers. Record
batches are the only part of a frame with a variable length. A frame with a template has at most one batch; the struct
contains its header. A `TemplateFamily` contains the templates of one kind of frames on one connection.

Summaries (`summary_templates.py`) and lines (`templated_lines.py`) use the same templates with different forms. Forms
for lines are made here, by `learn_frame`. They cover whole frames, including the bytes after a batch. The decoder must
read a frame that matches like the learned one. Hence the length before the records is compared with its expected value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

from kproxy.base.cooperative import yielding
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import known_body_start, short_uvarint
from kproxy.protocol.primitives import Buffer, read_uvarint, write_uvarint
from kproxy.protocol.records.entry import BATCH, LENGTH_AT, MAGIC_AT, OVERHEAD, batch_fields
from kproxy.protocol.scan.sketch import RecordsDigest
from kproxy.protocol.scan.walk import walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import FETCH, OFFSET_COMMIT, PRODUCE

from .credentials import REQUEST
from .observation import signed

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
"""Largest head of a template, and largest part of a frame that is searched for a batch, in bytes."""
SMALLEST_HEAD, WIDEST = 8, 5
"""Least bytes before the records, and most bytes of their length."""
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

    `unpack(buffer, position of the length field)` returns fields. `constants` selects those that have to be the same.
    `numbers` selects the size, the correlation id, the batch's length and record count if there is a batch, and the
    others. `known`: results for frames of this form, by their constants. `overhead`: a frame's size less the length in
    its batch's header; 0 without a batch.
    """

    __slots__ = ("batch", "behind", "compact", "constants", "form", "known", "length_at", "numbers", "overhead",
                 "reach", "unpack")  # fmt: skip

    def __init__(self, form: str, constants: list[int], numbers: list[int], overhead: int = 0) -> None:
        struct = Struct(form)
        self.form: tuple[Any, ...] = (form, tuple(constants), tuple(numbers), overhead)
        self.unpack, self.reach = struct.unpack_from, struct.size
        self.constants: Callable[[Any], Any] = itemgetter(*constants)
        self.numbers: Callable[[Any], tuple[int, ...]] = itemgetter(*numbers)
        self.known: dict[Any, Any] = {}
        self.overhead, self.batch = overhead, overhead > 0
        self.compact, self.length_at, self.behind = False, 0, b""

    def complete(self, length_at: int, compact: bool, behind: bytes) -> None:
        """Have `fits` check the rest of a frame with a batch.

        `length_at`: index of the field that is the records' length, a varint if `compact`. `behind`: the bytes after
        the records.
        """
        self.length_at, self.compact, self.behind = length_at, compact, behind
        self.form = (*self.form, compact, behind)

    def fits(self, buf: Any, end: int, fields: Any, numbers: tuple[int, ...]) -> bool:
        """Return True if the batch is all that the frame, which ends at `end`, has beyond its constants."""
        length, behind = numbers[2], self.behind
        return (
            numbers[0] == length + self.overhead
            and numbers[3] > 0
            and fields[self.length_at] == records_length(length, self.compact)
            and (not behind or buf[end - len(behind) : end] == behind)
        )


MAX_TEMPLATES = 200
"""Known frames of one family. Connections with more partitions are rare."""
MAX_FORMS = 64
"""Forms of one family. A producer needs up to three for each length of a topic's name: the length of records has one,
two or three bytes."""
PATIENCE = 16
"""Failures in a row after which only one in as many frames is learned."""


class Learner:
    """Limit on failed learning of one kind of frames. `misses`: failures in a row."""

    __slots__ = ("misses",)

    def __init__(self) -> None:
        self.misses = 0.0

    def worth_learning(self) -> bool:
        """Count a failure, and return True if another attempt is worth its cost, which exceeds that of a read."""
        self.misses = max(self.misses, 0.0) + 1
        return self.misses <= PATIENCE or not int(self.misses) % PATIENCE


class TemplateFamily:
    """Templates of one kind of frames on one connection: at most MAX_FORMS forms with MAX_TEMPLATES known frames.

    `learner`: an object of its own, so that the results may reference it without a reference cycle.
    """

    __slots__ = ("forms", "learned", "learner")

    def __init__(self) -> None:
        self.learner = Learner()
        self.forms: list[NumberTemplate] = []
        self.learned = 0

    def find(self, buf: Buffer, pos: int, n: int) -> Any:
        """Return the result for the frame at `pos`, as far as its head before `n` shows it; None if it is unknown."""
        for form in self.forms:
            if n - pos >= form.reach:
                fields = form.unpack(buf, pos)
                found = form.known.get(form.constants(fields))
                if found is not None:
                    numbers = form.numbers(fields)
                    if not form.batch or numbers[0] == numbers[2] + form.overhead:
                        return found
        return None

    def known_frames(self, template: NumberTemplate, constants: Any) -> dict[Any, Any]:
        """Return the known frames of this form, with room for one with these constants.

        All are discarded when the family is full.
        """
        known = next((form.known for form in self.forms if form.form == template.form), None)
        if known is not None and constants in known:
            return known
        if self.learned >= MAX_TEMPLATES or (known is None and len(self.forms) >= MAX_FORMS):
            self.forms.clear()
            self.learned, known = 0, None
        self.learned += 1
        if known is None:
            self.forms.append(template)
            known = template.known
        return known


def spans(frame: bytes, key: int, version: int, direction: str, paths: frozenset[str]) -> list[tuple[str, int, int]]:
    """Return (path, start, end) of each value at `paths` in a frame without its length field, in wire order."""
    hits: list[tuple[int, int, int]] = []
    walked = walk(key, version, direction, paths)
    start = known_body_start(frame, 0, len(frame), header_version(key, version, direction), direction) or 0
    walked.run(frame, start, len(frame), hits)
    return [(walked.marks[at].path, begin, end) for at, begin, end in hits if walked.marks[at].what == "value"]


@lru_cache(maxsize=4096)
def records_length(length: int, compact: bool) -> bytes:
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


def is_one_batch(digest: RecordsDigest | None) -> bool:
    """Return True if records are one batch of users' records."""
    return digest is not None and digest.batches == 1 and not digest.control and (digest.records or 0) > 0


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
        numbered = self.numbers + [at for _, _, at in told]
        template = NumberTemplate(self.form, self.constants, numbered, self.overhead)
        if self.behind is not None:
            template.complete(self.length_at, self.compact, self.behind)
        fields = template.unpack(len(self.frame).to_bytes(4, "big") + self.frame, 0)
        numbers = template.numbers(fields)
        if min(numbers[2:], default=0) < 0:
            return None
        return LearntFrame(template, template.constants(fields), [(path, before) for path, before, _ in told])


# ---- record batches


class BatchPlace(NamedTuple):
    """Place of the only record batch in a frame without its length field.

    `batch`: start of its header in the given frame. `width`: bytes of the records' length in a frame of the given size;
    frames of `least` to `most` bytes have the same. `overhead`: see `NumberTemplate`.
    """

    batch: int
    width: int
    overhead: int
    least: int
    most: int


def batch_place(
    frame: bytes, start: int, end: int, size: int, flexible: bool, records: RecordsDigest
) -> BatchPlace | None:
    """Return the place of the batch in the records field frame[start:end]; None unless it is a whole one of magic 2.

    `size`: of the real frame, whose records may have been cut out (`shortened`).
    """
    own = width = read_uvarint(frame, start)[1] - start if flexible else 4
    behind = 3 if flexible else 0
    batch = start + own
    length = int.from_bytes(frame[batch + LENGTH_AT : batch + LENGTH_AT + 4], "big") + OVERHEAD
    if end - batch != records.size or length != records.size:
        return None
    if frame[end:] != bytes(behind) or frame[batch + MAGIC_AT] != 2:
        return None
    least, most = 0, 0x7FFFFFFF
    if flexible:
        around = start + behind - 1  # a compact length is one more than the bytes
        width = next((width for width in range(1, WIDEST + 1) if size < around + width + (1 << 7 * width)), WIDEST)
        low = 1 << 7 * (width - 1) if width > 1 else 1
        least, most = around + width + low, around + width + (1 << 7 * width) - 1
    if len(frame) == size and (width != own or not least <= size <= most):
        return None
    return BatchPlace(batch, width, start + width + OVERHEAD + behind, least, most)


def shortened(buf: Buffer, pos: int, n: int, size: int, code: int, direction: str) -> bytes | None:
    """Return the frame at `pos` with its only record batch cut to the header, if as much of it is before `n`.

    None if unknown. The result has to be decoded like any frame: bytes may look like a batch without being one.
    """
    key, version = signed(code >> 16), signed(code & 0xFFFF)
    if version not in schema.load(key).versions:
        return None
    head = bytes(buf[pos + 4 : min(n, pos + 4 + LONGEST)])
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
