"""Templates of requests and responses for summaries: frames that match an earlier one are counted without a read.

A producer's requests to one partition differ in the length of the records field and in the header of the record batch;
all bytes before these are the same. The same holds for responses with one batch for a consumer. Other requests and
responses are read up to their header. One `struct` call and one comparison of bytes give all numbers that a summary
counts. Other frames are read as usual.

The loops of `observer.py` try the template of the previous frame first, with the values of its slots. Other templates
are found in a `TemplateFamily` (`number_template.py`). To learn one, a frame is decoded in full, which costs more than
a normal read; `Learner` limits failed attempts, for example for requests to several partitions. Where exchanges are
counted, only responses without errors have templates.

A `ResponseTemplate` collects the counts of its matched exchanges until the next `fold` into the summary.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kproxy.base.errors import DecodeError
from kproxy.protocol.elements import Partition, only_partition
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records.entry import OVERHEAD, batch_fields
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import CONTROLLED_SHUTDOWN, FETCH, PRODUCE, SASL_HANDSHAKE
from kproxy.record.exchange import NO_ERRORS, Depth, Frame, ObservedExchange, Who

from .credentials import REQUEST, RESPONSE
from .exchange_builder import OpenEntry, OpenExchange
from .number_template import RECORDS_AT, NumberTemplate, TemplateFamily, batch_place, is_one_batch, shortened, spans
from .observation import SIZE_BYTES, Observation
from .partition_rows import PartitionRow, produce_rows, topic_of
from .response_errors import ERROR_HEAD, error_at, error_position, errors_in, throttle_in
from .summary import FOLD_AT, LONGEST, ExchangeCounts, Summary
from .summary_rows import SILENT, WELL, ApiKey

PLAIN, BATCH, EXACT = 0, 1, 2
"""Kinds of templates: no part of the body is counted; the header of the one record batch is read; the body is
the same to the last byte."""
PRODUCED = 3
"""Kind of templates of responses to Produce: the base offset and the throttle time of the body are read."""
ROWS = 4
"""Kind of request templates that match no frame: their requests are read row by row (`whole_frames.py`)."""

SMALLEST_REQUEST = 10
"""Bytes of a request header with a client id that is null."""
SMALLEST_RESPONSE = 4
"""Bytes of a correlation id."""
MAX_CLIENTS = 200
"""Client ids with templates, for each API of a connection."""
MOST_ALIKE = 1024
"""Bytes of a response at most that becomes a template as a whole (kind EXACT)."""
ACKS = frozenset(("acks",))
BASE = frozenset(("responses[].partition_responses[].base_offset", "throttle_time_ms"))
MARK = "responses[].partitions[].high_watermark"
BATCH_ASKED = batch_fields("length", "magic", "attributes", "producer_id", "count")
"""Fields read of the batch header in a request."""
BATCH_READ = batch_fields("base_offset", "length", "magic", "attributes", "last_offset_delta", "count")
"""Fields read of the batch header in a response."""
BATCH_CONSTANTS = Struct(">" + batch_fields("attributes", "producer_id"))
"""Fields of a batch's header that are the same in all batches of one producer."""

Part = tuple[str | bytes, int, str, bool | None]
"""(topic, partition, codec, idempotent) of the only record batch; idempotent is None in a response."""


class RequestTemplate:
    """Template of the requests of one API and version on one connection that begin with the same bytes.

    `response_template`: the one that matched the last response; None before the first was learned. `silent`: counts
    requests with acks=0, which have no response. `code`: API key << 16 | version.
    """

    __slots__ = ("acks", "attributes", "client_id", "code", "kind", "least", "most",
                 "overhead", "part", "prefix", "producer", "reach", "response_template", "responses", "silent",
                 "unpack", "wanted")  # fmt: skip

    def __init__(
        self, wanted: Observation, code: int, prefix: bytes, client_id: str | None, form: NumberTemplate | None = None
    ) -> None:
        """`prefix`: the constant bytes after the correlation id. `form`: reads them; if left out, nothing else."""
        self.wanted, self.code, self.prefix, self.client_id = wanted, code, prefix, client_id
        form = form or NumberTemplate(f">iIi{len(prefix)}s", [1, 3], [0, 2])
        self.unpack, self.reach, self.overhead = form.unpack, form.reach, form.overhead
        self.kind = PLAIN
        self.response_template: ResponseTemplate | None = None
        self.responses = TemplateFamily()
        self.acks: int | None = None
        self.silent: ResponseTemplate | None = None
        self.part: Part | None = None
        self.attributes = self.most = 0
        self.producer = -1
        self.least = SMALLEST_REQUEST

    @property
    def api_key(self) -> ApiKey:
        """Return the key of the summary's counters of such requests that the broker answered well."""
        return self.wanted.key, self.wanted.version, self.client_id, WELL, self.acks

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
        if not silent.silent:
            silent.begun = now
            summary.waiting.append(silent)
        silent.silent += 1
        silent.last = now
        silent.request_sizes += size
        silent.records += count


class ResponseTemplate(ExchangeCounts):
    """Template of responses to the requests of one template, with their counts since the last `fold`.

    `size`: of each response; 0 if they differ. `part`: the partition that the rows count. `silent`: counted requests
    without a response. `offset`, `mark`: last offset and high watermark of the last response.
    """

    __slots__ = ("attributes", "counted", "kind", "least", "mark", "middle", "most", "offset", "overhead", "part",
                 "prefix", "reach", "template", "unpack")  # fmt: skip

    def __init__(
        self, template: RequestTemplate, kind: int, prefix: bytes, form: NumberTemplate, *,
        key: ApiKey | None = None, part: Part | None = None, size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(key or template.api_key)
        self.template, self.kind, self.prefix, self.part, self.size = template, kind, prefix, part, size
        self.counted, self.empty = template.wanted.counted, kind == EXACT
        self.unpack, self.reach, self.overhead = form.unpack, form.reach, form.overhead
        self.attributes = self.most = 0
        self.middle = b""
        self.least = SMALLEST_RESPONSE
        self.offset: int | None = None
        self.mark: int | None = None

    def rows(self, count: int) -> list[PartitionRow]:
        if self.part is None:
            return []
        topic, partition, codec, idempotent = self.part
        size, overhead = (
            (self.response_sizes, self.overhead) if self.kind == BATCH else (self.request_sizes, self.template.overhead)
        )
        size -= count * (overhead - OVERHEAD)
        return [(topic, partition, 0, size, count, self.records, codec, idempotent, self.offset, self.mark)]


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
        response.response_sizes += self.size
        if response.kind == BATCH:
            response.records += self.records
            response.offset, response.mark = self.offset, self.mark
        if self.open is not None and self.open.seen is not None:
            cell = summary.api(response.api_key, then)
            cell.rule += sum(self.open.seen.rule_wait)
            cell.wait += self.open.seen.kproxy_seconds
        if len(response.latencies) > FOLD_AT:
            summary.fold()


class RequestTemplates(TemplateFamily):
    """Request templates of one API and version on one connection.

    `clients`: templates of requests that are counted by client id, or by client id and acks. `rows`: rows of the
    requests are needed. `usable`: False if requests must be read as usual in any case.
    """

    __slots__ = ("clients", "code", "rows", "usable", "wanted")

    def __init__(self, code: int, wanted: Observation) -> None:
        super().__init__()
        self.code, self.wanted = code, wanted
        self.clients: dict[tuple[bytes, int | None], RequestTemplate] = {}
        self.usable = wanted.depth <= Depth.ROWS and wanted.key not in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN)
        self.usable &= wanted.key != PRODUCE or wanted.acks is not None
        self.rows = wanted.key == PRODUCE and wanted.depths[0] >= Depth.SKETCH

    def find_or_learn(self, buf: Buffer, pos: int, size: int, n: int) -> RequestTemplate | None:
        """Return the template that matches the request at `pos`; None: it has to be read as usual.

        `size` is its length field; bytes from `n` on are not read.
        """
        if not self.usable:
            return None
        if self.wanted.key != PRODUCE:
            return self.plain(buf, pos, size, n)
        found: RequestTemplate | None = self.find(buf, pos, n)
        if found is None and self.learner.worth_learning():
            end = pos + 4 + size
            frame = bytes(buf[pos + 4 : end]) if end <= n else shortened(buf, pos, n, size, self.code, REQUEST)
            found = None if frame is None else self.learn(frame, size)
        if found is not None:
            self.learner.misses = 0
        return found

    def plain(self, buf: Buffer, pos: int, size: int, n: int) -> RequestTemplate | None:
        """Return the template of a request that is counted by client id; None if that is incomplete."""
        client = b""
        if self.wanted.counted:
            length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
            if length > size - 10 or pos + 14 + length > n:
                return None
            client = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
        return self.of_client(client, None)

    def of_client(self, client: bytes, acks: int | None) -> RequestTemplate:
        """Return the template by the client id field and, for requests that are read row by row, the acks."""
        found = self.clients.get((client, acks))
        if found is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.clients.clear()
            found = RequestTemplate(self.wanted, self.code, client, client_of(client))
            if acks is not None:
                found.kind, found.acks = ROWS, acks
            self.clients[client, acks] = found
        return found

    def learn(self, frame: bytes, size: int) -> RequestTemplate | None:
        """Return a new template of a Produce request of `size` bytes; None if its form has no template.

        `frame`: the request without its length field; its records may have been cut out (`shortened`).
        """
        version = self.wanted.version
        try:
            body = decode_sketch(frame, PRODUCE, version, REQUEST)
        except DecodeError:
            return None
        client = client_of(frame[8 : 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)])
        if self.rows:
            part = only_partition(PRODUCE, version, REQUEST, body)
            template = None if part is None else self.learn_batch(frame, size, part, client)
        else:
            (_, _, end) = spans(frame, PRODUCE, version, REQUEST, ACKS)[0]
            prefix = frame[8:end]
            form = NumberTemplate(f">iIi{len(prefix)}s", [1, 3], [0, 2])
            template = RequestTemplate(self.wanted, self.code, prefix, client, form)
            self.known_frames(form, (self.code, prefix))[self.code, prefix] = template
        if template is None:
            return None
        template.acks = body["acks"]
        if not template.acks:
            key = PRODUCE, version, client, SILENT, 0
            form = NumberTemplate(">ii", [0], [0, 1])  # never used: such requests have no response
            template.silent = ResponseTemplate(template, PRODUCED, b"", form, key=key, part=template.part)
        return template

    def learn_batch(self, frame: bytes, size: int, part: Partition, client: str | None) -> RequestTemplate | None:
        """Return a new template of a request with one batch to `part`; None for another form."""
        version, name = self.wanted.version, topic_of(part)
        if not is_one_batch(part.records) or len(name) > LONGEST:
            return None
        start, end = spans(frame, PRODUCE, version, REQUEST, frozenset((RECORDS_AT[PRODUCE, REQUEST],)))[0][1:]
        at = batch_place(frame, start, end, size, layout.body(PRODUCE, version, REQUEST).flexible, part.records)
        if at is None:
            return None
        prefix = frame[8:start]
        attributes, producer = BATCH_CONSTANTS.unpack_from(frame, at.batch)
        form = f">iIi{len(prefix)}s{at.width}x{BATCH_ASKED}"
        reader = NumberTemplate(form, [1, 3, 5, 6, 7], [0, 2, 4, 8], at.overhead)
        template = RequestTemplate(self.wanted, self.code, prefix, client, reader)
        template.kind, template.attributes, template.producer = BATCH, attributes, producer
        template.least, template.most = at.least, at.most
        template.part = name, part.number, part.records.codec, producer >= 0
        constants = self.code, prefix, 2, attributes, producer
        self.known_frames(reader, constants)[constants] = template
        return template


def client_of(field: bytes) -> str | None:
    """Return the client id from its field in a request header, which has its length in front; None for null."""
    return str(field[2:], "utf-8", "replace") if len(field) >= 2 and field[0] < 0x80 else None


# ---- templates of responses


def find_response_template(
    template: RequestTemplate, buf: Buffer, pos: int, size: int, n: int
) -> ResponseTemplate | None:
    """Return the template that matches the response at `pos`, learned if necessary; None: read it as usual.

    `size` is its length field; bytes from `n` on are not read.
    """
    if template.kind == ROWS:
        return None
    responses = template.responses
    found: ResponseTemplate | None = responses.find(buf, pos, n)
    if found is None and responses.learner.worth_learning():
        end = pos + 4 + size
        frame: bytes | None = None
        if end <= n:
            frame = bytes(buf[pos + 4 : end])
        elif template.wanted.depths[1] < Depth.SKETCH:
            frame = bytes(buf[pos + 4 : pos + ERROR_HEAD]) if n - pos >= ERROR_HEAD else None
        elif template.wanted.key == FETCH:
            frame = shortened(buf, pos, n, size, template.code, RESPONSE)
        found = None if frame is None else learn_response(template, frame, size)
    if found is not None:
        responses.learner.misses = 0
    return found


def learn_response(template: RequestTemplate, frame: bytes, size: int) -> ResponseTemplate | None:
    """Return a new template of a response of `size` bytes; None if it has an error, or its form has no template.

    `frame`: the response without its length field; its records may have been cut out (`shortened`).
    """
    wanted = template.wanted
    where = error_position(wanted.key, wanted.version) if wanted.counted else None
    if where is not None and error_at(wanted.key, wanted.version, bytes(4) + frame[:20]) != 0:
        return None
    told = error_position(wanted.key, wanted.version, throttle=True) if wanted.counted else None
    if told is not None and (len(frame) < told[0] or (told[1] and frame[4])):
        return None  # a template of this few bytes would match responses with a throttle time
    if wanted.counted and throttle_in(wanted.key, wanted.version, bytes(4) + frame, 0, 4 + len(frame)):
        return None  # its throttle time is to be read
    if wanted.depths[1] < Depth.SKETCH:
        # The bytes that have to be the same: no error, and no throttle time.
        prefix = frame[4 : max(where[0] - 2 if where is not None else 0, told[0] if told is not None else 0)]
        form = NumberTemplate(f">ii{len(prefix)}s", [2], [0, 1])
        return remember(template, ResponseTemplate(template, PLAIN, prefix, form), form, prefix)
    if wanted.nested:
        buf = bytes(SIZE_BYTES) + frame
        if errors_in(wanted.key, wanted.version, buf, 0, len(buf)) is not NO_ERRORS:
            return None
        return learn_exact(template, frame)
    try:
        body = decode_sketch(frame, wanted.key, wanted.version, RESPONSE)
    except DecodeError:
        return None
    return learn_produced(template, frame, body) if wanted.key == PRODUCE else learn_read(template, frame, size, body)


def remember(
    template: RequestTemplate, response: ResponseTemplate, form: NumberTemplate, constants: Any
) -> ResponseTemplate:
    """Store a template of responses with these constants, and return it."""
    template.responses.known_frames(form, constants)[constants] = response
    return response


def learn_exact(template: RequestTemplate, frame: bytes) -> ResponseTemplate | None:
    """Return a new template of responses that equal this one; None if it is long."""
    if len(frame) > MOST_ALIKE:
        return None
    size, prefix = len(frame), frame[4:]
    form = NumberTemplate(f">ii{len(prefix)}s", [0, 2], [0, 1])
    return remember(template, ResponseTemplate(template, EXACT, prefix, form, size=size), form, (size, prefix))


def learn_produced(template: RequestTemplate, frame: bytes, body: dict[str, Any]) -> ResponseTemplate | None:
    """Return a new template of a Produce response about the one partition of the request; None for another one."""
    part = only_partition(PRODUCE, template.wanted.version, RESPONSE, body)
    if part is None or template.part is None or (topic_of(part), part.number) != template.part[:2]:
        return None
    if part.error_code or part.fields["base_offset"] < 0:
        return None
    found = spans(frame, PRODUCE, template.wanted.version, RESPONSE, BASE)
    start, throttle_at = found[0][1], found[1][1] if len(found) > 1 else 0
    size, prefix = len(frame), frame[4:start]
    throttle = f"{throttle_at - start - 8}xi" if throttle_at else "0s"
    form = NumberTemplate(f">ii{len(prefix)}sq{throttle}", [0, 2], [0, 1])
    response = ResponseTemplate(template, PRODUCED, prefix, form, part=template.part, size=size)
    return remember(template, response, form, (size, prefix))


def learn_read(template: RequestTemplate, frame: bytes, size: int, body: dict[str, Any]) -> ResponseTemplate | None:
    """Return a new template of a Fetch or ShareFetch response that is empty, or of a Fetch response with one batch."""
    version = template.wanted.version
    if not body["responses"]:
        return learn_exact(template, frame)
    part = only_partition(FETCH, version, RESPONSE, body) if template.wanted.key == FETCH else None
    if part is None:
        return None
    name = topic_of(part)
    if part.error_code or part.fields["high_watermark"] < 0 or len(name) > LONGEST or not is_one_batch(part.records):
        return None
    struct = layout.body(FETCH, version, RESPONSE)
    (_, mark, _), (_, start, end) = spans(
        frame, FETCH, version, RESPONSE, frozenset((MARK, RECORDS_AT[FETCH, RESPONSE]))
    )
    at = batch_place(frame, start, end, size, struct.flexible, part.records)
    if at is None:
        return None
    offsets = 8 * sum(slot.name in ("last_stable_offset", "log_start_offset") for slot in struct.everywhere())
    attributes, _ = BATCH_CONSTANTS.unpack_from(frame, at.batch)
    prefix, middle = frame[4:mark], frame[mark + 8 + offsets : start]
    text = f">ii{len(prefix)}sq{offsets}x{len(middle)}s{at.width}x{BATCH_READ}"
    form = NumberTemplate(text, [2, 4, 7, 8], [0, 1, 6, 10], at.overhead)
    response = ResponseTemplate(template, BATCH, prefix, form, part=(name, part.number, part.records.codec, None))
    response.attributes, response.middle, response.least, response.most = attributes, middle, at.least, at.most
    return remember(template, response, form, (prefix, middle, 2, attributes))
