"""Templates of requests and responses: frames that match an earlier one on the connection are counted without a read.

A producer's requests to one partition differ in the length of the records field and in the header of the record batch;
all bytes before these are the same. The same holds for responses with one batch for a consumer. Other requests and
responses are read up to their header. A `RequestTemplate` contains the constant bytes, and the templates of the
responses to such requests. One `struct` call and one comparison of bytes then give all numbers that a summary counts. A
frame that differs in any other point is read as usual, so a template can make counting faster, never wrong.

Templates are found by their constant bytes, with one look-up for each known place of record batches. To learn one, a
request is decoded in full, which costs more than a normal read. After several failures in a row (requests to more than
one partition have no template), only one in PATIENCE requests is tried. The number of templates is bounded; all are
discarded if it is exceeded.

`response_templates.py` learns the templates of responses, `observer.py` has the loops that match frames, and
`whole_frames.py` takes frames without a template. A `ResponseTemplate` also collects the counts of its matched
exchanges since the last `fold` into the summary: sums, and single latencies, since buckets are filled faster from a
sorted list.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.elements import Partition, only_partition
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.entry import OVERHEAD
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table.api_keys import CONTROLLED_SHUTDOWN, PRODUCE, SASL_HANDSHAKE
from kproxy.record.exchange import Depth, Frame, ObservedExchange, Who

from .credentials import REQUEST
from .exchange_builder import OpenEntry, OpenExchange
from .observation import SIZE_BYTES, Observation
from .partition_rows import produce_rows, topic_of
from .summary import LONGEST, Summary
from .summary_rows import SILENT, WELL, ApiKey, PartitionKey
from .template_cache import CONSTANTS, BatchPlace, TemplateCache, asked_form, batch_place, read_form, shortened, spans

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
        """Return the open exchange of an entry whose request this template matched."""
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
    """Template of responses to the requests of one template, with their counts since the last `fold`."""

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
        """Add the exchange, with a response completed at `now`, to the counts of its template."""
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


ACKS = frozenset(("acks",))


class RequestTemplates(TemplateCache[RequestTemplate]):
    """Request templates of one API and version on one connection.

    `rows`: rows of the requests are needed. `usable`: False if requests must be read as usual in any case.
    """

    __slots__ = ("code", "rows", "usable", "wanted")

    def __init__(self, code: int, wanted: Observation) -> None:
        super().__init__()
        self.code, self.wanted = code, wanted
        self.usable = wanted.depth <= Depth.ROWS and wanted.key not in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN)
        self.usable &= wanted.key != PRODUCE or wanted.acks is not None
        self.rows = wanted.key == PRODUCE and wanted.depths[0] >= Depth.SKETCH

    def find(self, buf: Buffer, pos: int, size: int, n: int) -> RequestTemplate | None:
        """Return the template that matches the request at `pos`, learnt if need be; None: it has to be read as usual.

        `size` is its length field; bytes from `n` on are not read.
        """
        if not self.usable:
            return None
        found: RequestTemplate | None
        if self.rows:
            found = self.known_batch(buf, pos, size, n)
        elif self.wanted.key == PRODUCE:
            found = next(self.with_prefix(buf, pos + 12, n), None)
        else:
            return self.plain(buf, pos, size, n)
        if found is None and self.worth_learning():
            end = pos + 4 + size
            frame = bytes(buf[pos + 4 : end]) if end <= n else shortened(buf, pos, n, size, self.code, REQUEST)
            found = None if frame is None else self.learn(frame, size)
        if found is not None:
            self.misses = 0
        return found

    def plain(self, buf: Buffer, pos: int, size: int, n: int) -> RequestTemplate | None:
        """Return the template of a request of which only the client id counts; None if that is incomplete."""
        key = b""
        if self.wanted.counted:
            length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
            if length > size - 10 or pos + 14 + length > n:
                return None
            key = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
        found = self.known.get(key)
        if found is None:
            found = RequestTemplate(self.wanted, self.code, key, client_of(key))
            self.remember(key, found)
        return found

    def known_batch(self, buf: Buffer, pos: int, size: int, n: int) -> RequestTemplate | None:
        """Return the known template that matches a request with one record batch at `pos`; None if missing."""
        for where, fields in self.batches(buf, pos, size, n):
            _, _, _, same, length, magic, attributes, producer, _ = fields
            if size == length + where.overhead and magic == 2:
                found = self.known.get((where, same, attributes, producer))
                if found is not None:
                    return found
        return None

    def of_rows(self, client: bytes, acks: int) -> RequestTemplate:
        """Return the template of requests that are read row by row, by their client id (with its length) and acks."""
        found = self.known.get((client, acks))
        if found is None:
            found = RequestTemplate(self.wanted, self.code, b"", client_of(client))
            found.kind, found.acks = ROWS, acks
            self.remember((client, acks), found)
        return found

    def learn(self, frame: bytes, size: int) -> RequestTemplate | None:
        """Return a new template of a Produce request of `size` bytes, None if its form has no template.

        `frame`: the request without its length field; its records may have been cut out (`batch_place.shortened`).
        """
        version = self.wanted.version
        try:
            body = decode_sketch(frame, PRODUCE, version, REQUEST)
        except DecodeError:
            return None
        client = client_of(frame[8 : 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)])
        if not self.rows:
            (_, _, end) = spans(frame, PRODUCE, version, REQUEST, ACKS)[0]
            template = RequestTemplate(self.wanted, self.code, frame[8:end], client)
            template.acks = body["acks"]
            self.remember_prefix(template.prefix, template)
        else:
            part = only_partition(PRODUCE, version, REQUEST, body)
            if part is None:
                return None
            made = self.of_batch(frame, size, part, body["acks"], client)
            if made is None:
                return None
            template = made
        if not template.acks:
            key = self.wanted.key, version, client, SILENT, 0
            template.silent = ResponseTemplate(
                template, PRODUCED, b"", key, template.partition_key if self.rows else None
            )
        return template

    def of_batch(
        self, frame: bytes, size: int, part: Partition, acks: int, client: str | None
    ) -> RequestTemplate | None:
        """Return a new template of a request with one batch to `part`; None for another form."""
        where, name = batch_place(frame, self.wanted.version, REQUEST, part.records), topic_of(part)
        if where is None or len(name) > LONGEST:
            return None
        template = RequestTemplate(self.wanted, self.code, frame[8 : where.before], client)
        template.acks = acks
        batch = where.before + where.width
        attributes, producer = CONSTANTS.unpack_from(frame, batch)
        where = where.of_size(size)
        template.of_batch(where, attributes, producer)
        template.part = name, part.number, part.records.codec, producer >= 0
        self.remember((where, template.prefix, attributes, producer), template, where, asked_form(where))
        return template


def client_of(field: bytes) -> str | None:
    """Return the client id from its field in a request header, which has its length in front; None for null."""
    return str(field[2:], "utf-8", "replace") if len(field) >= 2 and field[0] < 0x80 else None
