"""One connection of a case: a session driven by hand, and the frames that have come out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.protocol.framing import FrameCutter, framed
from kproxy.protocol.table.api_keys import METADATA, PRODUCE
from kproxy.rules.exchange import Facts, IdentityView
from kproxy.rules.rule_set import Barred, BoundRules, RuleSet
from kproxy.session.cluster import CORRELATION
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import Bound as Fixed
from kproxy.session.plan import Plan
from kproxy.session.shared import Shared
from kproxy.tools.rehearse.cases.model import ClientConnection
from kproxy.tools.rehearse.dialogue import Dialogue, response

HEADER = 12
"""Bytes of a request up to and including its correlation id, with the length in front."""
DEFAULT_PORTS = 9193
KPROXY = "kproxy.example.com"
"""Host of kproxy's own addresses where a rule does not name one."""


class Piece(NamedTuple):
    """Bytes that kproxy sent at once: a frame with its length in front, or bytes that are not a frame. `when`: seconds
    since the start of the case."""

    data: bytes
    when: float

    @property
    def is_frame(self) -> bool:
        return len(self.data) >= 4 and int.from_bytes(self.data[:4], "big", signed=True) == len(self.data) - 4


@dataclass(frozen=True)
class Request:
    """A request that reached the broker."""

    key: int
    version: int
    correlation: int


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


class CaseConnection:
    """A connection of one case between its client and its broker.

    Attributes: arrived (pieces that came out since the last take, by side); asked (requests that the broker has not
    answered); sent, said (frames of the client, and of the broker, by correlation id); kinds (API key and version of
    each request, by correlation id).
    """

    def __init__(
        self,
        spec: ClientConnection,
        rules: RuleSet,
        shared: Shared,
        number: int,
        topics: Mapping[str, UUID],
        now: float,
    ) -> None:
        self.facts = Facts(spec.listener, spec.cluster, spec.client_address, spec.sni, spec.certificate, spec.node)
        self.topics = topics
        bound = rules.bind(self.facts)
        advertise = bound.advertise is not None if spec.advertise is None else spec.advertise
        self.bound = bound
        self.fixed = Fixed.of(bound, advertise=advertise)
        plan = Plan(self.fixed, bound.live)
        self.talk = Dialogue(bound=self.fixed, plan=plan, shared=shared, facts=self.facts, number=number, now=now)
        self.talk.nodes = self.address
        session = self.talk.session
        session.engine.view.identity = CaseIdentity(spec, session.identity)
        self.taken = {CLIENT: 0, BROKER: 0}
        self.arrived: dict[int, list[Piece]] = {CLIENT: [], BROKER: []}
        self.waiting: dict[int, deque[bytes]] = {CLIENT: deque(), BROKER: deque()}
        self.asked: deque[Request] = deque()
        self.sent: dict[int, bytes] = {}
        self.said: dict[int, bytes] = {}
        self.kinds: dict[int, tuple[int, int]] = {}
        self.numbered = 0
        self.expects_end = False
        self.bar(rules.gate.ask(self.facts))
        self.pump()

    def use(self, rules: RuleSet) -> None:
        """Put other rules into force for this connection, which close it if they bar its client."""
        barred = rules.gate.look(self.facts)
        if barred is not None and barred.closes:
            self.bar(barred)
            return
        bound: BoundRules = rules.bind(self.facts)
        self.talk.session.use(Plan(self.fixed, bound.live), self.talk.now)
        self.talk.obey()

    def bar(self, barred: Barred | None) -> None:
        """Close the connection when rules do not let the client in, or do not let it stay."""
        if barred is not None:
            self.talk.session.close_by_rule(barred.how, list(barred.rules))
            self.talk.obey()

    # ---- bytes in

    def next_correlation(self) -> int:
        """Return the correlation id of the client's next request, from 1 on."""
        self.numbered += 1
        return self.numbered

    def client(self, frame: bytes) -> None:
        """Let the client send this frame, its length in front; kproxy takes it when it reads."""
        key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
        correlation = int.from_bytes(frame[8:HEADER], "big", signed=True)
        self.kinds[correlation], self.sent[correlation] = (key, version), frame
        self.waiting[CLIENT].append(frame)
        self.pump()

    def broker(self, asked: Request, frame: bytes) -> None:
        """Let the broker send `frame` as its response to `asked`."""
        self.said[asked.correlation] = frame
        self.waiting[BROKER].append(frame)
        self.pump()

    def later(self, seconds: float) -> None:
        """Advance this connection by `seconds`."""
        self.talk.later(seconds)
        self.pump()

    def released(self) -> None:
        """Forward frames that a rule may have released."""
        self.talk.session.released(self.talk.now)
        self.talk.obey()
        self.pump()

    def pump(self) -> None:
        """Let kproxy read pending bytes while it reads, and sort its output by side."""
        while True:
            self.sort()
            side = next((side for side, frames in self.waiting.items() if frames and self.talk.read[side]), None)
            if side is None or self.talk.closed is not None:
                return
            self.talk.feed(side, frame := self.waiting[side].popleft(), len(frame))

    # ---- bytes out

    def sort(self) -> None:
        """Take the bytes that came out on both sides apart into pieces, without kproxy's own requests."""
        for side in (BROKER, CLIENT):
            data = bytes(self.talk.out[side][self.taken[side] :])
            self.taken[side] += len(data)
            for one in split(data):
                piece = Piece(one, self.talk.now)
                if side == CLIENT or not self.is_own(piece):
                    self.arrived[side].append(piece)
                if side == BROKER and piece.is_frame:
                    self.note(piece)

    def is_own(self, piece: Piece) -> bool:
        """Return True if the piece is a request of kproxy's own, which asks the broker for topics."""
        return piece.is_frame and int.from_bytes(piece.data[8:HEADER], "big", signed=True) == CORRELATION

    def note(self, piece: Piece) -> None:
        """Keep a request for the broker until it is answered; answer kproxy's own requests at once."""
        if self.is_own(piece):
            question = decode_request(bytes(piece.data[4:]))
            wanted = None if question.body["topics"] is None else {one["topic_id"] for one in question.body["topics"]}
            listed = [
                {"name": name, "topic_id": topic_id}
                for name, topic_id in self.topics.items()
                if wanted is None or topic_id in wanted
            ]
            self.waiting[BROKER].append(response(METADATA, question.version, CORRELATION, topics=listed))
            return
        data = piece.data
        asked = Request(*(int.from_bytes(data[at:end], "big") for at, end in ((4, 6), (6, 8), (8, HEADER))))
        if asked.correlation in self.sent and not (asked.key == PRODUCE and without_answer(data)):
            self.asked.append(asked)

    def take(self, side: int) -> list[Piece]:
        """Return the pieces that came out on this side since they were last taken."""
        pieces, self.arrived[side] = self.arrived[side], []
        return pieces

    def kind_of(self, piece: Piece) -> tuple[int, int] | None:
        """Return API key and version of the request that a response at the client belongs to; None if no such request
        exists."""
        if len(piece.data) < 8:
            return None
        return self.kinds.get(int.from_bytes(piece.data[4:8], "big", signed=True))

    @property
    def ended(self) -> str:
        """Return how the connection has ended: fin, rst or half; empty while it is open."""
        if self.talk.closed is not None:
            return "rst" if self.talk.closed.reset else "fin"
        return "half" if CLIENT in self.talk.shut else ""

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


def split(data: bytes) -> list[bytes]:
    """Return the frames in `data` with their lengths. Bytes from an incomplete or invalid frame on are one piece."""
    cutter = FrameCutter()
    pieces = [framed(frame.data) for frame in cutter.receive(data)]
    return pieces if cutter.offset == len(data) else [*pieces, data[cutter.offset :]]


def without_answer(frame: bytes) -> bool:
    """Return True if a Produce request has acks 0, so that no response follows."""
    try:
        return bool(decode_request(frame[4:]).body["acks"] == 0)
    except DecodeError:  # a frame that a rule has spoiled
        return False
