"""Views of frames, their dispositions, and requests in flight.

A `FrameView` has a frame's position and the length received so far; its header is decoded once, on first use. A lane's
`handle` gives the disposition of one frame:

    Pass        it leaves unchanged, and the scan continues after it
    Replace     other bytes, or none, leave in its place
    Need        more bytes of it are needed
    Wait        for a node, names, a time or a rule; then it is tried again (`Assembler.unblock`)
    Streaming   it leaves as it arrives, and only its tail is decoded
    Refuse      it closes the connection

Requests in flight are in order (promise 2). An entry is a tuple (correlation id, step, time, note): `time` is when the
request's header was read, `note` the state that the request's rewrite keeps for the response's. Two steps of their own
mark entries without a client's request. `ANSWER` is a response made by kproxy that waits for its turn (note: the
bytes). `OWN` is a request made by kproxy (note: callback for the response's frame).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproxy.protocol.framing import MAX_REQUEST_HEADER, body_start
from kproxy.protocol.pairing import IdIndex
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table import schema
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rewrite.rewriter import Pieces

from .plan import WHOLE, Step

if TYPE_CHECKING:
    from .lanes.request_rules import MeteredFrame
    from .lanes.tail_stream import TailStream

    LongFrame: TypeAlias = "TailStream | MeteredFrame"

FifoEntry = tuple[int, Step, float, Any]

ANSWER = Step(-1, -1, "kproxy-answer")
OWN = Step(-1, -1, "kproxy-request")
ANSWER.response = OWN.response = WHOLE  # the response lane handles them
ANSWERED, ASKED = -1, -2
"""Placeholders of these two among API keys."""

REMEMBERED = 1024
"""Most acks=0 Produce requests with a recognised response. librdkafka's mock answers them, real brokers do not. No mock
answers more than a thousand frames late."""


def clients_id(entry: FifoEntry) -> int | None:
    """Return the correlation id of a client's request; None for a request of kproxy's own."""
    return None if entry[1] is OWN else entry[0]


class InFlight:
    """Requests of one connection that await responses: the FIFO, and the correlation ids of recently forwarded acks=0
    requests, which have no entry in it."""

    __slots__ = ("fifo", "index", "noted", "unanswered")

    def __init__(self) -> None:
        self.fifo: deque[FifoEntry] = deque()
        self.index: IdIndex | None = None  # made at the first lookup by id
        self.unanswered: deque[int] | None = None  # made with the first one
        self.noted = 0  # acks=0 requests so far

    def count(self, correlation: int) -> int:
        """Return how many requests of the client with this id are unanswered."""
        if self.index is None:
            self.index = IdIndex(clients_id)
        return self.index.count(self.fifo, correlation)

    def note_unanswered(self, correlation: int) -> None:
        """Note that an acks=0 request with this correlation id was forwarded."""
        if self.unanswered is None:
            self.unanswered = deque(maxlen=REMEMBERED)
        self.unanswered.append(correlation)
        self.noted += 1

    def newest(self) -> tuple[FifoEntry | None, int]:
        """Return a value that changes with each forwarded request."""
        return (self.fifo[-1] if self.fifo else None), self.noted

    def is_unanswered(self, correlation: int) -> bool:
        """Return True if this id belongs to a recent acks=0 request."""
        return self.unanswered is not None and correlation in self.unanswered

    def forget_unanswered(self, correlation: int) -> None:
        """Remove an acks=0 request that has been answered although it requested no response."""
        assert self.unanswered is not None
        self.unanswered.remove(correlation)

    def take_answers(self) -> list[bytes]:
        """Take the answers of kproxy's own that are at the head of the FIFO now, and return them."""
        ready = []
        while self.fifo and self.fifo[0][1] is ANSWER:
            ready.append(self.fifo.popleft()[3])
        self.release_last()
        return ready

    def release_last(self) -> None:
        """Release the last indexed entry, if nothing is in flight: it may hold a long response."""
        if not self.fifo:
            self.index = None


IDENTITY = "identity"
"""The word for a frame that waits until it is known who the client is."""
UNREAD: Final = -2
"""Placeholder for a part of a header that is not decoded yet."""


class FrameView:
    """Frame in a buffer: `buf[start:have]` has been received, including its size, and it ends at `end`.

    `correlation` is the id in its header, `now` the time of the read that brought it.
    """

    __slots__ = ("buf", "correlation", "end", "have", "now", "start", "step")

    def __init__(self, step: Step, buf: Buffer, start: int, n: int, size: int, correlation: int, now: float) -> None:
        self.step, self.buf, self.start, self.correlation, self.now = step, buf, start, correlation, now
        self.end = end = start + 4 + size
        self.have = min(end, n)

    @property
    def length(self) -> int:
        """Return the bytes of all of the frame, its size included."""
        return self.end - self.start

    @property
    def body(self) -> int | None:
        """Return where the body starts, None if the header continues after `have`. Raises DecodeError."""
        raise NotImplementedError

    @property
    def missing(self) -> Need | None:
        """Return the need for the whole frame, None if it has arrived. Raises DecodeError.

        The header comes first, so that a frame with a malformed one is neither gathered nor reserved for.
        """
        if self.have == self.end:
            return None
        if self.step.key in schema.paths() and self.body is None:
            return Need(min(2 * (self.have - self.start), self.length, MAX_REQUEST_HEADER + 4))
        return Need(self.length, hold=True)

    def content(self) -> bytes:
        """Return a copy of the frame's received bytes, without its size."""
        return bytes(memoryview(self.buf)[self.start + 4 : self.have])


class RequestView(FrameView):
    """Request to decode; `id_length` is that of its client id, -1 for null."""

    __slots__ = ("_acks", "_client_id", "id_length")

    def __init__(
        self, step: Step, buf: Buffer, start: int, n: int, size: int, correlation: int, id_length: int, now: float
    ) -> None:
        self.step, self.buf, self.start, self.correlation, self.now = step, buf, start, correlation, now
        self.end = end = start + 4 + size
        self.have = min(n, end)
        self.id_length = id_length
        self._acks: int | None = UNREAD
        self._client_id: str | None = ""

    @property
    def acks(self) -> int | None:
        """Return the acks of a Produce; None for other APIs and before they arrive. Raises DecodeError."""
        if self._acks == UNREAD:
            read = self.step.plain.acks
            self._acks = None if read is None else read(self.buf, self.start + 4, self.have, self.id_length)
        return self._acks

    @property
    def answered(self) -> bool:
        """Return True if a response is due."""
        return self.acks != 0

    @property
    def client_id(self) -> str | None:
        """Return the client id, None for null; its header has to be here, and to be one that has a client id."""
        if self._client_id == "" and self.id_length:
            at = self.start + 14
            text = None if self.id_length < 0 else bytes(self.buf[at : at + self.id_length]).decode("utf-8", "replace")
            self._client_id = text
        return self._client_id

    @property
    def body(self) -> int | None:
        """Return where the body starts, None if the header continues after `have`. Raises DecodeError."""
        version = schema.load(self.step.key).header_version("request", self.step.version)
        return body_start(self.buf, self.start + 4, self.have, version, "request")

    @classmethod
    def of(cls, step: Step, data: bytes, now: float) -> RequestView:
        """Return a view of a whole request, with its size in front."""
        correlation = int.from_bytes(data[8:12], "big", signed=True)
        id_length = int.from_bytes(data[12:14], "big", signed=True)
        return cls(step, data, 0, len(data), len(data) - 4, correlation, id_length, now)


class ResponseView(FrameView):
    """Response that is looked at; `entry` is the one at the FIFO's head, `step` the entry's, `note` what the request
    left there."""

    __slots__ = ("entry",)

    def __init__(self, entry: FifoEntry, buf: Buffer, start: int, n: int, size: int, now: float) -> None:
        self.correlation, self.step, _, _ = self.entry = entry
        self.buf, self.start, self.now = buf, start, now
        self.end = end = start + 4 + size
        self.have = min(n, end)

    @property
    def note(self) -> Any:
        """Return the state that the request's rewrite or rules kept for the response."""
        return self.entry[3]

    def under(self, entry: FifoEntry) -> ResponseView:
        """Return this response as the one to `entry`, which has replaced its own entry in the FIFO."""
        return ResponseView(entry, self.buf, self.start, self.have, self.end - self.start - 4, self.now)

    @property
    def body(self) -> int | None:
        """Return where the body starts, None if the header continues after `have`. Raises DecodeError."""
        version = schema.load(self.step.key).header_version("response", self.step.version)
        return body_start(self.buf, self.start + 4, self.have, version, "response")


class Pass:
    """Disposition of a frame that leaves as it is."""

    __slots__ = ()


PASS: Final = Pass()


class Need:
    """Disposition of a frame that needs `need` bytes here before it can be judged. `hold`: that is the whole frame, and
    its memory is to be reserved."""

    __slots__ = ("hold", "need")

    def __init__(self, need: int, hold: bool = False) -> None:
        self.need, self.hold = need, hold


class Replace:
    """Disposition of a frame whose received bytes, up to `after`, are replaced by `pieces` (none: they are dropped).

    `rest` bytes of the frame follow and pass as they stream in; then, or at once, the next frame starts. `then` is
    called when the pieces are in commands, and ends the connection.
    """

    __slots__ = ("after", "pieces", "rest", "then")

    def __init__(self, pieces: Pieces, after: int, rest: int = 0, then: Callable[[], None] | None = None) -> None:
        self.pieces, self.after, self.rest, self.then = pieces, after, rest, then


class Wait:
    """Disposition of a frame that waits: `cause` is a lookup, or the word for another cause."""

    __slots__ = ("cause",)

    def __init__(self, cause: str | NeedsLookup) -> None:
        self.cause = cause


class Streaming:
    """Disposition of a response that passes through a `TailStream`, from byte `body` of the buffer on."""

    __slots__ = ("body", "stream")

    def __init__(self, stream: TailStream, body: int) -> None:
        self.stream, self.body = stream, body


class Reject:
    """Disposition of a frame that closes the connection: `cause` is one word, `message` is logged, `blame` is the side
    that sent bad bytes."""

    __slots__ = ("blame", "cause", "message")

    def __init__(self, cause: str, message: str, blame: str = "") -> None:
        self.cause, self.message, self.blame = cause, message, blame


Disposition = Pass | Need | Replace | Wait | Streaming | Reject
