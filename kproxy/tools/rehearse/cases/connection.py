"""Connection of a case: a driven session, and the frames that have come out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self
from uuid import UUID

from kproxy.base.errors import DecodeError, plural
from kproxy.protocol import Message, decode_request, decode_response
from kproxy.protocol.framing import REQUEST_BEGINS
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.exchange import Facts, IdentityView
from kproxy.rules.rule_set import Barred, RuleSet
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.cases.model import ClientConnection
from kproxy.tools.rehearse.dialogue import Dialogue, is_lookup, lookup_response, split

DEFAULT_PORTS = 9193
KPROXY = "kproxy.example.com"
"""Host of kproxy's own addresses where a rule does not name one."""


class Request(NamedTuple):
    """Head of a request."""

    key: int
    version: int
    correlation: int

    @classmethod
    def of(cls, frame: bytes) -> Self:
        """Return the head of a request frame with its size."""
        key_and_version, correlation = REQUEST_BEGINS.unpack_from(frame)[1:]
        return cls(key_and_version >> 16, key_and_version & 0xFFFF, correlation)


@dataclass(frozen=True)
class Piece:
    """Bytes that kproxy sent: a frame with its size, or bytes that are not a frame.

    `when`: seconds since the start of the case. `side` received it. `kinds`: API key and version of the client's
    requests, by correlation id. `originals`: frames of the other side, by correlation id.
    """

    data: bytes
    when: float
    side: int
    kinds: Mapping[int, tuple[int, int]]
    originals: Mapping[int, bytes]

    @property
    def is_frame(self) -> bool:
        return len(self.data) >= 4 and int.from_bytes(self.data[:4], "big", signed=True) == len(self.data) - 4

    @property
    def correlation(self) -> int:
        start = 8 if self.side == BROKER else 4
        return int.from_bytes(self.data[start : start + 4], "big", signed=True)

    def message(self) -> Message:
        """Return the decoded message. Raises DecodeError for bytes that are not a message."""
        if not self.is_frame:
            raise DecodeError(f"expected a whole frame, got {len(self.data)} bytes")
        if self.side == BROKER:
            return decode_request(self.data[4:])
        kind = self.kinds.get(self.correlation)
        if kind is None or len(self.data) < 8:
            raise DecodeError(f"no request had the correlation id {self.correlation}")
        return decode_response(self.data[4:], *kind)

    def maybe_message(self) -> Message | None:
        """Return the decoded message; None if it cannot be decoded."""
        try:
            return self.message()
        except DecodeError:
            return None

    def __str__(self) -> str:
        message = self.maybe_message()
        return plural(len(self.data), "byte") if message is None else f"a {called(message)}"


def called(message: Message) -> str:
    return f"{message.api.name} {message.version} {message.direction}"


class CaseIdentity:
    """Identity of a case's client: from the test if given, otherwise from its frames."""

    def __init__(self, spec: ClientConnection, seen: IdentityView) -> None:
        self.spec, self.seen = spec, seen

    @property
    def principal(self) -> str | None:
        return self.seen.principal if self.spec.principal is None else self.spec.principal

    @property
    def software(self) -> str | None:
        return self.seen.software if self.spec.client_software is None else self.spec.client_software

    @property
    def is_anyone(self) -> bool:
        return self.spec.principal is None and self.seen.is_anyone


class CaseConnection(Dialogue):
    """Connection of one case between its client and its broker.

    Attributes: arrived (pieces that came out since the last take, by side); asked (requests that the broker has not
    answered); originals (frames for this side, as the other side sent them, by correlation id); kinds (API key and
    version of each request, by correlation id); topics (of the cluster, by id).
    """

    def __init__(
        self, spec: ClientConnection, rules: RuleSet, shared: ClusterState, number: int, topics: Mapping[UUID, str],
        now: float,
    ) -> None:  # fmt: skip
        facts = Facts(spec.listener, spec.cluster, spec.client_address, spec.sni, spec.certificate, spec.node)
        self.topics = topics
        self.arrived: dict[int, list[Piece]] = {CLIENT: [], BROKER: []}
        self.waiting: dict[int, deque[bytes]] = {CLIENT: deque(), BROKER: deque()}
        self.asked: deque[Request] = deque()
        self.originals: dict[int, dict[int, bytes]] = {BROKER: {}, CLIENT: {}}
        self.kinds: dict[int, tuple[int, int]] = {}
        self.numbered = 0
        self.expects_end = False
        self.bound = rules.bind(facts)
        advertise = self.bound.advertise is not None if spec.advertise is None else spec.advertise
        self.fixed = ConnectionSettings.of(self.bound, advertise=advertise)
        plan = Plan(self.fixed, self.bound.live)
        super().__init__(plan=plan, shared=shared, facts=facts, number=number, now=now)
        self.nodes = self.address
        self.session.engine.view.identity = CaseIdentity(spec, self.session.identity)
        self.bar(rules.gate.ask(facts))
        self.pump()

    def use(self, rules: RuleSet) -> None:
        """Put other rules into force, which close the connection if they bar its client."""
        barred = rules.gate.check_quietly(self.facts)
        if barred is not None and barred.closes:
            self.bar(barred)
            return
        self.session.use(Plan(self.fixed, rules.bind(self.facts).live), self.now)
        self.obey()

    def bar(self, barred: Barred | None) -> None:
        """Close the connection if rules do not let the client in, or no longer."""
        if barred is not None:
            self.session.close_by_rule(barred.close_with, list(barred.rules))
            self.obey()

    # ---- bytes in

    def next_correlation(self) -> int:
        """Return the correlation id of the client's next request, from 1 on."""
        self.numbered += 1
        return self.numbered

    def send(self, frame: bytes) -> None:
        """Let the client send a frame with its size; kproxy takes it when it reads."""
        sent = Request.of(frame)
        self.kinds[sent.correlation], self.originals[BROKER][sent.correlation] = (sent.key, sent.version), frame
        self.waiting[CLIENT].append(frame)
        self.pump()

    def respond(self, asked: Request, frame: bytes) -> None:
        """Let the broker send `frame` as its response to `asked`."""
        self.originals[CLIENT][asked.correlation] = frame
        self.waiting[BROKER].append(frame)
        self.pump()

    def advance(self, now: float) -> None:
        """Advance the time of this connection to `now`."""
        self.later(max(0.0, now - self.now))
        self.pump()

    def released(self) -> None:
        """Forward frames that a rule may have released."""
        self.session.released(self.now)
        self.obey()
        self.pump()

    def pump(self) -> None:
        """Let kproxy read pending frames while it reads, and sort its output by side."""
        while True:
            self.sort()
            side = next((side for side, frames in self.waiting.items() if frames and self.read[side]), None)
            if side is None or self.closed is not None:
                return
            self.feed(side, self.waiting[side].popleft())

    # ---- bytes out

    def sort(self) -> None:
        """Split the bytes that came out into pieces, and keep requests until they are answered. Requests of kproxy's
        own are answered at once."""
        sent = self.originals[BROKER]
        for side in (BROKER, CLIENT):
            for data in split(self.out[side]):
                piece = Piece(data, self.now, side, self.kinds, self.originals[side])
                if side == BROKER and piece.is_frame and is_lookup(data):
                    self.waiting[BROKER].append(lookup_response(data, self.topics))
                    continue
                self.arrived[side].append(piece)
                if side == BROKER and piece.is_frame:
                    asked = Request.of(data)
                    if asked.correlation in sent and not (asked.key == PRODUCE and without_answer(data)):
                        self.asked.append(asked)
            self.out[side].clear()

    def take(self, side: int) -> list[Piece]:
        """Return the pieces that came out on this side since they were last taken."""
        pieces, self.arrived[side] = self.arrived[side], []
        return pieces

    @property
    def ended(self) -> str:
        """Return how the connection has ended: fin, rst or half; empty while it is open."""
        if self.closed is not None:
            return "rst" if self.closed.reset else "fin"
        return "half" if CLIENT in self.shut else ""

    # ---- addresses

    def address(self, node: int) -> tuple[str, int] | None:
        """Return the host and port at which kproxy offers a node: from the applicable rule of kind advertise, otherwise
        a separate port for each node. None: the rule has no address for this node."""
        rule = self.bound.advertise
        if rule is None:
            return KPROXY, DEFAULT_PORTS + node
        if rule.nodes is not None:
            target = rule.nodes.get(node)
            return None if target is None else (target.host, target.port)
        if (named := rule.sni_address(node)) is not None:
            return named.host, named.port
        first, last = rule.ports or (DEFAULT_PORTS, DEFAULT_PORTS + 999)
        port = first + node if node >= 0 else last + 2 + node
        return (rule.host or KPROXY, port) if first <= port <= last else None


def without_answer(frame: bytes) -> bool:
    """Return True if a Produce request has acks 0, so that no response follows."""
    try:
        return bool(decode_request(frame[4:]).body["acks"] == 0)
    except DecodeError:  # a frame that a rule has spoiled
        return False
