"""Learns templates of requests whose exchanges are counted, and finds the one that matches a request.

Strategy. Templates are found by the bytes that stay the same, with one look-up for each place where record batches
stood in requests before. To learn one, a request is decoded in full, which costs more than to read it as usual; so
where that fails several times in a row (requests to more than one partition have no template), it is tried only once
in PATIENCE requests. The number of templates is bounded; all are forgotten when there are too many.
"""

from __future__ import annotations

from kproxy.base.errors import DecodeError
from kproxy.protocol.elements import Partition, only_partition
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.sketch import decode_sketch
from kproxy.protocol.table.api_keys import CONTROLLED_SHUTDOWN, PRODUCE, SASL_HANDSHAKE
from kproxy.record.exchange import Depth

from .batch_place import CONSTANTS, asked_form, batch_place, shortened, spans
from .credentials import REQUEST
from .observation import Observation
from .partition_rows import topic_of
from .summary import LONGEST
from .summary_rows import SILENT
from .summary_templates import PRODUCED, ROWS, RequestTemplate, ResponseTemplate
from .template_cache import TemplateCache

ACKS = frozenset(("acks",))


class RequestTemplates(TemplateCache[RequestTemplate]):
    """Request templates of one API and version on one connection.

    `rows`: rows are wanted of the requests. `usable`: False if requests must be read as usual in any case.
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

        `size` is its length field; no more of it is looked at than stands before `n`.
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
        """Return the template of a request of which nothing counts but its client id; None if that is not all here."""
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
        """Return the known template that matches a request with one record batch at `pos`, None if there is none."""
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
