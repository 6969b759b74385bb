"""A session driven by hand: bytes go in on one side, the output of both sides is compared. No socket, no clock.

    talk = Dialogue(rules)
    talk.client(request(0, 9, 1, ...)).broker(response(0, 9, 1, ...)).later(0.2)
    assert talk.to_client == ...

The buffer that is fed is scribbled over after each call, so a session that keeps a view of it is found out. Every other
buffer ends with the last byte read, so that a read beyond it is also detected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.framing import LENGTH, FrameCutter, framed
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts, TrafficShape
from kproxy.rules.rule_set import RuleSet
from kproxy.session.commands import (
    BROKER,
    CLIENT,
    AskVersions,
    CloseBoth,
    Command,
    Compute,
    EnsureNodes,
    Pause,
    Reshape,
    Resume,
    Send,
    Shut,
    Wake,
    WakeAt,
)  # fmt: skip
from kproxy.session.held_frames import HoldingDesk
from kproxy.session.plan import Bound, Plan
from kproxy.session.session import Session
from kproxy.session.session_state import NOWHERE
from kproxy.session.shared import Shared

INVALID_REQUEST = 42
sized = framed
ROOM = (b"", b"beyond", bytes(1000))
"""Bytes in a driver's buffer after the bytes that it has read."""


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
    """A session with a driver that a test moves by hand. Rules are given as YAML text, or bound already.

    Attributes: session; rules (the rule set); to_client, to_broker (all output bytes so far); log (all commands); read
    (by side, True while it is read); closed (the Close, or None); shut (half-closed sides); shapes (limits on the flow
    of bytes); wakes (times at which the session asked to be called); now (seconds); works (computations that the
    session has asked for, if they are deferred until `compute` is called; None: they are done at once); versions
    (function for the broker's response to ApiVersions of clients that have not authenticated; None: the response is
    deferred); nodes (function for the address at which clients reach a node; None: the response is deferred).
    """

    def __init__(
        self, rules: str = "", *, bound: Bound | None = None, shared: Shared | None = None, plan: Plan | None = None,
        facts: Facts = NOWHERE, advertise: bool = False, number: int = 1, now: float = 0.0,
    ) -> None:  # fmt: skip
        self.shared = shared or Shared()
        self.rules = parse_rules(rules) if rules else RuleSet()
        held = self.rules.bind(facts)
        fixed = bound or Bound.of(held, advertise=advertise or held.advertise is not None)
        self.session = Session(Plan(fixed, held.live) if plan is None else plan, self.shared, facts, number, held)
        self.out = {CLIENT: bytearray(), BROKER: bytearray()}
        self.log: list[Command] = []
        self.read = {CLIENT: True, BROKER: True}
        self.closed: CloseBoth | None = None
        self.shut: set[int] = set()
        self.shapes: tuple[TrafficShape, ...] = ()
        self.wakes: list[float] = []
        self.works: list[Callable[[], object]] | None = None
        self.versions: Callable[[AskVersions], bytes] | None = broker_versions
        self.nodes: Callable[[int], tuple[str, int] | None] | None = lambda node: ("proxy", 30000 + node)
        self.now = now
        self.session.begin(self.now)
        self.obey()

    @property
    def to_client(self) -> bytes:
        return bytes(self.out[CLIENT])

    @property
    def to_broker(self) -> bytes:
        return bytes(self.out[BROKER])

    def client(self, data: bytes, chunk: int = 0) -> Dialogue:
        """Let the client send `data`, all at once or in chunks."""
        return self.feed(CLIENT, data, chunk or len(data))

    def broker(self, data: bytes, chunk: int = 0) -> Dialogue:
        """Let the broker send `data`, all at once or in chunks."""
        return self.feed(BROKER, data, chunk or len(data))

    def later(self, seconds: float) -> Dialogue:
        """Advance the time by `seconds`, and wake the session at the times that it has asked for."""
        end = self.now + seconds
        while due := [when for when in self.wakes if when <= end]:
            when = min(due)
            self.wakes.remove(when)
            self.now = max(self.now, when)
            self.session.tick(self.now)
            self.obey()
        self.now = end
        return self

    def compute(self) -> Dialogue:
        """Do the work that was put off, and give the session the results."""
        works, self.works = self.works or (), None
        for work in works:
            self.session.logins.computed(work(), self.now)
        self.obey()
        return self

    def feed(self, side: int, data: bytes, chunk: int) -> Dialogue:
        """Give the session bytes from one side, in chunks."""
        for number, start in enumerate(range(0, len(data), chunk or 1)):
            take = self.session.from_client if side == CLIENT else self.session.from_broker
            buf = bytearray(data[start : start + chunk])
            n = len(buf)
            buf += ROOM[number % len(ROOM)]
            with memoryview(buf) as view:
                go = take(view, n, self.now)
                assert 0 <= go <= len(buf), f"{go} of {len(buf)} bytes pass"
                self.out[1 - side] += view[:go]
            buf[:] = b"\xee" * len(buf)
            self.obey()
        return self

    def obey(self) -> None:
        """Execute the commands of the session."""
        commands = self.session.commands
        while commands:
            command = commands.pop(0)
            assert self.closed is None or isinstance(command, Wake | WakeAt), f"{command} after {self.closed}"
            self.log.append(command)
            match command:
                case Send(side, data, token):
                    self.out[side] += data
                    if token:
                        self.session.sent(token, self.now)
                case Pause(side):
                    self.read[side] = False
                case Resume(side):
                    self.read[side] = True
                case AskVersions() | EnsureNodes() | Compute():
                    self.find_out(command)
                case WakeAt(when):
                    self.wakes.append(when)
                case Shut(side):
                    self.shut.add(side)
                case Reshape(shapes):
                    self.shapes = shapes
                case CloseBoth():
                    self.closed = command
                case _:
                    pass

    def find_out(self, command: AskVersions | EnsureNodes | Compute) -> None:
        """Answer a question of the session, or do its work, unless that is put off."""
        match command:
            case AskVersions() if self.versions is not None:
                self.session.logins.versions_known(self.versions(command), self.now)
            case EnsureNodes(nodes) if self.nodes is not None:
                self.session.nodes_ready({node: self.nodes(node) for node in nodes}, self.now)
            case Compute(work) if self.works is None:
                self.session.logins.computed(work(), self.now)
            case Compute(work) if self.works is not None:
                self.works.append(work)

    # ---- output, decoded

    def requests(self) -> list[Message]:
        """Return the requests that the broker got, decoded."""
        return [decode_request(frame) for frame in frames(self.to_broker)]

    def responses(self, *asked: tuple[int, int]) -> list[Message]:
        """Return the responses that the client got, to requests of these (api key, version) in this order."""
        pairs = zip(frames(self.to_client), asked, strict=True)
        return [decode_response(frame, key, version) for frame, (key, version) in pairs]


def frames(data: bytes) -> list[bytes]:
    """Return the frames in `data` without their sizes. All bytes from an incomplete frame on count as one frame."""
    cutter = FrameCutter(0)
    found = [frame.data for frame in cutter.receive(data)]
    return found if cutter.offset == len(data) else [*found, data[cutter.offset + LENGTH :]]


EVERY_PARTITION = 1 << 31


def judged(*, records: bool = True) -> Shared:
    """Return the shared state of connections of one cluster, with an evaluator for the filters of their rules.
    `records`: whether these may ask about records."""
    from kproxy.record.audit.request_event import request_event  # `kproxy check` starts without the audit
    from kproxy.record.filters import FilterJudge

    desk = HoldingDesk()
    desk.judge = FilterJudge(lambda seen: request_event(seen, float, EVERY_PARTITION), records=records)
    return Shared(desk=desk)
