"""Live rules in the request lane: a request is evaluated once, waits if it has to, and is kept if they need its
response."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.base.cooperative import LONG, free_after
from kproxy.base.errors import DecodeError
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.rule_set import ActiveRule, HowGone
from kproxy.session.commands import BROKER, NO_ANSWER
from kproxy.session.frame import FifoEntry, InFlight, Need, Reject, RequestView, Wait
from kproxy.session.held_frames import let_all_go, still_held
from kproxy.session.live.evaluation import EvaluatedExchange, RequestEvaluation, UnmatchedRequest
from kproxy.session.live.selection import MOST, CachedAnswer, FrameTemplate, HeadCache, Selection
from kproxy.session.plan import Step
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.session_state import DRAINING

from .request_scan import RequestScan

if TYPE_CHECKING:
    from kproxy.rules.bucket import QuotaTurn

HEADER_BYTES = 14
REMEMBERED_BYTES = 1 << 20
"""A client is not read while it has more than one request in flight with state for rules, and these have more bytes
than this: decoded names and partitions take forty times as much. Records are not kept, so a Produce weighs less."""
CHECK = 1.0  # seconds between checks whether a charged request arrives; the first comes after half of a shorter debt
LEAST_DEBT = 0.02  # seconds of debt above which a request is checked
NO_RECORDS = 8
"""One in this many bytes of a Produce is assumed not to be records."""


class FifoNote(NamedTuple):
    """Note of a FIFO entry with live rules.

    `rewrite` is for the response's name rewrites. `behind` holds earlier responses that a rule sends after this one,
    and `swapped` has (correlation id, time of arrival) of each.
    """

    rewrite: dict[str, Any] | None
    exchange: EvaluatedExchange | None
    behind: bytes = b""
    swapped: tuple[tuple[int, float], ...] = ()


class Unfinished(NamedTuple):
    """Request of `size` bytes that was charged and forwarded at `since`, before all of it had arrived.

    `missing` bytes had not. `due` is the time of the first check. `newest` is the value of `InFlight.newest` while it
    is the newest request.
    """

    turns: tuple[QuotaTurn, ...]
    correlation: int
    size: int
    missing: int
    since: float
    due: float
    newest: tuple[FifoEntry | None, int]


class MeteredFrame:
    """Rest of a long request, charged as it arrives. While a limit is in debt, the client is not read.

    `length` bytes are still to come. `turns` are those of the next `chunk` bytes, which wait.
    """

    __slots__ = ("charged", "chunk", "correlation", "lane", "length", "size", "turns")

    def __init__(self, lane: RequestScan, unfinished: Unfinished, length: int) -> None:
        self.lane, self.size = lane, unfinished.size
        self.charged = tuple(turn.part(1.0) for turn in unfinished.turns)
        self.correlation, self.length = unfinished.correlation, length
        self.turns: tuple[QuotaTurn, ...] = ()
        self.chunk = 0

    def receive(self, buf: Buffer, pos: int, n: int, now: float, direct: bool) -> int:
        lane = self.lane
        if not self.turns:
            self.chunk = min(self.length, n - pos)
            self.turns = tuple(turn.part(self.chunk / self.size) for turn in self.charged)
        if lane.session.phase is DRAINING:
            give_up(lane, self.turns, now)
        elif take_turns(lane, self.turns, now):
            lane.keep(bytearray(buf[pos:n]), Wait("quota"), now)
            return pos if direct else 0
        self.turns = ()
        self.length -= self.chunk
        if lane.clock is not None:
            lane.report_wait(self.correlation, *lane.clock.of(0))
            lane.clock = None
        passed = pos + self.chunk
        if not direct:
            lane.emit(buf[pos:passed])
        if not self.length:
            lane.stream = None
            return lane.run(buf, 0 if direct else passed, passed, n, now, direct)
        if passed < n:  # arrived while the bytes before waited
            return self.receive(buf, passed, n, now, direct)
        return passed if direct else 0


class RequestRules:
    """Live rules of one request lane.

    `remembered` are bytes of requests with state for rules, and of some answered since. `unfinished` is the last
    request with turns at quotas that had not arrived completely.
    """

    __slots__ = ("charged", "heads", "lane", "remembered", "session", "unfinished")

    def __init__(self, lane: RequestScan) -> None:
        self.lane, self.session = lane, lane.session
        self.heads = HeadCache(MOST)
        self.remembered = 0
        self.unfinished: Unfinished | None = None
        self.charged: list[QuotaTurn] = (
            lane.session.engine.view.turns
        )  # those that effects have added for the current frame

    @property
    def evaluation(self) -> RequestEvaluation | None:
        """Return the evaluation of the current frame. None: not made, or no rule applies."""
        begun = self.lane.begun
        return begun if isinstance(begun, RequestEvaluation) else None

    def evaluate(self, frame: RequestView) -> RequestEvaluation | CachedAnswer | Need | Wait | Reject | None:
        """Evaluate a frame once, and return its evaluation when its delay and its holds are over.

        Until then, return the need or the wait. Return None if no rule applies, and the cached answer if the triggers
        give the same results as for that answer. Raises DecodeError.
        """
        evaluation = self.lane.begun
        if isinstance(evaluation, UnmatchedRequest):
            return None
        if not isinstance(evaluation, RequestEvaluation):
            known, selection = self.heads.recognise(frame), None
            if known is not None:
                if evaluation is None and (
                    not known.applies or (known.waiting and self.none_fires(known.waiting, known, frame))
                ):
                    self.expect(known)
                    return None
                selection = self.heads.selection(frame, known)
                cached = None if selection is None else selection.answer
                if cached is not None and cached.asked and self.fires_again(cached, known, frame):
                    return cached
            made = self.lacks(frame) or self.decide(frame, known, selection)
            if not isinstance(made, RequestEvaluation):
                return made
            self.lane.begun = evaluation = made
        if self.session.phase is DRAINING and evaluation.exchange.acks == 0:
            self.let_all_go("resumed")
            return evaluation
        if evaluation.holds and still_held(evaluation.holds, self.lane, self.session, frame):
            return Wait("held")
        if evaluation.until is not None and frame.now < evaluation.until:
            self.session.timers.at(evaluation.until, self.lane.try_again)
            return Wait("delay")
        return self.take_turns(evaluation, frame) or evaluation

    def take_turns(self, evaluation: RequestEvaluation, frame: RequestView) -> Wait | Reject | None:
        """Take the turns of the frame at limits of quotas; return None once all of them are paid."""
        if not evaluation.turns:
            return None
        waited = any(turn.waiter is not None for turn in evaluation.turns)
        if waited and evaluation.exchange.acks != 0 and self.session.client_left:
            # The client timed out and repeats the request. Forwarding this one would charge the limit twice.
            return Reject("client_closed", "client closed while its request waited for a quota")
        if take_turns(self.lane, evaluation.turns, frame.now):
            evaluation.waits_since = evaluation.waits_since or frame.now
            return Wait("quota")
        if evaluation.waits_since is not None:
            evaluation.throttled += frame.now - evaluation.waits_since
            evaluation.waits_since = None
        return None

    def decide(
        self, frame: RequestView, known: FrameTemplate | None, cached: Selection | None
    ) -> RequestEvaluation | Wait | None:
        """Evaluate the rules for a frame, once `lacks` returns None, and cache the result. Raises DecodeError."""
        lane, session, step = self.lane, self.session, frame.step
        drawn = lane.begun
        assert drawn is None or isinstance(drawn, dict)
        session.context.now, session.context.looked_up = frame.now, lane.looked_up
        since, size = lane.since(frame.now), frame.end - frame.start - 4
        turns = self.charged
        if drawn is None:  # otherwise some rules have charged this frame
            turns.clear()
        assert step.program is not None
        try:
            if size < LONG:
                made = session.engine.request(frame, since, drawn, known, cached)
            else:
                made = free_after(size, lambda: session.engine.request(frame, since, drawn, known, cached))
        except DecodeError:
            if step.program.enforces:
                raise
            lane.begun = lane.looked_up = None  # a dry run changes nothing, also for a malformed request
            self.expect(None)
            return None
        if isinstance(made, NeedsLookup):
            return Wait(made)
        lane.looked_up = lane.begun = None
        if made is None:
            lane.plan = session.plan  # which waited, if triggers were evaluated before
            self.expect(self.heads.learn(frame))
            return None
        lane.template = None  # this frame may begin so, and its evaluation is kept when the frame is processed again
        if isinstance(made, UnmatchedRequest):
            lane.begun = made
            return None
        made.turns = tuple(turns)
        if known is None:
            tells_more = drawn is None and bool(made.pending_triggers or made.candidates or made.selection)
        else:
            tells_more = bool(made.pending_triggers) and known.may_wait
        if tells_more:
            known = self.heads.learn_rules(frame, made)
            session.identity.on_change = self.forget
        if known is not None and made.selection is not None and made.selection is not cached:
            self.heads.learn_selection(frame, known, made.selection)
        if made.to_hold:
            self.lane.begin_hold(made, "request", made.exchange.request_size, frame.now)
        return made

    def none_fires(self, rules: tuple[ActiveRule, ...], known: FrameTemplate, frame: RequestView) -> bool:
        """Evaluate the triggers of these rules, which match a frame of this template; return True if none fires, or
        firing has no effect."""
        size = frame.end - frame.start - 4
        self.charged.clear()
        whole = frame.have >= frame.end
        return self.lane.none_fires(rules, known, size, frame.correlation, frame.now, whole=whole)

    def fires_again(self, cached: CachedAnswer, known: FrameTemplate, frame: RequestView) -> bool:
        """Evaluate the triggers that led to this answer, if none was evaluated yet; return True if the results are the
        same.

        Otherwise the frame is evaluated with these results.
        """
        lane, asked = self.lane, cached.asked
        if lane.begun is None and self.none_fires(asked, known, frame):
            lane.begun = dict.fromkeys(asked, False)
        drawn = lane.begun
        if not isinstance(drawn, dict) or not drawn.get(asked[-1]) or tuple(drawn) != asked:
            return False
        lane.begun = None
        asked[-1].count(fired=True)
        return True

    def expect(self, known: FrameTemplate | None) -> None:
        """Compare the next request with this template first, which no rule has acted on."""
        self.lane.template = known if known is not None and known.passes else None
        self.session.identity.on_change = self.forget

    def forget(self) -> None:
        """Drop all templates, since more is known of the client."""
        self.lane.template = None
        self.heads.forget()

    def lacks(self, frame: RequestView) -> Need | Reject | None:
        """Return the need for the bytes that the rules read, or the refusal of a Produce without acks; None if the
        rules can decide."""
        program = frame.step.program
        assert program is not None
        if program.request == FrameDepth.BODY or not program.names_client:
            return frame.missing
        have = frame.have - frame.start
        need = min(HEADER_BYTES + max(frame.id_length, 0), frame.length)
        if have >= need and frame.step.plain.acks is not None and frame.acks is None:
            return self.lane.need_more_head(frame.length - 4, have)  # observers also need it
        return Need(need, hold=need == frame.length) if have < need else None

    def entry(self, frame: RequestView, step: Step, note: dict[str, Any] | None) -> FifoEntry:
        correlation, now = frame.correlation, frame.now
        evaluation = self.lane.begun
        if isinstance(evaluation, UnmatchedRequest):
            self.lane.begun = None
            self.lane.plan = self.session.plan
            self.weigh(len(evaluation.request))
            return correlation, frame.step, now, evaluation if note is None else evaluation._replace(rewrite=note)
        assert isinstance(evaluation, RequestEvaluation)
        exchange = evaluation.exchange
        self.release()
        entry: FifoEntry = (correlation, step, now, note)
        if not frame.answered:
            self.session.flow.mute(evaluation.throttle, now, self.session.timers)
        elif exchange.response_depth() or evaluation.throttle:
            exchange.mute = evaluation.throttle
            exchange.forget_records()
            entry = correlation, exchange.step, now, FifoNote(note, exchange)
            self.weigh(remembered_bytes(entry))
        return entry

    def watch(self, frame: RequestView, charged: tuple[QuotaTurn, ...]) -> None:
        """Watch whether the rest of this request, which is in the FIFO now, arrives before its debt is paid."""
        self.charged.clear()
        missing = frame.end - frame.have
        if missing <= 0:
            return
        newest, now = self.session.inflight.newest(), frame.now
        debt = max(turn.debt for turn in charged)
        due = now if any(turn.has_late(now) for turn in charged) else now + min(CHECK, debt / 2)
        self.unfinished = Unfinished(charged, frame.correlation, frame.length, missing, now, due, newest)
        if debt > LEAST_DEBT:
            self.session.timers.at(due, self.check)

    def check(self, now: float) -> None:
        """Give back the charge of late bytes, and charge them when they arrive.

        Other requests wait for the debt of this one, so its bytes must arrive as fast as time pays the debt. If a limit
        had late bytes, its next requests get no time to arrive: otherwise each connection could delay others again.
        """
        unfinished, unsent = self.unfinished, self.lane.unsent
        if unfinished is None or not unsent or not is_newest(unfinished, self.session.inflight):
            return
        elapsed, debt = now - unfinished.since, max(turn.debt for turn in unfinished.turns)
        if now < unfinished.due or elapsed >= debt:  # the check of an earlier request, or the debt is paid
            return
        arrived = unfinished.missing - unsent
        if unfinished.due > unfinished.since and arrived >= unfinished.missing * elapsed / debt:
            self.session.timers.at(now + CHECK, self.check)
            return
        for turn in unfinished.turns:
            turn.note_late(now)
        rest = MeteredFrame(self.lane, unfinished, unsent)
        self.give_back(now)
        self.lane.stream, self.lane.skip = rest, 0
        note = None if unfinished.newest[0] is None else unfinished.newest[0][3]
        if isinstance(note, FifoNote) and note.exchange is not None:
            note.exchange.mute = 0.0  # the client waits for the debt before the end of the request instead
        self.session.flow.muted_until = 0.0
        self.session.flow.unmute(now)

    def give_back(self, now: float) -> None:
        """Give back the charge of bytes that have not arrived, if `unfinished` is still the newest request."""
        unfinished, self.unfinished = self.unfinished, None
        if unfinished is not None and self.lane.unsent and is_newest(unfinished, self.session.inflight):
            give_up(self.lane, unfinished.turns, now, min(self.lane.unsent / unfinished.size, 1.0))

    def weigh(self, size: int) -> None:
        """Count the bytes of a forwarded request with state for rules; pause the client if its total exceeds the
        limit."""
        self.remembered += size
        if self.remembered > REMEMBERED_BYTES:
            lane = self.lane
            self.remembered = size + sum(map(remembered_bytes, lane.fifo))
            if self.remembered > REMEMBERED_BYTES:
                lane.resumes_at = len(lane.fifo) // 2
                self.session.full()

    def release(self) -> None:
        """Release the decisions about the frame, which has been sent or dropped, and count its rules."""
        evaluation, self.lane.begun = self.lane.begun, None
        if isinstance(evaluation, RequestEvaluation):
            self.charged.clear()
            self.leave_turns(evaluation)
            if evaluation.throttler is not None and not evaluation.final:
                answered = evaluation.exchange.acks != 0
                older = self.session.inflight.count(evaluation.exchange.correlation_id) if answered else NO_ANSWER
                self.session.throttled(evaluation, older)
            self.lane.plan = self.session.plan  # another one may have come while the frame waited
            self.session.mark(BROKER, evaluation.to_count())

    def let_all_go(self, how: HowGone) -> None:
        """End all waits of this connection's requests for rules. Quotas get back the charges of bytes that were not
        sent: a client could otherwise announce long frames and disconnect, and others would wait."""
        if self.evaluation is not None:
            let_all_go(self.evaluation.holds, how)
            self.leave_turns(self.evaluation, unsent=1.0)
        self.give_back(self.session.context.now)
        give_up(self.lane, (*self.charged, *self.metered_turns), self.session.context.now)

    @property
    def metered_turns(self) -> tuple[QuotaTurn, ...]:
        stream = self.lane.stream
        return stream.turns if isinstance(stream, MeteredFrame) else ()

    def step_aside(self) -> list[Any]:
        """Leave the line of a quota until the frame is tried again; return the sessions that are first in it now."""
        turns = self.metered_turns if self.evaluation is None else self.evaluation.turns
        for turn in turns:
            turn.step_aside()
        woken = [session for turn in turns for session in turn.woken]
        for turn in turns:
            turn.woken.clear()
        return woken

    def leave_turns(self, evaluation: RequestEvaluation, unsent: float = 0.0) -> None:
        """Give up the turns that the frame has not had, and take back the `unsent` part of its charges."""
        give_up(self.lane, evaluation.turns, self.session.context.now, unsent)
        evaluation.turns = ()


def take_turns(lane: RequestScan, turns: Sequence[QuotaTurn], now: float) -> bool:
    """Take these turns at limits of quotas, one after the other; return True if one of them has to wait."""
    session = lane.session
    for turn in turns:
        turn.waiter = None if session.owner is None else session
        wait = turn.ask(now)
        session.wake_next(turn)
        if wait:
            if wait < inf:
                session.timers.at(now + wait, lane.try_again)
            return True
    return False


def give_up(lane: RequestScan, turns: Sequence[QuotaTurn], now: float, unsent: float = 1.0) -> None:
    """Remove these turns from their queues, and give back the `unsent` part of their charges."""
    for turn in turns:
        turn.give_up(now, unsent)
        lane.session.wake_next(turn)


def is_newest(unfinished: Unfinished, inflight: InFlight) -> bool:
    """Return True if no request was forwarded after this one."""
    entry, noted = inflight.newest()
    return entry is unfinished.newest[0] and noted == unfinished.newest[1]


def remembered_bytes(entry: FifoEntry) -> int:
    """Return the bytes of the request, if rules keep state of it until its response."""
    note = entry[3]
    if isinstance(note, UnmatchedRequest):
        return len(note.request)
    if not isinstance(note, FifoNote) or note.exchange is None:
        return 0
    size = note.exchange.request_size
    return size // NO_RECORDS if entry[1].key == PRODUCE and note.exchange.content is None else size
