"""The short way: exchanges that look like one seen before on the same connection are counted without being read.

Strategy. A producer's requests to one partition differ in the length of the records field, in the header of the record
batch, and in nothing before them; so do the responses that bring a consumer one batch, and other requests and responses
need not be looked at beyond their header. An `Ask` remembers the bytes of a request that stay, an `Answer` those of a
response to it. One comparison of bytes and one `struct` call then say all that a summary counts. What does not match in
every point is read as usual. `learn.py` and `learn_answers.py` make Asks and Answers, `short_way.py` has the loops.

An Answer gathers what came since it was folded into the summary's cells: sums, and the latencies one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

from kproxy.wire.records.entry import OVERHEAD

from .cells import BOUNDS, ApiKey, PartKey
from .summary import Summary
from .wanted import Wanted

PLAIN, BATCH, EXACT = 0, 1, 2
"""Of Asks and Answers: nothing of the body counts; one record batch is read; the body is the same to the last byte."""
PRODUCED = 3
"""Of Answers: the base offset is read."""
ROWS = 4
"""Of Asks: requests that are read row by row (`middle_way.py`), and that no other is like."""

SMALLEST_REQUEST = 10
"""Bytes of a request header with a client id that is null."""
SMALLEST_RESPONSE = 4
"""Bytes of a correlation id."""
FOLD_AT = 256
"""Latencies of an Answer that wait to be put into buckets: 8 KB of a busy connection."""

BATCH_ASKED = "8xi4xB4xh20xq6xi"
"""Of a batch header: length, magic, attributes, producer id, count."""
BATCH_READ = "qi4xB4xhi30xi"
"""Base offset, length, magic, attributes, last offset delta, count."""


@dataclass(slots=True, frozen=True)
class Place:
    """Where the records of a frame with one batch stand, in bytes without the frame's own length.

    `before`: up to the records' length, which takes `width`; `compact`: that is a varint. `behind`: after the records.
    Of Fetch responses: `prefix` up to the high watermark, and `middle` before the records' length, which both stay.
    """

    before: int
    width: int
    behind: int
    compact: bool
    prefix: int = 0
    middle: int = 0

    def of_size(self, size: int) -> Place:
        """Where they stand in a frame of that size which begins in the same way."""
        width = self.width
        if self.compact:
            width = next(width for width in range(1, 6) if size <= replace(self, width=width).sizes[1])
        return replace(self, width=width)

    @property
    def overhead(self) -> int:
        """The frame's size, without the batch's length."""
        return self.before + self.width + OVERHEAD + self.behind

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest frame whose records' length takes so many bytes."""
        if not self.compact:
            return 0, 0x7FFFFFFF
        rest = self.before + self.width + self.behind - 1  # the length on the wire is one more than the bytes
        low = 1 << 7 * (self.width - 1) if self.width > 1 else 1
        return rest + low, rest + (1 << 7 * self.width) - 1


class Ask:
    """Requests that are alike. `answer`: what came for the last one; None as long as nothing was learnt."""

    __slots__ = ("acks", "answer", "answers", "attributes", "client_id", "code", "kind", "least", "most",
                 "overhead", "part", "prefix", "producer", "reach", "silent", "unpack", "wanted")  # fmt: skip

    def __init__(self, wanted: Wanted, code: int, prefix: bytes, client_id: str | None) -> None:
        """`prefix`: the bytes behind the correlation id that stay."""
        self.wanted, self.code, self.prefix, self.client_id = wanted, code, prefix, client_id
        self.kind = PLAIN
        self.answer: Answer | None = None
        self.answers = Answers()
        self.acks: int | None = None
        self.silent: Answer | None = None  # what counts requests without an answer
        self.part: tuple[str | bytes, int, str, bool] | None = None  # topic, partition, codec, idempotent
        self.attributes = self.overhead = self.most = 0
        self.producer = -1
        form = Struct(f">iIi{len(prefix)}s")
        self.unpack: Callable[..., Any] = form.unpack_from
        self.reach = form.size
        self.least = SMALLEST_REQUEST

    def of_batch(self, place: Place, attributes: int, producer: int) -> None:
        """Requests with one batch of these attributes and this producer."""
        self.kind, self.attributes, self.producer = BATCH, attributes, producer
        form = asked_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.overhead = place.overhead
        self.least, self.most = place.sizes

    def asked(self, size: int, count: Any) -> list[Any] | None:
        """The rows of such a request; see `rows.Asked`. `count`: its records, or its rows if they were read."""
        if self.kind == ROWS:
            return list(count)
        if self.part is None:
            return None
        topic, partition, codec, idempotent = self.part
        return [(topic, partition, size - self.overhead + OVERHEAD, 1, count, codec, idempotent)]


class Answer:
    """Responses that are alike, to requests of one Ask, and what was counted of them since they were last folded."""

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
        """Responses with one batch of these attributes."""
        self.attributes, self.middle, self.overhead = attributes, middle, place.overhead
        form = read_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.least, self.most = place.sizes

    def fold(self, summary: Summary) -> None:
        """Put into the summary's cells what was counted here."""
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
    """What was learnt about the responses to one Ask. `lengths`: of the prefixes in `known`; `places`: of batches."""

    __slots__ = ("known", "lengths", "misses", "places")

    def __init__(self) -> None:
        self.known: dict[Any, Answer] = {}
        self.lengths: list[int] = []
        self.places: dict[Place, Struct] = {}
        self.misses = 0


def asked_form(place: Place) -> Struct:
    """Of a request with one batch: the header, then what is read of the batch."""
    return Struct(f">iIi{place.before - 8}s{place.width}x{BATCH_ASKED}")


def read_form(place: Place) -> Struct:
    """Of a response with one batch: the header, the high watermark, what stays, and what is read of the batch."""
    offsets = place.before - place.prefix - place.middle - 8
    return Struct(f">ii{place.prefix - 4}sq{offsets}x{place.middle}s{place.width}x{BATCH_READ}")
