"""Driver of a session without sockets and without a clock: bytes go in on one side, and both outputs are compared.

    talk = Dialogue(rules)
    talk.client(request(0, 9, 1, ...)).broker(response(0, 9, 1, ...)).later(0.2)
    assert talk.to_client == ...

`cases` drives the connections of `kproxy test` with it, `explain` the frames of `kproxy explain`, and `whatif` recorded
exchanges. Each call gets a new buffer: it ends with the last byte read or has garbage behind it, and is overwritten
after the call. So a session that keeps a view, or reads beyond the end, is detected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Self
from uuid import UUID

from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.framing import LENGTH, RESPONSE_HEADER, FrameCutter, framed
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS, METADATA
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts, TrafficShape
from kproxy.rules.rule_set import MatchingRules, RuleSet
from kproxy.session.cluster import CORRELATION
from kproxy.session.commands import (
    BROKER,
    CLIENT,
    AskVersions,
    CloseBoth,
    Command,
    Compute,
    EnsureNodes,
    Observer,
    Pause,
    Reshape,
    Resume,
    Send,
    Shut,
    Wake,
    WakeAt,
)  # fmt: skip
from kproxy.session.held_frames import HeldRegistry
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.session_state import NOWHERE
from kproxy.session.shared import ClusterState

INVALID_REQUEST = 42
ROOM = (b"", b"beyond", bytes(1000))
"""Bytes in a driver's buffer after the bytes that it has read."""
NO_RULES = RuleSet()


def defaults(key: int, version: int, direction: str, **values: Any) -> dict[str, Any]:
    """Return a body with defaults for the fields that are not given."""
    struct = layout.body(key, version, direction)
    return struct.defaults() | values


def request(key: int, version: int, correlation: int, client_id: str | None = "tester", **values: Any) -> bytes:
    """Return a request frame with its size; fields not given have their defaults."""
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation,
        "client_id": client_id,
    }
    return framed(encode(Message(schema.load(key), version, header, defaults(key, version, "request", **values))))


def response(key: int, version: int, correlation: int, **values: Any) -> bytes:
    """Return a response frame with its size; fields not given have their defaults."""
    body = defaults(key, version, "response", **values)
    return framed(encode(Message(schema.load(key), version, {"correlation_id": correlation}, body)))


def broker_versions(asked: AskVersions) -> bytes:
    """Return the response of a broker without any API, starting after its correlation id."""
    return response(API_VERSIONS, asked.version, 0, error_code=0 if asked.valid else INVALID_REQUEST)[8:]


class Dialogue:
    """Driver of a session without sockets and without a clock. Rules are YAML text, or already bound.

    Attributes: session; rules (the rule set); out (bytes sent so far, by side); log (all commands); read (by side,
    False while the session pauses it); closed (the CloseBoth, or None); shut (half-closed sides); shapes (traffic
    shapes in force); wakes (times of pending WakeAt commands); now (seconds); works (deferred work of Compute commands;
    None: it runs at once); versions (returns the broker's ApiVersions response; None: it is deferred); nodes (returns
    the advertised address of a node; None: it is deferred).
    """

    observer: Observer | None = None

    def __init__(
        self, rules: str = "", *, bound: ConnectionSettings | None = None, shared: ClusterState | None = None,
        plan: Plan | None = None, facts: Facts = NOWHERE, advertise: bool = False, number: int = 1, now: float = 0.0,
    ) -> None:  # fmt: skip
        self.shared, self.facts, self.number, self.now = shared or ClusterState(), facts, number, now
        self.rules = parse_rules(rules) if rules else NO_RULES
        held = self.rules.bind(facts)
        if plan is None:
            fixed = bound or ConnectionSettings.of(held, advertise=advertise or held.advertise is not None)
            plan = Plan(fixed, held.live)
        self.out = {CLIENT: bytearray(), BROKER: bytearray()}
        self.log: list[Command] = []
        self.works: list[Callable[[], object]] | None = None
        self.versions: Callable[[AskVersions], bytes] | None = broker_versions
        self.nodes: Callable[[int], tuple[str, int] | None] | None = lambda node: ("proxy", 30000 + node)
        self.begin_session(plan, held)

    def begin_session(self, plan: Plan, rules: MatchingRules | None = None) -> None:
        """Begin a session, which replaces the previous one."""
        self.session = Session(plan, self.shared, self.facts, self.number, rules)
        self.session.observer = self.observer
        self.read = {CLIENT: True, BROKER: True}
        self.closed: CloseBoth | None = None
        self.shut: set[int] = set()
        self.shapes: tuple[TrafficShape, ...] = ()
        self.wakes: list[float] = []
        self.session.begin(self.now)
        self.obey()

    @property
    def to_client(self) -> bytes:
        return bytes(self.out[CLIENT])

    @property
    def to_broker(self) -> bytes:
        return bytes(self.out[BROKER])

    def client(self, data: bytes, chunk: int = 0) -> Self:
        """Let the client send `data`, in chunks of `chunk` bytes if given."""
        return self.feed(CLIENT, data, chunk or len(data))

    def broker(self, data: bytes, chunk: int = 0) -> Self:
        """Let the broker send `data`, in chunks of `chunk` bytes if given."""
        return self.feed(BROKER, data, chunk or len(data))

    @property
    def next_wake(self) -> float:
        """Return the time of the next WakeAt command; infinity if none is pending."""
        return min(self.wakes, default=inf)

    def wake(self) -> None:
        """Advance the time to the next WakeAt command, and call the session."""
        when = self.next_wake
        self.wakes.remove(when)
        self.now = max(self.now, when)
        self.session.tick(self.now)
        self.obey()

    def later(self, seconds: float) -> Self:
        """Advance the time by `seconds`, and call the session at the times of its WakeAt commands."""
        end = self.now + seconds
        while self.next_wake <= end:
            self.wake()
        self.now = end
        return self

    def compute(self) -> Self:
        """Run the deferred work, and give the results to the session."""
        works, self.works = self.works or (), None
        for work in works:
            self.session.logins.computed(work(), self.now)
        self.obey()
        return self

    def feed(self, side: int, data: bytes, chunk: int = 0) -> Self:
        """Give the session bytes from one side, in chunks of `chunk` bytes if given."""
        chunk = chunk or len(data) or 1
        for number, start in enumerate(range(0, len(data), chunk)):
            buf = self.read_from(side, data[start : start + chunk], ROOM[number % len(ROOM)])
            buf[:] = b"\xee" * len(buf)  # a session that keeps a view of the buffer sends garbage
            self.obey()
        return self

    def read_from(self, side: int, data: bytes, beyond: bytes = b"") -> bytearray:
        """Give the session one read of bytes from a side, in a buffer with other bytes `beyond`. Return the buffer."""
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        buf = bytearray(data + beyond)
        with memoryview(buf) as view:
            go = take(view, len(data), self.now)
            if go == len(data) and buf.startswith(data):
                self.emit(1 - side, data)
            elif go:
                assert 0 <= go <= len(buf), f"{go} of {len(buf)} bytes pass"
                self.emit(1 - side, view[:go])
        return buf

    def emit(self, side: int, data: Buffer) -> None:
        """Take bytes that the session sends to a side. `data` is valid during the call only."""
        self.out[side] += data

    def obey(self) -> None:
        commands = self.session.commands
        while commands:
            command = commands.pop(0)
            assert self.closed is None or isinstance(command, Wake | WakeAt), f"{command} after {self.closed}"
            self.log.append(command)
            match command:
                case Send(side, data, token):
                    self.emit(side, data)
                    if token:
                        self.session.sent(token, self.now)
                case Pause(side):
                    self.read[side] = False
                case Resume(side):
                    self.read[side] = True
                case AskVersions() if self.versions is not None:
                    self.session.logins.versions_known(self.versions(command), self.now)
                case EnsureNodes(nodes) if self.nodes is not None:
                    self.session.nodes_ready({node: self.nodes(node) for node in nodes}, self.now)
                case Compute(work):
                    if self.works is None:
                        self.session.logins.computed(work(), self.now)
                    else:
                        self.works.append(work)
                case WakeAt(when):
                    self.wakes.append(when)
                case Shut(side):
                    self.shut.add(side)
                case Reshape(shapes):
                    self.shapes = shapes
                case CloseBoth():
                    self.closed = command
                case (
                    _
                ):  # Dial: the broker is always connected; Wake: sessions without an owner are woken by their timers
                    pass

    # ---- output, decoded

    def requests(self) -> list[Message]:
        """Return the requests that the broker got, decoded."""
        return [decode_request(frame) for frame in frames(self.to_broker)]

    def responses(self, *asked: tuple[int, int]) -> list[Message]:
        """Return the responses that the client got, to requests of these (api key, version) in this order."""
        pairs = zip(frames(self.to_client), asked, strict=True)
        return [decode_response(frame, key, version) for frame, (key, version) in pairs]


def split(data: Buffer, smallest: int = RESPONSE_HEADER) -> list[bytes]:
    """Return the frames in `data` with their sizes. Bytes from an incomplete or invalid frame on are one piece."""
    cutter = FrameCutter(smallest)
    data = bytes(data)
    pieces = [framed(frame.data) for frame in cutter.receive(data)]
    return pieces if cutter.offset == len(data) else [*pieces, data[cutter.offset :]]


def frames(data: Buffer) -> list[bytes]:
    """Return the frames in `data` without their sizes; see `split`."""
    return [piece[LENGTH:] for piece in split(data, 0)]


def is_lookup(piece: bytes) -> bool:
    """Return True for a request of kproxy's own, which looks up topic names. `piece` starts with the size."""
    return int.from_bytes(piece[8:12], "big", signed=True) == CORRELATION


def lookup_response(piece: bytes, topics: Mapping[UUID, str]) -> bytes:
    """Return a broker's response to a request of kproxy's own, from a cluster with these topics."""
    question = decode_request(piece[LENGTH:])
    wanted = topics if question.body["topics"] is None else [one["topic_id"] for one in question.body["topics"]]
    listed = [{"name": topics[one], "topic_id": one} for one in wanted if one in topics]
    return response(METADATA, question.version, CORRELATION, topics=listed)


EVERY_PARTITION = 1 << 31


def judged(*, records: bool = True) -> ClusterState:
    """Return the shared state of connections of one cluster, with an evaluator for the filters of their rules.
    `records`: whether these may ask about records."""
    from kproxy.record.audit.request_event import request_event  # `kproxy check` starts without the audit
    from kproxy.record.filters import FilterJudge

    desk = HeldRegistry()
    desk.judge = FilterJudge(lambda seen: request_event(seen, float, EVERY_PARTITION), records=records)
    return ClusterState(desk=desk)
