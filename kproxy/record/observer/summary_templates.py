"""Templates of requests and responses: frames like one that was read before on the same connection are counted unread.

Strategy. A producer's requests to one partition differ from each other in the length of the records field and in the
header of the record batch; all bytes before these are the same. So it is with the responses that bring a consumer one
batch; other requests and responses need not be looked at beyond their header. A `RequestTemplate` holds the bytes that
stay the same, and the templates of the responses to such requests. One `struct` call and one comparison of bytes then
give all numbers that a summary counts. A frame that differs from its template in any other point is read as usual, so
a template can make counting faster, never wrong.

`request_templates.py` and `response_templates.py` learn the templates, `observer.py` has the loops that match
frames with them, and `whole_frames.py` takes what no template matches. A `ResponseTemplate` also gathers what was
counted of the exchanges that it matched since the last `fold` into the summary: sums, and the latencies one by one,
since buckets are filled faster from a sorted list.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from kproxy.protocol.records.entry import OVERHEAD
from kproxy.record.exchange import Frame, ObservedExchange, Who

from .batch_place import BatchPlace, asked_form, read_form
from .frames import SIZE_BYTES
from .observation import Observation
from .open_exchanges import OpenEntry, OpenExchange
from .partition_rows import produce_rows
from .summary import Summary
from .summary_rows import SILENT, WELL, ApiKey, PartitionKey
from .template_cache import TemplateCache

PLAIN, BATCH, EXACT = 0, 1, 2
"""Kinds of templates: no part of the body is counted; the header of the one record batch is read; the body is
the same to the last byte."""
PRODUCED = 3
"""Kind of templates of responses to Produce: of the body the base offset and the throttle time are read."""
ROWS = 4
"""Kind of request templates that match no frame: their requests are read row by row (`whole_frames.py`)."""

SMALLEST_REQUEST = 10
"""Bytes of a request header with a client id that is null."""
SMALLEST_RESPONSE = 4
"""Bytes of a correlation id."""
FOLD_AT = 256
"""Latencies that a template holds before it is folded into the summary: 8 KB on a busy connection."""


class RequestTemplate:
    """Template of the requests of one API and version on one connection that begin with the same bytes.

    `response_template`: the one that matched the last response; None before the first was learnt. `silent`: counts
    requests with acks=0, which have no response. `code`: API key << 16 | version.
    """

    __slots__ = ("acks", "attributes", "client_id", "code", "kind", "least", "most",
                 "overhead", "part", "prefix", "producer", "reach", "response_template", "response_templates", "silent",
                 "unpack", "wanted")  # fmt: skip

    def __init__(self, wanted: Observation, code: int, prefix: bytes, client_id: str | None) -> None:
        """Make a template that reads nothing of the body. `prefix`: the bytes behind the correlation id that stay."""
        self.wanted, self.code, self.prefix, self.client_id = wanted, code, prefix, client_id
        self.kind = PLAIN
        self.response_template: ResponseTemplate | None = None
        self.response_templates = TemplateCache[ResponseTemplate]()
        self.acks: int | None = None
        self.silent: ResponseTemplate | None = None  # counts requests that get no response
        self.part: tuple[str | bytes, int, str, bool] | None = None  # topic, partition, codec, idempotent
        self.attributes = self.overhead = self.most = 0
        self.producer = -1
        form = Struct(f">iIi{len(prefix)}s")
        self.unpack: Callable[..., Any] = form.unpack_from
        self.reach = form.size
        self.least = SMALLEST_REQUEST

    def of_batch(self, place: BatchPlace, attributes: int, producer: int) -> None:
        """Have this template match requests with one batch at `place`, of these attributes and this producer id."""
        self.kind, self.attributes, self.producer = BATCH, attributes, producer
        form = asked_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.overhead = place.overhead
        self.least, self.most = place.sizes

    @property
    def api_key(self) -> ApiKey:
        """Return the key of the summary's counters of such requests that the broker answered well."""
        return self.wanted.key, self.wanted.version, self.client_id, WELL, self.acks

    @property
    def partition_key(self) -> PartitionKey:
        """Return the key of the summary's counters of the partition that such requests write to."""
        assert self.part is not None, "they have one record batch"
        topic, partition, codec, idempotent = self.part
        return self.wanted.key, self.wanted.version, self.client_id, topic, partition, 0, self.acks, codec, idempotent

    def asked(self, size: int, count: Any) -> list[Any] | None:
        """Return the rows (`ProducedRow`) of a request of `size` bytes that matched; None: they do not count.

        `count`: its records, or the rows themselves where the request was read row by row.
        """
        if self.kind == ROWS:
            return list(count)
        if self.part is None:
            return None
        topic, partition, codec, idempotent = self.part
        return [(topic, partition, size - self.overhead + OVERHEAD, 1, count, codec, idempotent)]

    def materialise(self, who: Who, entry: OpenEntry) -> OpenExchange:
        """Return the open exchange of an entry of which this template matched the request."""
        correlation, _, then, size, count = entry
        seen, wanted = None, self.wanted
        if wanted.counted:
            request = Frame(size + SIZE_BYTES, then, then)
            seen = ObservedExchange(who, 0, wanted.key, wanted.version, correlation, self.client_id, request)
            seen.acks = self.acks
        exchange = OpenExchange(correlation, wanted, seen)
        exchange.asked = self.asked(size, count)
        return exchange

    def count_silent(self, summary: Summary, entry: OpenEntry) -> None:
        """Count a request that matched this template and is due no response."""
        _, _, now, size, count = entry
        silent = self.silent
        if not self.wanted.counted:
            return
        if now >= summary.until:
            summary.roll(now)
        if silent is None:
            key = self.wanted.key, self.wanted.version, self.client_id, SILENT, 0
            summary.count(key, now, now, size + SIZE_BYTES, 0, None, produce_rows(count, {}))
            return
        if not silent.count:
            silent.begun = now
            summary.waiting.append(silent)
        silent.count += 1
        silent.last = now
        silent.request_sizes += size
        silent.records += count


class ResponseTemplate:
    """Template of responses to the requests of one template, with what was counted of them since the last `fold`."""

    __slots__ = ("api_key", "attributes", "begun", "count", "counted", "kind", "last", "latencies", "least",
                 "mark", "middle", "most", "offset", "overhead", "part_key", "prefix", "reach", "records",
                 "request_sizes", "size", "sizes", "template", "unpack")  # fmt: skip

    def __init__(
        self, template: RequestTemplate, kind: int, prefix: bytes, api_key: ApiKey, part_key: PartitionKey | None = None
    ) -> None:
        self.template, self.kind, self.prefix, self.api_key, self.part_key = template, kind, prefix, api_key, part_key
        self.counted = template.wanted.counted
        self.size = self.attributes = self.overhead = self.most = 0
        self.middle = b""
        form = Struct(f">ii{len(prefix)}s")
        self.unpack: Callable[..., Any] = form.unpack_from
        self.reach = form.size
        self.least = SMALLEST_RESPONSE
        self.latencies: list[float] = []
        self.count = self.sizes = self.request_sizes = self.records = 0
        self.begun = self.last = 0.0
        self.offset: int | None = None
        self.mark: int | None = None

    def of_batch(self, place: BatchPlace, attributes: int, middle: bytes) -> None:
        """Have this template match responses with one record batch at `place`, of these attributes.

        `middle`: the bytes between the offsets and the records' length.
        """
        self.attributes, self.middle, self.overhead = attributes, middle, place.overhead
        form = read_form(place)
        self.unpack, self.reach = form.unpack_from, form.size
        self.least, self.most = place.sizes

    def of_produced(self, start: int, throttle_at: int) -> None:
        """Have this template match responses to Produce with their base offset at `start`, and throttle_time_ms at
        `throttle_at`, in bytes of the frame without its length field; 0: such versions have none."""
        form = Struct(f">ii{len(self.prefix)}sq" + (f"{throttle_at - start - 8}xi" if throttle_at else "0s"))
        self.unpack, self.reach = form.unpack_from, form.size

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
            cell.answered_all(latencies)
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
        overhead = self.overhead if self.kind == BATCH else self.template.overhead
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


class LongResponse:
    """Response of one connection that matched the template `response` and is not all here.

    `entry`: of its request. `records`, `offset`, `mark`: count, last offset and high watermark of its batch. `open`:
    its exchange, made only when a rule or a wait has to be noted in it.
    """

    __slots__ = ("entry", "mark", "offset", "open", "records", "response", "size")

    def __init__(
        self, entry: OpenEntry, response: ResponseTemplate, size: int, records: int, offset: int, mark: int
    ) -> None:
        self.entry, self.response, self.size = entry, response, size
        self.records, self.offset, self.mark = records, offset, mark
        self.open: OpenExchange | None = None

    def exchange(self, who: Who) -> OpenExchange:
        """Return the exchange of the connection `who` that the response ends."""
        if self.open is None:
            self.open = self.response.template.materialise(who, self.entry)
        return self.open

    def count(self, summary: Summary, now: float) -> None:
        """Add the exchange to what its template has counted, since the response came to its end at `now`."""
        response = self.response
        if not response.counted:
            return
        _, _, then, asked_size, _ = self.entry
        if not response.latencies:
            response.begun = then
            summary.waiting.append(response)
        response.latencies.append(now - then)
        response.last = then
        response.request_sizes += asked_size
        response.sizes += self.size
        if response.kind == BATCH:
            response.records += self.records
            response.offset, response.mark = self.offset, self.mark
        if self.open is not None and self.open.seen is not None:
            cell = summary.api(response.api_key, then)
            cell.rule += sum(self.open.seen.rule_wait)
            cell.wait += self.open.seen.kproxy_seconds
        if len(response.latencies) > FOLD_AT:
            summary.fold()
