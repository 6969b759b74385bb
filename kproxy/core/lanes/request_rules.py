"""Live rules in the request lane: a request is evaluated once, waits if it has to, and goes its plain way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.core.commands import BROKER
from kproxy.core.evaluated_exchange import EvaluatedExchange
from kproxy.core.evaluation import Evaluation, Pass, Watched
from kproxy.core.inflight import Entry
from kproxy.core.rewrite import Buffer
from kproxy.core.step import HEAD, Step
from kproxy.errors import DecodeError
from kproxy.rules.depth import Depth
from kproxy.wire.breath import LONG, freeing
from kproxy.wire.table.api_keys import PRODUCE

from .frame import Blocked, Changed, Keep
from .frame_templates import FrameTemplate, FrameTemplates

if TYPE_CHECKING:
    from kproxy.rules.running import Running

    from .request import RequestLane

HEADER_BYTES = 14
NO_RECORDS = 8
"""One in so many bytes of a Produce is taken for what is not records."""


class Noted(NamedTuple):
    """Note of a FIFO entry to which live rules apply: what the name rewrites left, the exchange, and the bytes that are
    to leave behind the response."""

    rewrite: dict[str, Any] | None
    exchange: EvaluatedExchange | None
    behind: bytes = b""


class RequestRules:
    """Live rules of one request lane.

    `evaluation` is that of the frame at the lane's head, once it is made; `watched` stands in its place, with the
    frame's step, if no rule applies to it; `drawn` says of rules whose triggers were asked about it before that,
    if they fire, and is None when none was asked.
    """

    __slots__ = ("drawn", "evaluation", "lane", "session", "templates", "watched")

    def __init__(self, lane: RequestLane) -> None:
        self.lane, self.session = lane, lane.session
        self.templates = FrameTemplates()
        self.evaluation: Evaluation | None = None
        self.drawn: dict[Running, bool] | None = None
        self.watched: tuple[Step, Watched] | None = None

    @property
    def has_begun(self) -> bool:
        """Return True if rules were asked about the frame at hand, so that the rules in force have to stay for it."""
        return self.evaluation is not None or self.drawn is not None or self.watched is not None

    def look(self, step: Step, buf: Buffer, pos: int, n: int, now: float) -> bool:
        """Evaluate a frame and act on it. True: it passes as it is, and is entered in the FIFO. False: `lane.halt` says
        how it goes on."""
        lane, session = self.lane, self.session
        size = int.from_bytes(buf[pos : pos + 4], "big")
        end = pos + 4 + size
        if self.watched is not None:
            return self.pass_on(step.plain, buf, pos, n, now)
        if self.evaluation is None:
            known = None if self.drawn is not None else self.templates.recognise(step, buf, pos, n)
            if known is not None and (not known.waiting or self.none_fires(known, now)):
                self.expect(known)
                return self.pass_on(step.plain, buf, pos, n, now)
            need = self.needed(step, buf, pos, size, n)
            if n - pos < need:
                lane.halt = Keep(need, hold=need == size + 4)
                return False
            session.context.now = now
            try:
                have, since = min(n, end), lane.since(now)
                if size < LONG:
                    evaluation = session.engine.request(step, buf, pos, end, have, since, self.drawn)
                else:
                    evaluation = freeing(
                        size, lambda: session.engine.request(step, buf, pos, end, have, since, self.drawn)
                    )
            except DecodeError as error:
                session.close("decode", str(error), "client")
                return False
            session.context.has_asked = session.context.has_asked and evaluation is None
            if evaluation is None:
                lane.halt = Blocked()
                return False
            drawn, self.drawn = self.drawn, None
            if isinstance(evaluation, Pass):
                lane.plan = session.plan  # which waited, if triggers were asked before
                self.expect(self.templates.learn(step, buf, pos, n))
                return self.pass_on(step.plain, buf, pos, n, now)
            lane.template = (
                None  # this frame may begin so, and its evaluation stays however often the frame is looked at
            )
            if isinstance(evaluation, Watched):
                self.watched = step, evaluation
                return self.pass_on(step.plain, buf, pos, n, now)
            if evaluation.waiting and drawn is None:
                client_id = evaluation.exchange.client_id
                self.templates.learn_waiting(step, buf, pos, n, evaluation.waiting, client_id)
                session.identity.on_news = self.forget
            self.hold(evaluation)
            self.evaluation = evaluation
        evaluation = self.evaluation
        if evaluation.held_by:
            lane.halt = Blocked("held")
        elif evaluation.until is not None and now < evaluation.until:
            session.timers.at(evaluation.until, lane.try_again)
            lane.halt = Blocked("delay")
        else:
            return self.obey(evaluation, step, buf, pos, n, end, now)
        return False

    def expect(self, known: FrameTemplate | None) -> None:
        """Compare the next request with this template first, which no rule has acted on."""
        self.lane.template = known if known is not None and known.passes else None
        self.session.identity.on_news = self.forget

    def forget(self) -> None:
        """Drop all templates, since more is known of the client."""
        self.lane.template = None
        self.templates.clear()

    def none_fires(self, template: FrameTemplate, now: float) -> bool:
        """Ask the triggers of the rules that match the frame at hand; return True if each waits for another frame.

        Else the frame is to be evaluated, with what the triggers have said in `drawn`: each is asked once a frame.
        """
        since, number = self.lane.since(now), self.session.number
        for running in template.waiting:
            if running.trigger.fires(since, number, template.client_id):
                waiting = template.waiting[: template.waiting.index(running)]
                self.drawn = dict.fromkeys(waiting, False) | {running: True}
                self.lane.template = None
                return False
            running.count(fired=False)
        return True

    def needed(self, step: Step, buf: Buffer, pos: int, size: int, n: int) -> int:
        """Return the bytes, size included, without which the rules cannot decide."""
        assert step.program is not None
        if step.program.request == Depth.BODY or not step.program.names_client:
            return size + 4
        length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
        need = min(HEADER_BYTES + max(length, 0), size + 4)
        if step.plain.acks is not None and n - pos >= need and step.plain.acks(buf, pos + 4, n, length) is None:
            need = min(n - pos + 1, size + 4)  # acks has to be here: observers are told if an answer is due
        return need

    def hold(self, evaluation: Evaluation) -> None:
        """Have each rule that holds the request tell when it releases it."""
        for running in evaluation.held_by:
            running.held.append(partial(self.let_go, evaluation, running))

    def let_go(self, evaluation: Evaluation, running: Running) -> None:
        """Note that a rule does not hold this request any more."""
        evaluation.held_by.remove(running)
        owner = self.session.owner
        if not evaluation.held_by and owner is not None:
            owner.released()

    def obey(self, evaluation: Evaluation, step: Step, buf: Buffer, pos: int, n: int, end: int, now: float) -> bool:
        """Do to the frame what its evaluation says; return True if it passes as it is."""
        lane, session = self.lane, self.session
        if evaluation.final and evaluation.drop != "continue":
            self.done(evaluation, now)
            if evaluation.swallow or evaluation.drop == "stall":
                session.stall()
            else:
                session.close_by_rule(evaluation.close or "fin", evaluation.acted)
            return False
        moves = (
            evaluation.frame is not None
            or evaluation.changes
            or evaluation.answer is not None
            or evaluation.drop is not None
        )
        if not moves:
            return self.pass_on(step.plain, buf, pos, n, now)
        if end > n:
            lane.halt = Keep(end - pos, hold=True)
            return False
        if evaluation.drop is not None:
            self.done(evaluation, now)
            step.tally.requests += 1
            lane.halt = Changed([], end)
        elif evaluation.answer is not None:
            exchange = evaluation.exchange
            step.tally.requests += 1
            if exchange.acks != 0:
                lane.answer(exchange.correlation_id, sized(evaluation.answer), now)
            self.done(evaluation, now)
            session.mute(evaluation.throttle, now)
            lane.halt = Changed([], end)
        else:
            self.send_other(evaluation, step, buf, pos, end, now)
        return False

    def send_other(self, evaluation: Evaluation, step: Step, buf: Buffer, pos: int, end: int, now: float) -> None:
        """Send other bytes than those that came: they go the plain way first, then rules change them."""
        lane = self.lane
        data = bytes(buf[pos:end]) if evaluation.frame is None else sized(evaluation.frame)
        if self.pass_on(step.plain, data, 0, len(data), now):
            step.tally.requests += 1
            lane.halt = Changed([data], len(data))
        halt = lane.halt
        if isinstance(halt, Changed):
            out = b"".join(halt.pieces) + data[halt.after :]
            for change in evaluation.changes if out else ():
                out = change(out)
            then = evaluation.then or evaluation.close_after
            after = None if then is None else partial(self.session.close_by_rule, then, evaluation.acted)
            lane.halt = Changed([out], end, then=after)

    def pass_on(self, plain: Step, buf: Buffer, pos: int, n: int, now: float) -> bool:
        """Treat the frame as if there were no live rules."""
        lane = self.lane
        if plain.request is None:
            lane.enter(int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True), plain, now, None)
            return True
        if plain.request != HEAD:
            passes = lane.look(plain, buf, pos, n, now)
            if isinstance(lane.halt, Changed):  # perhaps answered, and not entered
                self.watched = None
                if self.evaluation is not None:
                    self.done(self.evaluation, now)
            return passes
        assert plain.acks is not None
        size = int.from_bytes(buf[pos : pos + 4], "big")
        length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
        acks = plain.acks(buf, pos + 4, n, length)
        if acks is None:
            lane.need_more_head(pos, n, size)
            return False
        lane.enter(int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True), plain, now, None, acks != 0)
        return True

    def entry(self, correlation: int, step: Step, now: float, note: dict[str, Any] | None, answered: bool) -> Entry:
        """Return the FIFO's entry for the frame that goes on now."""
        if self.watched is not None:
            (step, watched), self.watched = self.watched, None
            self.lane.plan = self.session.plan
            self.lane.weigh(len(watched.request))
            return correlation, step, now, watched if note is None else watched._replace(rewrite=note)
        evaluation = self.evaluation
        assert evaluation is not None
        exchange = evaluation.exchange
        self.done(evaluation, now)
        if not answered:
            self.session.mute(evaluation.throttle, now)
        elif exchange.response_depth() or evaluation.throttle:
            exchange.mute = evaluation.throttle
            exchange.forget_records()
            found = correlation, exchange.step, now, Noted(note, exchange)
            self.lane.weigh(remembered_bytes(found))
            return found
        return correlation, step, now, note

    def done(self, evaluation: Evaluation, now: float) -> None:
        """Forget the evaluation of the frame, which has gone or will not go, and count its rules."""
        self.evaluation = None
        self.lane.plan = self.session.plan  # another one may have come while the frame waited
        self.session.mark(BROKER, evaluation.to_count())

    def end(self) -> None:
        """Take back the calls by which rules would release this connection's request, since the connection is over."""
        if self.evaluation is not None:
            for running in self.evaluation.held_by:
                running.held[:] = [one for one in running.held if getattr(one, "func", None) != self.let_go]


def sized(frame: bytes) -> bytes:
    """Return the frame with its size in front."""
    return len(frame).to_bytes(4, "big") + frame


def remembered_bytes(entry: Entry) -> int:
    """Return the bytes of the request of which rules remember something until its response has come."""
    note = entry[3]
    if isinstance(note, Watched):
        return len(note.request)
    if not isinstance(note, Noted) or note.exchange is None:
        return 0
    size = note.exchange.request_size
    return size // NO_RECORDS if entry[1].key == PRODUCE else size
