"""The lane from client to broker: every request is told apart, entered in the FIFO, and passed, changed or stopped."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from kproxy.core.commands import BROKER, CLIENT
from kproxy.core.identity import ANSWERED
from kproxy.core.inflight import ANSWER
from kproxy.core.rewrite import Buffer
from kproxy.core.sasl import GSSAPI_FIRST, MAX_TOKEN, RawTokens
from kproxy.core.step import HEAD, LIVE, STOP, Step
from kproxy.core.topics import fresh_topics, topics_heard
from kproxy.core.versions import unsupported
from kproxy.errors import DecodeError
from kproxy.wire.breath import rest
from kproxy.wire.scan.frames import REQUEST_HEAD
from kproxy.wire.scan.head import body_start
from kproxy.wire.table.api_keys import API_VERSIONS, SASL_HANDSHAKE

from .frame import IDENTITY, Blocked, Changed, Keep
from .frame_templates import CLIENT_ID, FrameTemplate
from .lane import Lane
from .request_rules import RequestRules, remembered_bytes

if TYPE_CHECKING:
    from kproxy.core.inflight import Entry
    from kproxy.core.memory import HeldMemory
    from kproxy.core.names.lone import LoneName
    from kproxy.core.session import Session

HEADER = REQUEST_HEAD.unpack_from
HEADER_BYTES = 14
SHORT_HEAD = Struct(">BBh").unpack_from  # head of a flexible Produce: no tags, no transactional id, acks
SMALLEST = 10
"""Request header v1 with a null client id. ControlledShutdown v0 lacks the client id but has four bytes of body."""
REMEMBERED_BYTES = 1 << 20
"""A client is not read while requests of more bytes are in flight of which rules remember something, save for one: the
names and partitions in them take forty times as much. Records are not kept, so a Produce weighs less."""
LONGEST_HEAD = 135000
"""Client id and transactional id have at most 32767 bytes each, tags of the header about as much: more is no head."""
HTTP_WORDS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PRI ")
PROXY_HEADERS = (b"PROX", b"\r\n\r\n")
"""How headers of both versions begin; whose are believed are read before a session begins."""


class RequestLane(Lane):
    """Request lane of one connection. `scan` is `scan_first`, then `scan_frames`; `scan_tokens` while raw SASL tokens
    may come. The session puts others in their place while somebody logs in; `usual_scan` is what it goes back to."""

    source, target = CLIENT, BROKER
    rules: RequestRules | None = None  # made when live rules look at a frame
    template: FrameTemplate | None = None  # template of the last request that no rule acted on, if such may pass

    def __init__(self, session: Session, memory: HeldMemory, limit: int) -> None:
        super().__init__(session, memory)
        self.plan, self.fifo, self.most = session.plan, session.inflight.fifo, session.shared.max_frame_bytes
        self.limit = limit  # requests in flight beyond which the client is not read
        self.resumes_at = limit // 2  # requests in flight with which it is read again
        self.remembered = 0  # bytes of requests that rules remember, and of some answered since
        self.scan = self.usual_scan = self.scan_first

    def scan_frames(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        plan, fifo, most = self.plan, self.fifo, self.most
        last = n - HEADER_BYTES
        while pos <= last:
            size, code, correlation, id_length = HEADER(buf, pos)
            if not SMALLEST <= size <= most:
                return self.bad_size(buf, pos, size)
            step = plan[code]
            how = step.request
            if how is None:
                fifo.append((correlation, step, now, None))
            elif how == HEAD:
                at, acks = pos + HEADER_BYTES + id_length, None
                if step.flexible and id_length >= 0 and at + 4 <= n:  # in line, for it is nearly every Produce request
                    tags, transactional, acks = SHORT_HEAD(buf, at)
                    acks = None if tags or transactional else acks
                if acks is None:
                    acks = step.acks(buf, pos + 4, n, id_length)  # type: ignore[misc]  # HEAD steps have it
                    if acks is None:
                        return self.need_more_head(pos, n, size)
                if acks:
                    fifo.append((correlation, step, now, None))
                else:
                    self.session.inflight.asks_no_answer(correlation)
            elif (
                how == LIVE
                and (known := self.template) is not None
                and known.step is step
                and pos + known.end <= n
                and known.read(buf, pos + CLIENT_ID)[0] == known.head
                and (not known.waiting or self.rules.none_fires(known, now))  # type: ignore[union-attr]  # it learnt it
            ):
                if known.answered:
                    fifo.append((correlation, step.plain, now, None))
                else:
                    self.session.inflight.asks_no_answer(correlation)
            elif self.look(step, buf, pos, n, now):
                plan = self.plan  # the frame may have waited while another one came
            else:
                return pos
            step.tally.requests += 1
            pos += size + 4
        if len(fifo) > self.limit:
            self.session.full()
        if pos >= n:
            self.skip = pos - n
            return n
        self.halt = Keep(HEADER_BYTES)
        return pos

    # ---- frames that are looked at

    def look(self, step: Step, buf: Buffer, pos: int, n: int, now: float) -> bool:
        """Look at a request that is stopped, or needed whole. Return True if it passes, entered in the FIFO."""
        rest()
        session = self.session
        if step.request == LIVE:
            if self.rules is None:
                self.rules = RequestRules(self)
            return self.knows_client() and self.rules.look(step, buf, pos, n, now)
        if step.request == STOP:
            session.counters.stopped[step.api] += 1
            if self.plan.refusal(step.key, step.version):
                session.counters.count("stopped_by_rule")
            session.close("stopped", step.stop, "client")
            return False
        size, _, correlation, id_length = HEADER(buf, pos)
        end = pos + 4 + size
        if step.lone_request is not None:
            passes = self.put_name(step, step.lone_request, buf, pos, n, now)
            if passes is not None:
                return passes
        if end > n:
            self.halt = Keep(4 + size, hold=True)
            return False
        if session.sasl is not None and step.key in ANSWERED:
            frame = session.sasl.answer(step, correlation, bytes(buf[pos + 4 : end]), now)
            step.tally.requests += 1
            if frame is not None:
                self.answer(correlation, frame, now)
            self.halt = Changed([], end)
            return False
        if (step.watched or step.key == API_VERSIONS) and not self.identify(step, buf, pos, end, correlation, now):
            return False
        if step.rewrite_request is not None:
            return self.rewrite(step, buf, pos, end, id_length, now)
        if step.key == SASL_HANDSHAKE and not step.version:
            return self.note_mechanism(step, buf, pos, end, now)
        self.enter(correlation, step, now, None)
        return True

    def knows_client(self) -> bool:
        """Return True if rules that go by the client's principal can judge the frame at hand. If not, it waits for the
        broker's answer about the principal, or the connection is closed, for it will never be known."""
        session = self.session
        if not session.plan.by_principal or (self.rules is not None and self.rules.has_begun):
            return True
        if session.identity.lost:
            session.close("authentication", "a rule goes by the principal, which SASL's messages do not tell", "client")
            return False
        if session.authenticates:
            self.halt = Blocked(IDENTITY)
            return False
        return True

    def identify(self, step: Step, buf: Buffer, pos: int, end: int, correlation: int, now: float) -> bool:
        """Look at a request that says who the client is. Return False if it does not pass."""
        if not step.watched:  # ApiVersions of a version that is not known
            self.answer(correlation, unsupported(correlation, self.plan.newest_api_versions), now)
            self.halt = Changed([], end)
            return False
        frame = bytes(buf[pos + 4 : end])
        if step.key == API_VERSIONS and self.session.is_own_question(frame):
            return False
        self.session.identity.request(step, frame)
        return True

    def put_name(self, step: Step, lone: LoneName, buf: Buffer, pos: int, n: int, now: float) -> bool | None:
        """Pass a Produce request of one topic on as soon as the topic's name is replaced. None: the whole frame is
        needed."""
        size, _, correlation, id_length = HEADER(buf, pos)
        end = pos + 4 + size
        acks = step.acks(buf, pos + 4, min(n, end), id_length) if step.acks is not None else None
        passes = self.splice(lone, buf, pos, n, end)
        if passes is None or isinstance(self.halt, Keep):
            return passes
        assert acks is not None, "acks stands before the name"
        self.enter(correlation, step, now, None, acks != 0)
        step.tally.requests += not passes  # the scan counts those that pass
        return passes

    def rewrite(self, step: Step, buf: Buffer, pos: int, end: int, id_length: int, now: float) -> bool:
        session, context = self.session, self.session.context
        assert step.rewrite_request is not None
        context.note = None
        context.now = now
        context.known_topics = fresh_topics(context.cluster_memory, now)
        context.topics_heard = topics_heard(context.cluster_memory)
        try:
            pieces = step.rewrite_request.rewrite(buf, pos + 4, end, context)
        except DecodeError as error:
            session.close("decode", str(error), "client")
            return False
        if context.incomplete:
            self.halt = Blocked()
            return False
        context.has_asked = False
        correlation = int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True)
        answered = step.acks is None or step.acks(buf, pos + 4, end, id_length) != 0
        self.enter(correlation, step, now, context.note, answered)
        if pieces is None:
            return True
        step.tally.requests += 1
        length = sum(map(len, pieces))
        self.halt = Changed([length.to_bytes(4, "big"), *pieces], end)
        return False

    def answer(self, correlation: int, frame: bytes, now: float) -> None:
        """Enter an answer of kproxy's own in the FIFO; it leaves when its turn comes."""
        if self.session.observer is not None:
            older = self.session.inflight.older(correlation)
            self.session.observer.acted(correlation, (), answered=True, older=older)
        self.fifo.append((correlation, ANSWER, now, frame))
        self.session.has_pending = True
        if len(self.fifo) > self.limit:
            self.session.full()

    def note_mechanism(self, step: Step, buf: Buffer, pos: int, end: int, now: float) -> bool:
        """Note the mechanism of a SaslHandshake v0, which tells how many raw tokens follow."""
        start = body_start(buf, pos + 4, end, 1, "request") or end
        length = int.from_bytes(buf[start : min(start + 2, end)], "big")
        mechanism = bytes(buf[start + 2 : min(start + 2 + length, end)])
        note = {"mechanism": mechanism.decode("utf-8", "replace")}
        correlation = int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True)
        self.enter(correlation, step, now, note)
        return True

    def enter(
        self, correlation: int, step: Step, now: float, note: dict[str, Any] | None, answered: bool = True
    ) -> None:
        """Enter a request that was looked at in the FIFO. `answered`: a response is due."""
        entry: Entry = (correlation, step, now, note)
        rules = self.rules
        if rules is not None and (rules.evaluation is not None or rules.watched is not None):
            entry = rules.entry(correlation, step, now, note, answered)
        if answered:
            self.fifo.append(entry)
            if len(self.fifo) > self.limit:
                self.session.full()
        else:
            self.session.inflight.asks_no_answer(correlation)

    def weigh(self, size: int) -> None:
        """Count the request of `size` bytes that goes on now, of which rules remember something; pause the client if
        these have too many bytes together."""
        self.remembered += size
        if self.remembered > REMEMBERED_BYTES:
            self.remembered = size + sum(map(remembered_bytes, self.fifo))
            if self.remembered > REMEMBERED_BYTES:
                self.resumes_at = len(self.fifo) // 2
                self.session.full()

    # ---- the first frame, and raw tokens

    @property
    def is_new(self) -> bool:
        """Return True if no request for the broker has come."""
        return self.usual_scan == self.scan_first

    def end(self) -> int:
        del self.usual_scan
        return super().end()

    def scan_tokens(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Scan one frame at a time, while raw SASL tokens may come."""
        while n - pos >= 4:
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if n - pos == 4 and size != 0:
                self.halt = Keep(5)
                return pos
            first = buf[pos + 4] if size else -1
            raw = self.session.raw
            if raw is None or not raw.client_sends_token(size, first):
                if raw is not None and raw.rounds is None:  # the client speaks Kafka now: no token comes any more
                    self.session.end_raw()
                return self.scan_frames(buf, pos, n, now)
            if not 0 <= size <= MAX_TOKEN:
                self.session.close("frame_size", f"SASL token of {size} bytes, expected 0 to {MAX_TOKEN}", "client")
                return pos
            if not self.watch_token(buf, pos, n, size):
                return pos
            raw.from_client += 1
            pos += 4 + size
            if pos >= n:
                self.skip = pos - n
                return n
        self.halt = Keep(4)
        return pos

    def scan_first(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Have the broker dialled if the first frame begins as Kafka's do, then scan it as all others."""
        session = self.session
        size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
        if n - pos < 4 or (n - pos == 4 and size):
            self.halt = Keep(4 if n - pos < 4 else 5)
            return pos
        if (
            size >= 1 and buf[pos + 4] == GSSAPI_FIRST and session.sasl is None
        ):  # a client of Kafka 0.9 opens with the token
            session.begin_raw(RawTokens("GSSAPI"))
        elif not SMALLEST <= size <= self.most:
            return self.bad_size(buf, pos, size)
        elif n - pos < HEADER_BYTES:
            self.halt = Keep(HEADER_BYTES)
            return pos
        session.dial()
        return self.scan(buf, pos, n, now)

    # ---- what is wrong

    def need_more_head(self, pos: int, n: int, size: int) -> int:
        """Ask for the bytes that lack for acks: a few, unless the frame ends before it, which closes the connection."""
        have = n - pos
        if have >= size + 4 or have > LONGEST_HEAD:
            self.session.close("decode", f"Produce request of {size} bytes has no acks in its first {have}", "client")
        else:
            self.halt = Keep(min(2 * have, size + 4))
        return pos

    def bad_size(self, buf: Buffer, pos: int, size: int) -> int:
        first = bytes(buf[pos : pos + 4])
        if self.is_new and first in PROXY_HEADERS:
            self.session.close("proxy_header", "client sends a PROXY header, and is not among those who may", "client")
        elif self.is_new and (first[:2] == b"\x16\x03" or first in HTTP_WORDS):
            what = "TLS" if first[0] == 0x16 else "HTTP"
            self.session.close("not_kafka", f"client speaks {what} to a listener of plain Kafka", "client")
        else:
            text = f"request frame of {size} bytes, expected {SMALLEST} to {self.most}"
            self.session.close("frame_size", text, "client")
        return pos
