"""One client connection and its broker connection, without IO, clock or log.

The driver reads from a socket into its own buffer and calls `from_client` or `from_broker`. The return value is how
many leading bytes of the buffer go to the other side after the call: the session may have changed them, and their
number. The driver sends those, then obeys and clears `commands`. All given bytes are always consumed. The session never
raises for bad bytes; it emits a command to close instead. Both calls are the lanes' own `receive` (lanes/lane.py): a
method in between would cost every read.

    driver                                  session
    from_client(view, n, now)      →        commands: [Dial()]              the first header was valid
    from_broker(view, n, now)      →        [Pause(BROKER), EnsureNodes]    a response names nodes without a port
    nodes_ready({1: (host, port)}) →        [Resume(BROKER), Send(CLIENT)]  and leaves with the proxy's addresses
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import MatchingRules
from kproxy.session.frame import ANSWER
from kproxy.session.lanes.assembler import UNSENT
from kproxy.session.lanes.pair import LanePair
from kproxy.session.lanes.response_scan import NOT_PLAIN
from kproxy.session.lanes.services import NODES, SCHEMAS, TOPICS

from .commands import BROKER, CLIENT
from .frame import IDENTITY
from .logins import Logins
from .plan import Plan
from .session_state import DRAINING, NOWHERE, OVER, REFUSED, STALLED
from .shared import ClusterState


class Session(LanePair):
    """Session of one client connection (see the module). `logins`: who logs in, and where."""

    logins: Logins

    def __init__(
        self,
        plan: Plan,
        shared: ClusterState,
        facts: Facts = NOWHERE,
        number: int = 0,
        rules: MatchingRules | None = None,
    ) -> None:
        super().__init__(plan, shared, facts, number, rules)
        self.logins = Logins(self)

    @property
    def idle(self) -> bool:
        """Return True if no request is in flight and no frame is under way in either direction."""
        return not self.inflight.fifo and self.between_frames and not self.logins.hashing

    @property
    def settled(self) -> bool:
        """Return True if nothing is in flight, no unrequested response can arrive (brokers may answer acks=0), and
        neither a rule nor a failed login decided how the connection ends."""
        return self.inflight.unanswered is None and not self.kept_from_client and self.idle

    @property
    def waiting_since(self) -> float | None:
        """Return since when a frame of the client is not whole; None while it is kproxy that does not read on."""
        return self.flow.waiting_since

    # ---- calls of the driver

    def nodes_ready(self, nodes: Mapping[int, tuple[str, int] | None], now: float) -> None:
        """Set the addresses, (host, port), of the nodes in `EnsureNodes` for clients of this connection; None:
        that node is unreachable."""
        if not self.phase.ends:
            self.lookups.nodes_ready(nodes)
            if self.responses.blocked == NODES:
                self.responses.unblock(now)

    def schemas_ready(self, now: float) -> None:
        """Continue after the lookups of `LoadSchemas`, whether they have succeeded or not."""
        if not self.phase.ends:
            for lane in (self.requests, self.responses):
                if lane.blocked == SCHEMAS:
                    lane.unblock(now)

    @property
    def has_beginning(self) -> object:
        """Return something true if `begin` has anything to do."""
        return self.plan.connecting or self.plan.shaped or self.logins.server

    def begin(self, now: float) -> None:
        """Begin when the client has connected and the driver is ready: apply the rules about connections."""
        if self.logins.server is not None:
            self.logins.server.begin(now)
        if self.plan.connecting:
            self.engine.connect(now)
        if self.plan.shaped and not self.phase.ends:
            self.engine.reshape(now)

    def tick(self, now: float) -> None:
        """Call the callbacks due, at a time that a `WakeAt` named."""
        if not self.phase.ends:
            self.timers.tick(now)

    def step_aside(self) -> Sequence[Any]:
        """Leave the line of a quota until the next `granted`, as the work of this connection is put aside. Return the
        sessions that are first in the line now."""
        rules = self.requests.rules
        return () if rules is None else rules.step_aside()

    def released(self, now: float) -> None:
        """Try the frames again that rules of this connection may have released."""
        for lane in (self.requests, self.responses):
            if not self.phase.ends:
                lane.try_again(now)

    def use(self, plan: Plan, now: float) -> None:
        """Use other live rules for later frames; exchanges in flight finish under their own rules."""
        if self.phase.ends:
            return
        self.plan = plan
        if self.requests.begun is None:
            self.requests.plan = plan  # otherwise when the frame under evaluation has been sent
        if plan.shaped or (self._engine is not None and self._engine.shapes):
            self.engine.reshape(now)

    def drain(self, now: float) -> None:
        """Take no more requests; when those in flight are answered, emit a command to close.

        Nothing that kproxy itself holds is waited for. Responses leave at once, and mutes and traffic shapes end. A
        request that waits for a rule or for memory is not sent: the broker has not seen it, and the client repeats it
        elsewhere. With acks=0 the client would not notice, so such a request is sent at once.
        """
        if self.phase is STALLED:
            self.marks.put()
            self.close("drained", "connection drained: a rule blocked all its traffic")
        elif self.phase.takes_requests:
            self.phase = self.phase.to(DRAINING)
            self.flow.release(now)
            if self._engine is not None and self._engine.shapes:
                self._engine.reshape(now)
            if self.responses.rules is not None:
                self.responses.rules.let_all_go("resumed")
                self.responses.try_again(now)
            self.requests.try_again(now)
        self.run_pending(now)

    def eof(self, side: int, now: float) -> None:
        if self.phase.ends:
            return
        if self.phase is STALLED:
            self.close("stalled", "connection ended: a rule blocked all its traffic")
            return
        if self.phase is REFUSED and side == CLIENT:  # the client need not receive the reason, but it is logged
            assert self.logins.server is not None
            self.close("authentication", self.logins.server.refusal, "client")
        elif (self.requests if side == CLIENT else self.responses).blocked or (side == CLIENT and self.logins.hashing):
            self.ended |= {side}  # judged when the earlier bytes have been sent
        elif side == BROKER:
            awaited = len(self.inflight.fifo)
            if self.responses.speaks_tls:
                self.close("not_kafka", NOT_PLAIN, "broker")
            elif not self.responses.at_boundary:
                self.close("broker_closed_mid_frame", "broker closed in the middle of a frame", "broker")
            elif awaited:
                self.close("broker_closed", f"broker closed with {awaited} requests unanswered", "broker")
            else:
                self.close("broker_closed", "broker closed")
        elif not self.requests.at_boundary:
            self.close("client_closed_mid_frame", "client closed in the middle of a frame", "client")
        elif not self.inflight.fifo and self.responses.at_boundary:
            self.close("client_closed", "client closed")

    def end(self, now: float) -> None:
        """Return all that the connection held: it has ended. May add a Wake."""
        if self.phase is OVER:
            return
        self.phase = self.phase.to(OVER)
        self.requests.report_end(now)
        self.responses.report_end(now)
        self.let_all_go(getattr(self.owner, "cause", ""))
        if self._engine is not None:
            self._engine.subjects.over()
        self._engine = self._lookups = self.telemetry = self.identity.on_change = None
        self.logins.end()
        for lane in (self.requests, self.responses):
            lane.rules = None
            memory, holds = lane.memory, lane.end()
            if memory.waiting:
                self.wake(memory.forget(lane))
            for hold in holds:
                self.wake(memory.release(hold))

    # ---- the call of the lanes

    def run_pending(self, now: float) -> None:
        if self.phase.ends:
            self.marks.count_applied()
            return
        self.marks.put()
        if self.phase is STALLED:
            return
        if self.has_news():
            self.requests.unblock(now)
            self.run_pending(now)
            return
        renewal = self.logins.renewal
        if renewal is not None and renewal.busy:
            renewal.run(now)
            if self.phase.ends:
                return
        self.send_answers()
        fifo, requests = self.inflight.fifo, self.requests
        if self.phase is REFUSED and not fifo and self.logins.refusal:
            self.close("authentication", self.logins.refusal, "client")
            return
        if len(fifo) <= max(1, requests.resumes_at):  # 1: it may be one that is not all here
            requests.resumes_at = requests.limit // 2
            if self.flow.paused[CLIENT]:
                self.flow.resume(CLIENT, "full", now)
        if self.phase is DRAINING:
            self.go_on_draining(now)
        waits = (renewal is not None and renewal.busy) or not self.phase.takes_requests or self.flow.paused[CLIENT]
        self.has_pending = bool(waits or (fifo and any(entry[1] is ANSWER for entry in fifo)))

    def has_news(self) -> bool:
        """Return True if the topics or the client's principal that the request lane waits for have arrived."""
        topics_came = self._lookups is not None and self._lookups.take_news()
        blocked = self.requests.blocked
        return (topics_came and blocked == TOPICS) or (blocked == IDENTITY and not self.logins.await_broker)

    def go_on_draining(self, now: float) -> None:
        """Read the client for the rest of a request that has begun, and close when nothing is in flight."""
        held = self.requests.blocked in UNSENT
        if self.requests.at_boundary or held:
            self.flow.pause(CLIENT, "drain")
        else:  # one more request has begun in the bytes read
            self.flow.resume(CLIENT, "drain", now)
        if self.idle:
            self.close("drained", "connection drained")
        elif held and not self.inflight.fifo and self.responses.at_boundary:
            self.close("drained", f"connection drained, with a request that was not sent ({self.requests.blocked})")
