"""Functions that compiled walks call: tables for one-byte lengths, rare cases, arrays of uniform elements.

Nearly every compact length, count and tag is one byte. `near(size)[b]` is the encoded size of a value whose compact
length is the byte `b`, its length included, for elements of `size` bytes; 0 if the length has more bytes.

Arrays of uniform elements are passed in one comparison. The layout of an element depends on few bytes, here its
*measures*: lengths, counts, and the tag buffer's count. Partitions of a topic nearly always have equal ones: three
replicas, three in sync, none offline. `UniformArray` stores, by number of elements, the total size and all measures.
The next array with equal measures has the same size. Otherwise the caller loops over it, and its layout may be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any, Final

from kproxy.base.cooperative import yield_point, yielding_range
from kproxy.protocol.primitives import MAX_LENGTH, MAX_STRING, Buffer, read_uvarint
from kproxy.protocol.table.layout import FIXED, Slot, Struct


class Bad(Exception):
    """Failure of compiled code at bytes that do not fit; `trace.py` then finds out what and where."""


class TooManyHits(Bad):
    """More hits than a walk returns."""


MOST_HITS = 500_000
"""Hits of one message: some 60 MB and a third of a second. The Metadata of 100,000 renamed topics has 300,000."""


@cache
def near(size: int) -> tuple[int, ...]:
    """Return the bytes from the length's byte to the end of the value, by that byte; 0 for the bytes that do not end a
    varint."""
    return (1, *(1 + size * (byte - 1) for byte in range(1, 128)), *(0 for _ in range(128)))


def far(buf: Buffer, at: int, size: int) -> int:
    """Return the bytes from the length to the end of the value, for a length that takes more than one byte."""
    raw, after = read_uvarint(buf, at)
    if raw > MAX_LENGTH:
        raise Bad
    return after - at + max(raw - 1, 0) * size


def far_string(buf: Buffer, at: int) -> int:
    """Return the encoded size of a string with a length of more than one byte. Raises Bad above MAX_STRING."""
    raw, after = read_uvarint(buf, at)
    if raw - 1 > MAX_STRING:
        raise Bad
    return after - at + max(raw - 1, 0)


def skip_tags(buf: Buffer, p: int, end: int) -> int:
    """Return the position after a tag buffer without wanted tags."""
    number, p = read_uvarint(buf, p)
    if number + number > end - p:  # a tag and its size take a byte each
        raise Bad
    for _ in yielding_range(number):
        _, p = read_uvarint(buf, p)
        size, p = read_uvarint(buf, p)
        p += size
    return p


LEAST: Final = 5
"""Minimum elements of a comparison; for fewer the loop is faster."""
MOST: Final = 64
"""Elements that are compared at once; a longer array is compared in parts."""
LEARN_EVERY: Final = 8
"""Every eighth unknown array is learned, which may take as long as the loop."""
MOST_KNOWN: Final = 256
"""Layouts known of one array. No element in the table has more than 16 bytes of measures, so that is 260 kB at most."""

Known = tuple[int, Callable[[bytes], Any], Any]
"""Bytes of all elements, what takes the measures out of them, and these."""


class UniformArray:
    """Known layouts of an array of structs without wanted fields. `struct`: its elements."""

    __slots__ = ("known", "struct", "telling", "unknown")

    def __init__(self, struct: Struct) -> None:
        self.struct = struct
        self.telling = deciding_byte(struct)
        self.known: dict[int, Known] = {}  # by number of elements << 8 | the telling byte of the first one
        self.unknown = 0

    def skip(self, buf: Buffer, p: int, n: int) -> tuple[int, int]:
        """Return the position behind those of the `n` elements at `p` that are as known, and how many are left."""
        while n >= LEAST:
            part = min(n, MOST)
            layout = self.known.get(part << 8 | buf[p + self.telling])
            if layout is None:
                break
            size, measures, same = layout
            if measures(bytes(buf[p : p + size])) != same:
                break
            p += size
            n -= part
            yield_point()
        return p, n

    def learn(self, buf: Buffer, p: int, n: int) -> None:
        """Learn the layout of the `n` elements at `p`, which were not known. The caller has gone through them: they are
        there."""
        self.unknown += 1
        if n < LEAST or self.unknown % LEARN_EVERY != 1:
            return
        layout = find_measures(self.struct, buf, p)
        if layout is None:
            return
        n, (stride, places) = min(n, MOST), layout
        measures = itemgetter(*(slice(place, None, stride) for place in places))
        size = stride * n
        same = measures(bytes(buf[p : p + stride]) * n)
        if measures(bytes(buf[p : p + size])) == same:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[n << 8 | buf[p + self.telling]] = size, measures, same


def can_be_uniform(struct: Struct) -> bool:
    """Return True if measures determine the layout of such a struct: all structs in it are in arrays."""
    return all(slot.array or slot.struct is None for slot in struct.slots)


def measure(slot: Slot) -> int:
    """Return the bytes of the slot's length or count; 0 if it has none."""
    if slot.type in FIXED and not slot.array:
        return 0
    if slot.compact:
        return 1
    return 2 if slot.type == "string" and not slot.array else 4


def deciding_byte(struct: Struct) -> int:
    """Return the offset of the last byte of the first measure in an element, which distinguishes arrays, as by
    replicas."""
    before = 0
    for slot in struct.slots:
        if size := measure(slot):
            return before + size - 1
        before += FIXED[slot.type][1]
    return before  # the tag buffer's count


def find_measures(struct: Struct, buf: Buffer, p: int) -> tuple[int, list[int]] | None:
    """Return the size of the element at `p`, and the offsets of its measures. None if they do not determine its layout.

    That applies to tagged fields, to elements with measures of their own, and to compact lengths of several bytes.
    """
    at, places = 0, list[int]()
    for slot in struct.slots:
        size = measure(slot)
        if not size:
            at += FIXED[slot.type][1]
            continue
        places += range(at, at + size)
        length = int.from_bytes(buf[p + at : p + at + size], "big", signed=not slot.compact)
        if slot.compact:
            length -= 1
        width = 1 if not slot.array else FIXED[slot.type][1] if slot.type in FIXED else 0
        if length > 0 and (width == 0 or (slot.compact and length > 126)):
            return None
        at += size + max(length, 0) * width
    if struct.flexible:
        if buf[p + at]:
            return None
        places.append(at)
        at += 1
    return at, places
