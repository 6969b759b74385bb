"""Live rules in the response lane: the plain rewrites come first, so that rules see the response as the client
would."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kproxy.core.commands import CLIENT
from kproxy.core.engine import milliseconds
from kproxy.core.evaluated_exchange import EvaluatedExchange
from kproxy.core.evaluation import Evaluation, Watched
from kproxy.core.identity import ANSWERED
from kproxy.core.inflight import Entry
from kproxy.core.response_evaluation import ResponseEvaluation
from kproxy.core.rewrite import Buffer
from kproxy.core.step import LIVE, Step
from kproxy.core.subjects import SESSION_HEAD
from kproxy.rules.depth import Depth
from kproxy.wire.breath import freeing, rest
from kproxy.wire.scan.head import body_start
from kproxy.wire.table.api_keys import SASL_HANDSHAKE

from .frame import Blocked, Changed, Keep
from .lane import joined
from .request_rules import Noted, sized

if TYPE_CHECKING:
    from .response import ResponseLane

HEAD = 32
"""Bytes in which a leading throttle_time_ms and a session id stand, if the header has no tags (brokers put none)."""
LONGEST_HEAD = 65536
"""No tags make a header longer than this."""


class ResponseRules:
    """Live rules of one response lane. `evaluation` is that of the frame at the lane's head, once it is made."""

    __slots__ = ("evaluation", "lane", "session")

    def __init__(self, lane: ResponseLane) -> None:
        self.lane, self.session = lane, lane.session
        self.evaluation: Evaluation | None = None

    def look(self, entry: Entry, buf: Buffer, pos: int, n: int, size: int, now: float) -> bool:
        """Evaluate a frame and act on it. True: it passes as it is. False: `lane.halt` says how it goes on."""
        lane, session = self.lane, self.session
        step, end = entry[1], pos + 4 + size
        if isinstance(entry[3], Watched):
            return self.look_watched(entry, entry[3], buf, pos, n, end, now)
        noted: Noted = entry[3]
        if noted.exchange is None:
            return self.with_another(entry, noted, buf, pos, n, end, now)
        if self.evaluation is None:
            exchange = noted.exchange
            long = max(size, exchange.request_size)
            self.evaluation = freeing(long, lambda: self.judge(noted, exchange, step, buf, pos, n, end, now))
            if self.evaluation is None:
                return False
        evaluation = self.evaluation
        if evaluation.until is not None and now < evaluation.until:
            session.timers.at(evaluation.until, lane.try_again)
            lane.halt = Blocked("delay")
            return False
        if evaluation.final and evaluation.drop != "continue":
            self.done(evaluation)
            if evaluation.swallow or evaluation.drop == "stall":
                session.stall()
            else:
                session.close_by_rule(evaluation.close or "fin", evaluation.acted)
            return False
        if not evaluation.whole and evaluation.drop is None:
            return self.go_plain(evaluation, entry, noted, buf, pos, n, end, now)
        if end > n:
            lane.halt = Keep(end - pos, hold=True)
            return False
        return self.send(evaluation, entry, noted, buf, pos, end, now)

    def look_watched(self, entry: Entry, watched: Watched, buf: Buffer, pos: int, n: int, end: int, now: float) -> bool:
        """Look at the response to a request to which no rule applied, but whose response may mention what some
        forbid."""
        lane, step = self.lane, entry[1]
        assert step.program is not None
        if end > n:
            lane.halt = Keep(end - pos, hold=True)
            return False
        found = self.client_side(step.plain, watched.rewrite, buf, pos, end)
        if found is None:
            return False
        frame, changed = found
        if self.session.engine.may_show(step.program, frame):
            exchange = self.session.engine.watched(step, watched.request, watched.came)
            entry = lane.fifo[0] = (entry[0], step, entry[2], Noted(watched.rewrite, exchange))
            long = max(len(frame), exchange.request_size)
            self.evaluation = freeing(long, lambda: self.judge_whole(exchange, frame, changed, end - pos - 4, now))
            return self.look(entry, buf, pos, n, end - pos - 4, now)
        if not changed:
            return True
        lane.fifo.popleft()
        step.latency.add(now - entry[2])
        lane.halt = Changed([len(frame).to_bytes(4, "big"), frame], end)
        return False

    def judge(
        self, noted: Noted, exchange: EvaluatedExchange, step: Step, buf: Buffer, pos: int, n: int, end: int, now: float
    ) -> Evaluation | None:
        """Evaluate the rules; return their evaluation, or None with `lane.halt` set."""
        lane = self.lane
        if exchange.response_depth() == Depth.BODY:
            if end > n:
                lane.halt = Keep(end - pos, hold=True)
                return None
            found = self.client_side(step.plain, noted.rewrite, buf, pos, end)
            return None if found is None else self.judge_whole(exchange, *found, end - pos - 4, now)
        need = self.more_of_head(exchange, step, buf, pos, n, end)
        if need:
            lane.halt = Keep(need)
            return None
        if exchange.awaits:
            self.session.engine.subjects.head(exchange, buf, pos, n)
        evaluation = ResponseEvaluation(self.session.engine, exchange, lane.since(now)).reach(end - pos - 4, None)
        exchange.end()
        return evaluation

    def judge_whole(
        self, exchange: EvaluatedExchange, frame: bytes, changed: bool, size: int, now: float
    ) -> Evaluation:
        """Evaluate the rules over a whole response of `size` bytes, which the client would get as `frame`; it is
        `changed` if it is not the broker's."""
        evaluation = ResponseEvaluation(self.session.engine, exchange, self.lane.since(now)).reach(size, frame)
        evaluation.whole = True
        if evaluation.frame is None and changed:
            evaluation.frame = frame
        exchange.end()
        return evaluation

    def more_of_head(self, exchange: EvaluatedExchange, step: Step, buf: Buffer, pos: int, n: int, end: int) -> int:
        """Return how many bytes of the frame must be here, so that throttle_time_ms can be put in; 0: there are
        enough."""
        assert step.program is not None
        if not (exchange.awaits or step.program.throttle_first):
            return 0
        have, need = n - pos, min(HEAD, end - pos)
        if have < need:
            return need
        at = body_start(buf, pos + 4, n, exchange.api.header_version("response", step.version), "response")
        if n < end and have < LONGEST_HEAD and (at is None or at + SESSION_HEAD > n):
            return min(2 * have, end - pos)
        return 0

    def client_side(
        self, plain: Step, note: dict[str, Any] | None, buf: Buffer, pos: int, end: int
    ) -> tuple[bytes, bool] | None:
        """Return the frame as the client would get it without live rules, and True if it differs from the broker's;
        None with `lane.halt` set, or closed."""
        if plain.watched and plain.key in ANSWERED:
            self.session.identity.response(plain, copied(buf, pos + 4, end))
            self.session.identified()
        pieces = self.lane.rewritten(plain, note, buf, pos, end)
        if pieces is not None and not pieces:  # STOPPED
            return None
        rest()
        frame = copied(buf, pos + 4, end) if pieces is None else bytes(joined(pieces[1:]))
        return frame, pieces is not None

    def go_plain(
        self, evaluation: Evaluation, entry: Entry, noted: Noted, buf: Buffer, pos: int, n: int, end: int, now: float
    ) -> bool:
        """Send the frame as if there were no live rules, once those that act on the header have acted."""
        lane, plain = self.lane, entry[1].plain
        if evaluation.hint:
            self.patch(evaluation, plain, buf, pos, n)
        self.done(evaluation)
        self.session.mute(max(evaluation.throttle, noted.exchange.mute if noted.exchange else 0.0), now)
        if noted.behind:
            noted = Noted(noted.rewrite, None, noted.behind)
            entry = lane.fifo[0] = (entry[0], entry[1], entry[2], noted)
            return self.with_another(entry, noted, buf, pos, n, end, now)
        entry = lane.fifo[0] = (entry[0], plain, entry[2], noted.rewrite)
        if plain.response is None or (plain.clean is not None and end <= n and plain.clean(buf, pos, end)):
            return True
        return lane.look(entry, buf, pos, n, end - pos - 4, now)

    def patch(self, evaluation: Evaluation, plain: Step, buf: Buffer, pos: int, n: int) -> None:
        """Write throttle_time_ms where it lies, in the driver's own buffer: it has a fixed width and comes first."""
        version = evaluation.exchange.api.header_version("response", plain.version)
        at = body_start(buf, pos + 4, n, version, "response")
        if at is None or at + 4 > n:
            self.session.counters.count("throttle_not_told")
            return
        told = max(milliseconds(evaluation.hint), int.from_bytes(buf[at : at + 4], "big", signed=True))
        buf[at : at + 4] = told.to_bytes(4, "big")  # type: ignore[index]  # a bytearray, or a view of one

    def send(
        self, evaluation: Evaluation, entry: Entry, noted: Noted, buf: Buffer, pos: int, end: int, now: float
    ) -> bool:
        """Send the frame, which is all here, as its evaluation says; return True if it passes as it is."""
        lane, session, fifo = self.lane, self.session, self.lane.fifo
        self.done(evaluation)
        session.mute(max(evaluation.throttle, noted.exchange.mute if noted.exchange else 0.0), now)
        others = (
            evaluation.changes or evaluation.repeat or evaluation.swap or evaluation.drop is not None or noted.behind
        )
        if evaluation.frame is None and not others and evaluation.then is None:
            return True
        fifo.popleft()
        entry[1].latency.add(now - entry[2])
        out = (
            b""
            if evaluation.drop is not None
            else copied(buf, pos, end)
            if evaluation.frame is None
            else sized(evaluation.frame)
        )
        for change in evaluation.changes if out else ():
            rest()
            out = change(out)
        often = 1 + evaluation.repeat
        if evaluation.swap and self.leave_behind(out * often):
            often = 0
        then = None if evaluation.then is None else partial(session.close_by_rule, evaluation.then, evaluation.acted)
        lane.halt = Changed([*[out] * often, noted.behind], end, then=then)
        rest()
        return False

    def leave_behind(self, out: bytes) -> bool:
        """Have this response leave behind the next one. False: none is due."""
        fifo = self.lane.fifo
        if not fifo or fifo[0][1].key < 0 or fifo[0][1].key == SASL_HANDSHAKE:  # behind which raw tokens may come
            return False
        correlation, step, then, note = fifo[0]
        if isinstance(note, Watched):
            note = Noted(note.rewrite, self.session.engine.watched(step, note.request, note.came))
        if isinstance(note, Noted):
            fifo[0] = (correlation, step, then, note._replace(behind=note.behind + out))
        else:
            carrier = Step(step.key, step.version, step.api)
            carrier.response, carrier.plain = LIVE, step
            carrier.count_in(step.tally)
            fifo[0] = (correlation, carrier, then, Noted(note, None, out))
        return True

    def with_another(self, entry: Entry, noted: Noted, buf: Buffer, pos: int, n: int, end: int, now: float) -> bool:
        """Send a response to which no rule applies, and behind it another one that waits for it."""
        lane = self.lane
        if end > n:
            lane.halt = Keep(end - pos, hold=True)
            return False
        found = self.client_side(entry[1].plain, noted.rewrite, buf, pos, end)
        if found is None:
            return False
        frame, _ = found
        lane.fifo.popleft()
        entry[1].latency.add(now - entry[2])
        lane.halt = Changed([len(frame).to_bytes(4, "big"), frame, noted.behind], end)
        return False

    def done(self, evaluation: Evaluation) -> None:
        self.evaluation = None
        self.session.mark(CLIENT, evaluation.to_count())


def copied(buf: Buffer, start: int, end: int) -> bytes:
    """Return buf[start:end] as bytes, by one copy."""
    return bytes(memoryview(buf)[start:end])
