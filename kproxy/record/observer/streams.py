"""Bytes of both directions of a connection, cut into frames that are kept as far as required.

Strategy. A frame under way gathers its first bytes until its stream has decided how much of it to keep (`look`, called
each time that as many bytes are here as it needs). A request opens an exchange as soon as its header is here; a
response finds its request, and ends the exchange when its last byte has come. Frames that cost less are taken before
(`observer.py`, `templated_lines.py`, `whole_frames.py`): here are those in pieces, with credentials, or long.
"""

from __future__ import annotations

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import MAX_ACKS_HEAD, body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE, SASL_HANDSHAKE
from kproxy.session.sasl.login import GSSAPI_FIRST, MAX_TOKEN, RawTokens

from .credentials import REQUEST, RESPONSE
from .exchange_builder import ExchangeBuilder, OpenExchange
from .observation import HEAD, SIZE_BYTES, Observation, PartialFrame, code_of
from .response_errors import ERROR_HEAD, error_at, in_order, throttle_at
from .summary_templates import LongResponse

SMALLEST_REQUEST, SMALLEST_RESPONSE = 8, 4
"""Bytes of a request header without a client id, as ControlledShutdown v0 has it; of a correlation id."""
LARGEST = 1 << 30
"""Most bytes of a frame; a larger size is a sign that the bytes are not a frame. Brokers accept requests of 100 MB
(socket.request.max.bytes) unless that was raised."""
REQUEST_HEAD, RESPONSE_HEAD = 14, 8
"""Bytes up to the length of the client id, or to the end of the correlation id, with those of the frame's length."""
LONGEST_HEAD = SIZE_BYTES + MAX_ACKS_HEAD
"""Bytes of a request that are gathered at most to find the end of its header or its acks."""
HEADER = ((4, 2), (6, 2), (8, 4))
"""(offset, width) in bytes of API key, version and correlation id, behind the length field."""
NO_ERROR = b"\x00\x00"
TOKEN = object()
"""Stands for the owner of a frame that is a raw SASL token."""


class FrameStream:
    """One direction of a connection, cut into frames.

    `lost`: a length was invalid, so the start of further frames is unknown, and reading stops. `ready`: the next byte
    begins a frame that a template may match.
    """

    __slots__ = ("builder", "frame", "lost", "ready")
    direction = ""

    def __init__(self, builder: ExchangeBuilder) -> None:
        self.builder = builder
        self.frame: PartialFrame | None = None
        self.lost = self.ready = False

    def look_ahead(self) -> None:
        """Set `ready`, after bytes have come, or raw SASL tokens begin or end."""
        self.ready = self.frame is None and self.builder.raw is None and not self.lost

    def pass_on(self, now: float, total: int, got: int, owner: LongResponse | None = None) -> None:
        """Skip the rest of a frame of `total` bytes that matched a template, of which `got` are received."""
        self.frame, self.ready = PartialFrame.passing(now, total, got, owner), False

    def receive(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Take bytes of buf[pos:n], up to the end of a frame at most; return the position behind them."""
        if self.lost:
            return n
        frame = self.frame
        if frame is None:
            frame = self.frame = PartialFrame(now)
        while pos < n and not frame.is_complete:
            pos = frame.take(buf, pos, n)
            while not frame.settled and len(frame.data) >= frame.need:
                self.advance(frame, now)
                if self.lost:
                    return n
        if frame.is_complete:
            self.frame = None
            self.over(frame, now)
        return pos

    @property
    def unseen(self) -> int:
        """Return how many of the next bytes the stream need not be given."""
        return 0 if self.frame is None else self.frame.unseen

    def pass_over(self, size: int, now: float) -> None:
        """Count `size` bytes as come that the stream was not given, no more than `unseen`."""
        frame = self.frame
        assert frame is not None, "some were of no concern"
        frame.pass_over(size)
        if frame.is_complete:
            self.frame = None
            self.over(frame, now)

    def advance(self, frame: PartialFrame, now: float) -> None:
        """Process a frame whose required bytes are received, require more of it, or be lost."""
        raise NotImplementedError

    def over(self, frame: PartialFrame, now: float) -> None:
        raise NotImplementedError

    def lose(self, size: int) -> None:
        """Stop reading this direction, since `size` is an invalid length and the next frame cannot be found."""
        self.lost, self.frame = True, None
        self.builder.unread += 1
        self.builder.invalid = {**self.builder.invalid, self.direction: size}


class RequestStream(FrameStream):
    """Requests of one connection as a stream of frames. `first`: no frame was seen yet."""

    __slots__ = ("first",)
    direction = REQUEST

    def __init__(self, builder: ExchangeBuilder) -> None:
        super().__init__(builder)
        self.first = True

    def look_ahead(self) -> None:
        super().look_ahead()
        self.ready &= not self.first

    def advance(self, frame: PartialFrame, now: float) -> None:
        if not frame.total:
            frame.total = SIZE_BYTES + max(frame.size, 0)
        size = frame.size
        if (self.first or self.builder.raw is not None) and self.look_for_token(frame, size):
            return
        if not SMALLEST_REQUEST <= size <= LARGEST:
            self.lose(size)
        elif len(frame.data) < min(REQUEST_HEAD, frame.total):
            frame.need_bytes(REQUEST_HEAD)
        else:
            self.look_at_header(frame, now)

    def look_for_token(self, frame: PartialFrame, size: int) -> bool:
        """Return True if the frame is a raw SASL token, which is then processed, or if another byte is needed to
        decide."""
        raw = self.builder.raw
        if size > 0 and len(frame.data) == SIZE_BYTES:
            frame.need_bytes(SIZE_BYTES + 1)
            return True
        head = frame.data[SIZE_BYTES] if size > 0 else -1
        if self.first and raw is None and head == GSSAPI_FIRST:  # a client of Kafka 0.9 opens with the token itself
            raw = self.builder.raw = RawTokens("GSSAPI")
        if raw is None:
            return False
        if not raw.client_sends_token(size, head):
            if raw.rounds is None:  # the client speaks Kafka now: no further tokens follow
                self.builder.raw = None
            return False
        self.first = False
        if not 0 <= size <= MAX_TOKEN:
            self.lose(size)
            return True
        raw.from_client += 1
        yield_point()
        frame.owner = TOKEN
        frame.fix_length(0)
        return True

    def look_at_header(self, frame: PartialFrame, now: float, *, more: bool = True) -> None:
        """Open an exchange if the header is whole or malformed, or if no `more` bytes will arrive."""
        data, builder = frame.data, self.builder
        key, version, correlation = (int.from_bytes(data[at : at + w], "big", signed=True) for at, w in HEADER)
        wanted = builder.plan[code_of(key, version)]
        end = body_start(data, SIZE_BYTES, len(data), 1, "request")
        acks = None
        short = end is None
        try:
            if end is not None and wanted.acks is not None:
                acks = wanted.acks(data, SIZE_BYTES, len(data), int.from_bytes(data[12:14], "big", signed=True))
                short = acks is None
            elif end is not None and wanted.secret[0]:
                short = tags_go_on(frame, wanted)
        except DecodeError:  # no further bytes make this header good
            short = False
        if short and more and len(data) < min(frame.total, LONGEST_HEAD):
            frame.need_bytes(len(data) + 1 if len(data) < HEAD else 2 * len(data))  # rules look as soon as they can
            return
        self.first = False
        builder.requests += 1
        client_id = str(data[REQUEST_HEAD:end], "utf-8", "replace") if end is not None and data[12] < 0x80 else None
        exchange = builder.begin(correlation, wanted, client_id, now)
        yield_point()
        exchange.arriving, frame.owner = frame, exchange
        if exchange.seen is not None:
            exchange.seen.acks = acks
        if acks == 0:
            builder.open.pop()  # no response will find it
        builder.keep(frame, exchange, 0)

    def over(self, frame: PartialFrame, now: float) -> None:
        exchange = frame.owner
        if (
            not isinstance(exchange, OpenExchange) or exchange.arriving is None
        ):  # a token, or answered before it was whole
            return
        exchange.take_request(now)
        wanted, seen = exchange.wanted, exchange.seen
        if wanted.key == SASL_HANDSHAKE and not wanted.version:
            self.note_mechanism(frame)
        if wanted.key == PRODUCE and seen is not None and seen.acks == 0:
            self.builder.finish(exchange, "no_answer_due", now)

    def note_mechanism(self, frame: PartialFrame) -> None:
        """Note the mechanism of a SaslHandshake v0 request: it decides how many raw tokens follow."""
        start = body_start(frame.data, SIZE_BYTES, len(frame.data), 1, "request") or len(frame.data)
        length = int.from_bytes(frame.data[start : start + 2], "big")
        self.builder.mechanism = str(frame.data[start + 2 : start + 2 + length], "utf-8", "replace")

    def cut(self, now: float) -> None:
        """Take a request under way as it is, since the connection has ended."""
        frame, self.frame = self.frame, None
        if frame is not None and not frame.settled and len(frame.data) >= REQUEST_HEAD:
            self.look_at_header(frame, now, more=False)
        if frame is not None and isinstance(frame.owner, OpenExchange) and frame.owner.arriving is not None:
            exchange = frame.owner
            exchange.take_request(now)
            if exchange.seen is not None and exchange.seen.acks == 0:
                self.builder.give_up(exchange, now)


def tags_go_on(frame: PartialFrame, wanted: Observation) -> bool:
    """Return True if the header's tags go on after the bytes that have arrived. Raises DecodeError."""
    if wanted.key not in schema.paths():
        return False
    form = header_version(wanted.key, wanted.version, "request")
    return body_start(frame.data, SIZE_BYTES, len(frame.data), form, "request") is None


class ResponseStream(FrameStream):
    """Responses of one connection as a stream of frames; a long one that matched a template is a `LongResponse`'s."""

    __slots__ = ()
    direction = RESPONSE

    def advance(self, frame: PartialFrame, now: float) -> None:
        size = frame.size
        if not frame.total:
            frame.total = SIZE_BYTES + max(size, 0)
            if self.builder.raw is not None and self.is_token(frame, size, self.builder.raw):
                return
        if not SMALLEST_RESPONSE <= size <= LARGEST:
            self.lose(size)
        elif len(frame.data) < min(ERROR_HEAD, frame.total):
            frame.need_bytes(ERROR_HEAD)
        else:
            self.find_request(frame)

    def is_token(self, frame: PartialFrame, size: int, raw: RawTokens) -> bool:
        if not raw.broker_sends_token(bool(self.builder.open)):
            self.builder.raw = None
            return False
        if 0 <= size <= MAX_TOKEN:
            raw.from_broker += 1
            frame.fix_length(0)
            yield_point()
        else:
            self.lose(size)
        return True

    def find_request(self, frame: PartialFrame) -> None:
        builder, data = self.builder, frame.data
        entry = builder.open.find(int.from_bytes(data[SIZE_BYTES:RESPONSE_HEAD], "big", signed=True))
        if entry is None:
            builder.unread += 1
            frame.fix_length(0)
            yield_point()
            return
        exchange = builder.materialise(entry)
        frame.owner = exchange
        wanted = exchange.wanted
        if exchange.seen is not None:
            exchange.seen.known_errors = in_order(error_at(wanted.key, wanted.version, data) or 0, ())
            exchange.seen.known_throttle = throttle_at(wanted.key, wanted.version, data)
        if wanted.key == SASL_HANDSHAKE and not wanted.version and data[RESPONSE_HEAD : RESPONSE_HEAD + 2] == NO_ERROR:
            builder.raw = RawTokens(builder.mechanism)
        builder.keep(frame, exchange, 1)

    def over(self, frame: PartialFrame, now: float) -> None:
        owner, builder = frame.owner, self.builder
        if owner is None:
            return
        builder.responses += 1
        if isinstance(owner, OpenExchange):
            owner.take_response(frame, now)
            builder.finish(owner, "answered", now)
        elif builder.summary is not None:
            owner.count(builder.summary, now)

    def cut(self, now: float) -> None:
        """Take a response under way as it is, since the connection has ended."""
        frame, self.frame = self.frame, None
        if frame is not None and not frame.settled and len(frame.data) >= RESPONSE_HEAD:
            self.find_request(frame)
        owner = None if frame is None else frame.owner
        if frame is not None and isinstance(owner, OpenExchange):
            owner.take_response(frame, now)
            self.builder.give_up(owner, now)
        elif isinstance(owner, LongResponse):
            self.builder.give_up(owner.exchange(self.builder.who), now)
