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

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kproxy.core.lanes.frame import IDENTITY
from kproxy.core.lanes.request import RequestLane
from kproxy.core.lanes.response import ResponseLane
from kproxy.core.lanes.response_scan import NOT_PLAIN
from kproxy.rules.decision import How
from kproxy.rules.facts import Facts
from kproxy.rules.rule_set import BoundRules
from kproxy.rules.running import Running
from kproxy.wire.table.api_keys import API_VERSIONS

from .circle import CircleMark
from .commands import BROKER, CLIENT, Close, Command, Dial, EnsureNodes, Pause, Resume, Send, Shut, Wake
from .counters import Counters
from .engine import Engine
from .identity import Identity
from .inflight import ANSWER, ANSWERED, ASKED, OWN, InFlight
from .login import Credentials, LoggedIn
from .marks import Marks
from .memory import HeldMemory
from .observer import Observer
from .partition_session import Room
from .phase import CLOSING, DRAINING, LOGIN, NEW, OPEN, OVER, REFUSED, STALLED, SessionPhase
from .plan import Plan
from .renewal import Renewal
from .rewrite import GONE, MOST_NODES, Context
from .sasl import RawTokens
from .sasl_end import SASL_AUTHENTICATION_FAILED, SaslEnd, answer_to
from .sasl_server import SaslServer
from .step import WHOLE
from .timers import Timers
from .topics import CORRELATION, all_topics_request, named_topics_request, remember_named, remember_topics

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

    Attributes: commands; idle (nothing in flight, no frame under way); waiting_since (when an incomplete frame of the
    client began to wait or last grew; None: there is none, or it waits for us).
    """

    # What most connections never need stands here, or is made when it is asked for: it costs nothing to set up.
    raw: RawTokens | None = None
    muted_until = 0.0
    _engine: Engine | None = None
    phase = SessionPhase.NEW
    ended: frozenset[int] = frozenset()  # sides of which no more will come, though what came is still blocked
    topics_came = False  # which the request lane may wait for
    paused: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())  # the reasons, by side
    handed_over: tuple[int, int] = (0, 0)  # held memory behind bytes that the driver has not written yet, by side
    tail_position: int | None = None  # index in `commands` of the last answers; bytes read before go in front
    asked: Mapping[int, tuple[str, int]] = MappingProxyType({})  # nodes named by EnsureNodes and not answered yet
    incomplete_since: float | None = None
    sasl: SaslEnd | None = None  # answers the client's SASL in the broker's place; None: the broker answers
    guard: SaslServer | None = None  # the same, where clients authenticate to it
    renewal: Renewal | None = None  # set if kproxy has logged in at the broker itself
    observer: Observer | None = None  # the driver may put one here
    owner: Any = None

    def __init__(
        self, plan: Plan, shared: Shared, facts: Facts = NOWHERE, number: int = 0, rules: BoundRules | None = None
    ) -> None:
        self.plan, self.shared, self.counters = plan, shared, shared.counters
        self.facts, self.number, self.rules = facts, number, rules or BoundRules()
        self.commands: list[Command] = []
        self.inflight = InFlight()
        self.has_pending = False  # a lane is to call `run_pending` once its bytes have gone
        self.requests = RequestLane(self, shared.requests, shared.max_in_flight)
        self.responses = ResponseLane(self, shared.responses)
        self.from_client, self.from_broker = self.requests.receive, self.responses.receive
        self.identity = Identity(facts.certificate, shared.counters)

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
        return not self.inflight.fifo and self.between_frames and not self.hashing

    @property
    def hashing(self) -> bool:
        """Return True while a password is being checked: its request is in flight, though its answer has no place
        yet."""
        return self.guard is not None and self.guard.hashing

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
    def awaited_requests(self) -> list[tuple[int, int, int]]:
        """Return (correlation id, api key, version) of each request in flight. The key is `ANSWERED` where kproxy's own
        answer waits for its turn, of which the broker knows nothing, and `ASKED` where the request is kproxy's own."""
        marks = {ANSWER: ANSWERED, OWN: ASKED}
        return [(number, marks.get(step, step.key), step.version) for number, step, _, _ in self.inflight.fifo]

    @property
    def waiting_since(self) -> float | None:
        """Return since when a frame of the client is not whole; None while it is kproxy that does not read on."""
        return None if self.paused[CLIENT] else self.incomplete_since

    def holding_since(self) -> tuple[int, float] | None:
        """Return (side, since when) memory is kept for a frame that is not whole. None: for none, or it is not read
        on."""
        if not (self.requests.reserved or self.responses.reserved):
            return None
        for lane in (self.requests, self.responses):
            if lane.reserved and lane.kept and not self.paused[lane.source]:
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
        if self.phase.ends:
            return
        for node, address in self.asked.items():
            self.context.nodes[node] = (*address, nodes.get(node) or GONE)
        self.context.settled.update(self.asked)
        self.asked = {}
        if self.responses.blocked == "nodes":
            self.responses.unblock(now)

    def sent(self, token: int, now: float) -> None:
        """Free the held memory behind the Send with this token: the kernel has everything up to it."""
        if self.phase is OVER:  # `end` has given it back
            return
        if token < 0:
            self.marks.sent(token)
            return
        side, size = token & 1, token >> 1
        self.hands_over(side, -size)
        self.wake((self.shared.requests if side == BROKER else self.shared.responses).release(size))

    def granted(self, now: float) -> None:
        """Go on with the lane whose memory a `Wake` has granted."""
        for lane in (self.requests, self.responses):
            if not self.phase.ends and lane.blocked == "memory" and lane.reserved:
                lane.granted(now)

    def versions_known(self, answer: bytes, now: float) -> None:
        """Take the broker's answer, without its correlation id, to the ApiVersions that `AskVersions` named."""
        if self.guard is not None and not self.phase.ends:
            self.guard.versions_known(answer, now)

    def begin(self, now: float) -> None:
        """Begin when the client has connected and the driver is ready: apply the rules about connections."""
        if self.guard is not None:
            self.guard.begin(now)
        if self.plan.connecting:
            self.engine.connect(self.plan.connecting, now)
        if self.plan.shaped and not self.phase.ends:
            self.reshape(now)

    def reshape(self, now: float) -> None:
        if not self.phase.ends:
            self.engine.reshape(self.plan.shaped, now)

    def authenticate(self, guard: SaslServer) -> None:
        """Have the client authenticate to this SaslServer before its requests go on."""
        self.sasl = self.guard = guard
        self.require_login()

    def require_login(self) -> None:
        """Have the client authenticate (again) before its next request goes on."""
        if self.phase is NEW or self.phase is OPEN:  # a session that drains, or lets nothing pass, stays so
            self.phase = self.phase.to(LOGIN)
        self.choose_scan()

    def accept_login(self) -> None:
        """Let the client's requests go on, as it has authenticated."""
        if self.phase is LOGIN:
            self.phase = self.phase.to(NEW if self.requests.is_new else OPEN)
        self.choose_scan()

    def refuse_login(self) -> None:
        """Take no more requests of a client that could not authenticate."""
        if self.phase is not STALLED:
            self.phase = self.phase.to(REFUSED)
        self.has_pending = True
        self.choose_scan()

    def logged_in(self, credentials: Credentials, login: LoggedIn, now: float) -> None:
        """Note that kproxy itself has logged in at the broker, before any request of the client goes there."""
        if not self.phase.ends:
            self.renewal = Renewal(self, credentials, login, now)

    def login_refused(self, message: str, now: float) -> None:
        """Close because the broker does not take kproxy's credentials. The client is told so where it has asked for the
        versions, the one request whose answer has a place for it in every case."""
        while self.inflight.fifo and not self.phase.ends:
            correlation, step, _, note = self.inflight.fifo.popleft()
            if step is ANSWER:
                self.commands.append(Send(CLIENT, note))
            elif step.key == API_VERSIONS:
                code = SASL_AUTHENTICATION_FAILED
                self.commands.append(Send(CLIENT, answer_to(step.key, step.version, correlation, error_code=code)))
            else:
                break
        self.close("broker_login", message, "broker")

    def tick(self, now: float) -> None:
        """Call what is due, at a time that a `WakeAt` named."""
        if not self.phase.ends:
            self.timers.tick(now)

    def computed(self, result: Any, now: float) -> None:
        """Hand the result of a `Compute` to the SASL server that asked for it."""
        if self.guard is not None and not self.phase.ends:
            self.guard.computed(result, now)
            if CLIENT in self.ended and not self.requests.blocked:
                self.eof(CLIENT, now)

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
            self.close_refused()
        elif (self.requests if side == CLIENT else self.responses).blocked or (side == CLIENT and self.hashing):
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
        self._engine = None
        for lane, memory in ((self.requests, self.shared.requests), (self.responses, self.shared.responses)):
            lane.rules = None
            size = lane.end() + self.handed_over[lane.target]
            if size or memory.waiting:
                self.wake(memory.forget(lane))
                self.wake(memory.release(size))

    def hand_over(self, target: int, size: int) -> None:
        """Put a mark behind the commands for a held frame; its memory is free once the kernel has them."""
        self.hands_over(target, size)
        self.commands.append(Send(target, b"", size << 1 | target))

    def hands_over(self, side: int, size: int) -> None:
        to_client, to_broker = self.handed_over
        self.handed_over = (to_client, to_broker + size) if side == BROKER else (to_client + size, to_broker)

    # ---- calls of the lanes

    def dial(self) -> None:
        """Ask for the broker, as the header of the first request is good."""
        if self.phase is NEW:  # else it drains, and this is its only request
            self.phase = self.phase.to(OPEN)
        if self.raw is None:
            self.requests.usual_scan = self.requests.scan_frames
        self.choose_scan()
        self.commands.append(DIAL)

    def choose_scan(self) -> None:
        """Choose how the next frame of the client is looked at."""
        requests = self.requests
        if self.renewal is not None and self.renewal.busy:
            requests.scan = self.renewal.hold
        elif self.guard is not None and not self.guard.open:
            requests.scan = self.guard.scan
        else:
            requests.scan = requests.usual_scan

    def begin_raw(self, raw: RawTokens) -> None:
        """Look for raw SASL tokens, which may come from both sides now."""
        self.raw = raw
        self.requests.scan = self.requests.usual_scan = self.requests.scan_tokens
        self.responses.scan = self.responses.scan_tokens

    def end_raw(self) -> None:
        """Read all frames as Kafka's again."""
        self.raw = None
        self.requests.scan = self.requests.usual_scan = self.requests.scan_frames
        self.responses.scan = self.responses.scan_frames

    def close(self, cause: str, message: str, blame: str = "") -> None:
        if not self.phase.ends:
            self.send_last_answers()
            self.phase = self.phase.to(CLOSING)
            self.requests.die()
            self.responses.die()
            self.commands.append(Close(cause, message, blame))

    def close_refused(self) -> None:
        assert self.guard is not None
        self.close("authentication", self.guard.refusal, "client")

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
            return
        if self.phase.ends:
            return
        self.send_last_answers()
        self.phase = self.phase.to(STALLED)
        self.has_pending = True
        self.marks.settle()
        self.requests.die()
        self.responses.die()
        for side, reasons in enumerate(self.paused):  # read on: bytes are thrown away, but the connection's end is seen
            if reasons:
                self.commands.append(Resume(side))
        self.paused = (frozenset(), frozenset())

    def mute(self, seconds: float, now: float) -> None:
        """Read nothing from the client for so long (KIP-219)."""
        if seconds > 0 and now + seconds > self.muted_until:
            self.muted_until = now + seconds
            self.pause(CLIENT, "muted")
            self.timers.at(self.muted_until, self.unmute)

    def wait(self, seconds: float, now: float) -> None:
        """Read nothing from the client, which has just connected, for so many seconds."""
        self.pause(CLIENT, "connecting")
        self.timers.at(now + seconds, lambda then: self.resume(CLIENT, "connecting", then))

    def unmute(self, now: float) -> None:
        if now >= self.muted_until:
            self.resume(CLIENT, "muted", now)

    def mark(self, side: int, acted: list[Running]) -> None:
        """Count these rules as applied when the bytes have left that are put next for this side."""
        if acted:
            self.marks.acted[side].extend(acted)
            self.has_pending = True

    @property
    def authenticates(self) -> bool:
        """Return True if the client has sent what its principal depends on, and the broker has not answered that
        yet."""
        return self.identity.awaits or (self.raw is not None and not self.raw.answered)

    def identified(self) -> None:
        """Try the frame again that waits for the client's principal, as the broker has answered a message of SASL."""
        if self.requests.blocked == IDENTITY:
            self.has_pending = True  # not now: what stands before this answer has not left yet

    @property
    def engine(self) -> Engine:
        """Return the engine, made when the first live rule looks at a frame."""
        if self._engine is None:
            self._engine = Engine(self)
        return self._engine

    def pause(self, side: int, reason: str) -> None:
        if not self.paused[side]:
            self.commands.append(Pause(side))
        self.pauses(side, self.paused[side] | {reason})

    def pauses(self, side: int, reasons: frozenset[str]) -> None:
        self.paused = (self.paused[CLIENT], reasons) if side == BROKER else (reasons, self.paused[BROKER])

    def resume(self, side: int, reason: str, now: float) -> None:
        if reason in self.paused[side] and not self.phase.ends:
            self.pauses(side, self.paused[side] - {reason})
            if not self.paused[side]:
                self.commands.append(Resume(side))
                if side == CLIENT and self.incomplete_since is not None:  # its time begins anew
                    self.incomplete_since = now

    def incomplete(self, lane: Any, now: float) -> None:
        if lane is self.requests:
            if lane.kept and (self.incomplete_since is None or lane.reserved):
                self.incomplete_since = now
            if len(self.inflight.fifo) > lane.limit:
                self.full()

    def complete(self, lane: Any) -> None:
        if lane is self.requests:
            self.incomplete_since = None

    def wake(self, lanes: list[Any]) -> None:
        for lane in lanes:
            lane.reserved = lane.need
        if lanes:
            self.commands.append(Wake(tuple(lane.session for lane in lanes)))

    def full(self) -> None:
        """Stop reading the client, as more requests are in flight than there may be."""
        self.has_pending = True
        self.pause(CLIENT, "full")

    def run_pending(self, now: float) -> None:
        """Do all that may be due now that bytes have gone: send answers, let lanes and the client go on, close when
        drained."""
        if self.phase.ends:
            self.marks.settle()
            return
        self.marks.put()
        if self.phase is STALLED:
            return
        topics, self.topics_came = self.topics_came, False
        blocked = self.requests.blocked
        if (topics and blocked == "topics") or (blocked == IDENTITY and not self.authenticates):
            self.requests.unblock(now)
            self.run_pending(now)
            return
        renews = self.renewal is not None and self.renewal.busy
        if renews:
            assert self.renewal is not None
            self.renewal.run(now)
            if self.phase.ends:
                return
            renews = self.renewal.busy
        self.send_answers()
        if self.phase is REFUSED and not self.inflight.fifo and self.guard is not None and self.guard.has_refused:
            self.close_refused()
            return
        if len(self.inflight.fifo) <= max(1, self.requests.resumes_at):  # 1: it may be one that is not all here
            self.requests.resumes_at = self.requests.limit // 2
            self.resume(CLIENT, "full", now)
        if self.phase is DRAINING:
            held = self.requests.blocked == "held"
            if self.requests.at_boundary or held:
                self.pause(CLIENT, "drain")
            else:  # one more request has begun in what was read already
                self.resume(CLIENT, "drain", now)
            if self.idle:
                self.close("drained", "connection drained")
            elif held and not self.inflight.fifo and self.responses.at_boundary:
                self.close("drained", "connection drained, with a request that a rule held back")
        waits = renews or not self.phase.takes_requests
        self.has_pending = waits or bool(self.paused[CLIENT]) or self.has_answers

    @property
    def has_answers(self) -> bool:
        return any(entry[1] is ANSWER for entry in self.inflight.fifo)

    def send_answers(self) -> None:
        """Send answers of kproxy's own whose turn has come, but not inside a response or before a token."""
        if self.phase is not STALLED and self.responses.at_boundary and (self.raw is None or self.raw.answered):
            for frame in self.inflight.ready_answers():
                self.commands.append(Send(CLIENT, frame))

    def send_last_answers(self) -> None:
        """Send them for the last time, before nothing more leaves; a lane may still have to emit what it has read
        before."""
        self.tail_position = len(self.commands)
        self.send_answers()

    # ---- what has to be found out before a frame can go on

    def find_out(self, now: float) -> str:
        """Ask for what a rewrite did not know; return the word for what is waited for."""
        context = self.context
        if context.missing:
            self.asked, context.missing = context.missing, {}
            self.commands.append(EnsureNodes(dict(self.asked)))
            return "nodes"
        context.has_asked = True
        if context.ids_wanted:
            wanted, context.ids_wanted = context.ids_wanted, set()
            self.inflight.fifo.append((CORRELATION, OWN, now, self.topics_named))
            self.commands.append(Send(BROKER, named_topics_request(wanted)))
            return "topics"
        context.topics_wanted = False
        self.inflight.fifo.append((CORRELATION, OWN, now, None))
        self.commands.append(Send(BROKER, all_topics_request()))
        return "topics"

    def topics_named(self, frame: bytes, now: float) -> None:
        """Learn from the answer about ids whose names were not known, and let the request lane go on."""
        remember_named(self.context.cluster_memory, frame, self.counters)
        self.topics_came = self.has_pending = True  # as in `own_answer`

    def own_answer(self, frame: bytes, then: Callable[[bytes, float], None] | None, now: float) -> None:
        """Take the response to a request of kproxy's own, which the client never sees. `then` is called with it; None:
        a rewrite asked for all topics."""
        if then is not None:
            then(frame, now)
            return
        remember_topics(self.context.cluster_memory, frame, now, self.counters)
        self.topics_came = self.has_pending = True  # not now: what stands before this answer has not left yet
