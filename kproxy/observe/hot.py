"""Templates of requests and responses: frames like one that was read before on the same connection are counted unread.

Strategy. A producer's requests to one partition differ from each other in the length of the records field and in the
header of the record batch; all bytes before these are the same. So it is with the responses that bring a consumer one
batch; other requests and responses need not be looked at beyond their header. An `Ask` is the template of requests: it
holds the bytes that stay the same. An `Answer` is the template of responses to such requests. One `struct` call and one
comparison of bytes then give all numbers that a summary counts. A frame that differs from its template in any other
point is read as usual, so a template can make counting faster, never wrong.

`learn.py` and `learn_answers.py` make the templates, `short_way.py` has the loops that match frames with them, and
`middle_way.py` takes what no template matches. An Answer also gathers what was counted of the exchanges that it matched
since the last `fold` into the summary's cells: sums, and the latencies one by one, since buckets are filled faster from
a sorted list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

from kproxy.wire.records.entry import OVERHEAD, batch_fields

from .cells import BOUNDS, ApiKey, PartKey
from .summary import Summary
from .wanted import Wanted

PLAIN, BATCH, EXACT = 0, 1, 2
"""Kinds of Asks and Answers: no part of the body is counted; the header of the one record batch is read; the body is
the same to the last byte."""
PRODUCED = 3
"""Kind of Answers to Produce: of the body only the base offset is read."""
ROWS = 4
"""Kind of Asks that match no frame: their requests are read row by row (`middle_way.py`)."""

SMALLEST_REQUEST = 10
"""Bytes of a request header with a client id that is null."""
SMALLEST_RESPONSE = 4
"""Bytes of a correlation id."""
FOLD_AT = 256
"""Latencies that an Answer holds before it is folded into the summary: 8 KB on a busy connection."""

BATCH_ASKED = batch_fields("length", "magic", "attributes", "producer_id", "count")
"""Fields read of the batch header in a request."""
BATCH_READ = batch_fields("base_offset", "length", "magic", "attributes", "last_offset_delta", "count")
"""Fields read of the batch header in a response."""


@dataclass(slots=True, frozen=True)
class Place:
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

    def of_size(self, size: int) -> Place:
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
        """Return the smallest and the largest size of a frame whose records' length takes `width` bytes."""
        if not self.compact:
            return 0, 0x7FFFFFFF
        rest = self.before + self.width + self.behind - 1  # a compact length is one more than the bytes
        low = 1 << 7 * (self.width - 1) if self.width > 1 else 1
        return rest + low, rest + (1 << 7 * self.width) - 1


class Ask:
    """Template of the requests of one API and version on one connection that begin with the same bytes.

    `answer`: the template that matched the last response; None before the first was learnt. `silent`: the Answer that
    counts requests with acks=0, which have no response. `code`: API key << 16 | version.
    """

    __slots__ = ("acks", "answer", "answers", "attributes", "client_id", "code", "kind", "least", "most",
                 "overhead", "part", "prefix", "producer", "reach", "silent", "unpack", "wanted")  # fmt: skip

    def __init__(self, wanted: Wanted, code: int, prefix: bytes, client_id: str | None) -> None:
        """Make a template that reads nothing of the body. `prefix`: the bytes behind the correlation id that stay."""
        self.wanted, self.code, self.prefix, self.client_id = wanted, code, prefix, client_id
        self.kind = PLAIN
        self.answer: Answer | None = None
        self.answers = Answers()
        self.acks: int | None = None
        self.silent: Answer | None = None  # counts requests that get no response
        self.part: tuple[str | bytes, int, str, bool] | None = None  # topic, partition, codec, idempotent
        self.attributes = self.overhead = self.most = 0
        self.producer = -1
        form = Struct(f">iIi{len(prefix)}s")
        self.unpack: Callable[..., Any] = form.unpack_from
        self.reach = form.size
        self.least = SMALLEST_REQUEST

    def of_batch(self, place: Place, attributes: int, producer: int) -> None:
        """Have this Ask match requests with one record batch at `place`, of these attributes and this producer id."""
        self.kind, self.attributes, self.producer = BATCH, attributes, producer
        form = asked_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.overhead = place.overhead
        self.least, self.most = place.sizes

    def asked(self, size: int, count: Any) -> list[Any] | None:
        """Return the rows (`rows.Asked`) of a request of `size` bytes that this Ask matched; None: they do not count.

        `count`: its records, or the rows themselves where the request was read row by row.
        """
        if self.kind == ROWS:
            return list(count)
        if self.part is None:
            return None
        topic, partition, codec, idempotent = self.part
        return [(topic, partition, size - self.overhead + OVERHEAD, 1, count, codec, idempotent)]


class Answer:
    """Template of the responses to the requests of one Ask, with what was counted of them since the last `fold`."""

    __slots__ = ("api_key", "ask", "attributes", "begun", "count", "counted", "kind", "last", "latencies", "least",
                 "mark", "middle", "most", "offset", "overhead", "part_key", "prefix", "reach", "records",
                 "request_sizes", "size", "sizes", "unpack")  # fmt: skip

    def __init__(self, ask: Ask, kind: int, prefix: bytes, api_key: ApiKey, part_key: PartKey | None = None) -> None:
        self.ask, self.kind, self.prefix, self.api_key, self.part_key = ask, kind, prefix, api_key, part_key
        self.counted = ask.wanted.counted
        self.size = self.attributes = self.overhead = self.most = 0
        self.middle = b""
        form = Struct(f">ii{len(prefix)}s" + "q" * (kind == PRODUCED))
        self.unpack: Callable[..., Any] = form.unpack_from
        self.reach = form.size
        self.least = SMALLEST_RESPONSE
        self.latencies: list[float] = []
        self.count = self.sizes = self.request_sizes = self.records = 0
        self.begun = self.last = 0.0
        self.offset: int | None = None
        self.mark: int | None = None

    def of_batch(self, place: Place, attributes: int, middle: bytes) -> None:
        """Have this Answer match responses with one record batch at `place`, of these attributes.

        `middle`: the bytes between the offsets and the records' length.
        """
        self.attributes, self.middle, self.overhead = attributes, middle, place.overhead
        form = read_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.least, self.most = place.sizes

    def fold(self, summary: Summary) -> None:
        """Add what was counted here to the cells of `summary`, and begin again from zero."""
        latencies = self.latencies
        count = self.count + len(latencies)
        if not count:
            return
        cell = summary.api(self.api_key, self.begun)
        cell.last = max(cell.last, self.last)
        cell.count += count
        cell.request_bytes += self.request_sizes + 4 * count
        if latencies:
            cell.response_bytes += (self.size * count if self.kind == PRODUCED else self.sizes) + 4 * count
            cell.latency += sum(latencies)
            latencies.sort()
            cell.latency_max = max(cell.latency_max, latencies[-1])
            done = 0
            for at, bound in enumerate(BOUNDS[bisect_left(BOUNDS, latencies[0]) :], bisect_left(BOUNDS, latencies[0])):
                before, done = done, bisect_right(latencies, bound)
                cell.buckets[at] += done - before
                if done == len(latencies):
                    break
            else:
                cell.buckets[-1] += len(latencies) - done
            latencies.clear()
        if self.kind == EXACT:
            cell.empty += count
        if self.part_key is not None:
            self.fold_part(summary, count, cell)
        self.count = self.sizes = self.request_sizes = self.records = 0

    def fold_part(self, summary: Summary, count: int, api: Any) -> None:
        """Add what was counted of the partition to its cell, or to the cell `api` of the API if it has none."""
        assert self.part_key is not None
        cell = summary.part((*self.part_key[:2], api.key[2], *self.part_key[3:]), self.begun)
        size = self.sizes if self.kind == BATCH else self.request_sizes
        overhead = self.overhead if self.kind == BATCH else self.ask.overhead
        target = api if cell is None else cell
        target.records += self.records
        target.bytes += size - count * (overhead - OVERHEAD)
        target.batches += count
        if cell is None:
            api.told = True
            return
        cell.count += count
        cell.last = max(cell.last, self.last)
        if cell.key[4] is not None:
            cell.told(self.offset, self.mark, self.last)


class Answers:
    """Response templates of one Ask. `known`: by what stays the same in them; see `learn_answers.remember`.

    `lengths`: of those keys of `known` that are prefixes. `places`: where record batches stood, each with the `struct`
    that reads such a frame. `misses`: how often in a row learning failed.
    """

    __slots__ = ("known", "lengths", "misses", "places")

    def __init__(self) -> None:
        self.known: dict[Any, Answer] = {}
        self.lengths: list[int] = []
        self.places: dict[Place, Struct] = {}
        self.misses = 0


def asked_form(place: Place) -> Struct:
    """Return the `struct` of requests with one record batch: the header, the bytes that stay, and BATCH_ASKED."""
    return Struct(f">iIi{place.before - 8}s{place.width}x{BATCH_ASKED}")


def read_form(place: Place) -> Struct:
    """Return the `struct` of responses with one record batch: header, prefix, high watermark, middle, BATCH_READ."""
    offsets = place.before - place.prefix - place.middle - 8
    return Struct(f">ii{place.prefix - 4}sq{offsets}x{place.middle}s{place.width}x{BATCH_READ}")
