"""Tape of the traffic between clients and kproxy, kept frame by frame and decoded later.

Strategy. The bytes are copied where the client's socket is, on the way in before any rule has seen them and on the way
out after all of them. So the tape has the client's view of the traffic after all rules. It has no effect on the
traffic: no frame is decoded or held for it, no version is capped. (A live rule that records could not do that: it sees
a request before later rules, does not see the responses that kproxy itself generates, and makes the engine read every
body.) Frames are decoded on access, by the accessing thread. The bytes of long frames also pass through this process
while they are kept: splicing (runtime/io/splice.py) is off, since spliced bytes cannot be copied.

A full tape evicts the largest and least useful bytes first: of the oldest long frames it keeps all fields and the
headers of record batches (`protocol/scan/sketch.py`), so that each exchange keeps its place and its size. If that is
not enough, the oldest exchanges are evicted.
"""

from __future__ import annotations

import socket
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

from kproxy.protocol.framing import produce_acks
from kproxy.protocol.scan.sketch import Sketcher
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.runtime.io.side import Side
from kproxy.session.commands import NO_ANSWER
from kproxy.session.session import Session

from .mock_rules import NAMES as MOCK_RULES

MOST_BYTES = 64 << 20
"""Maximum bytes of all kept frames: tests usually move far less."""
MOST_FRAMES = 100_000
"""Exchanges that are kept; with the objects around them some 50 MB."""
LARGEST = 100 << 20
"""Bytes above which a size is invalid: later frames of this connection cannot be split."""
MOST_SILENT = 100
"""Maximum number of requests of a connection without a due response that are kept for later effects of rules."""
MOST_BEHIND = 32 << 20
"""Bytes of frames of the broker's side that are kept."""
LONG = 4096
"""Minimum size in bytes of frames whose records are evicted first when the tape is full."""
HEAD = 1024
"""Bytes that are kept of a frame whose structure cannot be parsed: its header, mostly."""


TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
CLOSE_WAIT = 8  # of Linux's TCP_INFO: the peer has sent FIN


class Frames:
    """Cutter of one direction's bytes into frames without their sizes. `cut`: an invalid size, after which frames
    cannot be split; None: no invalid size so far."""

    __slots__ = ("cut", "rest")

    def __init__(self) -> None:
        self.rest = bytearray()
        self.cut: int | None = None

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that these bytes complete; none any more after a size that cannot be one."""
        if self.cut is not None:
            return
        rest, pos = self.rest, 0
        rest += data
        while len(rest) - pos >= 4:
            size = int.from_bytes(rest[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= LARGEST:
                self.cut = size
                rest.clear()
                return
            if len(rest) - pos - 4 < size:
                break
            yield bytes(rest[pos + 4 : pos + 4 + size])
            pos += 4 + size
        del rest[:pos]


class TapedFrame(NamedTuple):
    """A frame on the tape without its size field, which had the value `size`. `sketched`: the inside of its record
    batches is not kept any more. `cut`: only its beginning is kept."""

    data: bytes
    size: int
    sketched: bool = False
    cut: bool = False

    def thinned(self, key: int, version: int, direction: str) -> TapedFrame:
        """Return the frame without its records, or its beginning if its structure cannot be followed."""
        if self.size < LONG or self.sketched or self.cut:
            return self
        sketcher = Sketcher(key, version, direction)
        sketcher.feed(self.data, 0, self.size)
        data = sketcher.data()
        if sketcher.failed:
            return self._replace(data=self.data[:HEAD], cut=True)
        return self if len(data) == self.size else self._replace(data=data, sketched=True)


class TapedExchange:
    """A request on the tape, and its response once that is sent. `came`, `answered`: monotonic seconds; `rules`: names
    of those that fired; `by_kproxy`: kproxy answered in the broker's place; `cut_by`: why the client's connection ended
    before the response was sent, such as `client_closed`; empty otherwise."""

    __slots__ = ("answered", "asked", "by_kproxy", "came", "connection", "cut_by", "read", "rules", "told")

    def __init__(self, connection: TapedConnection, request: bytes, came: float) -> None:
        self.connection, self.came = connection, came
        self.asked = TapedFrame(request, len(request))
        self.told: TapedFrame | None = None
        self.answered: float | None = None
        self.read: Any = None  # the decoded exchange, kept here by its reader
        self.rules: tuple[str, ...] = ()
        self.by_kproxy = False
        self.cut_by = ""

    @property
    def request(self) -> bytes:
        return self.asked.data

    @property
    def response(self) -> bytes | None:
        """Return the kept bytes of the response; None: no response."""
        return None if self.told is None else self.told.data

    @property
    def correlation(self) -> bytes:
        """Return the correlation id as the four bytes of the request."""
        return self.asked.data[4:8]

    @property
    def size(self) -> int:
        return len(self.asked.data) + len(self.response or b"")

    def thin(self) -> int:
        """Keep no records any more, and return how many bytes fewer that is."""
        before, head = self.size, self.asked.data[:4]
        key, version = (int.from_bytes(head[at : at + 2], "big", signed=True) for at in (0, 2))
        self.asked = self.asked.thinned(key, version, "request")
        if self.told is not None:
            self.told = self.told.thinned(key, version, "response")
        return before - self.size


class TapedConnection:
    """One side of a connection on the tape. As the session's observer it receives the fired rules."""

    def __init__(self, tape: Tape, session: Session) -> None:
        self.tape, self.session = tape, session
        self.requests, self.responses = Frames(), Frames()
        self.waiting: dict[bytes, deque[TapedExchange]] = {}  # requests by correlation id, which a client may use twice
        self.silent: deque[TapedExchange] = deque(maxlen=MOST_SILENT)  # the last ones that are due no answer
        self.early: dict[bytes, tuple[tuple[str, ...], bool]] = {}  # effects of rules on a pending request

    def said(self, data: bytes, now: float) -> None:
        """Keep the requests in the bytes that the client has sent."""
        for frame in self.requests.add(data):
            if len(frame) >= 8:
                taken = TapedExchange(self, frame, now)
                if self.early:
                    taken.rules, taken.by_kproxy = self.early.pop(taken.correlation, ((), False))
                    self.early.clear()
                if wants_no_answer(frame):
                    self.silent.append(taken)
                else:
                    self.waiting.setdefault(taken.correlation, deque()).append(taken)
                self.tape.keep(taken)
        self.look_for_end(self.requests, "request")

    def heard(self, data: bytes, now: float) -> None:
        """Keep the responses in the bytes that the client gets."""
        for frame in self.responses.add(data):
            due = self.waiting.get(frame[:4])
            if due:
                taken = due.popleft()
                if not due:
                    del self.waiting[frame[:4]]
                taken.told, taken.answered = TapedFrame(frame, len(frame)), now
                self.tape.grew(taken, len(frame))
        self.look_for_end(self.responses, "response")

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """Note that these rules fired; see `session.commands.Observer`."""
        key = correlation_id.to_bytes(4, "big", signed=True)
        names = [one for one in names if one not in MOCK_RULES]  # not the test's
        if older == NO_ANSWER:
            found = [one for one in self.silent if one.correlation == key][-1:]
        else:
            found = list(self.waiting.get(key, ()))[older : older + 1]
        if found:
            found[0].rules += tuple(names)
            found[0].by_kproxy |= answered
        else:
            before, was_answered = self.early.get(key, ((), False))
            self.early = {key: (before + tuple(names), was_answered or answered)}

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Do nothing: a tape has the times of frames."""

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Do nothing: a tape has the answers of both sides."""

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        """Do nothing: a tape has the times of frames."""

    def look_for_end(self, frames: Frames, what: str) -> None:
        """Record it if frames of this direction can no longer be split."""
        if frames.cut is not None and (self.session.number, what) not in self.tape.cut:
            self.tape.cut[self.session.number, what] = frames.cut

    def closed(self, cause: str) -> None:
        """Note on each unanswered request why the connection closed."""
        for due in self.waiting.values():
            for taken in due:
                taken.cut_by = taken.cut_by or cause

    def look_for_leaver(self) -> None:
        """Note that the client has closed, even if the proxy does not read from it, as when a rule holds its
        request."""
        side = getattr(self.session.owner, "client", None)
        sock = None if side is None else side.sock
        if not self.waiting or sock is None or TCP_INFO is None:
            return
        if sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] == CLOSE_WAIT:
            self.closed("client_closed")

    def forget(self, taken: TapedExchange) -> None:
        """Stop waiting for the response to this request; it will belong to none."""
        due = self.waiting.get(taken.correlation)
        if due is not None and taken in due:
            due.remove(taken)
            if not due:
                del self.waiting[taken.correlation]


def wants_no_answer(frame: bytes) -> bool:
    """Return True if the frame is a Produce request with acks 0."""
    key, version, name = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2, 8))
    return key == PRODUCE and version in schema.load(PRODUCE).versions and (
        produce_acks(version)(frame, 0, len(frame), name) == 0
    )  # fmt: skip


class Tape:
    """The exchanges of all connections. `forgotten` counts evicted exchanges; `cut` has the invalid sizes after which
    frames cannot be split, by connection and direction. `behind`: a tape of the same exchanges at the broker.
    `began_before`: there was traffic before the start of the tape, or traffic that it does not have."""

    def __init__(
        self, most_bytes: int = MOST_BYTES, most_frames: int = MOST_FRAMES, behind: Tape | None = None
    ) -> None:
        self.most_bytes, self.most_frames, self.behind = most_bytes, most_frames, behind
        self.began_before = False
        self.connections: dict[int, TapedConnection] = {}
        self.taken: deque[TapedExchange] = deque()
        self.long: OrderedDict[TapedExchange, None] = OrderedDict()  # exchanges whose records may be evicted
        self.cut: dict[tuple[int, str], int] = {}
        self.bytes = self.forgotten = 0

    # ---- where the bytes pass: all in the proxy's thread

    def follow(self, session: Session) -> Session:
        """Return this session of a new connection, with the tape attached: to all bytes of the client, and to the bytes
        that are sent to the client; also to both directions at the broker."""
        connection = self.connections[session.number] = TapedConnection(self, session)
        behind = None if self.behind is None else TapedConnection(self.behind, session)
        from_client, from_broker = session.from_client, session.from_broker

        def said(view: memoryview, n: int, now: float) -> int:
            connection.said(bytes(view[:n]), now)
            go = from_client(view, n, now)
            if go and behind is not None:
                behind.said(bytes(view[:go]), now)
            return go

        def passed(view: memoryview, n: int, now: float) -> int:
            if behind is not None:
                behind.heard(bytes(view[:n]), now)
            go = from_broker(view, n, now)
            if go:
                connection.heard(bytes(view[:go]), now)
            return go

        session.from_client, session.from_broker, session.observer = said, passed, connection
        if self.behind is not None and behind is not None:
            self.behind.connections[session.number] = behind
        return session

    def side(self, side: type[Side]) -> type[Side]:
        """Return a class of client sides that copies the bytes written to the client to the tape."""
        tape = self

        class Kept(side):  # type: ignore[misc,valid-type]  # one of two classes
            __slots__ = ()
            plain = False  # no byte of either direction is spliced, since spliced bytes cannot be copied

            def write(self, data: bytes | bytearray | memoryview, token: int) -> None:
                connection = tape.connections.get(self.conn.session.number)
                if data and connection is not None:
                    connection.heard(bytes(data), monotonic())
                super().write(data, token)

            def drop(self, reset: bool = False) -> None:
                cause = self.conn.ending.cause
                for one in (tape, tape.behind):
                    if one is not None and (gone := one.connections.pop(self.conn.session.number, None)):
                        gone.closed(cause)
                super().drop(reset)

        return Kept

    def broker_side(self, side: type[Side]) -> type[Side]:
        """Return a class of broker sides that puts the bytes on the tape `behind` which are written to the broker."""
        tape = self.behind

        class KeptBehind(side):  # type: ignore[misc,valid-type]  # one of two classes
            __slots__ = ()

            def write(self, data: bytes | bytearray | memoryview, token: int) -> None:
                connection = None if tape is None else tape.connections.get(self.conn.session.number)
                if data and connection is not None:
                    connection.said(bytes(data), monotonic())
                super().write(data, token)

        return KeptBehind

    # ---- content of the tape

    def snapshot(self) -> tuple[list[TapedExchange], int, dict[tuple[int, str], int]]:
        """Return the exchanges, the number of those not kept any more, and `cut`; in the proxy's thread."""
        for connection in self.connections.values():
            connection.look_for_leaver()
        return list(self.taken), self.forgotten, dict(self.cut)

    def keep(self, taken: TapedExchange) -> None:
        """Put a request on the tape; evict the oldest ones if it is full."""
        self.taken.append(taken)
        self.grew(taken, len(taken.asked.data))

    def grew(self, taken: TapedExchange, size: int) -> None:
        """Add `size` bytes of an exchange to the total. Evict the oldest records, then the oldest exchanges, until the
        limits hold."""
        self.bytes += size
        if size >= LONG:
            self.long[taken] = None
        while self.bytes > self.most_bytes and self.long:
            self.bytes -= self.long.popitem(last=False)[0].thin()
        while self.bytes > self.most_bytes or len(self.taken) > self.most_frames:
            old = self.taken.popleft()
            self.bytes -= old.size
            self.forgotten += 1
            self.long.pop(old, None)
            old.connection.forget(old)

    def clear(self) -> None:
        """Forget all exchanges; responses that are still due will belong to none."""
        self.began_before = True
        if self.behind is not None:
            self.behind.clear()
        self.taken.clear()
        self.long.clear()
        self.cut.clear()
        self.bytes = self.forgotten = 0
        for connection in self.connections.values():
            connection.waiting.clear()
            connection.silent.clear()
