"""TCP connections in a capture: identification of the server, and pairing of frames into exchanges.

A connection that began before the capture, at unknown ports, needs more than one segment: the beginning of a response
can look like an old request. The client is the side that sends an apparent request and then receives a response with
its correlation id. Bytes of the supposed client are kept until then, within bounds.

Brokers respond in order, so a response belongs to the oldest waiting request with its correlation id. A skipped request
had no response, or the response was not captured. If the acks of a Produce are missing, the next response shows whether
it required one. (The observer of live traffic sees every byte and may be strict; here any byte may be missing.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import CutFrame, FrameCutter, acks_of
from kproxy.protocol.pairing import Pairing
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, CONTROLLED_SHUTDOWN, METADATA, PRODUCE, SASL_HANDSHAKE
from kproxy.record.exchange import ExchangeOutcome, Form, Frame, ObservedExchange, TakeExchange
from kproxy.record.observer.credentials import RESPONSE, take_out
from kproxy.record.observer.response_errors import error_at, in_order, throttle_at
from kproxy.session.sasl.identity import software
from kproxy.session.sasl.login import GSSAPI_FIRST, RawTokens

from .captured_connection import NOTHING, CapturedConnection, Note
from .pcapng import Packet
from .tcp_stream import FIN, RST, WHOLE, Segment, StreamDirection

MOST_WAITING = 10_000
"""Requests of a connection without an answer; clients have 5 in flight, some have hundreds."""
NEWER = 4
"""Versions above the newest known that are still taken for a frame's beginning."""
LONGEST_NAME = 1000
"""Bytes of a client id in a frame's beginning; longer ones are possible, and never met."""

_REQUEST = Struct(">hhi").unpack_from
_RESPONSE = Struct(">i").unpack_from
_BEGIN = Struct(">ihhi").unpack_from


def begins_request(data: bytes) -> bool:
    """Return True if bytes look like a request, its length field first."""
    if len(data) < 12:
        return False
    size, key, version, _ = _BEGIN(data)
    if not 8 <= size <= 1 << 27 or key not in schema.paths():
        return False
    if not 0 <= version <= schema.load(key).versions.last + NEWER:
        return False
    if (key, version) == (CONTROLLED_SHUTDOWN, 0) or len(data) < 14:
        return len(data) >= 12
    length = int.from_bytes(data[12:14], "big", signed=True)
    return -1 <= length <= min(size - 10, LONGEST_NAME) and data[14 : 14 + max(length, 0)].isascii()


class ExchangePairing:
    """Pairing of the frames of one connection. `own`: the capture is kproxy's, so raw SASL tokens are not in it.

    `unread`: frames without their beginning. `earlier`: responses to requests before the capture, which are skipped.
    `strangers`: other responses without requests. `tokens`: raw SASL tokens, which are skipped.
    `alien`: the first frame is not Kafka's, so none on the connection is read. `apis`: keys of the requests.
    `early`: correlation ids of `strangers`. `unsure`: a stranger may have a request, because a later request has its
    id, or because more than MOST_WAITING requests waited.
    """

    __slots__ = (
        "alien",
        "apis",
        "earlier",
        "early",
        "matched",
        "own",
        "pending",
        "raw",
        "strangers",
        "take",
        "tokens",
        "unread",
        "unsure",
        "who",
    )

    def __init__(self, who: CapturedConnection, take: TakeExchange, *, own: bool) -> None:
        self.who, self.take, self.own = who, take, own
        self.pending = Pairing(attrgetter("correlation_id"))
        self.raw: RawTokens | None = None
        self.unread = self.strangers = self.earlier = self.tokens = 0
        self.apis: set[int] = set()
        self.early: set[int] = set()
        self.alien = self.matched = self.unsure = False

    def request(self, cut: CutFrame, note: Note) -> None:
        """Take the client's next frame. `note`: the note at its last packet."""
        data = cut.data
        if not (self.who.exchanges or self.alien or self.own):
            self._first(data)
        if self.alien or (self.raw is not None and self._token(cut)):
            return
        if len(data) < 8:
            self.unread += 1
            return
        key, version, correlation_id = _REQUEST(data)
        self.who.exchanges += 1
        self.unsure |= correlation_id in self.early
        if key in schema.paths():
            self.apis.add(key)
        seen = ObservedExchange(
            self.who, self.who.exchanges, key, version, correlation_id, client_id(data, key, version), None
        )
        seen.request = captured_frame(cut, key, version, "request", note, own=self.own)
        if key == PRODUCE:
            seen.acks = note["acks"] if "acks" in note else acks_of(data, version)
        if note:
            self._take_note(seen, note)
        if key == PRODUCE and seen.acks == 0:
            seen.outcome = "no_answer_due"
            self.take(seen)
            return
        self.pending.append(seen)
        if len(self.pending) > MOST_WAITING:
            self.unsure = True
            self._give_up(self.pending.popleft())

    def response(self, cut: CutFrame, note: Note) -> None:
        """Take the broker's next frame. `note`: the note at its last packet."""
        if self.alien:
            return
        if self.raw is not None and self.raw.broker_sends_token(bool(self.pending)):
            self.raw.from_broker += 1
            self.tokens += 1
            return
        if len(cut.data) < 4:
            self.unread += 1
            return
        if "earlier" in note:
            self.earlier += 1
            if note["earlier"] in schema.paths():
                self.apis.add(note["earlier"])
            return
        correlation_id = _RESPONSE(cut.data)[0]
        skipped = self.pending.skip_to(correlation_id)
        if skipped is None:
            # Brokers respond in order. So before the first match the request may precede the capture.
            before = self.who.older and not self.matched
            self.earlier += before
            self.strangers += not before
            if len(self.early) < MOST_WAITING:
                self.early.add(correlation_id)
            else:
                self.unsure = True
            return
        for one in skipped:
            self._give_up(one)
        self.matched = True
        seen = self.pending.popleft()
        if not self.pending:
            self.pending.ids = None  # its `last` entry would keep the exchange alive
        seen.response = captured_frame(cut, seen.key, seen.version, RESPONSE, note, own=self.own)
        seen.outcome = "answered"
        head = bytes(4) + cut.data[:20]
        seen.known_errors = in_order(error_at(seen.key, seen.version, head) or 0, ())
        seen.known_throttle = throttle_at(seen.key, seen.version, head)
        if note:
            self._take_note(seen, note)
        self._learn(seen)
        self.take(seen)

    def begins_response(self, data: bytes) -> bool:
        """Return True if bytes look like the response to a request that waits, their length field first."""
        if len(data) < 8:
            return False
        size, correlation_id = _RESPONSE(data)[0], _RESPONSE(data, 4)[0]
        return 4 <= size <= 1 << 27 and self.pending.place(correlation_id) >= 0

    def end(self) -> None:
        """Give up the requests that wait, since the connection, or the file, is over."""
        while self.pending:
            self._give_up(self.pending.popleft())

    def _give_up(self, seen: ObservedExchange) -> None:
        if seen.outcome != "closed":
            unknown = seen.key == PRODUCE and seen.acks is None
            outcome: ExchangeOutcome = "no_answer_due" if unknown and self.pending else "unanswered"
            seen.outcome = outcome
        self.take(seen)

    def _take_note(self, seen: ObservedExchange, note: Note) -> None:
        if "who" in note:
            self.who.take_note(note["who"])
        seen.rules = note.get("rules", seen.rules)
        seen.answered_by_rule = note.get("responder") == "kproxy"
        if "errors" in note:
            seen.known_errors = in_order(0, note["errors"])._replace(top=note.get("error_at_top", False))
        seen.own_errors = frozenset(note.get("failed", ()))
        seen.rule_wait = note.get("rule_wait", seen.rule_wait)
        seen.other_wait = note.get("other_wait", seen.other_wait)
        known = seen.known_throttle, seen.throttler, seen.mute
        seen.known_throttle, seen.throttler, seen.mute = note.get("throttle", known)
        seen.outcome = note.get("outcome", seen.outcome)

    def _first(self, data: bytes) -> None:
        """Decide by the first frame: Kafka's, or a token of a client of Kafka 0.9, or of another protocol."""
        if data[:1] == bytes([GSSAPI_FIRST]):
            self.raw = self.raw or RawTokens("GSSAPI")
        elif len(data) >= 8 and self.raw is None:
            self.alien = _REQUEST(data)[0] not in schema.paths()

    def _token(self, cut: CutFrame) -> bool:
        assert self.raw is not None, "asked only then"
        if not self.raw.client_sends_token(cut.size - 4, cut.data[0] if cut.data else -1):
            if self.raw.answered or self.raw.rounds is None:  # the client speaks Kafka now: no further tokens follow
                self.raw = None
            return False
        self.raw.from_client += 1
        self.tokens += 1
        return True

    def _learn(self, seen: ObservedExchange) -> None:
        """Store the context that later frames need: topic ids' names, the client's software, raw SASL."""
        if seen.key == METADATA:
            self.who.names.learn(seen.response_body)
        elif seen.key == API_VERSIONS and seen.version >= 3 and self.who.software_name is None:
            client_software = software(seen.request_body or {})
            if client_software is not None:
                self.who.software_name, self.who.software_version = client_software.name, client_software.version
        elif seen.key == SASL_HANDSHAKE and seen.version == 0 and not self.own:
            response, request = seen.response_body, seen.request_body
            if response is not None and request is not None and not response["error_code"]:
                self.raw = RawTokens(request["mechanism"])


def client_id(data: bytes, key: int, version: int) -> str | None:
    """Return the client id of a request; None if it is null, absent, or not all captured."""
    if len(data) < 10 or (key, version) == (CONTROLLED_SHUTDOWN, 0) or key not in schema.paths():
        return None
    length = data[8] << 8 | data[9]
    if length >= 0x8000 or len(data) < 10 + length:
        return None
    return data[10 : 10 + length].decode("utf-8", "replace")


def captured_frame(cut: CutFrame, key: int, version: int, direction: str, note: Note, *, own: bool) -> Frame:
    """Return the frame without credentials; kproxy's own captures have none."""
    data, withheld = cut.data, note.get("withheld", "")
    if not own:
        try:
            data, withheld = take_out(data, key, version, direction)
        except DecodeError as error:
            data, withheld = b"", str(error)
    whole = len(data) == cut.size - 4
    form = Form.WHOLE if whole else Form.NONE if not data else Form.SKETCH if "sketch" in note else Form.HEAD
    return Frame(cut.size, cut.first, cut.last, data, form, withheld)


BOTH = 3


class TcpConnection:
    """TCP connection of a capture that is being read.

    `client`: its packed address and port. `begun_before`: its beginning is not in the capture. `last`: time of the last
    segment. Of both directions, the client's comes first.
    """

    __slots__ = (
        "client", "cutters", "directions", "ended", "exchanges", "fins", "gap_from", "gap_to", "initial", "last",
        "takers", "who",
    )  # fmt: skip

    def __init__(
        self, who: CapturedConnection, client: tuple[bytes, int], take: Callable[[ObservedExchange], None], *,
        most: int, own: bool, begun_before: bool,
    ) -> None:  # fmt: skip
        self.who, self.client = who, client
        who.older = begun_before
        self.exchanges = ExchangePairing(who, take, own=own)
        self.cutters = (
            FrameCutter(0, keep=most, gaps=begins_request, lost=begun_before),
            FrameCutter(0, keep=most, gaps=self.exchanges.begins_response, lost=begun_before),
        )
        self.directions = (StreamDirection(), StreamDirection())
        self.takers = (self.exchanges.request, self.exchanges.response)
        self.initial: list[int | None] = [None, None]
        self.fins: list[int | None] = [None, None]
        """Sequence numbers behind the last bytes, as the ends of both directions have them."""
        self.ended = 0
        self.last = who.opened
        self.gap_from: float | None = None
        self.gap_to: float | None = None
        """Seconds since 1970 of the first and the last piece with missing bytes."""

    def begin(self, side: int, sequence: int) -> bool:
        """Take a SYN of this side; False if it is not this connection's, because the ports are used again."""
        initial = self.initial[side]
        if initial is None and self.directions[side].next < 0:
            self.initial[side] = sequence
            self.directions[side].begin(sequence)
            return True
        return initial == sequence

    def receive(self, segment: Segment, time: float, note: Note) -> bool:
        """Take a segment, and return True if the connection is over now.

        `note`: the note at the packet, about the frame that ends in it.
        """
        self.last = time
        side = 0 if (segment.source, segment.source_port) == self.client else 1
        direction = self.directions[side]
        if segment.size:
            cutter, take = self.cutters[side], self.takers[side]
            for piece in direction.receive(segment.sequence, segment.data, segment.size, time):
                if piece.missing:
                    self.gap_from, self.gap_to = min(piece.time, self.gap_from or piece.time), time
                frames = cutter.receive(*piece)
                for cut in frames:
                    take(cut, note if note and cut is frames[-1] else NOTHING)
        if segment.flags & RST:
            return True
        if segment.flags & FIN:
            self.fins[side] = (segment.sequence + segment.size) % WHOLE
        fin = self.fins[side]
        if fin is not None and direction.next in (fin, -1):
            self.ended |= 1 << side
        return self.ended == BOTH

    @property
    def has_all_requests(self) -> bool:
        """Return True if the capture has all bytes of the client, from its SYN to its FIN."""
        begun, end, sent = self.initial[0], self.fins[0], self.directions[0]
        return not self.damaged and begun is not None and end is not None and sent.next == end

    @property
    def damaged(self) -> bool:
        """Return True if frames of the connection may be missing between those that were read."""
        lost = any(direction.gaps for direction in self.directions) or any(one.lost_places for one in self.cutters)
        return lost or bool(self.exchanges.unread)

    def finish(self, time: float | None) -> None:
        """Take what waited for missing bytes without them: the connection or the capture (`time` None) is over."""
        for side, direction in enumerate(self.directions):
            for piece in direction.give_up():
                if piece.missing:
                    self.gap_from, self.gap_to = min(piece.time, self.gap_from or piece.time), self.last
                for cut in self.cutters[side].receive(*piece):
                    self.takers[side](cut, NOTHING)
        self.exchanges.end()
        self.who.over = time


MOST = 1000
"""Pairs of addresses that are undecided; of more, the one that was met first is forgotten."""
MOST_SEGMENTS = 64
"""Kept of a supposed request; a longer one is forgotten, and the next one is waited for."""

FlowKey = tuple[int, bytes, int, bytes, int]


class KeptSegment(NamedTuple):
    """Segment that is kept, with the packet it came in."""

    segment: Segment
    packet: Packet


@dataclass(slots=True)
class SupposedClient:
    """Connection with a supposed client. `key`: with the client first; None as long as no request was met."""

    key: FlowKey | None = None
    correlation_id: bytes = b""
    kept: list[KeptSegment] = field(default_factory=list)


class UndecidedConnections:
    """Connections of a capture whose client is not identified yet. `len` includes the evicted ones."""

    def __init__(self) -> None:
        self.by_pair: BoundedMap[FlowKey, SupposedClient] = BoundedMap(MOST, SupposedClient)

    def __len__(self) -> int:
        return len(self.by_pair) + self.by_pair.evicted

    def meet(self, there: FlowKey, back: FlowKey, kept: KeptSegment) -> tuple[FlowKey, list[KeptSegment]] | None:
        """Take a segment on the way `there`.

        Once the client is known, returns the key with the client first, and all segments that were kept.
        """
        pair = min(there, back)
        supposed = self.by_pair[pair]
        data = kept.segment.data
        if supposed.key == back and data[4:8] == supposed.correlation_id:
            del self.by_pair[pair]
            return back, [*supposed.kept, kept]
        if begins_request(data) and len(data) >= 12:
            supposed.key, supposed.correlation_id, supposed.kept = there, data[8:12], [kept]
        elif supposed.key == there:
            supposed.kept.append(kept)
            if len(supposed.kept) > MOST_SEGMENTS:
                supposed.key, supposed.kept = None, []
        return None

    def forget(self, there: FlowKey, back: FlowKey) -> None:
        """Remove a connection whose client a SYN has identified."""
        self.by_pair.pop(min(there, back), None)
