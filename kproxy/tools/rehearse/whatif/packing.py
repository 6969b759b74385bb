"""Packing of one capture's exchanges into chunks, connection by connection.

Strategy. Spark's cost is that of rows, so a row is not an exchange but some hundred of one connection, packed: nothing
between the reader and the rehearsal looks into them. Exchanges come in the order in which they were over and leave in
the order of their requests; what comes too early waits. Those that the rules cannot be about are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.rules.exchange import Facts

from .candidate import Candidate
from .exchange import CaptureSummary, ExchangeChunk, Opaque, PackedExchange, pack

CHUNK_BYTES = 256 << 10
"""Bytes of frames in one chunk: so large that a row's cost is nothing, so small that many fit into a batch of rows."""
CHUNK_EXCHANGES = 2000
"""Exchanges in one chunk: with small frames, what Python makes of them is many times larger than they are."""
HELD_BYTES = 16 << 20
"""Bytes of frames that wait in chunks that are not full; with more of them all chunks are closed."""
EACH = 200
"""Bytes that an exchange takes besides its frames."""


class ChunkRow(NamedTuple):
    """Row of the source; see `CHUNKS` in job.py."""

    what: str
    capture: str
    connection: int | None
    place: int | None
    part: int | None
    packed: bytes


class PackingConnection:
    """Connection with exchanges that wait to be packed. `next`: number of the exchange that is to come."""

    __slots__ = ("early", "next", "opaque", "part", "place", "ready", "size", "who")

    def __init__(self, who: CapturedConnection, place: int, opaque: Opaque) -> None:
        self.who, self.place, self.opaque = who, place, opaque
        self.part = self.size = 0
        self.next = 1
        self.ready: list[PackedExchange] = []
        self.early: dict[int, PackedExchange | None] = {}

    def add(self, number: int, recorded: PackedExchange | None) -> None:
        """Add an exchange in its turn, or before it; None: one that is not rehearsed."""
        if number != self.next:
            self.early[number] = recorded
            return
        self.next += 1
        if recorded is not None:
            self.ready.append(recorded)
        while self.early and self.next in self.early:
            early = self.early.pop(self.next)
            self.next += 1
            if early is not None:
                self.ready.append(early)

    def end(self) -> None:
        """Put the early exchanges in order, since no more come."""
        self.ready += [found for _, found in sorted(self.early.items()) if found is not None]
        self.early.clear()


class CapturePacking:
    """Packing of one capture.

    `add` takes exchanges; ends of connections are put in `ended`; `take` gives rows.
    """

    def __init__(self, path: str, candidate: Candidate) -> None:
        self.path, self.candidate = path, candidate
        self.open: dict[CapturedConnection, PackingConnection] = {}
        self.ended: list[CapturedConnection] = []
        self.rows: list[ChunkRow] = []
        self.summary = CaptureSummary(topics={}, unfit={})
        self.places = self.held = 0

    def add(self, seen: ObservedExchange) -> None:
        who = seen.who
        assert isinstance(who, CapturedConnection), "the reader made it"
        connection = self.open.get(who)
        if connection is None:
            connection = self._begin(who)
        recorded = self._recorded(seen, connection.opaque)
        connection.add(seen.number, recorded)
        if recorded is not None:
            size = len(recorded.request) + len(recorded.response or b"") + EACH
            connection.size += size
            self.held += size
            if connection.size >= CHUNK_BYTES or len(connection.ready) >= CHUNK_EXCHANGES:
                self._close(connection)
            elif self.held >= HELD_BYTES:
                for other in self.open.values():
                    self._close(other)
        if self.ended and self.ended[0] is not who:  # it has given out its last exchange
            self._end(self.ended.pop(0))

    def finish(self, topics: dict[str, str]) -> None:
        """Pack what is left and the summary, since the capture is over."""
        for who in list(self.open):
            self._end(who)
        self.summary.topics = topics
        self.rows.append(ChunkRow("capture", self.path, None, None, None, pack(self.summary)))

    def take(self) -> Iterator[ChunkRow]:
        """Return the rows that there are, and forget them."""
        rows, self.rows = self.rows, []
        return iter(rows)

    def _begin(self, who: CapturedConnection) -> PackingConnection:
        opaque = self.candidate.opaque(facts_of(self.path, who))
        connection = self.open[who] = PackingConnection(who, self.places, opaque)
        self.places += 1
        return connection

    def _recorded(self, seen: ObservedExchange, opaque: Opaque) -> PackedExchange | None:
        request, response = seen.request, seen.response
        why = unfit(seen)
        if why is not None or request is None:
            self.summary.unfit[why or NO_REQUEST] = self.summary.unfit.get(why or NO_REQUEST, 0) + 1
            return None
        if not self.summary.began or request.first < self.summary.began:
            self.summary.began = request.first
        if opaque[seen.key << 16 | seen.version & 0xFFFF]:
            self.summary.opaque += 1
            return None
        answer, when = (None, None) if response is None else (response.data, response.first)
        return PackedExchange(
            seen.number, seen.key, seen.version, seen.correlation_id, seen.client_id, request.data, request.first,
            answer, when,
        )  # fmt: skip

    def _close(self, connection: PackingConnection) -> None:
        """Pack the connection's exchanges into a row, since its chunk is full."""
        if not connection.ready:
            return
        who = connection.who
        chunk = ExchangeChunk(who.listener, who.cluster, who.client_address, who.node, connection.ready)
        self.rows.append(ChunkRow("chunk", self.path, who.number, connection.place, connection.part, pack(chunk)))
        self.held -= connection.size
        connection.size = 0
        connection.part += 1
        connection.ready = []

    def _end(self, who: CapturedConnection) -> None:
        connection = self.open.pop(who, None)
        if connection is not None:
            connection.end()
            self._close(connection)


NO_REQUEST = "its request was not recorded"


def facts_of(capture: str, who: CapturedConnection | ExchangeChunk) -> Facts:
    return Facts(who.listener or "", who.cluster or capture, who.client_address, node=who.node)


def unfit(seen: ObservedExchange) -> str | None:
    """Return why an exchange cannot be rehearsed, None if it can."""
    request, response = seen.request, seen.response
    if request is None:
        return NO_REQUEST
    if request.form is not Form.WHOLE:
        return f"request: {why_not_whole(request)}"
    if response is not None and response.form is not Form.WHOLE:
        return f"response: {why_not_whole(response)}"
    return None


def why_not_whole(frame: Frame) -> str:
    return frame.withheld or f"{len(frame.data)} of {frame.size} bytes were recorded"
