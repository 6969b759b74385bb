"""Evaluations: the decisions of rules about one frame. `may_hold` admits the frames that rules hold.

The engine keeps the state of an exchange until its response has been sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.base.cooperative import LONG, defer_free, yielding
from kproxy.protocol import decode_request
from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import (
    AfterDrop,
    Await,
    ConnectionView,
    Delay,
    Exchange,
    FrameDepth,
    How,
    Throttle,
)
from kproxy.rules.rule_set import ActiveRule
from kproxy.session.compiled_rule import CompiledRule
from kproxy.session.frame import FrameView
from kproxy.session.held_frames import HeldFrame
from kproxy.session.partition_session import PartitionSession
from kproxy.session.plan import Step
from kproxy.session.respond.error_responses import Failure
from kproxy.session.respond.merge import leave_out
from kproxy.session.rule_program import RuleProgram
from kproxy.session.session_state import DRAINING

if TYPE_CHECKING:
    from kproxy.rules.bucket import QuotaTurn
    from kproxy.rules.exchange import Hold
    from kproxy.session.compiled_rule import CompiledRule
    from kproxy.session.session_state import SessionState

    from .selection import Selection


def passes_filter(
    session: SessionState, part: CompiledRule, exchange: EvaluatedExchange, response: bytes | None, now: float
) -> bool:
    """Return True if the exchange passes the rule's filter, as far as it has come; False, counted as a problem of the
    rule, if that cannot be judged."""
    request = b"" if exchange.content is None else exchange.content()
    try:
        return session.shared.desk.judge(part.wanted, session, exchange, request, response, now)
    except Exception as error:  # noqa: BLE001  # traffic of others continues in any case
        part.running.failed(error)
        session.counters.count("rules_failed")
        return False


def may_hold(session: SessionState, running: ActiveRule, hold: Hold, size: int) -> bool:
    """Return True if the rule may hold another frame of this many bytes; otherwise it is counted. To be asked when a
    frame is evaluated, and when it is held then."""
    if session.phase is DRAINING:
        return False
    desk = session.shared.desk
    if len(running.held) < hold.most and desk.bytes + size <= desk.most_bytes:
        return True
    desk.passed_over += 1
    session.counters.count("hold_passed_over")
    return False


@dataclass(frozen=True, slots=True)
class PendingResponse:
    """Rule that has something to do when the response comes. `judged`: it has fired; otherwise it selects on errors,
    or, if it `screens`, it fires when something is left out."""

    part: CompiledRule
    entities: Sequence[Entity]
    judged: bool
    screens: bool = False


class EvaluatedExchange(Exchange):
    """Exchange with applicable live rules, and its state in the engine.

    `failures` are entities that are not forwarded, to be merged into the response; `late` are those whose part of the
    response becomes an error; `whole` is an error for the response's top level. `counted` are rules already counted as
    applied: once an exchange, even if they act on the request and the response. `session` is the fetch or share session
    that the request opens or continues. `awaits`: the session needs the broker's response. `refuses`: a rule other than
    a fault has failed something. `decided`: no further rule is evaluated. `content` gives the request's bytes without
    its size where a filter is asked about them.
    """

    __slots__ = (
        "awaits",
        "content",
        "counted",
        "decided",
        "failures",
        "late",
        "listed",
        "mute",
        "pending",
        "program",
        "refuses",
        "session",
        "step",
        "throttle",
        "whole",
    )  # fmt: skip

    def __init__(
        self, step: Step, program: RuleProgram, connection: ConnectionView, correlation: int, client_id: str | None,
        size: int, came: float,
    ) -> None:  # fmt: skip
        super().__init__(connection, program.api, step.version, correlation, client_id, size, came)
        self.step, self.program = step, program
        self.pending: list[PendingResponse] = []
        self.counted: set[ActiveRule] = set()
        self.failures: dict[Entity, Failure] = {}
        self.late: dict[Entity, Failure] = {}
        self.listed: tuple[Entity, ...] = ()  # entities of the request, if it belongs to no session
        self.whole: Failure | None = None
        self.content: Callable[[], bytes] | None = None
        self.session: PartitionSession | None = None
        self.awaits = self.refuses = self.decided = False
        self.throttle = 0.0  # seconds of throttle in the response
        self.mute = 0.0  # seconds without reading it afterwards

    def response_depth(self) -> FrameDepth:
        if self.failures or self.late or self.whole is not None:
            return FrameDepth.BODY
        depth = max((one.part.response for one in self.pending), default=FrameDepth.NOTHING)
        if self.awaits:
            depth = max(depth, FrameDepth.HEADER)
        if self.throttle:
            depth = max(depth, FrameDepth.HEADER if self.program.throttle_first else FrameDepth.BODY)
        return depth

    def pend_screens(self) -> None:
        """Have the rules that hold for the request, although none applied to its entities, look at the response, which
        may mention what they forbid."""
        for part in self.program.parts:
            if part.screens and part.matcher.holds(self) is not None:
                self.pending.append(PendingResponse(part, (), judged=False, screens=True))

    @property
    def only_leaves_out(self) -> bool:
        """Return True if rules only leave forbidden names out of the response, and literals identify them."""
        if self.failures or self.late or self.throttle or self.awaits or self.whole is not None:
            return False
        return all(one.part.letters is not None for one in self.pending)

    def outlive(self, frame: FrameView) -> None:
        """Copy the request's frame out of the driver's buffer if it may still be needed."""
        kept = self.response_depth() == FrameDepth.BODY and (self.content is not None or self._request is None)
        if self.read_request is not None and kept:
            content = frame.content()
            self.read_request = lambda: decode_request(content, trailing=True)
            if self.content is not None:
                self.content = lambda: content
        else:
            self.read_request = self.content = None

    def lists_others(self, visible: Callable[[Entity], bool]) -> bool:
        """Return True if the response lists an entity that is not `visible`; those are removed from it."""
        return leave_out(self.request, self.response, visible)

    def answer_is(self, response: Message) -> None:
        self._response = response

    def end(self) -> None:
        """Release the state of all decisions when the exchange is decided, including the response."""
        if max(self.request_size, self.response_size) >= LONG:
            for message in (self._request, self._response):
                defer_free(None if message is None else message.body)
            for pending in self.pending:
                defer_free(pending.entities)
            for thing in (self.session, self.listed, self.failures, self.late):
                defer_free(thing)
        self._request = self._response = self.read_request = self.find = self._entities = self.session = None
        self.content = self.edits = None
        self.pending, self.failures, self.late, self.listed = [], {}, {}, ()

    def forget_records(self) -> None:
        """Drop the records of a request that has been sent, rather than keep them until the answer comes."""
        if self.api.key == PRODUCE and self._request is not None:
            self._request = without_records(self._request)


def without_records(request: Message) -> Message:
    """Return a copy of a Produce request with null records."""
    topics: Sequence[dict[str, Any]] = [
        topic | {"partition_data": [part | {"records": None} for part in yielding(topic["partition_data"] or ())]}
        for topic in yielding(request.body["topic_data"] or ())
    ]
    return Message(request.api, request.version, request.header, request.body | {"topic_data": topics})


Change = Callable[[bytes], bytes]
TriggerResults = dict[ActiveRule, bool]


class UnmatchedRequest(NamedTuple):
    """Note about a request without applicable rules, whose response may mention names that some rules forbid. `request`
    has its size in front; `rewrite` is what the name rewrites left."""

    request: bytes
    came: float
    rewrite: dict[str, Any] | None = None


class Evaluation:
    """Decisions about one frame, kept by its lane until the frame has been sent or dropped.

    until       time when it may go on, None: at once
    close       the connection is closed in the frame's place
    drop        the frame is dropped; the action afterwards
    swallow     all later bytes of this connection are dropped
    edited      the decoded message was changed; it is encoded after all rules
    frame       its replacement, without the size; None: the frame unchanged
    changes     made to the bytes that leave, with the size; `then` closes the connection afterwards
    throttle    seconds of the mute of the client's channel after the response (for acks=0: now)
    throttler   rule with the longest throttle; `throttled`: its seconds, muted, reported, or waited for a turn
    acted       rules with an effect, counted as applied when it has been sent
    to_hold     rules that will hold it, with their decisions; None: `when: {hold: true}`
    holds       the same while they hold it
    looked_at   time of the lane's next check of the holds
    """

    until: float | None = None
    close: How | None = None
    drop: AfterDrop | None = None
    swallow = edited = False
    frame: bytes | None = None
    then: How | None = None
    throttle = throttled = looked_at = 0.0
    throttler: ActiveRule | None = None
    to_hold: tuple[tuple[ActiveRule, Hold | None], ...] = ()
    holds: list[HeldFrame] = []  # replaced, never changed, by the lane of a frame that is to be held

    def __init__(self, exchange: EvaluatedExchange) -> None:
        self.exchange = exchange
        self.changes: list[Change] = []
        self.acted: list[ActiveRule] = []

    @property
    def final(self) -> bool:
        """Return True if the frame is dropped, so that no other rule is evaluated."""
        return self.close is not None or self.drop is not None or self.swallow

    def act(self, running: ActiveRule) -> None:
        """Note once that this rule had an effect on the current frame; all its decisions are applied at once."""
        if not self.acted or self.acted[-1] is not running:
            self.acted.append(running)

    def hold(self, running: ActiveRule, hold: Hold | None) -> None:
        """Have this rule hold the frame; that is something it does to it."""
        self.act(running)
        self.to_hold = (*self.to_hold, (running, hold))

    def to_count(self) -> list[ActiveRule]:
        """Return the rules that acted, and were not counted for it at this exchange's request; count them as told."""
        counted = self.exchange.counted
        if not counted:
            counted.update(self.acted)
            return self.acted
        new = [running for running in self.acted if running not in counted]
        counted.update(new)
        return new

    def throttle_by(self, running: ActiveRule, decision: Throttle) -> None:
        """Take a throttle; if several apply, the longest wins."""
        exchange, seconds = self.exchange, max(decision.throttle_time, decision.mute)
        exchange.throttle = max(exchange.throttle, decision.throttle_time)
        self.throttle = max(self.throttle, decision.mute)
        if self.throttler is None or seconds > self.throttled:
            self.throttler, self.throttled = running, seconds

    def delay(self, seconds: float, since: float) -> None:
        """Delay the frame by this many more seconds; delays of several rules add."""
        self.until = (since if self.until is None else self.until) + seconds


class RequestEvaluation(Evaluation):
    """Decisions about one request.

    answer      response made by kproxy, without the size; the request is not sent
    close_after how the connection is closed after the request
    candidates  numbers of rules that can apply to requests with this beginning; None: names are not sufficient
    asked       rules whose triggers were evaluated; `drawn`: earlier results of triggers
    waiting     rules that match all requests with this beginning, and decide by their triggers each time
    terms       of the rules in `waiting` that can fire without consequences: the input of their effects
    selection   the entities of the request; None: not read, or those of a session
    turns       turns of the request at limits of quotas
    """

    close_after: How | None = None
    answer: bytes | None = None
    selection: Selection | None = None
    pending_triggers: tuple[ActiveRule, ...] = ()
    fast_path_args: Mapping[ActiveRule, Any] = {}  # replaced, never changed
    candidates: frozenset[int] | None = None
    turns: tuple[QuotaTurn, ...] = ()
    waits_since: float | None = None  # for the first of its turns

    def __init__(self, exchange: EvaluatedExchange, drawn: TriggerResults | None = None) -> None:
        self.exchange, self.drawn = exchange, drawn or {}
        self.changes: list[Change] = []
        self.acted: list[ActiveRule] = []
        self.asked: list[ActiveRule] = []

    def postpone(self, running: ActiveRule, decision: Delay | Await, now: float) -> None:
        """Let the request wait for a time, or until its turns at limits of quotas are paid."""
        if isinstance(decision, Delay):
            self.delay(decision.seconds, now)
        else:
            self.throttler = self.throttler or running

    @property
    def by_triggers(self) -> bool:
        """Return True if this evaluation differs from others of such requests only by the triggers of its rules: only
        the last rule evaluated did something, and it always does the same."""
        last = next(reversed(self.asked), None) or next(reversed(self.drawn), None)
        return last is not None and self.acted == [last] and last.effect.steady and not last.holds

    @property
    def replaces(self) -> bool:
        """Return True if other bytes than those of the request leave, or none."""
        return self.frame is not None or bool(self.changes) or self.answer is not None or self.drop is not None
