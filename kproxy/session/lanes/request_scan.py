"""Requests in the order of their bytes: the loop over whole frames, and the possible beginnings of a connection."""

from __future__ import annotations

from struct import Struct

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import MAX_ACKS_HEAD, REQUEST_HEAD
from kproxy.protocol.primitives import Buffer
from kproxy.rules.rule_set import ACTS, ActiveRule
from kproxy.session.commands import BROKER, CLIENT, Dial
from kproxy.session.frame import PASS, Disposition, Need, Reject, RequestView
from kproxy.session.held_memory import HeldMemory, Hold
from kproxy.session.live.evaluation import RequestEvaluation, TriggerResults, UnmatchedRequest
from kproxy.session.live.selection import CLIENT_ID, FrameTemplate
from kproxy.session.plan import HEAD, LIVE, WHOLE, Step
from kproxy.session.sasl.login import GSSAPI_FIRST, MAX_TOKEN, RawTokens
from kproxy.session.session_state import NEW, OPEN

from .lane import Lane, NewHeads
from .services import LaneHost

HEADER = REQUEST_HEAD.unpack_from
HEADER_BYTES = 14
DIAL = Dial()
SHORT_HEAD = Struct(">BBh").unpack_from  # head of a flexible Produce: no tags, no transactional id, acks
SMALLEST = 10
"""Request header v1 with a null client id. ControlledShutdown v0 lacks the client id but has four bytes of body."""
HTTP_WORDS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PRI ")
PROXY_HEADERS = (b"PROX", b"\r\n\r\n")
"""How headers of both versions begin; trusted ones are read before a session begins."""


class RequestScan(Lane):
    """Scan of one connection's requests: classifies them, enters those that pass in the FIFO, and gives the others to
    `handle`.

    `scan` is `scan_first`, then `scan_frames`; `scan_tokens` while raw SASL tokens may come. The session replaces the
    scan during a login; `usual_scan` is the normal one.
    """

    source, target = CLIENT, BROKER
    template: FrameTemplate | None = None  # template of the last request that no rule acted on, if such may pass
    begun: TriggerResults | UnmatchedRequest | RequestEvaluation | None = None
    """Decisions of rules about the current frame so far: results of triggers, or the result of the evaluation."""

    def __init__(self, session: LaneHost, memory: HeldMemory, limit: int) -> None:
        super().__init__(session, memory)
        self.plan, self.fifo, self.most = session.plan, session.inflight.fifo, session.shared.max_frame_bytes
        self.limit = limit  # requests in flight beyond which the client is not read
        self.resumes_at = limit // 2  # requests in flight below which it is read again
        self.scan = self.usual_scan = self.scan_first

    def handle(self, frame: RequestView) -> Disposition:
        raise NotImplementedError

    def scan_frames(  # noqa: C901, PLR0912  # in one piece, for every call costs
        self, buf: Buffer, pos: int, n: int, now: float
    ) -> int:
        plan, fifo, most = self.plan, self.fifo, self.most
        last = n - HEADER_BYTES
        new: NewHeads | None = None
        while pos <= last:
            size, code, correlation, id_length = HEADER(buf, pos)
            if not SMALLEST <= size <= most:
                if new is not None:
                    break
                return self.stop(self.bad_size(buf, pos, size), pos)
            step = plan[code]
            how, plain = step.request, step
            answered: bool | None = None  # None: the frame does not simply pass
            if how is None:
                answered = True
            elif how == HEAD:
                at, acks = pos + HEADER_BYTES + id_length, None
                # In line, for it is nearly every Produce request.
                if step.flexible and 0 <= id_length <= size - HEADER_BYTES and at + 4 <= n:
                    tags, transactional, acks = SHORT_HEAD(buf, at)
                    acks = None if tags or transactional else acks
                if acks is None:
                    acks = self.find_acks(step, buf, pos, min(n, pos + 4 + size), size, id_length)
                    if not isinstance(acks, int):
                        if new is not None:
                            break
                        return self.stop(acks, pos)
                answered = acks != 0
            elif how == LIVE:
                known = self.template
                if (
                    known is not None
                    and known.step is step
                    and pos + known.end <= n
                    and known.read(buf, pos + CLIENT_ID)[0] == known.head
                    and (
                        not known.waiting
                        or (  # `enter` watches whether the rest of a charged frame arrives
                            pos + 4 + size <= n and self.none_fires(known.waiting, known, size, correlation, now)
                        )
                    )
                ):
                    answered, plain = known.answered, step.plain
            elif how == WHOLE and (heads := step.request_heads) is not None:
                met = heads.met_before(buf, at := pos + HEADER_BYTES + max(id_length, 0), min(n, pos + 4 + size))
                if met is not None:
                    (stop, head), at = met, at + len(heads.front)
                    answered = bool(buf[at] or buf[at + 1])  # acks
                    if head.changes:
                        new = new or NewHeads(pos)
                        new.write(buf, pos, size, stop, head)
            elif how == WHOLE and step.racks is not None and new is None:
                end = step.racks.fill(buf, pos, n, size, id_length, self.session.commands, self.session.context)
                if end:  # only the last frame grows
                    answered, size, n = True, end - pos - 4, max(n, end)
            if answered:
                fifo.append((correlation, plain, now, None))
            elif answered is not None:
                self.session.inflight.note_unanswered(correlation)
            elif new is not None:
                break  # the frames before this one leave first
            else:
                disposition = self.handle(RequestView(step, buf, pos, n, size, correlation, id_length, now))
                if disposition is not PASS:
                    self.disposition = disposition
                    return pos
                plan = self.plan  # the frame may have waited while another one came
            step.tally.requests += 1
            pos += size + 4
        if len(fifo) > self.limit:
            self.session.full()
        if new is not None:
            return self.stop_at_new(new, pos)
        if pos >= n:
            self.skip = pos - n
            return n
        return self.stop(Need(HEADER_BYTES), pos)

    def none_fires(
        self, rules: tuple[ActiveRule, ...], known: FrameTemplate, size: int, correlation: int, now: float, *,
        whole: bool = True,
    ) -> bool:  # fmt: skip
        """Evaluate the triggers of these rules, which match the current frame, up to the first rule that fires with an
        effect. Return True if there is no such rule.

        The frame is otherwise evaluated with the results in `begun`: each trigger is evaluated once a frame.
        """
        yield_point()  # a read may have ten thousand such frames
        since, number = self.since(now), self.session.number
        for running in rules:
            if running.trigger.fires(since, number, known.client_id):
                if (terms := known.terms.get(running)) is not None and running.passes(terms, size, since):
                    if not whole and (turn := running.turn(terms, size, since)) is not None:
                        self.session.engine.view.turns.append(turn)
                    # Its effect decides nothing, so in a dry run it would not have acted.
                    fired = not running.dry_run or terms is ACTS
                    self.session.counted(running, correlation, fired=fired, answered=known.answered)
                    continue
                before = rules[: rules.index(running)]
                self.begun = dict.fromkeys(before, False) | {running: True}
                self.template = None
                return False
            running.count(fired=False)
        return True

    # ---- the first frame, and raw tokens

    @property
    def is_new(self) -> bool:
        """Return True if no request for the broker has come."""
        return self.usual_scan == self.scan_first

    def incomplete(self, now: float) -> None:
        session = self.session
        if self.kept and (session.flow.incomplete_since is None or self.reserved):
            session.flow.incomplete_since = now
        if len(self.fifo) > self.limit:
            session.full()

    def complete(self) -> None:
        self.session.flow.incomplete_since = None

    def end(self) -> list[Hold]:
        self.begun = None
        del self.usual_scan
        return super().end()

    def scan_tokens(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Scan one frame at a time, while raw SASL tokens may come."""
        while n - pos >= 4:
            yield_point()  # a read may have 65,000 empty tokens
            size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if n - pos == 4 and size != 0:
                return self.stop(Need(5), pos)
            first = buf[pos + 4] if size else -1
            raw = self.session.logins.raw
            if raw is None or not raw.client_sends_token(size, first):
                if raw is not None and raw.rounds is None:  # Kafka frames follow: no more tokens
                    self.session.logins.end_raw()
                return self.scan_frames(buf, pos, n, now)
            if not 0 <= size <= MAX_TOKEN:
                text = f"SASL token of {size} bytes, expected 0 to {MAX_TOKEN}"
                return self.stop(Reject("frame_size", text, "client"), pos)
            if not self.watch_token(buf, pos, n, size):
                return pos
            raw.from_client += 1
            pos += 4 + size
            if pos >= n:
                self.skip = pos - n
                return n
        return self.stop(Need(4), pos)

    def scan_first(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Have the broker dialled if the first frame begins as Kafka's do, then scan it as all others."""
        session = self.session
        size = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
        if n - pos < 4 or (n - pos == 4 and size):
            return self.stop(Need(4 if n - pos < 4 else 5), pos)
        opens_with_token = size >= 1 and buf[pos + 4] == GSSAPI_FIRST  # as clients of Kafka 0.9 do
        if opens_with_token and session.logins.sasl is None:
            session.logins.begin_raw(RawTokens("GSSAPI"))
        elif not SMALLEST <= size <= self.most:
            return self.stop(self.bad_size(buf, pos, size), pos)
        elif n - pos < HEADER_BYTES:
            return self.stop(Need(HEADER_BYTES), pos)
        self.dial()
        return self.scan(buf, pos, n, now)

    def dial(self) -> None:
        """Ask for the broker, as the header of the first request is good."""
        session = self.session
        if session.phase is NEW:  # else it drains, and this is its only request
            session.phase = session.phase.to(OPEN)
        if self.is_new:  # else it opens with a bare token
            self.usual_scan = self.scan_frames
        session.logins.choose_scan()
        session.commands.append(DIAL)

    # ---- what is wrong

    def find_acks(self, step: Step, buf: Buffer, pos: int, end: int, size: int, id_length: int) -> int | Need | Reject:
        """Return the acks of the Produce at buf[pos:end], `size` bytes long, or the disposition of one without acks."""
        try:
            acks = step.acks(buf, pos + 4, end, id_length)  # type: ignore[misc]  # HEAD steps have it
        except DecodeError as error:
            return malformed(step, error)
        return self.need_more_head(size, end - pos) if acks is None else acks

    def need_more_head(self, size: int, have: int) -> Need | Reject:
        """Return the need for more bytes of a Produce if `have` bytes do not reach its acks, or its refusal."""
        most = min(size, MAX_ACKS_HEAD) + 4
        if have >= most:
            return Reject("decode", f"Produce request of {size} bytes has no acks in its first {have}", "client")
        return Need(min(2 * have, most))

    def bad_size(self, buf: Buffer, pos: int, size: int) -> Reject:
        """Return the rejection of a frame whose size is out of range, with a guess at the client's protocol."""
        first = bytes(buf[pos : pos + 4])
        if self.is_new and first in PROXY_HEADERS:
            return Reject("proxy_header", "client sends a PROXY header, and is not among those who may", "client")
        if self.is_new and (first[:2] == b"\x16\x03" or first in HTTP_WORDS):
            what = "TLS" if first[0] == 0x16 else "HTTP"
            return Reject("not_kafka", f"client speaks {what} to a listener of plain Kafka", "client")
        text = f"request frame of {size} bytes, expected {SMALLEST} to {self.most}"
        return Reject("frame_size", text, "client")


def malformed(step: Step, error: DecodeError) -> Reject:
    """Return the refusal of a client's request that cannot be decoded."""
    return Reject("decode", str(error) if error.api else f"{step.api} request: {error}", "client")
