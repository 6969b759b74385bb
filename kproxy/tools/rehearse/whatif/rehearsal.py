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
from uuid import UUID

import msgspec

from kproxy.protocol import Message, encode
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import METADATA
from kproxy.session.cluster import CORRELATION, VERSION
from kproxy.session.commands import BROKER, CLIENT, CloseBoth, Command, EnsureNodes, Pause, Resume, Send, WakeAt
from kproxy.session.plan import Plan
from kproxy.session.session import Session
from kproxy.session.shared import Shared
from kproxy.tools.rehearse.dialogue import frames
from kproxy.tools.rehearse.whatif.exchange import Opaque, PackedExchange, RecordedClient

PATIENCE = 3600.0
"""Seconds that a rule may hold a frame; a longer hold counts as infinite."""
PORT = 30000
"""Brokers are advertised to clients at this port plus the node's id."""
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


class Rehearsal:
    """Rehearsal of one connection.

    `topics`: names by topic id, of its cluster. `findings` are taken and cleared by the caller.
    """

    def __init__(
        self, plan: Plan, shared: Shared, caller: RecordedClient, number: int, topics: Mapping[UUID, str] | None = None,
        opaque: Opaque | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.shared, self.caller, self.number = plan, shared, caller, number
        self.opaque = Opaque([plan]) if opaque is None else opaque
        self.topics = topics or {}
        self.findings: list[RehearsalFinding] = []
        self.closes = 0
        self.now = 0.0
        self.due: list[tuple[float, int, PackedExchange]] = []  # responses that are still to come
        self.begin()

    def begin(self) -> None:
        """Begin a new session; pending exchanges of the last one are lost. `refused`: why a rule let it end at once;
        empty if none did."""
        self.beginning, self.refused = True, ""
        self.session = Session(self.plan, self.shared, self.caller.facts, self.number)
        self.session.observer = self
        self.open: dict[int, RehearsalFinding] = {}
        self.paused = [False, False]
        self.wakes: list[float] = []
        self.close: CloseBoth | None = None
        self.session.begin(self.now)
        self.obey()
        self.beginning = False

    # ---- the recording

    def exchange(self, recorded: PackedExchange) -> None:
        """Feed the next exchange, in the order of requests. An exchange that the rules cannot affect is skipped."""
        if self.opaque[recorded.api_key << 16 | recorded.version & 0xFFFF]:
            return
        if recorded.correlation_id in self.open:
            recorded = self.renumbered(recorded)
        when, correlation = recorded.request_time, recorded.correlation_id
        if self.wakes or (self.due and self.due[0][0] <= when):
            self.until(when)
        elif when > self.now:
            self.now = when
        if self.refused:  # the client connects again and repeats its request
            self.begin()
        if self.paused[CLIENT] and not self.free():
            self.give_up("a rule lets nothing more pass on the connection")
        self.open[correlation] = RehearsalFinding(recorded)
        if self.refused:
            self.open[correlation].closed = self.refused
            self.settle(correlation)
            return
        if recorded.response_time is not None:
            heapq.heappush(self.due, (recorded.response_time, recorded.number, recorded))
        self.feed(CLIENT, correlation, recorded.request)
        if recorded.response is None and correlation in self.open:
            self.settle(correlation)

    def renumbered(self, recorded: PackedExchange) -> PackedExchange:
        """Return the exchange with a correlation id that nothing under way has.

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
        while self.due:
            self.deliver()
        self.until(self.now + PATIENCE, waking=True)
        for correlation in list(self.open):
            self.settle(correlation)
        if not self.refused:
            self.session.end(self.now)

    # ---- time

    def until(self, when: float, waking: bool = False) -> None:
        """Process events before that time: responses, and the session's wake-ups."""
        while True:
            response = self.due[0][0] if self.due else None
            wake = min(self.wakes) if self.wakes else None
            if response is not None and response <= when and (wake is None or response < wake):
                self.deliver()
            elif wake is not None and (wake <= when):
                self.wake(wake)
                if waking and not self.open:
                    return
            else:
                break
        self.now = max(self.now, when) if not waking else self.now

    def wake(self, when: float) -> None:
        self.wakes.remove(when)
        self.now = max(self.now, when)
        self.session.tick(self.now)
        self.obey()

    def free(self) -> bool:
        """Wait until the session reads from the client. False: it does not, within PATIENCE."""
        limit = self.now + PATIENCE
        while self.paused[CLIENT]:
            wake = min(self.wakes, default=None)
            if wake is not None and wake <= limit:
                self.wake(wake)
            elif self.due:
                self.deliver()
            else:
                return False
        return True

    def deliver(self) -> None:
        """Feed the next recorded response, once its request has gone."""
        when, _, recorded = heapq.heappop(self.due)
        correlation = recorded.correlation_id
        waiting = self.open.get(correlation)
        if waiting is None or waiting.recorded is not recorded:  # answered, or lost with its connection
            return
        self.now = max(self.now, when)
        while waiting.sent is None and self.wakes and min(self.wakes) <= self.now + PATIENCE:
            self.wake(min(self.wakes))
            if correlation not in self.open:
                return
        if waiting.sent is None:
            self.settle(correlation)
            return
        assert recorded.response is not None
        self.now = max(self.now, when + waiting.sent - recorded.request_time)
        self.feed(BROKER, correlation, recorded.response)

    # ---- the session

    def feed(self, side: int, correlation: int, frame: bytes) -> None:
        """Feed a frame from this side. Most frames leave unchanged: these need no second look."""
        sent = len(frame).to_bytes(4, "big") + frame
        buf, size = bytearray(sent), len(sent)
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        with memoryview(buf) as view:
            go = take(view, size, self.now)
        if go == size and buf == sent:
            self.passed(1 - side, correlation, frame)
        elif go:
            self.put(1 - side, buf[:go])
        if self.session.commands or self.close is not None:
            self.obey()

    def obey(self) -> None:
        commands = self.session.commands
        while commands:
            batch = commands.copy()
            commands.clear()
            for command in batch:
                if type(command) is Send:
                    self.put(command.side, command.data)
                    if command.token:
                        self.session.sent(command.token, self.now)
                else:
                    self.obey_other(command)
        if self.close is not None:
            self.give_up(self.close.message)

    def obey_other(self, command: Command) -> None:
        match command:
            case EnsureNodes(nodes=nodes):
                self.session.nodes_ready({node: ("kproxy", PORT + node) for node in nodes}, self.now)
            case Pause(side=side):
                self.paused[side] = True
            case Resume(side=side):
                self.paused[side] = False
            case WakeAt(when=when):
                self.wakes.append(when)
            case CloseBoth():
                self.close = command
            case _:  # how bytes flow, and half-closed sides, change no frame
                pass

    def put(self, side: int, data: bytes | bytearray | memoryview) -> None:
        """Take bytes that leave. Frames that a fault has changed may be malformed."""
        at = 4 if side == BROKER else 0  # of the correlation id
        for frame in frames(bytes(data)):
            if len(frame) < at + 4:
                continue
            correlation = int.from_bytes(frame[at : at + 4], "big", signed=True)
            if side == BROKER and correlation == CORRELATION and frame[:2] == METADATA_KEY:
                self.answer_topics()
            else:
                self.passed(side, correlation, frame)

    def passed(self, side: int, correlation: int, frame: bytes) -> None:
        finding = self.open.get(correlation)
        if finding is None:
            return
        recorded = finding.recorded
        if side == BROKER:
            finding.sent = self.now
            finding.request_changed = frame != recorded.request
            return
        finding.response_changed = frame != recorded.response
        if recorded.response_time is not None and self.now > recorded.response_time:
            finding.delay = self.now - recorded.response_time
        self.done(correlation)

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

    def settle(self, correlation: int) -> None:
        """End an exchange that gets no response any more. One that was recorded is lost."""
        finding = self.open[correlation]
        if finding.recorded.response is not None:
            finding.lost = True
        self.done(correlation)

    def done(self, correlation: int) -> None:
        finding = self.open.pop(correlation)
        if finding.differs:
            self.findings.append(finding)

    def give_up(self, why: str) -> None:
        """End the connection here; its client connects again."""
        self.closes += 1
        for finding in self.open.values():
            finding.closed = why
        for correlation in list(self.open):
            self.settle(correlation)
        self.session.end(self.now)
        self.session.commands.clear()
        if self.beginning:
            self.refused = why
        else:
            self.begin()

    def answer_topics(self) -> None:
        """Feed the response to the session's own request: all topics that the recording has shown."""
        struct = layout.body(METADATA, VERSION, "response")
        body = struct.defaults()
        body["topics"] = [
            {"error_code": 0, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}
            for topic_id, name in self.topics.items()
        ]
        frame = encode(Message(schema.load(METADATA), VERSION, {"correlation_id": CORRELATION}, body))
        self.feed(BROKER, CORRELATION, frame)
