"""Learns templates (`hot.Ask`) of requests, and finds the one that matches a request.

Strategy. Templates are found by the bytes that stay the same, with one look-up for each place where record batches
stood in requests before. To learn one, a request is decoded in full, which costs more than to read it as usual; so
where that fails several times in a row (requests to more than one partition have no template), it is tried only once
in PATIENCE requests. The number of templates is bounded; all are forgotten when there are too many.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire.elements import Partition, only_partition
from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.sketch import decode_sketch
from kproxy.wire.table.api_keys import CONTROLLED_SHUTDOWN, PRODUCE, SASL_HANDSHAKE

from .batch_places import (
    CONSTANTS,
    MOST_LEARNT,
    batch_place,
    shortened,
    spans,
    worth_trying,
)
from .cells import SILENT
from .credentials import REQUEST
from .hot import PRODUCED, ROWS, Answer, Ask, Place, asked_form
from .learn_answers import part_key
from .rows import topic_of
from .seen import Depth
from .summary import LONGEST
from .wanted import Wanted

ACKS = frozenset(("acks",))


class Asks:
    """Request templates of one API and version on one connection.

    `known`: Asks by what stays the same in their requests. `lengths`: of the keys that are prefixes, where Produce is
    not read for rows. `places`: where record batches stood, each with the `struct` that reads such a request. `rows`:
    whether rows are wanted of the requests. `usable`: False if requests must be read as usual in any case. `misses`:
    how often in a row learning failed.
    """

    __slots__ = ("code", "known", "lengths", "misses", "places", "rows", "usable", "wanted")

    def __init__(self, code: int, wanted: Wanted) -> None:
        self.code, self.wanted = code, wanted
        self.usable = wanted.depth <= Depth.ROWS and wanted.key not in (SASL_HANDSHAKE, CONTROLLED_SHUTDOWN)
        self.usable &= wanted.key != PRODUCE or wanted.acks is not None
        self.rows = wanted.key == PRODUCE and wanted.depths[0] >= Depth.SKETCH
        self.known: dict[Any, Ask] = {}
        self.lengths: list[int] = []
        self.places: dict[Place, Struct] = {}
        self.misses = 0

    def find(self, buf: Buffer, pos: int, size: int, n: int) -> Ask | None:
        """Return the Ask that matches the request at `pos`, learnt if need be; None: it has to be read as usual.

        `size` is its length field; no more of it is looked at than stands before `n`.
        """
        if not self.usable:
            return None
        found: Ask | None
        if self.rows:
            found = self.known_batch(buf, pos, size, n)
        elif self.wanted.key == PRODUCE:
            keys = (bytes(buf[pos + 12 : min(pos + 12 + length, n)]) for length in self.lengths)
            found = next((self.known[key] for key in keys if key in self.known), None)
        else:
            return self.plain(buf, pos, size, n)
        if found is None and worth_trying(self):
            end = pos + 4 + size
            frame = bytes(buf[pos + 4 : end]) if end <= n else shortened(buf, pos, n, size, self.code, REQUEST)
            found = None if frame is None else self.learn(frame, size)
        if found is not None:
            self.misses = 0
        return found

    def plain(self, buf: Buffer, pos: int, size: int, n: int) -> Ask | None:
        """Return the Ask of a request of which nothing counts but its client id; None if that is not all here."""
        key = b""
        if self.wanted.counted:
            length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
            if length > size - 10 or pos + 14 + length > n:
                return None
            key = bytes(buf[pos + 12 : pos + 14 + max(length, 0)])
        found = self.known.get(key)
        if found is None:
            self.make_room()
            found = self.known[key] = Ask(self.wanted, self.code, key, client_of(key))
        return found

    def known_batch(self, buf: Buffer, pos: int, size: int, n: int) -> Ask | None:
        """Return the known Ask that matches a request with one record batch at `pos`, None if there is none."""
        for where, form in self.places.items():
            if size + 4 < form.size or pos + form.size > n:
                continue
            _, _, _, same, length, magic, attributes, producer, _ = form.unpack_from(buf, pos)
            if size == length + where.overhead and magic == 2:
                found = self.known.get((where, same, attributes, producer))
                if found is not None:
                    return found
        return None

    def of_rows(self, client: bytes, acks: int) -> Ask:
        """Return the Ask of requests that are read row by row, by their client id (with its length) and acks."""
        found = self.known.get((client, acks))
        if found is None:
            self.make_room()
            found = self.known[client, acks] = Ask(self.wanted, self.code, b"", client_of(client))
            found.kind, found.acks = ROWS, acks
        return found

    def make_room(self) -> None:
        """Forget all templates if there are as many as there may be."""
        if len(self.known) >= MOST_LEARNT:
            self.known.clear()
            self.lengths.clear()
            self.places.clear()

    def learn(self, frame: bytes, size: int) -> Ask | None:
        """Return a new Ask of a Produce request of `size` bytes, None if its form has no template.

        `frame`: the request without its length field; its records may have been cut out (`batch_places.shortened`).
        """
        version = self.wanted.version
        try:
            body = decode_sketch(frame, PRODUCE, version, REQUEST)
        except DecodeError:
            return None
        client = client_of(frame[8 : 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)])
        if not self.rows:
            (_, _, end) = spans(frame, PRODUCE, version, REQUEST, ACKS)[0]
            ask = Ask(self.wanted, self.code, frame[8:end], client)
            ask.acks = body["acks"]
            self.make_room()
            self.known[ask.prefix] = ask
            self.lengths.append(len(ask.prefix))
        else:
            part = only_partition(PRODUCE, version, REQUEST, body)
            if part is None:
                return None
            made = self.of_batch(frame, size, part, body["acks"], client)
            if made is None:
                return None
            ask = made
        if not ask.acks:
            key = self.wanted.key, version, client, SILENT, 0
            ask.silent = Answer(ask, PRODUCED, b"", key, part_key(ask) if self.rows else None)
        return ask

    def of_batch(self, frame: bytes, size: int, part: Partition, acks: int, client: str | None) -> Ask | None:
        """Return a new Ask of a request with one record batch to `part`; None for another form."""
        where, name = batch_place(frame, self.wanted.version, REQUEST, part.records), topic_of(part)
        if where is None or len(name) > LONGEST:
            return None
        ask = Ask(self.wanted, self.code, frame[8 : where.before], client)
        ask.acks = acks
        batch = where.before + where.width
        attributes, producer = CONSTANTS.unpack_from(frame, batch)
        where = where.of_size(size)
        ask.of_batch(where, attributes, producer)
        ask.part = name, part.number, part.records.codec, producer >= 0
        self.make_room()
        self.known[where, ask.prefix, attributes, producer] = ask
        self.places[where] = asked_form(where)
        return ask


def client_of(field: bytes) -> str | None:
    """Return the client id from its field in a request header, which has its length in front; None for null."""
    return str(field[2:], "utf-8", "replace") if len(field) >= 2 and field[0] < 0x80 else None
