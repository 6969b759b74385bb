"""State of a session that its parts share, and what they ask of the session without knowing how it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kproxy.rules.exchange import Facts, How, Turn
from kproxy.rules.rule_set import BoundRules, Running
from kproxy.rules.values.address import network_of
from kproxy.session.rewrite.context import Context
from kproxy.session.sasl.identity import Identity

from .commands import CLIENT, Command, Send, Wake
from .flow import FlowControl, Timers
from .inflight import InFlight
from .observer import NO_ANSWER, Observer
from .phase import SessionPhase
from .plan import Plan
from .shared import Shared

if TYPE_CHECKING:
    from kproxy.session.live.evaluation import Evaluation

NOWHERE = Facts("", "", "")
"""Facts of a session that was made by hand, in tests for example."""


class Marks:
    """Marks in one session's commands, of rules whose changes are on their way: they have been applied when the kernel
    has what they changed (promise 7). A mark is an empty Send with a token below 0, behind the bytes that rules
    changed."""

    __slots__ = ("acted", "commands", "number", "waiting")

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands
        self.acted: tuple[list[Running], list[Running]] = ([], [])  # whose changes leave with what is put next, by side
        self.waiting: dict[int, list[Running]] = {}  # by token
        self.number = 0

    def put(self) -> None:
        """Put the marks of all rules that acted since the last call."""
        for side, acted in enumerate(self.acted):
            if acted:
                self.number -= 1
                self.waiting[self.number] = acted.copy()
                acted.clear()
                self.commands.append(Send(side, b"", self.number))

    def settle(self) -> None:
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
    """State of one session. `owner` is for the driver's use; `rules` is what the connection is bound to until it ends.

    Attributes: commands (for the driver, always the same list); phase; flow (which side is read); inflight (the FIFO);
    has_pending (a lane is to call `run_pending` once its bytes have gone).
    """

    # What most connections never need stands here, or is made when it is asked for: it costs nothing to set up.
    phase = SessionPhase.NEW
    kept_from_client = False  # a rule stalled the connection, or a login failed
    ended: frozenset[int] = frozenset()  # sides of which no more will come, though what came is still blocked
    tail_position: int | None = None  # index in `commands` of the last answers; bytes read before go in front
    holds = 0  # frames that rules have held so far
    observer: Observer | None = None  # the driver may put one here
    owner: Any = None
    _timers: Timers | None = None
    _marks: Marks | None = None

    def __init__(
        self, plan: Plan, shared: Shared, facts: Facts = NOWHERE, number: int = 0, rules: BoundRules | None = None
    ) -> None:
        self.plan, self.shared, self.counters = plan, shared, shared.counters
        self.facts, self.number, self.rules = facts, number, rules or BoundRules()
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

    def mark(self, side: int, acted: list[Running]) -> None:
        """Count these rules as applied when the bytes have left that are put next for this side."""
        if acted:
            self.marks.acted[side].extend(acted)
            self.has_pending = True

    def counted(self, running: Running, correlation: int, *, fired: bool, answered: bool | None) -> None:
        """Count a match of a rule, and that it `fired`; report a rule that fired to the observer.

        `answered`: a request is at hand, and a response to it is due or not; None: a response is at hand.
        """
        running.count(fired=fired)
        if fired:
            self.report_fired(running, correlation, answered)

    def report_fired(self, running: Running, correlation: int, answered: bool | None) -> None:
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

    def wake_next(self, turn: Turn) -> None:
        """Have the sessions ask again that are first in a line now, because this turn has left it."""
        if turn.woken:
            self.commands.append(Wake(tuple(turn.woken)))
            turn.woken.clear()

    @property
    def client_left(self) -> bool:
        """Return True if the client has closed its end, as far as the driver can see without reading."""
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

    def close_by_rule(self, how: How, acted: list[Running]) -> None:
        """End the connection as a fault of these rules demands, in one of three ways."""
        raise NotImplementedError

    def stall(self) -> None:
        """Let nothing more pass on this connection, which stays open. Answers whose turn has come still leave."""
        raise NotImplementedError

    def eof(self, side: int, now: float) -> None:
        """Note that no more bytes come from this side. Asks to be closed, unless answers are due to a client that
        stopped."""
        raise NotImplementedError
