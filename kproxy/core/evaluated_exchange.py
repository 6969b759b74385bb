"""An exchange that live rules are about, with what the engine has to remember of it until its response has gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kproxy.rules.decision import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange
from kproxy.rules.running import Running
from kproxy.wire import decode_request
from kproxy.wire.breath import LONG, keep
from kproxy.wire.codec.message import Message
from kproxy.wire.table.api_keys import PRODUCE

from .lanes.frame import FrameView
from .matcher import Part
from .partition_session import PartitionSession
from .respond.failure import Failure
from .rule_program import RuleProgram
from .step import Step


@dataclass(frozen=True, slots=True)
class Pending:
    """Rule that has something to do when the response comes. `judged`: it has fired; else it selects on errors, or, if
    it `screens`, it fires when there is something to be left out."""

    part: Part
    entities: Sequence[Entity]
    judged: bool
    screens: bool = False


class EvaluatedExchange(Exchange):
    """Exchange that live rules apply to, with what the engine remembers of it.

    `failures` are entities that the broker does not see, to be merged into its answer; `late` are those whose part of
    the answer becomes an error; `whole` is an error for the answer's top level. `counted` are rules that were told that
    they did something: once an exchange, though it be to the request and to the response. `session` is the fetch or
    share session that the request opens or continues, `awaits` that the broker's answer to it is to be noticed,
    `refuses` that a rule other than a fault has failed something; `decided` that no other rule is asked any more.
    """

    __slots__ = (
        "awaits",
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
        self.pending: list[Pending] = []
        self.counted: set[Running] = set()
        self.failures: dict[Entity, Failure] = {}
        self.late: dict[Entity, Failure] = {}
        self.listed: tuple[Entity, ...] = ()  # entities of the request, if it belongs to no session
        self.whole: Failure | None = None
        self.session: PartitionSession | None = None
        self.awaits = self.refuses = self.decided = False
        self.throttle = 0.0  # seconds that the client is told in the response
        self.mute = 0.0  # seconds for which it is not read after that

    def response_depth(self) -> Depth:
        """Return how deep the response has to be seen."""
        if self.failures or self.late or self.whole is not None:
            return Depth.BODY
        depth = max((each.part.response for each in self.pending), default=Depth.NOTHING)
        if self.awaits:
            depth = max(depth, Depth.HEADER)
        if self.throttle:
            depth = max(depth, Depth.HEADER if self.program.throttle_first else Depth.BODY)
        return depth

    def pend_screens(self) -> None:
        """Have the rules that hold for the request, although none applied to its entities, look at the response, which
        may mention what they forbid."""
        for part in self.program.parts:
            if part.screens and part.matcher.holds(self) is not None:
                self.pending.append(Pending(part, (), judged=False, screens=True))

    @property
    def only_leaves_out(self) -> bool:
        """Return True if rules do no more to the answer than leave out what they forbid, and bytes tell of that."""
        if self.failures or self.late or self.throttle or self.awaits or self.whole is not None:
            return False
        return all(one.part.letters is not None for one in self.pending)

    def outlive(self, frame: FrameView) -> None:
        """Copy the request's frame out of the driver's buffer if it can still be asked for."""
        if self.read_request is not None and self._request is None and self.response_depth() == Depth.BODY:
            content = frame.content()
            self.read_request = lambda: decode_request(content, trailing=True)
        else:
            self.read_request = None

    def answer_is(self, response: Message) -> None:
        """Set the response that rules see from now on."""
        self._response = response

    def end(self) -> None:
        """Let go of all that decisions were made of, when all has been decided, about the response, too."""
        if max(self.request_size, self.response_size) >= LONG:
            for message in (self._request, self._response):
                keep(None if message is None else message.body)
            for pending in self.pending:
                keep(pending.entities)
            for thing in (self.session, self.listed, self.failures, self.late):
                keep(thing)
        self._request = self._response = self.read_request = self.find = self._entities = self.session = None
        self.pending, self.failures, self.late, self.listed = [], {}, {}, ()

    def forget_records(self) -> None:
        """Drop the records of a request that has been sent, rather than keep them until the answer comes."""
        if self.api.key == PRODUCE and self._request is not None:
            self._request = without_records(self._request)


def without_records(request: Message) -> Message:
    """Return a copy of a Produce request in which all records are null."""
    topics: Sequence[dict[str, Any]] = [
        topic | {"partition_data": [part | {"records": None} for part in topic["partition_data"] or ()]}
        for topic in request.body["topic_data"] or ()
    ]
    return Message(request.api, request.version, request.header, request.body | {"topic_data": topics})
