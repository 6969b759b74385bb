"""Live rules in the response lane. The plain rewrites come first, so rules see the response as the client would."""

from __future__ import annotations

from functools import partial
from typing import Any

from kproxy.base.cooperative import free_after, yield_now
from kproxy.protocol.framing import MAX_RESPONSE_HEADER, framed
from kproxy.protocol.table.api_keys import SASL_HANDSHAKE
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.rule_set import HowGone
from kproxy.session.commands import CLIENT
from kproxy.session.frame import PASS, Disposition, Need, Reject, Replace, ResponseView, Wait
from kproxy.session.held_frames import let_all_go, still_held
from kproxy.session.live.engine import milliseconds
from kproxy.session.live.entity_resolver import SESSION_HEAD
from kproxy.session.live.evaluation import EvaluatedExchange, UnmatchedRequest
from kproxy.session.live.response_evaluation import ResponseEvaluation
from kproxy.session.plan import LIVE, RuledStep
from kproxy.session.session_state import DRAINING

from .assembler import joined
from .request_rules import FifoNote
from .response_scan import ResponseScan

HEAD = 32
"""Bytes that contain a leading throttle_time_ms and a session id, if the header has no tags (brokers send none)."""


class ResponseRules:
    """Live rules of one response lane. `evaluation` is that of the frame at the lane's head, once it is made."""

    __slots__ = ("evaluation", "lane", "session")

    def __init__(self, lane: ResponseScan) -> None:
        self.lane, self.session = lane, lane.session
        self.evaluation: ResponseEvaluation | None = None

    def handle(self, frame: ResponseView) -> Disposition:
        """Return the disposition of a response that rules read, or that is sent with another one after it."""
        note = frame.note
        if isinstance(note, UnmatchedRequest):
            return self.handle_watched(frame, note)
        if note.exchange is None:
            return self.forward_with_another(frame)
        evaluation = self.evaluation
        if evaluation is None:
            made = free_after(max(frame.length - 4, note.exchange.request_size), lambda: self.evaluate(frame))
            if not isinstance(made, ResponseEvaluation):
                return made
            self.evaluation = evaluation = made
        return self.forward(frame, evaluation)

    # ---- rewrite and evaluate

    def handle_watched(self, frame: ResponseView, watched: UnmatchedRequest) -> Disposition:
        """Process the response to a request without applicable rules, if the response may mention names that rules
        forbid."""
        lane, step = self.lane, frame.step
        assert step.program is not None
        rewritten = self.client_side(frame, watched.rewrite)
        if not isinstance(rewritten, tuple):
            return rewritten
        content, changed = rewritten
        if self.session.engine.may_show(step.program, content):
            exchange = self.session.engine.watched(step, watched)
            entry = lane.fifo[0] = (frame.correlation, step, frame.entry[2], FifoNote(watched.rewrite, exchange))
            long = max(len(content), exchange.request_size)
            self.evaluation = free_after(long, lambda: self.evaluate_whole(frame, exchange, content, changed))
            return lane.handle(frame.under(entry))
        if not changed:
            return PASS
        lane.release(frame)
        return Replace([len(content).to_bytes(4, "big"), content], frame.end)

    def evaluate(self, frame: ResponseView) -> ResponseEvaluation | Need | Wait | Reject:
        """Evaluate the rules, once the bytes of the response that they read have arrived."""
        exchange = frame.note.exchange
        if exchange.response_depth() == FrameDepth.BODY:
            looked_up = self.lane.looked_up
            rewritten = self.client_side(frame, frame.note.rewrite)
            if exchange.program.reads_schemas and isinstance(rewritten, tuple):
                waited = looked_up is not None and bool(looked_up.schemas)
                needed = None if waited else self.session.engine.schemas_of_response(exchange, rewritten[0])
                if needed is not None:
                    return Wait(needed)
                self.lane.looked_up = None
            return self.evaluate_whole(frame, exchange, *rewritten) if isinstance(rewritten, tuple) else rewritten
        need = self.more_of_head(exchange, frame)
        if need:
            return Need(need)
        if exchange.awaits:
            self.session.engine.subjects.head(exchange, frame)
        evaluation = ResponseEvaluation(self.session.engine, exchange, self.lane.since(frame.now))
        evaluation.evaluate(frame.length - 4, None)
        exchange.end()
        return evaluation

    def evaluate_whole(
        self, frame: ResponseView, exchange: EvaluatedExchange, content: bytes, changed: bool
    ) -> ResponseEvaluation:
        """Evaluate the rules over a whole response, which the client would get as `content`; it is `changed` if it is
        not the broker's."""
        evaluation = ResponseEvaluation(self.session.engine, exchange, self.lane.since(frame.now))
        evaluation.evaluate(frame.length - 4, content)
        evaluation.whole = True
        if evaluation.frame is None and changed:
            evaluation.frame = content
        exchange.end()
        evaluation.content = None
        if evaluation.to_hold:
            self.lane.begin_hold(evaluation, "response", exchange.response_size, frame.now)
            for held in evaluation.holds:
                held.late = evaluation.late
        return evaluation

    def more_of_head(self, exchange: EvaluatedExchange, frame: ResponseView) -> int:
        """Return the bytes of the frame that have to arrive before throttle_time_ms can be written, 0 if they have.

        Raises DecodeError.
        """
        assert frame.step.program is not None
        if not (exchange.awaits or frame.step.program.throttle_first):
            return 0
        have, need = frame.have - frame.start, min(HEAD, frame.length)
        if have < need:
            return need
        at = frame.body
        if frame.have < frame.end and (at is None or at + SESSION_HEAD > frame.have):
            return min(2 * have, frame.length, MAX_RESPONSE_HEADER + 4 + SESSION_HEAD)
        return 0

    def client_side(
        self, frame: ResponseView, note: dict[str, Any] | None
    ) -> tuple[bytes, bool] | Need | Wait | Reject:
        """Return the frame as the client would get it without live rules, without its size, and True if it differs from
        the broker's; otherwise the disposition until it is known."""
        missing = frame.missing
        if missing is not None:
            return missing
        plain = frame.step.plain
        self.lane.identify(frame, plain)
        pieces = self.lane.rewritten(frame, plain, note)
        if pieces is None:
            yield_now()
            return frame.content(), False
        if not isinstance(pieces, list):
            return pieces
        yield_now()
        return bytes(joined(pieces[1:])), True

    # ---- leave and forward

    def forward(self, frame: ResponseView, evaluation: ResponseEvaluation) -> Disposition:
        session = self.session
        if evaluation.holds and still_held(evaluation.holds, self.lane, session, frame):
            return Wait("held")
        if evaluation.until is not None and frame.now < evaluation.until and session.phase is not DRAINING:
            session.timers.at(evaluation.until, self.lane.try_again)
            return Wait("delay")
        if evaluation.final and evaluation.drop != "continue":
            self.done(evaluation)
            if evaluation.swallow or evaluation.drop == "stall":
                return Replace([], frame.end, then=session.stall)
            how = evaluation.close or "fin"
            return Replace([], frame.end, then=partial(session.close_by_rule, how, evaluation.acted))
        if not evaluation.whole and evaluation.drop is None:
            return self.forward_plainly(frame, evaluation)
        missing = frame.missing
        return self.forward_whole(frame, evaluation) if missing is None else missing

    def forward_plainly(self, frame: ResponseView, evaluation: ResponseEvaluation) -> Disposition:
        """Send the frame without live rules, except those that act on the header, which act first."""
        lane, plain, note = self.lane, frame.step.plain, frame.note
        if evaluation.hint:
            self.patch(frame, evaluation)
        self.done(evaluation)
        self.session.flow.mute(max(evaluation.throttle, note.exchange.mute), frame.now, self.session.timers)
        if note.behind:
            entry = lane.fifo[0] = (frame.correlation, frame.step, frame.entry[2], note._replace(exchange=None))
            return self.forward_with_another(frame.under(entry))
        entry = lane.fifo[0] = (frame.correlation, plain, frame.entry[2], note.rewrite)
        whole = frame.have == frame.end
        if plain.response is None or (plain.clean and whole and plain.clean(frame.buf, frame.start, frame.end)):
            return PASS
        return lane.handle(frame.under(entry))

    def patch(self, frame: ResponseView, evaluation: ResponseEvaluation) -> None:
        """Write throttle_time_ms where it lies, in the driver's own buffer: it has a fixed width and comes first."""
        buf, at = frame.buf, frame.body
        if at is None or at + 4 > frame.have:
            self.session.counters.count("throttle_not_told")
            return
        told = max(milliseconds(evaluation.hint), int.from_bytes(buf[at : at + 4], "big", signed=True))
        buf[at : at + 4] = told.to_bytes(4, "big")  # type: ignore[index]  # a bytearray, or a view of one

    def forward_whole(self, frame: ResponseView, evaluation: ResponseEvaluation) -> Disposition:
        session, note = self.session, frame.note
        self.done(evaluation)
        session.flow.mute(max(evaluation.throttle, note.exchange.mute), frame.now, session.timers)
        if not evaluation.replaces and not note.behind:
            return PASS
        self.lane.release(frame)
        if evaluation.drop is not None:
            out = b""
        else:
            out = framed(frame.content() if evaluation.frame is None else evaluation.frame)
        for change in evaluation.changes if out else ():
            yield_now()
            out = change(out)
        often = 1 + evaluation.repeat
        if evaluation.swap and self.leave_behind(out * often, frame):
            often = 0
        self.report_swapped(note, frame.now)
        how = evaluation.then
        yield_now()
        then = None if how is None else partial(session.close_by_rule, how, evaluation.acted)
        return Replace([*[out] * often, note.behind], frame.end, then=then)

    def leave_behind(self, out: bytes, frame: ResponseView) -> bool:
        """Send this response, as `out`, after the next one. False: no other response is due."""
        swapped = ((frame.correlation, frame.now),)
        fifo = self.lane.fifo
        if not fifo or fifo[0][1].key < 0 or fifo[0][1].key == SASL_HANDSHAKE:  # raw tokens may follow
            return False
        correlation, step, then, note = fifo[0]
        if isinstance(note, UnmatchedRequest):
            note = FifoNote(note.rewrite, self.session.engine.watched(step, note))
        if isinstance(note, FifoNote):
            fifo[0] = (correlation, step, then, note._replace(behind=note.behind + out, swapped=note.swapped + swapped))
        else:
            carrier = RuledStep(step)
            carrier.response = LIVE
            carrier.count_in(step.tally)
            fifo[0] = (correlation, carrier, then, FifoNote(note, None, out, swapped))
        return True

    def report_swapped(self, note: FifoNote, now: float) -> None:
        """Report to the observer how long a rule kept the responses that leave now after a later one."""
        for correlation, since in note.swapped:
            self.lane.report_wait(correlation, now - since, 0.0)

    def forward_with_another(self, frame: ResponseView) -> Disposition:
        """Send a response without rules of its own, and after it the earlier ones that wait for it."""
        rewritten = self.client_side(frame, frame.note.rewrite)
        if not isinstance(rewritten, tuple):
            return rewritten
        content, _ = rewritten
        self.lane.release(frame)
        self.report_swapped(frame.note, frame.now)
        return Replace([len(content).to_bytes(4, "big"), content, frame.note.behind], frame.end)

    def let_all_go(self, how: HowGone) -> None:
        if self.evaluation is not None:
            let_all_go(self.evaluation.holds, how)

    def done(self, evaluation: ResponseEvaluation) -> None:
        self.evaluation = None
        if not evaluation.final:
            self.session.throttled(evaluation, older=0)
        self.session.mark(CLIENT, evaluation.to_count())
