"""Both lanes of a session: the exchanges in flight, the memory that they hold, and the end of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kproxy.protocol.table.api_keys import SASL_HANDSHAKE
from kproxy.rules.exchange import Facts, How
from kproxy.rules.rule_set import ActiveRule, MatchingRules
from kproxy.session.commands import BROKER, CLIENT, CloseBoth, Send, Shut, Wake
from kproxy.session.frame import ANSWER, ANSWERED, ASKED, OWN
from kproxy.session.plan import Plan
from kproxy.session.session_state import CLOSING, DRAINING, NOWHERE, OVER, STALLED
from kproxy.session.shared import ClusterState

from .assembler import Assembler
from .request import RequestLane
from .response import ResponseLane
from .services import LaneHost


class LanePair(LaneHost):
    """Session with its lanes, `requests` and `responses`."""

    def __init__(
        self,
        plan: Plan,
        shared: ClusterState,
        facts: Facts = NOWHERE,
        number: int = 0,
        rules: MatchingRules | None = None,
    ) -> None:
        super().__init__(plan, shared, facts, number, rules)
        self.requests = RequestLane(self, shared.requests, shared.max_in_flight)
        self.responses = ResponseLane(self, shared.responses)
        self.from_client, self.from_broker = self.requests.receive, self.responses.receive

    # ---- requests in flight

    @property
    def awaited(self) -> int:
        return len(self.inflight.fifo)

    @property
    def awaited_since(self) -> float | None:
        """Return when the oldest request in flight was read; None: none in flight."""
        return self.inflight.fifo[0][2] if self.inflight.fifo else None

    @property
    def between_frames(self) -> bool:
        """Return True if no frame is under way in either direction."""
        return self.requests.at_boundary and self.responses.at_boundary

    @property
    def tokens_may_come(self) -> bool:
        """Return True if raw SASL tokens may come, now or after the response to a SaslHandshake v0 in flight."""
        handshakes = (step.key == SASL_HANDSHAKE and not step.version for _, step, _, _ in self.inflight.fifo)
        return self.logins.raw is not None or any(handshakes)

    @property
    def awaited_requests(self) -> list[tuple[int, int, int]]:
        """Return (correlation id, api key, version) of each request in flight. The key is `ANSWERED` for a response
        made by kproxy that waits for its turn, and `ASKED` for a request made by kproxy."""
        marks = {ANSWER: ANSWERED, OWN: ASKED}
        return [(number, marks.get(step, step.key), step.version) for number, step, _, _ in self.inflight.fifo]

    # ---- frames that are held

    def holding_since(self) -> tuple[int, float] | None:
        """Return (side, time) of the reservation for a frame that is not whole; None without one, or while the side is
        paused."""
        if self.requests.reserved is None and self.responses.reserved is None:
            return None
        for lane in (self.requests, self.responses):
            if lane.reserved is not None and lane.kept and not self.flow.paused[lane.source]:
                return lane.source, lane.reserved_at
        return None

    @property
    def cut_off(self) -> bool:
        """Return True if a request has begun, and is not whole."""
        return not self.requests.at_boundary

    def sent(self, token: int, now: float) -> None:
        """Return the memory of the held frame that ends with this token: the kernel has all of it."""
        if self.phase is OVER:  # `end` has returned it
            return
        if token < 0:
            self.marks.sent(token)
            return
        lane: Assembler = self.requests if token & 1 == BROKER else self.responses
        assert lane.handed_over, "each token belongs to a held frame"
        self.wake(lane.memory.release(lane.handed_over.popleft()))

    def granted(self, now: float) -> None:
        for lane in (self.requests, self.responses):
            if not self.phase.ends and lane.blocked == "memory" and lane.reserved is not None:
                lane.granted(now)
        if not self.phase.ends and self.requests.blocked == "quota":
            self.requests.try_again(now)

    def wake(self, lanes: Sequence[Assembler]) -> None:
        if lanes:
            self.commands.append(Wake(tuple(lane.session for lane in lanes)))

    # ---- the end

    def close(self, cause: str, message: str, blame: str = "") -> None:
        if not self.phase.ends:
            self.send_last_answers()
            self.phase = self.phase.to(CLOSING)
            self.let_all_go(cause)
            self.kill_lanes()
            if self._timers is not None:
                self._timers.cancel()
            self.commands.append(CloseBoth(cause, message, blame))

    def close_by_rule(self, how: How, acted: list[ActiveRule]) -> None:
        self.marks.count_applied()
        names = ", ".join(f'"{running.name}"' for running in acted)
        if how == "half":
            self.stall()
            if self.phase is STALLED:
                self.commands.append(Shut(CLIENT))
        elif not self.phase.ends:
            self.close("rule", f"closed by {names}")
            last = self.commands.pop()
            assert isinstance(last, CloseBoth)
            self.commands.append(replace(last, reset=how == "rst"))

    def let_all_go(self, cause: str) -> None:
        """Note that no rule holds a frame of this connection any more, which ends for this cause."""
        for rules in (self.requests.rules, self.responses.rules):
            if rules is not None:
                rules.let_all_go("client_left" if cause.startswith("client") else "closed")

    def stall(self) -> None:
        if self.phase is DRAINING:
            self.close("drained", "connection drained: a rule blocks all its traffic")
        if self.phase.ends:
            return
        self.send_last_answers()
        self.phase = self.phase.to(STALLED)
        self.kept_from_client = True
        self.has_pending = True
        self.marks.count_applied()
        self.let_all_go("rule")
        self.kill_lanes()
        self.flow.resume_all()  # bytes are discarded, but the connection's end is noticed

    def kill_lanes(self) -> None:
        """Pass no more bytes. Frames that will not go on free their memory now: the connection may stay open for long,
        for example until its client has read."""
        for lane in (self.requests, self.responses):
            lane.die()
            if lane.memory.waiting:
                self.wake(lane.memory.forget(lane))
            if lane.reserved is not None:
                hold, lane.reserved = lane.reserved, None
                self.wake(lane.memory.release(hold))

    def send_answers(self) -> None:
        """Send kproxy's own responses whose turn has come, but not inside a response or before a token."""
        raw = self.logins.raw
        if self.phase is not STALLED and self.responses.at_boundary and (raw is None or raw.answered):
            for frame in self.inflight.take_answers():
                self.commands.append(Send(CLIENT, frame))

    def send_last_answers(self) -> None:
        """Send them for the last time, before nothing more leaves; a lane may still have to emit what it has read
        before."""
        self.tail_position = len(self.commands)
        self.send_answers()
