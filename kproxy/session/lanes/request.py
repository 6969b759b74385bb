"""Stages of a request that is not passed unread: classify, evaluate, rewrite, enter, forward.

    classify   blocked or not, and if the client's identity is needed
    evaluate   the live rules decide, once (`request_rules.py`, `session/live/engine.py`)
    rewrite    the client's names become the broker's; unknown names are looked up
    enter      the FIFO gets an entry, with the state for the response
    forward    by the rules' decisions the frame goes on, changed or not, or is answered or dropped

A frame that waits or is incomplete is given to `handle` again, with its evaluation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kproxy.base.cooperative import yield_now, yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import framed
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_HANDSHAKE, TELEMETRY
from kproxy.session.cluster import fresh_topics, topics_heard
from kproxy.session.commands import BROKER
from kproxy.session.frame import (
    ANSWER,
    IDENTITY,
    PASS,
    Disposition,
    FifoEntry,
    Need,
    Pass,
    Reject,
    Replace,
    RequestView,
    Wait,
)
from kproxy.session.live.evaluation import RequestEvaluation
from kproxy.session.live.selection import CachedAnswer
from kproxy.session.plan import HEAD, LIVE, STOP, Step
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rewrite.rewriter import Pieces, Splicer
from kproxy.session.rewrite.versions import unsupported
from kproxy.session.sasl.identity import ANSWERED, ASKED

from .lane import too_long
from .request_rules import RequestRules
from .request_scan import RequestScan, malformed

if TYPE_CHECKING:
    from kproxy.session.frame import LongFrame


class RequestLane(RequestScan):
    """Request lane of one connection."""

    rules: RequestRules | None = None  # made when live rules look at a frame

    def handle(self, frame: RequestView) -> Disposition:
        """Take a request through its stages, and enter it in the FIFO if it passes and a response is due.

        A request that cannot be decoded as far as a stage needs it closes the connection.
        """
        try:
            return self.dispose(frame)
        except DecodeError as error:
            return malformed(frame.step, error)

    def dispose(self, frame: RequestView) -> Disposition:
        """Return the disposition of a request. Raises DecodeError."""
        step = frame.step
        if step.key in ASKED and (refusal := too_long(frame, "request", "client")) is not None:
            return refusal
        if step.request != LIVE:
            if step.splice_request is None:
                yield_now()
            else:  # a name in its head is mostly all there is to do, which takes microseconds
                yield_point()
            return self.rewrite(frame, step) if step.request != STOP else self.refuse(step)
        yield_now()
        unfit = self.await_principal()
        if unfit is not None:
            return unfit
        assert self.rules is not None
        evaluation = self.rules.evaluate(frame)
        if evaluation is None:
            return self.rewrite_evaluated(frame, step.plain)
        if isinstance(evaluation, RequestEvaluation):
            return self.forward(frame, evaluation)
        if isinstance(evaluation, CachedAnswer):
            return self.answer_cached(frame, evaluation)
        return evaluation

    # ---- classify

    def await_principal(self) -> Reject | Wait | None:
        """Return the disposition of a request that rules may not judge yet, or never; None for all others.

        Rules that go by the client's principal can judge it when the broker has answered about the principal, and never
        if that will not be known.
        """
        session = self.session
        if self.rules is None:
            self.rules = RequestRules(self)
        if not session.plan.by_principal or self.begun is not None:
            return None
        if session.identity.lost:
            text = "a rule selects by principal, which is not in the SASL messages"
            return Reject("authentication", text, "client")
        return Wait(IDENTITY) if session.logins.await_broker else None

    def refuse(self, step: Step) -> Reject:
        """Count a request that is stopped, and return its refusal."""
        counters = self.session.counters
        counters.stopped[step.api] += 1
        if self.plan.refusal(step.key, step.version):
            counters.count("requests_blocked_by_rule")
        return Reject("api_blocked", step.stop, "client")

    # ---- rewrite

    def rewrite(self, frame: RequestView, plain: Step) -> Disposition:
        """Return the disposition of a frame by the step without live rules, and enter it if it is forwarded."""
        if plain.request is None:
            return self.enter(frame, plain)
        if plain.request == HEAD:
            if frame.acks is None:
                return self.need_more_head(frame.length - 4, frame.have - frame.start)
            return self.enter(frame, plain)
        if plain.splice_request is not None:
            disposition = self.rewrite_one_place(frame, plain, plain.splice_request)
            if disposition is not None:
                return disposition
            yield_now()
        missing = frame.missing
        if missing is not None:
            return missing
        if self.session.logins.sasl is not None and plain.key in ANSWERED:
            answer = self.session.logins.sasl.answer(plain, frame.correlation, frame.content(), frame.now)
            if answer is not None:
                self.answer(frame.correlation, answer, frame.now)
            return self.replace(frame, [])
        if plain.key in TELEMETRY and self.session.telemetry is not None:
            answered = self.take_telemetry(frame, plain)
            if answered is not None:
                return answered
        if plain.watched or plain.key == API_VERSIONS:
            answered = self.identify(frame, plain)
            if answered is not None:
                return answered
        if plain.rewrite_request is not None:
            return self.rewrite_names(frame, plain)
        note = mechanism_of(frame) if plain.key == SASL_HANDSHAKE and not plain.version else None
        return self.enter(frame, plain, note)

    def take_telemetry(self, frame: RequestView, plain: Step) -> Disposition | None:
        """Answer a GetTelemetrySubscriptions or PushTelemetry; None if the broker answers it. Raises DecodeError."""
        assert self.session.telemetry is not None
        answer = self.session.telemetry.answer(plain, frame)
        if answer is None:
            return None
        self.answer(frame.correlation, answer, frame.now)
        return self.replace(frame, [])

    def rewrite_evaluated(self, frame: RequestView, plain: Step) -> Disposition:
        """Rewrite a frame after the evaluation of its rules; their state is released if it is answered here."""
        disposition = self.rewrite(frame, plain)
        if isinstance(disposition, Replace):
            assert self.rules is not None
            self.rules.release()
        return disposition

    def rewrite_one_place(self, frame: RequestView, plain: Step, splicer: Splicer) -> Disposition | None:
        """Pass a request on as soon as the one place is changed that is to be: a Produce of one topic need not be all
        here. None: the whole frame is needed."""
        disposition = self.splice(splicer, frame)
        if disposition is None or isinstance(disposition, Need):
            return disposition
        assert frame.acks is not None or plain.acks is None, "acks precedes the name"
        self.enter(frame, plain)
        plain.tally.requests += disposition is not PASS  # the scan counts those that pass
        return disposition

    def rewrite_names(self, frame: RequestView, plain: Step) -> Disposition:
        """Replace all names of the client in a whole frame. Raises DecodeError."""
        context = self.session.context
        assert plain.rewrite_request is not None
        context.note, context.looked_up = None, self.looked_up
        context.now = frame.now
        context.known_topics = fresh_topics(context.cluster_memory, frame.now)
        context.topics_heard = topics_heard(context.cluster_memory)
        pieces = plain.rewrite_request.rewrite(frame.buf, frame.start + 4, frame.end, context)
        if isinstance(pieces, NeedsLookup):
            return Wait(pieces)
        self.looked_up = None
        self.enter(frame, plain, context.note)
        if pieces is None:
            return PASS
        return self.replace(frame, [sum(map(len, pieces)).to_bytes(4, "big"), *pieces])

    def identify(self, frame: RequestView, plain: Step) -> Disposition | None:
        """Process a request that identifies the client; return its disposition if it does not go on."""
        if not plain.watched:  # ApiVersions of a version that is not known
            answer = unsupported(frame.correlation, self.plan.newest_api_versions)
            self.answer(frame.correlation, answer, frame.now)
            return Replace([], frame.end)
        content = frame.content()
        cluster = self.session.shared.mark.cluster_of(content) if plain.key == API_VERSIONS else ""
        if cluster:  # kproxy's own question
            self.session.shared.mark.on_return(cluster)
            text = f"a question to cluster {cluster} has come back to kproxy, by way of others"
            return Reject("loop", text, "client")
        self.session.identity.request(plain, content)
        return None

    # ---- enter

    def enter(self, frame: RequestView, step: Step, note: dict[str, Any] | None = None) -> Pass:
        """Enter a forwarded request in the FIFO, or note that it expects no response."""
        entry: FifoEntry = (frame.correlation, step, frame.now, note)
        rules = self.rules
        charged = () if rules is None else tuple(rules.charged)
        if rules is not None and self.begun is not None:
            entry = rules.entry(frame, step, note)
        if frame.acks != 0:
            self.fifo.append(entry)
            if len(self.fifo) > self.limit:
                self.session.full()
        else:
            self.session.inflight.note_unanswered(frame.correlation)
        if charged and rules is not None:
            rules.watch(frame, charged)
        return PASS

    def take_tail(self, stream: LongFrame, data: bytearray, now: float) -> None:
        stream.receive(data, 0, len(data), now, direct=False)

    def answer(self, correlation: int, frame: bytes, now: float) -> None:
        """Enter an answer of kproxy's own in the FIFO; it leaves when its turn comes."""
        if self.session.observer is not None:
            older = self.session.inflight.count(correlation)
            self.session.observer.acted(correlation, (), answered=True, older=older)
        self.fifo.append((correlation, ANSWER, now, frame))
        self.session.has_pending = True
        if len(self.fifo) > self.limit:
            self.session.full()

    # ---- forward

    def forward(self, frame: RequestView, evaluation: RequestEvaluation) -> Disposition:
        """Return the disposition of a frame that rules apply to, by their decisions."""
        assert self.rules is not None
        session, rules = self.session, self.rules
        if evaluation.final and evaluation.drop != "continue":
            rules.release()
            if evaluation.swallow or evaluation.drop == "stall":
                return Replace([], frame.end, then=session.stall)
            return Replace([], frame.end, then=self.closing(evaluation.close or "fin", evaluation))
        if not evaluation.replaces:
            return self.rewrite_evaluated(frame, frame.step.plain)
        missing = frame.missing
        if missing is not None:
            return missing
        if evaluation.drop is not None:
            rules.release()
        elif evaluation.answer is not None:
            rules.release()
            if evaluation.exchange.acks != 0:
                self.answer(frame.correlation, framed(evaluation.answer), frame.now)
            if evaluation.throttle:
                session.flow.mute(evaluation.throttle, frame.now, session.timers)
        else:
            return self.forward_other(frame, evaluation)
        return self.replace(frame, [])

    def forward_other(self, frame: RequestView, evaluation: RequestEvaluation) -> Disposition:
        """Send other bytes than those that came: their names are rewritten first, then rules change them."""
        buf, start, end = frame.buf, frame.start, frame.end
        data = bytes(buf[start:end]) if evaluation.frame is None else framed(evaluation.frame)
        disposition = self.rewrite_evaluated(RequestView.of(frame.step, data, frame.now), frame.step.plain)
        if disposition is PASS:
            frame.step.tally.requests += 1
            disposition = Replace([data], len(data))
        if not isinstance(disposition, Replace):
            return disposition
        out = b"".join(disposition.pieces) + data[disposition.after :]
        for change in evaluation.changes if out else ():
            out = change(out)
        how = evaluation.then or evaluation.close_after
        return Replace([out], end, then=None if how is None else self.closing(how, evaluation))

    def answer_cached(self, frame: RequestView, cached: CachedAnswer) -> Disposition:
        running, session, correlation = cached.asked[-1], self.session, frame.correlation
        session.mark(BROKER, [running])
        if session.observer is not None:
            session.observer.acted(correlation, (running.name,), older=session.inflight.count(correlation))
        head = (len(cached.content) + 4).to_bytes(4, "big") + correlation.to_bytes(4, "big", signed=True)
        self.answer(correlation, head + cached.content, frame.now)
        return self.replace(frame, [])

    def replace(self, frame: RequestView, pieces: Pieces) -> Replace:
        """Count a request that does not pass, and return its replacement by `pieces`."""
        frame.step.tally.requests += 1
        return Replace(pieces, frame.end)

    def closing(self, how: Any, evaluation: RequestEvaluation) -> Any:
        """Return the call that ends the connection as these rules demand."""
        return partial(self.session.close_by_rule, how, evaluation.acted)


def mechanism_of(frame: RequestView) -> dict[str, str]:
    """Return {"mechanism": its name} for a SaslHandshake v0, which determines how many raw tokens follow."""
    start, end = frame.body or frame.end, frame.end
    length = int.from_bytes(frame.buf[start : min(start + 2, end)], "big")
    mechanism = bytes(frame.buf[start + 2 : min(start + 2 + length, end)])
    return {"mechanism": mechanism.decode("utf-8", "replace")}
