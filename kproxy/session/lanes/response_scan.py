"""Responses in the order of their bytes: the loop that pairs each with its request at the FIFO's head."""

from __future__ import annotations

from typing import Any

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import RESPONSE_BEGINS
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.frame import ANSWER, PASS, Disposition, Need, Reject, Replace, ResponseView, Wait
from kproxy.session.held_memory import HeldMemory
from kproxy.session.plan import Step
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rewrite.names import OPENS, learn_session
from kproxy.session.rewrite.rewriter import Pieces
from kproxy.session.sasl.identity import ANSWERED
from kproxy.session.sasl.login import MAX_TOKEN

from .lane import Lane, NewHeads
from .services import LaneHost

HEADER = RESPONSE_BEGINS.unpack_from
HEADER_BYTES = 8
SMALLEST = 4
"""A correlation id. Clients set no upper limit on responses, so neither do we (Fetch is bounded by its max_bytes)."""
TLS_WORDS = (b"\x15\x03", b"\x16\x03")
"""First bytes of a TLS server: an alert, or a handshake (RFC 8446 section 5.1)."""
NOT_PLAIN = "broker requires TLS, and its cluster has no tls in the config"


class ResponseScan(Lane):
    """Scan of one connection's responses: takes those that pass off the FIFO, and hands the others to `handle`.

    `scan` is `scan_frames`, or `scan_tokens` while raw SASL tokens may come.
    """

    source, target = BROKER, CLIENT

    def __init__(self, session: LaneHost, memory: HeldMemory) -> None:
        super().__init__(session, memory)
        self.fifo = session.inflight.fifo
        self.scan = self.scan_frames

    def handle(self, frame: ResponseView) -> Disposition:
        """Return the disposition of a response that is not opaque; the scan takes one that passes off the FIFO."""
        raise NotImplementedError

    def scan_frames(  # noqa: C901, PLR0912  # in one piece, for every call costs
        self, buf: Buffer, pos: int, n: int, now: float
    ) -> int:
        fifo = self.fifo
        last = n - HEADER_BYTES
        came = now - self.waited(pos)  # the time that responses waited here is not the broker's
        counted, since, run = None, now, 0  # responses to requests of one step and one read are counted together
        new: NewHeads | None = None
        try:
            while pos <= last:
                size, correlation = HEADER(buf, pos)
                if not fifo or size < SMALLEST or correlation != fifo[0][0]:
                    if new is not None:
                        break
                    return self.stop(self.unexpected(buf, pos, n, size, correlation), pos)
                entry = fifo[0]
                _, step, then, note = entry
                after = pos + size + 4
                if step.response is not None and (step.clean is None or after > n or not step.clean(buf, pos, after)):
                    if (
                        (heads := step.response_heads) is not None
                        and note is None
                        and (step.no_nodes is None or (after <= n and step.no_nodes(buf, pos, after)))
                        and (met := heads.met_before(buf, pos + HEADER_BYTES, min(n, after)))
                    ):
                        stop, head = met
                        if head.changes:
                            if new is None:
                                new = NewHeads(pos)
                            new.write(buf, pos, size, stop, head)
                    elif new is not None:
                        break  # before anything is done with this frame, those before it go on
                    else:
                        disposition = self.handle(ResponseView(entry, buf, pos, n, size, now))
                        if disposition is not PASS:
                            self.disposition = disposition
                            return pos
                fifo.popleft()
                if step is counted and then == since:
                    run += 1
                else:
                    if counted is not None:
                        counted.latency.add(came - since, run)
                    counted, since, run = step, then, 1
                pos = after
        finally:
            if counted is not None:
                counted.latency.add(came - since, run)
        if new is not None:
            return self.stop_at_new(new, pos)
        if pos >= n:
            self.skip = pos - n
            return n
        return self.stop(Need(HEADER_BYTES), pos)

    # ---- stages of a response that is looked at

    def rewritten(self, frame: ResponseView, step: Step, note: Any) -> Pieces | Wait | Reject | None:
        """Return the whole response with the proxy's addresses and the client's names, with its size; None: unchanged.

        `step` is the plain one, and `note` the state of the request's rewrite.
        """
        context = self.session.context
        if step.key == API_VERSIONS:
            content, versions = frame.content(), self.session.plan.versions
            if self.session.telemetry is not None:
                self.session.telemetry.see_versions(versions.telemetry(step.version, content))
            return versions.cap(step.version, content, self.session.counters)
        if step.rewrite_response is None:
            return None
        buf, start, end = frame.buf, frame.start, frame.end
        context.note, context.looked_up = note, self.looked_up
        if note is not None and OPENS in note:  # a response that rules read has not been decoded before
            learn_session(step.version, buf, start, end, end, context)
        try:
            pieces = step.rewrite_response.rewrite(buf, start + 4, end, context)
        except DecodeError as error:
            return Reject("decode", f"response that has to be rewritten: {error}", "broker")
        if isinstance(pieces, NeedsLookup):
            return Wait(pieces)
        self.looked_up = None
        context.evict_nodes()
        return None if pieces is None else [sum(map(len, pieces)).to_bytes(4, "big"), *pieces]

    def identify(self, frame: ResponseView, plain: Step) -> None:
        """Record the identity from a whole response that contains it."""
        if plain.watched and plain.key in ANSWERED:
            self.session.identity.response(plain, frame.content())
            self.session.logins.note_answer()

    def release(self, frame: ResponseView) -> None:
        """Remove the oldest request from the FIFO and count the broker's time: its response leaves, changed or not."""
        self.fifo.popleft()
        self.session.inflight.release_last()
        frame.step.latency.add(frame.now - self.waited(frame.start) - frame.entry[2])

    # ---- raw SASL tokens

    def scan_tokens(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Scan raw SASL tokens of the broker until it speaks Kafka again; return where the bytes end that pass."""
        raw = self.session.logins.raw
        assert raw is not None
        while n - pos >= 4:
            yield_point()  # a read may have 65,000 empty tokens
            if not raw.broker_sends_token(bool(self.session.inflight.fifo)):
                self.session.logins.end_raw()
                return self.scan(buf, pos, n, now)
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= MAX_TOKEN:
                text = f"SASL token of {size} bytes, expected 0 to {MAX_TOKEN}"
                return self.stop(Reject("frame_size", text, "broker"), pos)
            if not self.watch_token(buf, pos, n, size):
                return pos
            raw.from_broker += 1
            self.session.logins.note_answer()
            pos += 4 + size
            if pos >= n:
                self.skip = pos - n
                return n
        return self.stop(Need(4), pos)

    # ---- responses that nobody waits for

    @property
    def speaks_tls(self) -> bool:
        """Return True if the kept bytes are a TLS alert, which is shorter than a frame's header."""
        return self.kept is not None and bytes(self.kept[:2]) in TLS_WORDS and not self.blocked

    def unexpected(self, buf: Buffer, pos: int, n: int, size: int, correlation: int) -> Disposition:
        """Return the disposition of a frame with a size out of range, or with a correlation id that is not the oldest
        one waiting (promise 2)."""
        inflight, fifo = self.session.inflight, self.fifo
        if bytes(buf[pos : pos + 2]) in TLS_WORDS and not inflight.is_unanswered(correlation):
            return Reject("not_kafka", NOT_PLAIN, "broker")
        if size < SMALLEST:
            return Reject("frame_size", f"response frame of {size} bytes, expected at least {SMALLEST}", "broker")
        if inflight.is_unanswered(correlation):
            end = pos + 4 + size
            if end > n:
                return Need(4 + size, hold=True)
            inflight.forget_unanswered(correlation)
            self.session.counters.count("acks0_response_dropped")
            return Replace([], end)
        if fifo and fifo[0][1] is ANSWER:
            return Replace(inflight.take_answers(), pos)
        expected = f"expected {fifo[0][0]} ({fifo[0][1].api})" if fifo else "and none is awaited"
        return Reject("correlation", f"response with correlation id {correlation}, {expected}", "broker")
