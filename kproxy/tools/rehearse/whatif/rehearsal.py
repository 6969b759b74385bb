"""Rehearsal of a recorded connection: a session with other rules, and the differences from the recording.

Strategy. Requests go in at their recorded times, responses at theirs or, when a rule has held the request back, as much
later. A request that kproxy answers itself has no use for its recorded response. When a rule closes the connection, the
rest of it continues in a new session, like a client that reconnects. Further requests to the broker (all topics, for
their ids) are answered from the recording.

A rehearsal cannot show how a client would have continued after an error, or how a broker would have continued without a
frame.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from uuid import UUID

import msgspec

from kproxy.protocol.framing import framed
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table.api_keys import METADATA
from kproxy.rules.rule_set import MatchingRules
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import Plan
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import Dialogue, is_lookup, lookup_response, split
from kproxy.tools.rehearse.whatif.exchange import Opaque, PackedExchange, RecordedClient

PATIENCE = 3600.0
"""Seconds that a rule may hold a frame; a longer hold counts as infinite."""
METADATA_KEY = METADATA.to_bytes(2, "big")


@dataclass(slots=True)
class RehearsalFinding:
    """Finding about one exchange: the differences from the recording.

    `rules`: those that fired, in order. `delay`: seconds more until the response. `lost`: the client would have got no
    response.
    """

    recorded: PackedExchange
    rules: list[str] = field(default_factory=list)
    request_changed: bool = False
    response_changed: bool = False
    answered: bool = False
    closed: str = ""
    lost: bool = False
    delay: float = 0.0
    sent: float | None = None
    """When its request has gone to the broker."""

    @property
    def differs(self) -> bool:
        """Return True if anything would have been different."""
        return bool(
            self.rules or self.request_changed or self.response_changed or self.answered or self.closed or self.lost
        )


class Rehearsal(Dialogue):
    """Rehearsal of one connection.

    `topics`: names by topic id, of its cluster. `opaque`: exchanges that are skipped. `findings` are taken and cleared
    by the caller.
    """

    def __init__(
        self, plan: Plan, shared: ClusterState, caller: RecordedClient, number: int, topics: Mapping[UUID, str],
        opaque: Opaque,
    ) -> None:  # fmt: skip
        self.plan, self.opaque, self.topics = plan, opaque, topics
        self.findings: list[RehearsalFinding] = []
        self.responses_due: list[tuple[float, int, PackedExchange]] = []  # a heap
        self.observer = self
        super().__init__(plan=plan, shared=shared, facts=caller.facts, number=number)

    def begin_session(self, plan: Plan, rules: MatchingRules | None = None) -> None:
        """Begin a session, which replaces the previous one. `refused`: why a rule closed it at once, otherwise
        empty."""
        self.refused, self.beginning = "", True
        self.open: dict[int, RehearsalFinding] = {}
        super().begin_session(plan)
        self.beginning = False

    # ---- the recording

    def exchange(self, recorded: PackedExchange) -> None:
        """Feed the next exchange, in the order of requests. An exchange that the rules cannot affect is skipped."""
        if self.opaque[recorded.api_key << 16 | recorded.version & 0xFFFF]:
            return
        if recorded.correlation_id in self.open:
            recorded = self.renumbered(recorded)
        when, correlation = recorded.request_time, recorded.correlation_id
        if self.wakes or (self.responses_due and self.responses_due[0][0] <= when):
            self.until(when)
        self.now = max(self.now, when)
        if self.refused:  # the client connects again and repeats its request
            self.begin_session(self.plan)
        if not self.read[CLIENT] and not self.free():
            self.give_up("a rule lets nothing more pass on the connection")
        self.open[correlation] = RehearsalFinding(recorded)
        if self.refused:
            self.open[correlation].closed = self.refused
            self.end_without_response(correlation)
            return
        if recorded.response_time is not None:
            heapq.heappush(self.responses_due, (recorded.response_time, recorded.number, recorded))
        self.pass_on(CLIENT, recorded.request)
        if recorded.response is None and correlation in self.open:
            self.end_without_response(correlation)

    def renumbered(self, recorded: PackedExchange) -> PackedExchange:
        """Return the exchange with a correlation id that no exchange in flight has.

        Clients may use one id several times at once.
        """
        number = next(one for one in count(len(self.open)) if one not in self.open)
        data = number.to_bytes(4, "big")
        response = recorded.response
        return msgspec.structs.replace(
            recorded,
            correlation_id=number,
            request=recorded.request[:4] + data + recorded.request[8:],
            response=None if response is None else data + response[4:],
        )

    def end(self) -> None:
        """Deliver pending responses and settle the rest at the end of this connection's recording."""
        while self.responses_due:
            self.deliver()
        limit = self.now + PATIENCE
        while self.next_wake <= limit:
            self.wake()
            if not self.open:
                break
        for correlation in list(self.open):
            self.end_without_response(correlation)
        if not self.refused:
            self.session.end(self.now)

    # ---- time

    def until(self, when: float) -> None:
        """Process events before that time: responses, and the session's wake-ups."""
        while True:
            response = self.responses_due[0][0] if self.responses_due else inf
            wake = self.next_wake if self.wakes else inf
            if response <= when and response < wake:
                self.deliver()
            elif wake <= when:
                self.wake()
            else:
                return

    def free(self) -> bool:
        """Wait until the session reads from the client. False: it does not, within PATIENCE."""
        limit = self.now + PATIENCE
        while not self.read[CLIENT]:
            if self.next_wake <= limit:
                self.wake()
            elif self.responses_due:
                self.deliver()
            else:
                return False
        return True

    def deliver(self) -> None:
        """Feed the next recorded response, once its request has gone."""
        when, _, recorded = heapq.heappop(self.responses_due)
        correlation = recorded.correlation_id
        waiting = self.open.get(correlation)
        if waiting is None or waiting.recorded is not recorded:  # answered, or lost with its connection
            return
        self.now = max(self.now, when)
        while waiting.sent is None and self.next_wake <= self.now + PATIENCE:
            self.wake()
            if correlation not in self.open:
                return
        if waiting.sent is None:
            self.end_without_response(correlation)
            return
        assert recorded.response is not None
        self.now = max(self.now, when + waiting.sent - recorded.request_time)
        self.pass_on(BROKER, recorded.response)

    # ---- the session

    def pass_on(self, side: int, frame: bytes) -> None:
        self.read_from(side, framed(frame))
        if self.session.commands:
            self.obey()

    def obey(self) -> None:
        super().obey()
        self.log.clear()
        if self.closed is not None:
            self.give_up(self.closed.message)

    def emit(self, side: int, data: Buffer) -> None:
        """Compare the frames that leave with the recorded ones. Frames that a fault has changed may be malformed."""
        whole = int.from_bytes(data[:4], "big") == len(data) - 4
        for piece in (bytes(data),) if whole else split(data):
            if side == BROKER and piece[4:6] == METADATA_KEY and is_lookup(piece):
                self.feed(BROKER, lookup_response(piece, self.topics))
                continue
            at = 8 if side == BROKER else 4
            finding = self.open.get(int.from_bytes(piece[at : at + 4], "big", signed=True))
            if finding is None or len(piece) < at + 4:
                continue
            recorded = finding.recorded
            if side == BROKER:
                finding.sent = self.now
                finding.request_changed = piece[4:] != recorded.request
                continue
            finding.response_changed = piece[4:] != recorded.response
            if recorded.response_time is not None and self.now > recorded.response_time:
                finding.delay = self.now - recorded.response_time
            self.done(recorded.correlation_id)

    # ---- results

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Do nothing: the times show how long rules held a frame."""

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        finding = self.open.get(correlation_id)
        if finding is not None:
            finding.rules += [name for name in names if name not in finding.rules]
            finding.answered |= answered

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Do nothing: the response itself contains its errors."""

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        """Do nothing: the times of frames show the throttle."""

    def end_without_response(self, correlation: int) -> None:
        """End an exchange that gets no response any more. One that was recorded is lost."""
        finding = self.open[correlation]
        finding.lost |= finding.recorded.response is not None
        self.done(correlation)

    def done(self, correlation: int) -> None:
        finding = self.open.pop(correlation)
        if finding.differs:
            self.findings.append(finding)

    def give_up(self, why: str) -> None:
        """End the connection here; its client connects again."""
        for finding in self.open.values():
            finding.closed = why
        for correlation in list(self.open):
            self.end_without_response(correlation)
        self.session.end(self.now)
        self.session.commands.clear()
        if self.beginning:
            self.refused = why
        else:
            self.begin_session(self.plan)
