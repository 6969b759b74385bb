"""Edits of a frame: replacements, insertions and removals; all other bytes stay.

    edits = Edits(buf, start, end, walk, hits)
    edits.replace(*span, new_bytes)                 # a span of a value hit
    edits.remove(element_start, element_end, count) # an element hit's span, and the hit of its array's count
    edits.insert(count, position, element_bytes)
    edits.set_tag(tags, 7, value) / edits.drop_tag(tags, 7)     # `tags`: the hit of the tag buffer's count
    b"".join(edits.pieces())

Strategy. An edit is a span and its new bytes. At the end, counts become edits, from the number of removed and inserted
elements; then the sizes of enclosing tagged fields, from the inside out. The anchor of an edit identifies its array or
tag buffer: a new element at the end of a tagged array and a new tag after it have the same position, but only the first
belongs to the tagged field. A removed or replaced span discards the edits inside it, so a rewrite may change a name
before another one removes the element.
"""

from __future__ import annotations

from bisect import bisect_left

from kproxy.base.cooperative import free_list, yield_point, yielding, yielding_range, yielding_sort
from kproxy.protocol.scan.walk import Hit, Hits, Walk

from .primitives import Buffer, read_uvarint, write_uvarint

EditedSpan = tuple[int, int, bytes, int, bool]  # start, end, new bytes, anchor, whether it swallows what is inside
MANY = 1000
"""Changes above which the frame is given in one piece, joined with yield points."""


def order(change: EditedSpan) -> tuple[int, bool, int, int]:
    """Sort key of changes: by position, then insertions (the deepest first), then the longest span."""
    start, end, _, anchor, _ = change
    return start, end > start, -anchor if start == end else 0, -end


def one_after_the_other(changes: list[EditedSpan]) -> bool:
    """Return True if these are replacements in order, as most are: none of them inside another one's span."""
    last = -1
    for start, end, _, _, _ in yielding(changes):
        if start < last or start == end:
            return False
        last = end
    return True


def outermost(changes: list[EditedSpan]) -> list[EditedSpan]:
    """Return the changes in order, without those inside another one's span."""
    if one_after_the_other(changes):
        return changes
    outer: list[EditedSpan] = []
    low = high = -1  # the span that swallows at present
    for change in yielding(yielding_sort(changes, order)):
        start, end, _, anchor, swallows = change
        if low < start < high or low <= anchor < high:
            continue
        outer.append(change)
        if swallows:
            low, high = start, end
    return outer


class Edits:
    """Edits of the frame buf[start:end]. True if there are any. Spans are those of the hits that `walk` gave."""

    __slots__ = ("buf", "changes", "counts", "end", "hits", "removed", "start", "tags", "walk")

    def __init__(self, buf: Buffer, start: int, end: int, walk: Walk, hits: Hits) -> None:
        self.buf, self.start, self.end, self.walk, self.hits = buf, start, end, walk, hits
        self.changes: list[EditedSpan] = []
        self.counts: dict[Hit, int] = {}
        self.removed: set[tuple[int, int]] = set()
        self.tags: dict[Hit, dict[int, bytes | None]] = {}

    def __bool__(self) -> bool:
        return bool(self.changes or self.tags)

    def free(self) -> None:
        """Free all edits with yield points; a hundred thousand take milliseconds."""
        removed = list(self.removed)
        self.removed.clear()
        free_list(removed)
        free_list(self.changes)

    def replace(self, start: int, end: int, data: bytes) -> None:
        """Put `data` in the place of buf[start:end]. The first replacement of a span wins."""
        yield_point()
        self.changes.append((start, end, data, start, True))

    def remove(self, start: int, end: int, count: Hit) -> None:
        """Remove the element at [start, end) from the array with this count. Twice is once."""
        yield_point()
        if (start, end) not in self.removed:
            self.removed.add((start, end))
            self.changes.append((start, end, b"", start, True))
            self.counts[count] = self.counts.get(count, 0) - 1

    def insert(self, count: Hit, position: int, data: bytes) -> None:
        """Add `data` as a new element at `position` (after the count or after an element) to the array of this count.

        Elements at the same position keep the order of the calls. A null array becomes an array with elements.
        """
        self.changes.append((position, position, data, count[1], False))
        self.counts[count] = self.counts.get(count, 0) + 1

    def set_tag(self, tags: Hit, number: int, data: bytes) -> None:
        """Set the value of this tagged field to `data`; it is added if the tag buffer lacks it. The last call wins."""
        self.tags.setdefault(tags, {})[number] = data

    def drop_tag(self, tags: Hit, number: int) -> None:
        """Remove this tagged field, if the tag buffer has it."""
        if number in self.tags.get(tags, ()) or any(tag == number for tag, _, _ in self.tag_spans(tags)):
            self.tags.setdefault(tags, {})[number] = None

    def tag_spans(self, tags: Hit) -> list[tuple[int, int, int]]:
        """Return number, start and end of every tagged field of a tag buffer."""
        count, position = read_uvarint(self.buf, tags[1])
        spans = []
        for _ in yielding_range(count):
            start = position
            number, position = read_uvarint(self.buf, start)
            size, position = read_uvarint(self.buf, position)
            position += size
            spans.append((number, start, position))
        return spans

    def pieces(self) -> list[memoryview | bytes]:
        """Return the edited frame: untouched neighbours as one view into `buf`, new bytes between them; of many edits
        all is in one piece."""
        changes = outermost(self.changes + self.new_tags() + self.new_counts())
        if sizes := self.new_sizes(changes):
            changes = outermost(changes + sizes)
        view = memoryview(self.buf)
        if len(changes) > MANY:
            return [self.joined(changes, view)]
        pieces: list[memoryview | bytes] = []
        position = self.start
        for start, end, data, _, _ in changes:
            if start > position:
                pieces.append(view[position:start])
            if data:
                pieces.append(data)
            position = end
        if position < self.end or not pieces:
            pieces.append(view[position : self.end])
        return pieces

    def joined(self, changes: list[EditedSpan], view: memoryview) -> memoryview:
        frame, position = bytearray(), self.start
        for start, end, data, _, _ in yielding(changes):
            frame += view[position:start]
            frame += data
            position = end
        frame += view[position : self.end]
        return memoryview(frame)

    def new_counts(self) -> list[EditedSpan]:
        """Return the counts of arrays and tag buffers with added or removed elements."""
        changes: list[EditedSpan] = []
        for hit, more in yielding(self.counts.items()):
            number, start, end = hit
            slot = self.walk.marks[number].slot
            assert slot is not None
            if not slot.compact:
                old = int.from_bytes(self.buf[start:end], "big", signed=True)
                data = (max(old, 0) + more).to_bytes(4, "big")
            else:
                data = write_uvarint(max(read_uvarint(self.buf, start)[0], 1) + more)
            if more:
                changes.append((start, end, data, start, False))
        return changes

    def new_tags(self) -> list[EditedSpan]:
        """Return the tagged fields that were set or dropped (new ones in ascending order), and their counts."""
        changes: list[EditedSpan] = []
        for (_, start, end), values in self.tags.items():
            spans = self.tag_spans((0, start, end))
            more = 0
            for number, data in sorted(values.items()):
                new = b"" if data is None else write_uvarint(number) + write_uvarint(len(data)) + data
                present = [span for span in yielding(spans) if span[0] == number]
                for _, since, until in present[:1]:
                    changes.append((since, until, new, since, True))
                    more -= data is None
                if not present and new:
                    position = max((until for tag, _, until in yielding(spans) if tag < number), default=end)
                    changes.append((position, position, new, start, False))
                    more += 1
            if more:
                changes.append((start, end, write_uvarint(len(spans) + more), start, False))
        return changes

    def new_sizes(self, changes: list[EditedSpan]) -> list[EditedSpan]:
        """Return the sizes of the tagged fields that change their length, the inner ones first."""
        marks = self.walk.marks
        if not any(mark.what == "tag" for mark in marks):
            return []
        tags = [
            (size[1], size[2], tag[2])
            for tag, size in yielding(zip(self.hits, self.hits[1:], strict=False))
            if marks[tag[0]].what == "tag"
        ]
        if not tags:
            return []
        changes = list(yielding_sort(changes, lambda change: change[3]))
        anchors = [change[3] for change in changes]
        sizes: list[EditedSpan] = []
        wider: list[tuple[int, int]] = []  # of inner tags not yet counted: where their size stands, how it grew
        for start, value, end in yielding(reversed(tags)):
            inside = changes[bisect_left(anchors, value) : bisect_left(anchors, end)]
            growth = sum(len(data) - (until - since) for since, until, data, *_ in inside)
            inner = 0
            while wider and wider[-1][0] < end:
                inner += wider.pop()[1]
            if growth + inner:
                size = write_uvarint(end - value + growth + inner)
                sizes.append((start, value, size, start, False))
                inner += len(size) - (value - start)
            wider.append((start, inner))
        return sizes
