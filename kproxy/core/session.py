"""One client connection and its broker connection, without IO, clock or log.

The driver reads from a socket into a buffer of its own and calls `from_client` or `from_broker`; the return value is
how many leading bytes of the buffer go to the other side, as they are then: the session may have changed them, and
their number. The driver sends those, then obeys and clears `commands`. All bytes given are always taken; the session
never raises for what they hold, it asks to be closed instead.

    driver                                  session
    from_client(view, n, now)      →        commands: [Dial()]              the first header was good
    from_broker(view, n, now)      →        [Pause(BROKER), EnsureNodes]    a response names nodes without a port
    nodes_ready({1: (host, port)}) →        [Resume(BROKER), Send(CLIENT)]  and leaves with the proxy's addresses
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kproxy.core.lanes.assembler import Assembler
from kproxy.core.lanes.frame import IDENTITY
from kproxy.core.lanes.request import RequestLane
from kproxy.core.lanes.response import ResponseLane
from kproxy.core.lanes.response_scan import NOT_PLAIN
from kproxy.rules.decision import How
from kproxy.rules.facts import Facts
from kproxy.rules.rule_set import BoundRules
from kproxy.rules.running import Running
from kproxy.wire.table.api_keys import SASL_HANDSHAKE

from .circle import CircleMark
from .commands import BROKER, CLIENT, Close, Command, Dial, Send, Shut, Wake
from .counters import Counters
from .engine import Engine
from .flow import FlowControl
from .identity import Identity
from .inflight import ANSWER, ANSWERED, ASKED, OWN, InFlight
from .logins import Logins
from .lookups import TOPICS, Lookups
from .marks import Marks
from .memory import HeldMemory, Holder
from .observer import Observer
from .partition_session import Room
from .phase import CLOSING, DRAINING, NEW, OPEN, OVER, REFUSED, STALLED, SessionPhase
from .plan import Plan
from .rewrite import MOST_NODES, Context
from .step import WHOLE
from .timers import Timers

ANSWER.response = OWN.response = WHOLE  # the response lane looks at what meets them


DIAL = Dial()
NOWHERE = Facts("", "", "")
"""Facts of a session that was made by hand, in tests for example."""


@dataclass(slots=True)
class Shared:
    """State and limits that the connections of one cluster share."""

    counters: Counters = field(default_factory=Counters)
    requests: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    responses: HeldMemory = field(default_factory=lambda: HeldMemory(256 << 20))
    cluster_memory: MutableMapping[str, Any] = field(default_factory=dict)
    max_frame_bytes: int = 100 << 20
    hold_up_to: int = 64 << 10
    max_in_flight: int = 1000
    max_nodes: int = MOST_NODES
    mark: CircleMark = field(default_factory=CircleMark)
    room: Room = field(default_factory=Room)


class Session:
    """Session of one client connection (see the module). `owner` is for the driver's use.

    `rules` is what the connection is bound to until it ends.

    Attributes: commands (for the driver, always the same list); phase; flow (which side is read); logins (who logs in,
    and where); requests, responses (the lanes); inflight (the FIFO); has_pending (see `run_pending`).
    """

    # What most connections never need stands here, or is made when it is asked for: it costs nothing to set up.
    _engine: Engine | None = None
    _lookups: Lookups | None = None
    phase = SessionPhase.NEW
    ended: frozenset[int] = frozenset()  # sides of which no more will come, though what came is still blocked
    tail_position: int | None = None  # index in `commands` of the last answers; bytes read before go in front
    observer: Observer | None = None  # the driver may put one here
    owner: Any = None

    def __init__(
        self, plan: Plan, shared: Shared, facts: Facts = NOWHERE, number: int = 0, rules: BoundRules | None = None
    ) -> None:
        self.plan, self.shared, self.counters = plan, shared, shared.counters
        self.facts, self.number, self.rules = facts, number, rules or BoundRules()
        self.commands: list[Command] = []
        self.inflight = InFlight()
        self.flow = FlowControl(self.commands)
        self.has_pending = False  # a lane is to call `run_pending` once its bytes have gone
        self.requests = RequestLane(self, shared.requests, shared.max_in_flight)
        self.responses = ResponseLane(self, shared.responses)
        self.from_client, self.from_broker = self.requests.receive, self.responses.receive
        self.identity = Identity(facts.certificate, shared.counters)
        self.logins = Logins(self)

    @cached_property
    def context(self) -> Context:
        return Context(self.counters, self.shared.cluster_memory, self.shared.max_nodes)

    @cached_property
    def timers(self) -> Timers:
        return Timers(self.commands)

    @cached_property
    def marks(self) -> Marks:
        return Marks(self.commands)

    @property
    def idle(self) -> bool:
        """Return True if no request is in flight and no frame is under way in either direction."""
        return not self.inflight.fifo and self.between_frames and not self.logins.hashing

    @property
    def settled(self) -> bool:
        """Return True if nothing is in flight, no answer can come that nobody waits for (brokers may answer acks=0),
        and only the client decides when the connection ends."""
        return self.inflight.unanswered is None and self.phase.takes_requests and self.idle

    @property
    def awaited(self) -> int:
        """Return how many requests are in flight."""
        return len(self.inflight.fifo)

    @property
    def awaited_since(self) -> float | None:
        """Return when the oldest request in flight was read; None when there is none."""
        return self.inflight.fifo[0][2] if self.inflight.fifo else None

    @property
    def between_frames(self) -> bool:
        """Return True if no frame is under way in either direction."""
        return self.requests.at_boundary and self.responses.at_boundary

    @property
    def tokens_may_come(self) -> bool:
        """Return True if raw SASL tokens may come, now or behind the answer to a SaslHandshake v0 that is in flight."""
        handshakes = (step.key == SASL_HANDSHAKE and not step.version for _, step, _, _ in self.inflight.fifo)
        return self.logins.raw is not None or any(handshakes)

    @property
    def awaited_requests(self) -> list[tuple[int, int, int]]:
        """Return (correlation id, api key, version) of each request in flight. The key is `ANSWERED` where kproxy's own
        answer waits for its turn, of which the broker knows nothing, and `ASKED` where the request is kproxy's own."""
        marks = {ANSWER: ANSWERED, OWN: ASKED}
        return [(number, marks.get(step, step.key), step.version) for number, step, _, _ in self.inflight.fifo]

    @property
    def waiting_since(self) -> float | None:
        """Return since when a frame of the client is not whole; None while it is kproxy that does not read on."""
        return self.flow.waiting_since

    def holding_since(self) -> tuple[int, float] | None:
        """Return (side, since when) memory is kept for a frame that is not whole. None: for none, or it is not read
        on."""
        if not (self.requests.reserved or self.responses.reserved):
            return None
        for lane in (self.requests, self.responses):
            if lane.reserved and lane.kept and not self.flow.paused[lane.source]:
                return lane.source, lane.reserved_at
        return None

    @property
    def cut_off(self) -> bool:
        """Return True if a request has begun, and is not whole."""
        return not self.requests.at_boundary

    # ---- calls of the driver

    def nodes_ready(self, nodes: Mapping[int, tuple[str, int] | None], now: float) -> None:
        """Take the addresses, (host, port), by which clients of this connection reach the nodes that `EnsureNodes`
        named; None: that node cannot be reached."""
        if not self.phase.ends:
            self.lookups.nodes_ready(nodes, now)

    def sent(self, token: int, now: float) -> None:
        """Free the held memory behind the Send with this token: the kernel has everything up to it."""
        if self.phase is OVER:  # `end` has given it back
            return
        if token < 0:
            self.marks.sent(token)
            return
        lane: Assembler = self.requests if token & 1 == BROKER else self.responses
        lane.handed_over -= token >> 1
        self.wake(lane.memory.release(token >> 1))

    def granted(self, now: float) -> None:
        """Go on with the lane whose memory a `Wake` has granted."""
        for lane in (self.requests, self.responses):
            if not self.phase.ends and lane.blocked == "memory" and lane.reserved:
                lane.granted(now)

    def begin(self, now: float) -> None:
        """Begin when the client has connected and the driver is ready: apply the rules about connections."""
        if self.logins.server is not None:
            self.logins.server.begin(now)
        if self.plan.connecting:
            self.engine.connect(self.plan.connecting, now)
        if self.plan.shaped and not self.phase.ends:
            self.reshape(now)

    def reshape(self, now: float) -> None:
        if not self.phase.ends:
            self.engine.reshape(self.plan.shaped, now)

    def tick(self, now: float) -> None:
        """Call what is due, at a time that a `WakeAt` named."""
        if not self.phase.ends:
            self.timers.tick(now)

    def released(self, now: float) -> None:
        """Try the request again that a rule of this connection has released."""
        if not self.phase.ends:
            self.requests.try_again(now)

    def use(self, plan: Plan, now: float) -> None:
        """Use other live rules from the next frame on; what is in flight finishes under those it began with."""
        if self.phase.ends:
            return
        self.plan = plan
        if self.requests.rules is None or not self.requests.rules.has_begun:
            self.requests.plan = plan  # else when the frame that is being evaluated has gone
        if plan.shaped or (self._engine is not None and self._engine.shapes):
            self.reshape(now)

    def drain(self, now: float) -> None:
        """Take no more requests; when those in flight are answered, ask to be closed.

        A request that a rule holds is not sent any more: the broker has not seen it, and the client asks elsewhere.
        """
        if self.phase is STALLED:
            self.marks.put()
            self.close("drained", "connection drained, on which a rule had let nothing pass")
        elif self.phase.takes_requests:
            self.phase = self.phase.to(DRAINING)
        self.run_pending(now)

    def eof(self, side: int, now: float) -> None:
        """Note that no more bytes come from this side. Asks to be closed, unless answers are due to a client that
        stopped."""
        if self.phase.ends:
            return
        if self.phase is STALLED:
            self.close("stalled", "a connection on which a rule had let nothing pass has ended")
            return
        if self.phase is REFUSED and side == CLIENT:  # it need not hear why, but the log does
            assert self.logins.server is not None
            self.close("authentication", self.logins.server.refusal, "client")
        elif (self.requests if side == CLIENT else self.responses).blocked or (side == CLIENT and self.logins.hashing):
            self.ended |= {side}  # judged when what came before has gone on
        elif side == BROKER:
            awaited = len(self.inflight.fifo)
            if self.responses.speaks_tls:
                self.close("not_kafka", NOT_PLAIN, "broker")
            elif not self.responses.at_boundary:
                self.close("broker_cut", "broker closed in the middle of a frame", "broker")
            elif awaited:
                self.close("broker_closed", f"broker closed with {awaited} requests unanswered", "broker")
            else:
                self.close("broker_closed", "broker closed")
        elif not self.requests.at_boundary:
            self.close("client_cut", "client closed in the middle of a frame", "client")
        elif not self.inflight.fifo and self.responses.at_boundary:
            self.close("client_closed", "client closed")

    def end(self, now: float) -> None:
        """Give back what the connection held, which is gone. May put a Wake."""
        if self.phase is OVER:
            return
        self.phase = self.phase.to(OVER)
        if self.requests.rules is not None:
            self.requests.rules.end()
        if self._engine is not None:
            self._engine.subjects.over()
        self._engine = self._lookups = None
        self.logins.end()
        for lane in (self.requests, self.responses):
            lane.rules = None
            size = lane.end()
            if size or lane.memory.waiting:
                self.wake(lane.memory.forget(lane))
                self.wake(lane.memory.release(size))

    # ---- calls of the lanes

    def dial(self) -> None:
        """Ask for the broker, as the header of the first request is good."""
        if self.phase is NEW:  # else it drains, and this is its only request
            self.phase = self.phase.to(OPEN)
        if self.requests.is_new:  # else it opens with a bare token
            self.requests.usual_scan = self.requests.scan_frames
        self.logins.choose_scan()
        self.commands.append(DIAL)

    def close(self, cause: str, message: str, blame: str = "") -> None:
        """Ask for the connection to be closed, once: nothing more passes, and no timer is due."""
        if not self.phase.ends:
            self.send_last_answers()
            self.phase = self.phase.to(CLOSING)
            self.requests.die()
            self.responses.die()
            self.timers.cancel()
            self.commands.append(Close(cause, message, blame))

    def close_by_rule(self, how: How, acted: list[Running]) -> None:
        """End the connection as a fault of these rules demands, in one of three ways."""
        self.marks.settle()
        names = ", ".join(f'"{running.name}"' for running in acted)
        if how == "half":
            self.stall()
            if self.phase is STALLED:
                self.commands.append(Shut(CLIENT))
        elif not self.phase.ends:
            self.close("rule", f"closed by {names}")
            last = self.commands.pop()
            assert isinstance(last, Close)
            self.commands.append(replace(last, reset=how == "rst"))

    def stall(self) -> None:
        """Let nothing more pass on this connection, which stays open. Answers whose turn has come still leave."""
        if self.phase is DRAINING:
            self.close("drained", "connection drained, on which a rule lets nothing pass")
        if self.phase.ends:
            return
        self.send_last_answers()
        self.phase = self.phase.to(STALLED)
        self.has_pending = True
        self.marks.settle()
        self.requests.die()
        self.responses.die()
        self.flow.resume_all()  # bytes are thrown away, but the connection's end is seen

    def mark(self, side: int, acted: list[Running]) -> None:
        """Count these rules as applied when the bytes have left that are put next for this side."""
        if acted:
            self.marks.acted[side].extend(acted)
            self.has_pending = True

    @property
    def engine(self) -> Engine:
        """Return the engine, made when the first live rule looks at a frame."""
        if self._engine is None:
            self._engine = Engine(self)
        return self._engine

    @property
    def lookups(self) -> Lookups:
        """Return what asks for nodes and topics, made with the first question."""
        if self._lookups is None:
            self._lookups = Lookups(self)
        return self._lookups

    def incomplete(self, lane: Assembler, now: float) -> None:
        """Note that a frame of this lane is not whole."""
        if lane is self.requests:
            if lane.kept and (self.flow.incomplete_since is None or lane.reserved):
                self.flow.incomplete_since = now
            if len(self.inflight.fifo) > self.requests.limit:
                self.full()

    def complete(self, lane: Assembler) -> None:
        """Note that a frame of this lane is whole."""
        if lane is self.requests:
            self.flow.incomplete_since = None

    def wake(self, lanes: Sequence[Holder]) -> None:
        """Have these lanes, of any session, go on, for which memory has become free."""
        for lane in lanes:
            lane.reserved = lane.need
        if lanes:
            self.commands.append(Wake(tuple(lane.session for lane in lanes)))

    def full(self) -> None:
        """Stop reading the client, as more requests are in flight than there may be."""
        self.has_pending = True
        self.flow.pause(CLIENT, "full")

    def run_pending(self, now: float) -> None:
        """Do all that may be due now that bytes have gone: send answers, let lanes and the client go on, close when
        drained."""
        if self.phase.ends:
            self.marks.settle()
            return
        self.marks.put()
        if self.phase is STALLED:
            return
        if self.has_news():
            self.requests.unblock(now)
            self.run_pending(now)
            return
        if self.logins.are_renewed and self.logins.renewal is not None:
            self.logins.renewal.run(now)
            if self.phase.ends:
                return
        self.send_answers()
        fifo, requests = self.inflight.fifo, self.requests
        if self.phase is REFUSED and not fifo and self.logins.refusal:
            self.close("authentication", self.logins.refusal, "client")
            return
        if len(fifo) <= max(1, requests.resumes_at):  # 1: it may be one that is not all here
            requests.resumes_at = requests.limit // 2
            self.flow.resume(CLIENT, "full", now)
        if self.phase is DRAINING:
            self.go_on_draining(now)
        waits = self.logins.are_renewed or not self.phase.takes_requests or bool(self.flow.paused[CLIENT])
        self.has_pending = waits or any(entry[1] is ANSWER for entry in fifo)

    def has_news(self) -> bool:
        """Return True if the request lane has what it waits for: topics, or the client's principal."""
        topics_came = self._lookups is not None and self._lookups.take_news()
        blocked = self.requests.blocked
        return (topics_came and blocked == TOPICS) or (blocked == IDENTITY and not self.logins.await_broker)

    def go_on_draining(self, now: float) -> None:
        """Read the client for the rest of a request that has begun, and close when nothing is in flight."""
        held = self.requests.blocked == "held"
        if self.requests.at_boundary or held:
            self.flow.pause(CLIENT, "drain")
        else:  # one more request has begun in what was read already
            self.flow.resume(CLIENT, "drain", now)
        if self.idle:
            self.close("drained", "connection drained")
        elif held and not self.inflight.fifo and self.responses.at_boundary:
            self.close("drained", "connection drained, with a request that a rule held back")

    def send_answers(self) -> None:
        """Send answers of kproxy's own whose turn has come, but not inside a response or before a token."""
        raw = self.logins.raw
        if self.phase is not STALLED and self.responses.at_boundary and (raw is None or raw.answered):
            for frame in self.inflight.take_answers():
                self.commands.append(Send(CLIENT, frame))

    def send_last_answers(self) -> None:
        """Send them for the last time, before nothing more leaves; a lane may still have to emit what it has read
        before."""
        self.tail_position = len(self.commands)
        self.send_answers()
