"""The lane from broker to client: every response meets its request at the FIFO's head, and passes or is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kproxy.core.commands import BROKER, CLIENT
from kproxy.core.identity import ANSWERED
from kproxy.core.inflight import ANSWER, OWN
from kproxy.core.names import DISGUISED, OPENS, learn_session
from kproxy.core.rewrite import Buffer, Pieces
from kproxy.core.sasl import MAX_TOKEN, RawTokens
from kproxy.core.step import LIVE, STREAM, Step
from kproxy.errors import DecodeError
from kproxy.wire.breath import rest
from kproxy.wire.scan.frames import RESPONSE_BEGINS
from kproxy.wire.scan.head import body_start
from kproxy.wire.table.api_keys import API_VERSIONS, SASL_HANDSHAKE

from .frame import Blocked, Changed, Halt, Keep, Streaming
from .lane import Lane
from .response_rules import ResponseRules
from .tail_stream import TailStream

if TYPE_CHECKING:
    from kproxy.core.inflight import Entry
    from kproxy.core.memory import HeldMemory
    from kproxy.core.session import Session

HEADER = RESPONSE_BEGINS.unpack_from
HEADER_BYTES = 8
SMALLEST = 4
"""A correlation id. Clients set no upper limit on responses, so neither do we (Fetch is bounded by its max_bytes)."""
STREAM_HEAD = 16
"""Enough of a streamed response for its header: size, correlation id, an empty tag buffer, and some."""
LONGEST_HEAD = 65536
"""No tags make a header longer than this."""
NO_ERROR = b"\x00\x00"
STOPPED: Final[Pieces] = []
TLS_WORDS = (b"\x15\x03", b"\x16\x03")
"""How what a TLS server says begins: an alert, or a handshake (RFC 8446 section 5.1)."""
NOT_PLAIN = "broker speaks TLS, and its cluster has no tls in the config"


class ResponseLane(Lane):
    """Response lane of one connection. `scan` is `scan_frames`, or `scan_tokens` while raw SASL tokens may come."""

    source, target = BROKER, CLIENT
    rules: ResponseRules | None = None  # made when live rules look at a frame

    def __init__(self, session: Session, memory: HeldMemory) -> None:
        super().__init__(session, memory)
        self.fifo = session.inflight.fifo
        self.scan = self.scan_frames

    def scan_frames(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        fifo = self.fifo
        last = n - HEADER_BYTES
        counted, since, run = None, now, 0  # responses to requests of one step and one read are counted together
        try:
            while pos <= last:
                size, correlation = HEADER(buf, pos)
                if not fifo or size < SMALLEST:
                    return self.unexpected(buf, pos, n, size, correlation)
                entry = fifo[0]
                expected, step, then, _ = entry
                if correlation != expected:
                    return self.unexpected(buf, pos, n, size, correlation)
                after = pos + size + 4
                if (
                    step.response is not None
                    and (step.clean is None or after > n or not step.clean(buf, pos, after))
                    and not self.look(entry, buf, pos, n, size, now)
                ):
                    return pos
                fifo.popleft()
                if step is counted and then == since:
                    run += 1
                else:
                    if counted is not None:
                        counted.latency.add(now - since, run)
                    counted, since, run = step, then, 1
                pos = after
        finally:
            if counted is not None:
                counted.latency.add(now - since, run)
        if pos >= n:
            self.skip = pos - n
            return n
        self.halt = Keep(HEADER_BYTES)
        return pos

    # ---- responses that are looked at

    def look(self, entry: Entry, buf: Buffer, pos: int, n: int, size: int, now: float) -> bool:
        """Look at a response that is not opaque. Return True if it passes; the caller takes it off the FIFO."""
        rest()
        step, end = entry[1], pos + 4 + size
        if step is ANSWER:
            self.halt = Changed(self.session.inflight.ready_answers(), pos)
            return False
        if step.response == LIVE:
            if self.rules is None:
                self.rules = ResponseRules(self)
            return self.rules.look(entry, buf, pos, n, size, now)
        note = entry[3]
        if note is not None and step is not OWN and OPENS in note:
            need = learn_session(step.version, buf, pos, n, end, self.session.context)
            if need:
                self.halt = Keep(need)
                return False
        return self.look_plainly(entry, buf, pos, n, size, now)

    def look_plainly(self, entry: Entry, buf: Buffer, pos: int, n: int, size: int, now: float) -> bool:
        """Look at a response as `look` does, when no live rule has to see it first."""
        step, end = entry[1], pos + 4 + size
        ids = step.by_id and DISGUISED in self.session.context.memory
        if step.by_id and not ids and (step.only_ids or (step.no_nodes and end <= n and step.no_nodes(buf, pos, end))):
            return True
        if step.lone_response is not None and (step.no_nodes is None or (end <= n and step.no_nodes(buf, pos, end))):
            passes = self.splice(step.lone_response, buf, pos, n, end)
            if passes is False and not isinstance(self.halt, Keep):
                self.fifo.popleft()
                step.latency.add(now - entry[2])
            if passes is not None:
                return passes
        if end > n:
            if step.response == STREAM and size > self.session.shared.hold_up_to and not ids:
                self.begin_stream(entry, buf, pos, n, size, now)
            else:
                self.halt = Keep(4 + size, hold=True)
            return False
        if step is OWN:
            self.session.inflight.fifo.popleft()
            self.halt = Changed([], end)
            self.session.own_answer(bytes(buf[pos + 4 : end]), entry[3], now)
            return False
        if step.watched and step.key in ANSWERED:
            self.session.identity.response(step, bytes(buf[pos + 4 : end]))
            self.session.identified()
        if step.key == SASL_HANDSHAKE and step.version == 0:
            return self.begin_tokens(entry, buf, pos, end)
        pieces = self.rewritten(step, entry[3], buf, pos, end)
        if pieces is STOPPED or pieces is None:
            return pieces is None
        self.session.inflight.fifo.popleft()
        step.latency.add(now - entry[2])
        self.halt = Changed(pieces, end)
        return False

    def rewritten(self, step: Step, note: Any, buf: Buffer, pos: int, end: int) -> Pieces | None:
        """Return the whole response with the proxy's addresses and the client's names, size in front; None: as it came.

        STOPPED: it cannot go on, or not yet; `halt` says so, or the connection is being closed.
        """
        session = self.session
        if step.key == API_VERSIONS:
            return session.plan.versions.cap(step.version, bytes(buf[pos + 4 : end]), session.counters)
        if step.rewrite_response is None:
            return None
        context = session.context
        context.note = note
        if note is not None and OPENS in note:  # an answer that rules look at has not been looked at before
            learn_session(step.version, buf, pos, end, end, context)
        try:
            pieces = step.rewrite_response.rewrite(buf, pos + 4, end, context)
        except DecodeError as error:
            session.close("decode", f"response that has to be rewritten: {error}", "broker")
            return STOPPED
        if context.incomplete:
            self.halt = Blocked()
            return STOPPED
        context.done()
        return None if pieces is None else [sum(map(len, pieces)).to_bytes(4, "big"), *pieces]

    def begin_stream(self, entry: Entry, buf: Buffer, pos: int, n: int, size: int, now: float) -> None:
        """Take the request off the FIFO and let its response stream, or ask for more bytes of the response's header."""
        step = entry[1]
        have = n - pos
        body = body_start(buf, pos + 4, n, 1, "response") if have >= STREAM_HEAD else None
        if body is None:
            if have < LONGEST_HEAD:
                self.halt = Keep(min(max(STREAM_HEAD, 2 * have), 4 + size))
            else:
                self.session.close("decode", f"{step.api} response header does not end in {have} bytes", "broker")
            return
        self.session.inflight.fifo.popleft()
        step.latency.add(now - entry[2])
        self.halt = Streaming(TailStream(self, step, pos + 4 + size - body), body)

    def treat_tail(self, stream: TailStream, tail: bytearray, now: float) -> Halt:
        context = self.session.context
        context.note = None
        try:
            changed = stream.rewrite_tail(memoryview(tail)[: stream.length], context)
        except DecodeError as error:
            self.session.close("decode", f"response that has to be rewritten: {error}", "broker")
            return Changed([], len(tail))
        if context.incomplete:
            return Blocked()
        context.done()
        return Changed([tail[: stream.length] if changed is None else changed], stream.length)

    # ---- raw SASL tokens

    def begin_tokens(self, entry: Entry, buf: Buffer, pos: int, end: int) -> bool:
        """Look at the answer to a SaslHandshake v0: when it says yes, tokens follow in both directions."""
        if end >= pos + 10 and bytes(buf[pos + 8 : pos + 10]) == NO_ERROR:
            self.session.begin_raw(RawTokens(entry[3]["mechanism"]))
        return True

    def scan_tokens(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Scan raw SASL tokens of the broker until it speaks Kafka again; return where the bytes end that pass."""
        raw = self.session.raw
        assert raw is not None
        while n - pos >= 4:
            if not raw.broker_sends_token(bool(self.session.inflight.fifo)):
                self.session.end_raw()
                return self.scan(buf, pos, n, now)
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= MAX_TOKEN:
                self.session.close("frame_size", f"SASL token of {size} bytes, expected 0 to {MAX_TOKEN}", "broker")
                return pos
            if not self.watch_token(buf, pos, n, size):
                return pos
            raw.from_broker += 1
            self.session.identified()
            pos += 4 + size
            if pos >= n:
                self.skip = pos - n
                return n
        self.halt = Keep(4)
        return pos

    # ---- responses that nobody waits for

    @property
    def speaks_tls(self) -> bool:
        """Return True if the kept bytes are no frame, but an alert of TLS, which is shorter than a frame's header."""
        return self.kept is not None and bytes(self.kept[:2]) in TLS_WORDS and not self.blocked

    def unexpected(self, buf: Buffer, pos: int, n: int, size: int, correlation: int) -> int:
        """Deal with a size out of range, or with a correlation id that is not the oldest one waiting (promise 2)."""
        session = self.session
        if bytes(buf[pos : pos + 2]) in TLS_WORDS and not session.inflight.expects_no_answer(correlation):
            session.close("not_kafka", NOT_PLAIN, "broker")
            return pos
        if size < SMALLEST:
            text = f"response frame of {size} bytes, expected at least {SMALLEST}"
            session.close("frame_size", text, "broker")
            return pos
        if session.inflight.expects_no_answer(correlation):
            end = pos + 4 + size
            if end > n:
                self.halt = Keep(4 + size, hold=True)
                return pos
            session.inflight.got_one_all_the_same(correlation)
            session.counters.count("acks0_response_dropped")
            self.halt = Changed([], end)
            return pos
        fifo = session.inflight.fifo
        if fifo and fifo[0][1] is ANSWER:
            self.halt = Changed(session.inflight.ready_answers(), pos)
            return pos
        expected = f"expected {fifo[0][0]} ({fifo[0][1].api})" if fifo else "and none is awaited"
        session.close("correlation", f"response with correlation id {correlation}, {expected}", "broker")
        return pos
