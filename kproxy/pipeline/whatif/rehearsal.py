"""Leads a recorded connection through a session with other rules, and says what would have been different.

Strategy. Requests go in at their recorded times, responses at theirs or, when a rule has held the request back, as much
later. A request that kproxy answers itself has no use for its recorded response. When a rule closes the connection, the
rest of it goes on in a new session, as a client does that connects again. What is asked of the broker beyond the
recording (all topics, for their ids) is answered from what the recording has shown.

What this cannot know: how a client would have gone on after an error, and how a broker after what it did not get.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kproxy.core.commands import BROKER, CLIENT, Close, EnsureNodes, Pause, Resume, Send, WakeAt
from kproxy.core.plan import Plan
from kproxy.core.session import Session, Shared
from kproxy.core.step import HEAD, Step
from kproxy.core.topics import CORRELATION, METADATA, VERSION
from kproxy.wire import Message, encode, layout, schema

from .recorded import Caller, Recorded

PATIENCE = 3600.0
"""Seconds that a frame may be held by rules; what takes longer is taken for never."""
PORT = 30000
"""Brokers are at this port and the node's id, as far as clients are told."""


@dataclass(slots=True)
class Finding:
    """What would have been different for one exchange. `rules`: those that fired, in order. `delay`: seconds more until
    the answer. `lost`: the client would have got no answer."""

    recorded: Recorded
    rules: list[str] = field(default_factory=list)
    request_changed: bool = False
    response_changed: bool = False
    answered: bool = False
    closed: str = ""
    lost: bool = False
    delay: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether anything would have been."""
        return bool(
            self.rules or self.request_changed or self.response_changed or self.answered or self.closed or self.lost
        )


@dataclass(slots=True)
class Waiting:
    """An exchange under way."""

    finding: Finding
    sent: float | None = None  # when its request has gone to the broker


class Rehearsal:
    """One connection. `topics`: names by topic id, of its cluster. `findings` are taken and cleared by the caller."""

    def __init__(
        self, plan: Plan, shared: Shared, caller: Caller, number: int, topics: Mapping[UUID, str] | None = None
    ) -> None:
        self.plan, self.shared, self.caller, self.number = plan, shared, caller, number
        self.topics = topics or {}
        self.findings: list[Finding] = []
        self.closes = 0
        self.now = 0.0
        self.due: list[tuple[float, int, Recorded]] = []  # responses that are still to come
        self.begin()

    def begin(self) -> None:
        """A new session; what was under way in the last one is lost."""
        self.session = Session(self.plan, self.shared, self.caller.facts, self.number)
        self.session.observer = self
        self.open: dict[int, Waiting] = {}
        self.paused = [False, False]
        self.wakes: list[float] = []
        self.close: Close | None = None
        self.session.begin(self.now)
        self.obey()

    # ---- the recording

    def exchange(self, recorded: Recorded) -> None:
        """The next exchange, in the order of requests. One that the rules cannot be about is not looked at."""
        if is_opaque(self.plan[recorded.api_key << 16 | recorded.version & 0xFFFF]):
            return
        self.until(recorded.request_time)
        if not self.free():
            self.give_up("a rule lets nothing more pass on the connection")
        finding = Finding(recorded)
        self.open[recorded.correlation_id] = Waiting(finding)
        if recorded.response_time is not None:
            heapq.heappush(self.due, (recorded.response_time, recorded.number, recorded))
        self.feed(CLIENT, recorded.request)
        if recorded.response is None and recorded.correlation_id in self.open:
            self.settle(recorded.correlation_id)

    def end(self) -> None:
        """The recording of this connection is over."""
        while self.due:
            self.deliver()
        self.until(self.now + PATIENCE, waking=True)
        for correlation in list(self.open):
            self.settle(correlation)
        self.session.end(self.now)

    # ---- time

    def until(self, when: float, waking: bool = False) -> None:
        """What comes before that time: responses, and what the session wanted to be woken for."""
        while True:
            response = self.due[0][0] if self.due else None
            wake = min(self.wakes, default=None)
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
        """Wait until the session reads from the client. False: it does not, in a time that anybody would wait."""
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
        """The next recorded response, once its request has gone."""
        when, _, recorded = heapq.heappop(self.due)
        waiting = self.open.get(recorded.correlation_id)
        if waiting is None or waiting.finding.recorded is not recorded:  # answered, or lost with its connection
            return
        self.now = max(self.now, when)
        while waiting.sent is None and self.wakes and min(self.wakes) <= self.now + PATIENCE:
            self.wake(min(self.wakes))
            if recorded.correlation_id not in self.open:
                return
        if waiting.sent is None:
            self.settle(recorded.correlation_id)
            return
        assert recorded.response is not None
        self.now = max(self.now, when + waiting.sent - recorded.request_time)
        self.feed(BROKER, recorded.response)

    # ---- the session

    def feed(self, side: int, frame: bytes) -> None:
        buf = bytearray(len(frame).to_bytes(4, "big") + frame)
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        with memoryview(buf) as view:
            go = take(view, len(buf), self.now)
            out = bytes(view[:go])
        self.put(1 - side, out)
        self.obey()

    def obey(self) -> None:
        commands = self.session.commands
        while commands:
            batch = commands.copy()
            commands.clear()
            for command in batch:
                match command:
                    case Send(side=side, data=data, token=token):
                        self.put(side, bytes(data))
                        if token:
                            self.session.sent(token, self.now)
                    case EnsureNodes(nodes=nodes):
                        self.session.nodes_ready({node: ("kproxy", PORT + node) for node in nodes}, self.now)
                    case Pause(side=side):
                        self.paused[side] = True
                    case Resume(side=side):
                        self.paused[side] = False
                    case WakeAt(when=when):
                        self.wakes.append(when)
                    case Close():
                        self.close = command
                    case _:  # how bytes flow, and half-closed sides, change no frame
                        pass
        if self.close is not None:
            self.give_up(self.close.message)

    def put(self, side: int, data: bytes) -> None:
        """Bytes leave. What a fault has made of frames need not be any."""
        pos = 0
        while pos + 8 <= len(data):
            size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
            frame = data[pos + 4 : pos + 4 + max(size, 0)]
            at = 4 if side == BROKER else 0
            correlation = int.from_bytes(frame[at : at + 4], "big", signed=True)
            if side == BROKER and correlation == CORRELATION and frame[:2] == METADATA.to_bytes(2, "big"):
                self.answer_topics()
            else:
                self.passed(side, correlation, frame)
            pos += 4 + max(size, 0)

    def passed(self, side: int, correlation: int, frame: bytes) -> None:
        waiting = self.open.get(correlation)
        if waiting is None:
            return
        finding = waiting.finding
        recorded = finding.recorded
        if side == BROKER:
            waiting.sent = self.now
            finding.request_changed = frame != recorded.request
            return
        finding.response_changed = frame != recorded.response
        if recorded.response_time is not None:
            finding.delay = max(0.0, self.now - recorded.response_time)
        self.done(correlation)

    # ---- what comes of it

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool) -> None:
        """The times tell."""

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False) -> None:
        """Rules fired for an exchange."""
        waiting = self.open.get(correlation_id)
        if waiting is not None:
            waiting.finding.rules += [name for name in names if name not in waiting.finding.rules]
            waiting.finding.answered |= answered

    def settle(self, correlation: int) -> None:
        """No answer comes any more. One that was recorded is lost."""
        waiting = self.open[correlation]
        if waiting.finding.recorded.response is not None:
            waiting.finding.lost = True
        self.done(correlation)

    def done(self, correlation: int) -> None:
        finding = self.open.pop(correlation).finding
        if finding.differs:
            self.findings.append(finding)

    def give_up(self, why: str) -> None:
        """The connection ends here; its client connects again."""
        self.closes += 1
        for waiting in self.open.values():
            waiting.finding.closed = why
        for correlation in list(self.open):
            self.settle(correlation)
        self.session.end(self.now)
        self.session.commands.clear()
        self.begin()

    def answer_topics(self) -> None:
        """The broker's answer to the session's own question: all topics that the recording has shown."""
        struct = layout.body(METADATA, VERSION, "response")
        body = {slot.name: slot.default() for slot in (*struct.slots, *struct.tagged)}
        body["topics"] = [
            {"error_code": 0, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}
            for topic_id, name in self.topics.items()
        ]
        frame = encode(Message(schema.load(METADATA), VERSION, {"correlation_id": CORRELATION}, body))
        self.feed(BROKER, frame)


def is_opaque(step: Step) -> bool:
    """Whether both frames would pass as they are, whatever is in them (but for acks, which is only read)."""
    return (
        step.request in (None, HEAD) and step.rewrite_request is None and step.response is None and step.ruled is None
    )
