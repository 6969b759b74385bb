"""Reads captures: kproxy's own, and what tcpdump or dumpcap recorded of Kafka traffic.

    for seen in read("traffic.pcapng"):         exchanges, in the order in which they were over
    for one in connections("traffic.pcapng"):   the same by connection, each when it is over
    capture = Capture("traffic.pcapng")         `read` with what it counted on the way

Strategy: packets → segments → pieces of streams → frames → exchanges, one packet at a time, so that a file of any size
needs the memory of the connections that are open in it. Which side is the server tells the SYN, else the port, else
whose bytes are requests. What cannot be read is counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from kproxy.watch.seen import Seen

from .captured import Captured, Names
from .exchanges import Exchanges, begins_request
from .framing import Framer
from .packet_file import Packet, PacketFile
from .pcapng import read_note
from .segments import ACK, FIN, RST, SYN, Segment, segment_of
from .tcp import Direction

KAFKA_PORT = 9092
MOST_FRAME = 1 << 20
"""Bytes that are kept of a frame unless something else is asked for; as the watcher does."""
MOST_CONNECTIONS = 50_000
"""Remembered at a time, some 200 MB; beyond, the one that was silent longest is taken to be over."""
Side = Literal["client", "broker", "both"]
APPLICATION = "kproxy"

Key = tuple[int, bytes, int, bytes, int]


@dataclass(slots=True)
class Counts:
    """What was met in a capture. Segments count whose payload is not empty."""

    packets: int = 0
    other_packets: int = 0
    """Not TCP, or fragments of IP, or cut within their headers."""
    truncated: int = 0
    """Segments of which not all bytes were captured."""
    connections: int = 0
    not_kafka: int = 0
    """Connections on which nothing like Kafka was found; TLS is not."""
    exchanges: int = 0
    gaps: int = 0
    lost_bytes: int = 0
    lost_places: int = 0
    """How often frames could not be told apart any more, until one began with a segment."""
    unread: int = 0
    strangers: int = 0
    tokens: int = 0
    began: float | None = None
    ended: float | None = None


@dataclass(slots=True)
class Connection:
    """One that is open in the capture."""

    who: Captured
    exchanges: Exchanges
    framers: tuple[Framer, Framer]
    directions: tuple[Direction, Direction]
    client: tuple[bytes, int]
    last: float = 0.0
    ended: int = 0


@dataclass(slots=True)
class Recorded:
    """A connection with all its exchanges, in the order of their requests."""

    who: Captured
    exchanges: list[Seen] = field(default_factory=list)


class Capture:
    """The exchanges in a file, by iterating once. `counts` and `file` fill on the way.

    `ports`: those of brokers, where no SYN tells. `most`: bytes kept of a frame. `side`, of kproxy's own captures: what
    passed at the client, or at the broker where that was something else. `closed` is told of connections that are over,
    before their last exchanges are given out.
    """

    def __init__(
        self, path: str | Path, *, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME,
        side: Side = "client", closed: Callable[[Captured], None] | None = None,
    ) -> None:  # fmt: skip
        self.closed = closed
        self.file = PacketFile(path)
        self.ports, self.most, self.side = frozenset(ports), most, side
        self.counts = Counts()
        self.names = Names()
        self.open: dict[Key, Connection] = {}
        self.undecided: dict[Key, None] = {}
        self.over: list[Seen] = []

    @property
    def own(self) -> bool:
        """Whether kproxy wrote the file; known from its first packet on."""
        return self.file.application == APPLICATION

    def __iter__(self) -> Iterator[Seen]:
        over = self.over
        for packet in self.file:
            self._packet(packet)
            if over:
                self.counts.exchanges += len(over)
                yield from over
                over.clear()
        for key in list(self.open):
            self._end(key, None)
        self.counts.exchanges += len(over)
        self.counts.not_kafka += len(self.undecided)
        yield from over
        over.clear()

    def _packet(self, packet: Packet) -> None:
        counts = self.counts
        counts.packets += 1
        if self.own and self.side != "both" and self.file.interfaces[packet.interface].name != self.side:
            return
        segment = segment_of(packet.link, packet.data, packet.length)
        if segment is None:
            counts.other_packets += 1
            return
        if counts.began is None or packet.time < counts.began:
            counts.began = packet.time
        if counts.ended is None or packet.time > counts.ended:
            counts.ended = packet.time
        counts.truncated += len(segment.data) < segment.size
        said = read_note(packet.comment) if packet.comment else {}
        at = packet.interface if self.own else 0
        there = (at, segment.source, segment.source_port, segment.target, segment.target_port)
        back = (at, segment.target, segment.target_port, segment.source, segment.source_port)
        if segment.flags & SYN:
            self._syn(segment, there, back, packet, said)
            return
        connection = self.open.get(there)
        key = there
        if connection is None:
            connection, key = self.open.get(back), back
        if connection is None:
            if not segment.size:
                return
            connection = self._begun_before(segment, there, back, packet)
            if connection is None:
                return
            key = there if there in self.open else back
        self._segment(connection, key, segment, packet.time, said)

    def _segment(self, connection: Connection, key: Key, segment: Segment, time: float, said: dict[str, Any]) -> None:
        connection.last = time
        side = 0 if (segment.source, segment.source_port) == connection.client else 1
        if segment.size:
            pieces = connection.directions[side].receive(segment.sequence, segment.data, segment.size, time)
            framer = connection.framers[side]
            take = connection.exchanges.response if side else connection.exchanges.request
            for piece in pieces:
                frames = framer.receive(piece)
                for number, cut in enumerate(frames, 1):
                    take(cut, said if said and number == len(frames) else {})
        if segment.flags & RST:
            self._end(key, time)
        elif segment.flags & FIN:
            connection.ended |= 1 << side
            if connection.ended == 3:
                self._end(key, time)

    def _syn(self, segment: Segment, there: Key, back: Key, packet: Packet, said: dict[str, Any]) -> None:
        """The beginning of a connection. Either half of the handshake will do."""
        answers = bool(segment.flags & ACK)
        key = back if answers else there
        connection = self.open.get(key)
        if connection is not None:
            direction = connection.directions[int(answers)]
            if direction.next in (-1, (segment.sequence + 1) % (1 << 32)):  # or the same once more
                direction.begin(segment.sequence)
                return
        if connection is not None or back in self.open or there in self.open:
            self._end(key if connection is not None else back if back in self.open else there, packet.time)
        self.undecided.pop(min(there, back), None)
        made = self._open(key, packet, lost=False)
        made.directions[int(answers)].begin(segment.sequence)
        if said:
            made.who.number = said.get("connection", made.who.number)
            made.who.tell(said)

    def _begun_before(self, segment: Segment, there: Key, back: Key, packet: Packet) -> Connection | None:
        """A connection whose beginning is not in the file: who is its client?"""
        if segment.target_port in self.ports and segment.source_port not in self.ports:
            key = there
        elif segment.source_port in self.ports and segment.target_port not in self.ports:
            key = back
        elif begins_request(segment.data):
            key = there
        else:
            if len(self.undecided) < MOST_CONNECTIONS:
                self.undecided[min(there, back)] = None
            return None
        self.undecided.pop(min(there, back), None)
        return self._open(key, packet, lost=True)

    def _open(self, key: Key, packet: Packet, *, lost: bool) -> Connection:
        if len(self.open) >= MOST_CONNECTIONS:
            oldest = min(self.open, key=lambda one: self.open[one].last)
            self._end(oldest, packet.time)
        self.counts.connections += 1
        interface = self.file.interfaces[packet.interface].name
        client, server = (shown(key[1]), key[2]), (shown(key[3]), key[4])
        who = Captured(self.counts.connections, interface, *client, *server, packet.time, self.names)
        exchanges = Exchanges(who, self.over.append, own=self.own)
        framers = (
            Framer(begins_request, self.most, lost=lost),
            Framer(exchanges.begins_response, self.most, lost=lost),
        )
        made = Connection(who, exchanges, framers, (Direction(), Direction()), (key[1], key[2]), packet.time)
        self.open[key] = made
        return made

    def _end(self, key: Key, time: float | None) -> None:
        """It is over, or the file is (`time` None)."""
        connection = self.open.pop(key)
        counts, exchanges = self.counts, connection.exchanges
        for side, direction in enumerate(connection.directions):
            take = exchanges.response if side else exchanges.request
            for piece in direction.give_up():
                for cut in connection.framers[side].receive(piece):
                    take(cut, {})
            counts.gaps += direction.gaps
            counts.lost_bytes += direction.lost
            counts.lost_places += connection.framers[side].lost_places
        exchanges.end()
        connection.who.over = time
        counts.unread += exchanges.unread
        counts.strangers += exchanges.strangers
        counts.tokens += exchanges.tokens
        counts.not_kafka += not connection.who.exchanges
        if self.closed is not None:
            self.closed(connection.who)


def shown(address: bytes) -> str:
    """An address as text; IPv4 in IPv6 as IPv4."""
    found = ip_address(address)
    inner = getattr(found, "ipv4_mapped", None)
    return str(inner or found)


def read(
    path: str | Path, *, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME, side: Side = "client"
) -> Iterator[Seen]:
    """The exchanges in a capture, each when it is over; see Capture. Raises CaptureError."""
    return iter(Capture(path, ports=ports, most=most, side=side))


def connections(
    path: str | Path, *, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME, side: Side = "client"
) -> Iterator[Recorded]:
    """Connections with all their exchanges, each when it is over; those of open ones are held in memory until then."""
    over: list[Captured] = []
    held: dict[Captured, Recorded] = {}
    for seen in Capture(path, ports=ports, most=most, side=side, closed=over.append):
        who = seen.who
        assert isinstance(who, Captured), "the reader made it"
        held.setdefault(who, Recorded(who)).exchanges.append(seen)
        if over and over[0] is not who:  # it has given out its last one
            for ended in over:
                if ended in held and ended is not who:
                    yield whole(held.pop(ended))
            over[:] = [who] if who in over else []
    for recorded in held.values():
        yield whole(recorded)


def whole(recorded: Recorded) -> Recorded:
    """In the order of requests: those without acks are over before what they came behind."""
    recorded.exchanges.sort(key=lambda seen: seen.number)
    return recorded
