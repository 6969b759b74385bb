"""Phases of a session, and the transitions between them.

Strategy. A session is in one phase at a time, and moves only by `SessionPhase.to`, which rejects transitions outside
the table. The diagram in ARCHITECTURE.md is drawn from the table, and a test drives real sessions through each line of
it. The state of a login is separate (protocol/sasl/mechanisms.py), for a login can go on while a session drains.

Flow control of a session: which of its sides is read, the reasons why one is not, and the pending timers.

State of a session that its parts share, and the calls that they make on the session.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kproxy.base.errors import InternalError
from kproxy.rules.exchange import Facts, How
from kproxy.rules.rule_set import ActiveRule, MatchingRules
from kproxy.rules.values.address import network_of
from kproxy.session.frame import InFlight
from kproxy.session.rewrite.context import Context
from kproxy.session.sasl.identity import Identity

from .commands import CLIENT, NO_ANSWER, Command, Observer, Pause, Resume, Send, Wake, WakeAt
from .plan import Plan
from .shared import ClusterState

if TYPE_CHECKING:
    from kproxy.rules.bucket import QuotaTurn
    from kproxy.session.live.evaluation import Evaluation


class SessionPhase(Enum):
    """Phase of a session; the value describes its condition."""

    NEW = "no request for the broker has come, which is not dialled"
    LOGIN = "the client has to authenticate to kproxy, for the first time or again"
    OPEN = "requests go to the broker, responses to the client"
    DRAINING = "no more requests are taken; those in flight are answered"
    REFUSED = "the client could not authenticate, and hears of it before the end"
    STALLED = "a rule lets nothing more pass; both sides stay connected and are read"
    CLOSING = "the driver has been asked to close both sides"
    OVER = "the connection is gone, and has given back what it held"

    next: tuple[SessionPhase, ...]
    """Phases that a session may enter from this one, by TRANSITIONS: a lookup there takes a hash in Python."""

    def to(self, phase: SessionPhase) -> SessionPhase:
        """Return `phase`, which a session enters from this one. Raises InternalError if the table does not have it."""
        if phase not in self.next:
            raise InternalError(f"a session that is {self.name} cannot become {phase.name}")
        return phase

    @property
    def ends(self) -> bool:
        """Return True in CLOSING and OVER, where nothing that comes is taken any more."""
        return self is CLOSING or self is OVER

    @property
    def takes_requests(self) -> bool:
        """Return True in NEW, LOGIN and OPEN."""
        return self is OPEN or self is NEW or self is LOGIN


NEW, LOGIN, OPEN, DRAINING = SessionPhase.NEW, SessionPhase.LOGIN, SessionPhase.OPEN, SessionPhase.DRAINING
REFUSED, STALLED, CLOSING, OVER = SessionPhase.REFUSED, SessionPhase.STALLED, SessionPhase.CLOSING, SessionPhase.OVER

_BEFORE_CLOSING = (NEW, LOGIN, OPEN, DRAINING, REFUSED, STALLED)

TRANSITIONS: Final[Mapping[tuple[SessionPhase, SessionPhase], str]] = MappingProxyType(
    {
        (NEW, LOGIN): "the listener wants it, or a session without requests has ended",
        (NEW, OPEN): "the header of the first request is good: the broker is dialled",
        (LOGIN, NEW): "the client has authenticated",
        (LOGIN, OPEN): "the client has authenticated again",
        (OPEN, LOGIN): "the client authenticates again, or its session has ended",
    }
    | dict.fromkeys([(phase, DRAINING) for phase in (NEW, LOGIN, OPEN)], "a drain was asked for")
    | dict.fromkeys([(phase, REFUSED) for phase in (LOGIN, OPEN, DRAINING)], "a wrong mechanism or token")
    | dict.fromkeys([(phase, STALLED) for phase in (NEW, LOGIN, OPEN, REFUSED)], "a rule stalls the connection")
    | dict.fromkeys([(phase, CLOSING) for phase in _BEFORE_CLOSING], "a side ended or was wrong, or all is done")
    | dict.fromkeys([(phase, OVER) for phase in (*_BEFORE_CLOSING, CLOSING)], "the driver has lost or closed it")
)
"""Causes of the transitions, by the phases before and after."""

for _phase in SessionPhase:
    _phase.next = tuple(after for before, after in TRANSITIONS if before is _phase)


NO_REASONS: Final[frozenset[str]] = frozenset()

Call = Callable[[float], None]


class Timers:
    """Calls of one session in order of their times, and of their making where these are equal.

    `armed` are the times that the driver was asked for and that have not come: it is not asked for a later one while
    there is an earlier one, nor twice for the same.
    """

    __slots__ = ("armed", "calls", "commands", "numbers")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.calls: list[tuple[float, int, Call]] = []
        self.numbers = count()
        self.armed: list[float] = []  # a heap

    def at(self, when: float, call: Call) -> None:
        """Have `call(now)` called at `when` (monotonic seconds) or a little later."""
        heapq.heappush(self.calls, (when, next(self.numbers), call))
        self.arm()

    def tick(self, now: float) -> None:
        """Call all functions that are due, and arm for the next one."""
        while self.armed and self.armed[0] <= now:
            heapq.heappop(self.armed)
        while self.calls and self.calls[0][0] <= now:
            heapq.heappop(self.calls)[2](now)
        self.arm()

    def cancel(self) -> None:
        self.calls.clear()

    def arm(self) -> None:
        if self.calls and not (self.armed and self.armed[0] <= self.calls[0][0]):
            heapq.heappush(self.armed, self.calls[0][0])
            self.commands.append(WakeAt(self.armed[0]))


class FlowControl:
    """Flow control of one session. `paused`: by side, the reasons why it is not read. `incomplete_since`: when an
    incomplete frame of the client began or last grew; None: no such frame."""

    __slots__ = ("commands", "incomplete_since", "muted_until", "paused")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.paused: Sequence[frozenset[str]] = (NO_REASONS, NO_REASONS)
        self.muted_until = 0.0
        self.incomplete_since: float | None = None

    def pause(self, side: int, reason: str) -> None:
        if not self.paused[side]:
            self.commands.append(Pause(side))
        self.set_reasons(side, self.paused[side] | {reason})

    def resume(self, side: int, reason: str, now: float) -> None:
        """Take the reason away; read the side again if that was the last one."""
        if reason not in self.paused[side]:
            return
        self.set_reasons(side, self.paused[side] - {reason})
        if not self.paused[side]:
            self.commands.append(Resume(side))
            if side == CLIENT and self.incomplete_since is not None:  # its time restarts
                self.incomplete_since = now

    def set_reasons(self, side: int, reasons: frozenset[str]) -> None:
        client, broker = self.paused
        self.paused = (reasons, broker) if side == CLIENT else (client, reasons)

    def resume_all(self) -> None:
        """Read both sides again, whatever the reasons were."""
        for side, reasons in enumerate(self.paused):
            if reasons:
                self.commands.append(Resume(side))
        self.paused = (NO_REASONS, NO_REASONS)

    def mute(self, seconds: float, now: float, timers: Timers) -> None:
        """Read nothing from the client for this time (KIP-219), 0: not longer than it is muted already."""
        if seconds > 0 and now + seconds > self.muted_until:
            self.muted_until = now + seconds
            self.pause(CLIENT, "muted")
            timers.at(self.muted_until, self.unmute)

    def release(self, now: float) -> None:
        """End the waits that kproxy imposes on the client: mutes, and the delay of a new connection."""
        self.muted_until = 0.0
        for reason in ("muted", "connecting"):
            self.resume(CLIENT, reason, now)

    def unmute(self, now: float) -> None:
        """Read the client again, unless it has been muted for longer since."""
        if now >= self.muted_until:
            self.resume(CLIENT, "muted", now)

    def delay_client(self, seconds: float, now: float, timers: Timers) -> None:
        """Read nothing from the client, which has just connected, for this many seconds."""
        self.pause(CLIENT, "connecting")
        timers.at(now + seconds, lambda then: self.resume(CLIENT, "connecting", then))

    @property
    def waiting_since(self) -> float | None:
        """Return since when a frame of the client is not whole; None while it is kproxy that does not read on."""
        return None if self.paused[CLIENT] else self.incomplete_since


NOWHERE = Facts("", "", "")
"""Facts of a session that was made by hand, in tests for example."""


class Marks:
    """Marks in one session's commands, of rules with pending changes: they are applied when the kernel has the changed
    bytes (promise 7). A mark is an empty Send with a token below 0, after the bytes that rules changed."""

    __slots__ = ("acted", "commands", "number", "waiting")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.acted: tuple[list[ActiveRule], list[ActiveRule]] = (
            [],
            [],
        )  # whose changes leave with the next bytes, by side
        self.waiting: dict[int, list[ActiveRule]] = {}  # by token
        self.number = 0

    def put(self) -> None:
        """Put the marks of all rules that acted since the last call."""
        for side, acted in enumerate(self.acted):
            if acted:
                self.number -= 1
                self.waiting[self.number] = acted.copy()
                acted.clear()
                self.commands.append(Send(side, b"", self.number))

    def count_applied(self) -> None:
        """Count the rules that acted as applied: none of their changes has to reach the kernel."""
        for acted in self.acted:
            for running in acted:
                running.was_applied()
            acted.clear()

    def sent(self, token: int) -> None:
        """Count the rules of this mark as applied: the kernel has all bytes before it."""
        for running in self.waiting.pop(token, ()):
            running.was_applied()


class SessionState:
    """State of one session. `owner` is for the driver's use; `rules` are bound to the connection until it ends.

    Attributes: commands (for the driver, always the same list); phase; flow (which side is read); inflight (the FIFO);
    has_pending (a lane is to call `run_pending` once its bytes have gone).
    """

    # Defaults of attributes that most connections never set, or that are made on first use: no cost to set up.
    phase = SessionPhase.NEW
    kept_from_client = False  # a rule stalled the connection, or a login failed
    ended: frozenset[int] = frozenset()  # sides that have ended, though their earlier bytes are still blocked
    tail_position: int | None = None  # index in `commands` of the last answers; bytes read before go in front
    holds = 0  # frames that rules have held so far
    observer: Observer | None = None  # the driver may put one here
    owner: Any = None
    _timers: Timers | None = None
    _marks: Marks | None = None

    def __init__(
        self,
        plan: Plan,
        shared: ClusterState,
        facts: Facts = NOWHERE,
        number: int = 0,
        rules: MatchingRules | None = None,
    ) -> None:
        self.plan, self.shared, self.counters = plan, shared, shared.counters
        self.facts, self.number, self.rules = facts, number, rules or MatchingRules()
        self.commands: list[Command] = []
        self.inflight = InFlight()
        self.flow = FlowControl(self.commands)
        self.has_pending = False
        self.identity = Identity(facts.certificate, shared.counters)
        owner = facts.cluster, network_of(facts.client_address)
        self.context = Context(
            shared.counters, shared.cluster_memory, shared.max_nodes, self.identity, shared.answers, owner
        )

    @property
    def timers(self) -> Timers:
        if self._timers is None:
            self._timers = Timers(self.commands)
        return self._timers

    @property
    def marks(self) -> Marks:
        if self._marks is None:
            self._marks = Marks(self.commands)
        return self._marks

    def mark(self, side: int, acted: list[ActiveRule]) -> None:
        """Count these rules as applied when the bytes have left that are put next for this side."""
        if acted:
            self.marks.acted[side].extend(acted)
            self.has_pending = True

    def counted(self, running: ActiveRule, correlation: int, *, fired: bool, answered: bool | None) -> None:
        """Count a match of a rule, and that it `fired`; report a rule that fired to the observer.

        `answered`: the current frame is a request, and a response to it is due or not; None: it is a response.
        """
        running.count(fired=fired)
        if fired:
            self.report_fired(running, correlation, answered)

    def report_fired(self, running: ActiveRule, correlation: int, answered: bool | None) -> None:
        """Report to the observer that a rule fired; `answered` as for `counted`."""
        observer = self.observer
        if observer is not None:
            older = 0 if answered is None else self.inflight.count(correlation) if answered else NO_ANSWER
            observer.acted(correlation, (running.name,), older=older)

    def throttled(self, evaluation: Evaluation, older: int) -> None:
        """Count the throttle of an exchange for its rule, and report it to the observer. `older`: see `Observer`."""
        running = evaluation.throttler
        if running is not None:
            running.count_throttle(evaluation.throttled)
            if self.observer is not None:
                correlation = evaluation.exchange.correlation_id
                self.observer.throttled(correlation, running.name, evaluation.throttle, older=older)

    def wake_next(self, turn: QuotaTurn) -> None:
        """Make the sessions that are first in a queue now try again, because this turn has left it."""
        if turn.woken:
            self.commands.append(Wake(tuple(turn.woken)))
            turn.woken.clear()

    @property
    def client_left(self) -> bool:
        """Return True if the client has closed its end, as far as the driver can detect without reading."""
        return CLIENT in self.ended or getattr(self.owner, "client_left", False)

    def full(self) -> None:
        """Stop reading the client, as more requests are in flight than there may be."""
        self.has_pending = True
        self.flow.pause(CLIENT, "full")

    def run_pending(self, now: float) -> None:
        """Do all that may be due now that bytes have gone: send answers, let lanes and the client go on, close when
        drained."""
        raise NotImplementedError

    def close(self, cause: str, message: str, blame: str = "") -> None:
        """Ask for the connection to be closed, once: nothing more passes, and no timer is due."""
        raise NotImplementedError

    def close_by_rule(self, how: How, acted: list[ActiveRule]) -> None:
        """End the connection as a fault of these rules demands, in one of three ways."""
        raise NotImplementedError

    def stall(self) -> None:
        """Let nothing more pass on this connection, which stays open. Responses that are due still leave."""
        raise NotImplementedError

    def eof(self, side: int, now: float) -> None:
        """Note that no more bytes come from this side. Asks to be closed, unless answers are due to a client that
        stopped."""
        raise NotImplementedError
