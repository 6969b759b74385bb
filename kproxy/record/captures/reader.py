"""Reader of captures: kproxy's own, and what tcpdump or dumpcap recorded of Kafka traffic.

    for seen in read("traffic.pcapng"):                exchanges, in the order in which they were over
    for recorded in connections("traffic.pcapng"):     the same by connection, each when it is over
    capture = Capture("traffic.pcapng")                `read` with what it counted on the way

Strategy: packets → segments → pieces of streams → frames → exchanges, one packet at a time, so that a file of any size
needs the memory of the connections that are open in it. The SYN identifies the server, or else the port, or else the
side whose bytes are requests. Unreadable data is counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from ipaddress import ip_address
from pathlib import Path

from kproxy.base.bounded_map import BoundedMap
from kproxy.record.exchange import ObservedExchange

from .captured_connection import NOTHING, CapturedConnection, TopicIdNames, packet_note
from .connection import FlowKey, KeptSegment, TcpConnection, UndecidedConnections
from .pcapng import Packet, PacketFile
from .policy import CaptureSide
from .tcp_stream import ACK, SYN, Segment, segment_of

KAFKA_PORT = 9092
MOST_FRAME = 1 << 20
"""Bytes that are kept of a frame unless something else is asked for; as the observer does."""
MOST_CONNECTIONS = 50_000
"""Remembered at a time, some 200 MB; beyond, those that were silent longest are taken to be over."""
AT_ONCE = 16
"""Fraction (1/n) of the connections that are ended together: a search for silent ones takes time linear in the
connections."""
MOST_ENDED = 10_000
LINGER = 60.0
"""Seconds after its end during which late segments of a connection are expected (TIME-WAIT in RFC 9293: twice the
longest life of a segment), and number of such connections that are remembered."""
APPLICATION = "kproxy"


@dataclass(slots=True)
class CaptureCounts:
    """Counts of a capture. Segments count only with a payload."""

    packets: int = 0
    other_packets: int = 0
    """Not TCP, or fragments of IP, or cut within their headers."""
    truncated: int = 0
    """Segments captured in part."""
    connections: int = 0
    not_kafka: int = 0
    """Connections without Kafka frames; TLS is not readable."""
    exchanges: int = 0
    gaps: int = 0
    lost_bytes: int = 0
    lost_places: int = 0
    """Times that frame boundaries were lost until a segment started with a frame."""
    unread: int = 0
    strangers: int = 0
    """Responses without a request."""
    requests_lost: int = 0
    """Responses without a request on connections that may lack requests."""
    tokens: int = 0
    older: int = 0
    """Connections that began before the capture and have exchanges in it."""
    earlier: int = 0
    """Responses to requests before the capture, which are skipped."""
    gaps_from: float | None = None
    gaps_to: float | None = None
    """Times of the first and the last missing byte, in seconds since 1970."""
    began: float | None = None
    ended: float | None = None
    back: float = 0.0
    """Seconds by which a packet's time precedes that of an earlier packet."""

    def add(self, connection: TcpConnection) -> None:
        exchanges = connection.exchanges
        self.older += connection.who.older and bool(exchanges.apis or exchanges.earlier)
        self.earlier += exchanges.earlier
        if connection.gap_from is not None and connection.gap_to is not None:
            self.gaps_from = min(connection.gap_from, self.gaps_from or connection.gap_from)
            self.gaps_to = max(connection.gap_to, self.gaps_to or connection.gap_to)
        for direction, cutter in zip(connection.directions, connection.cutters, strict=True):
            self.gaps += direction.gaps
            self.lost_bytes += direction.lost
            self.lost_places += cutter.lost_places
        self.unread += exchanges.unread
        self.strangers += exchanges.strangers
        if exchanges.unsure or not connection.has_all_requests:
            self.requests_lost += exchanges.strangers
        self.tokens += exchanges.tokens
        self.not_kafka += not connection.who.exchanges


@dataclass(slots=True)
class RecordedConnection:
    """Connection of a capture with all its exchanges, in the order of their requests."""

    who: CapturedConnection
    exchanges: list[ObservedExchange] = field(default_factory=list)


class Capture:
    """Capture; iterating over it once yields its exchanges. `counts` and `file` fill on the way.

    `following`: the next files of the same program, which rotates its files. `ports`: of brokers, for connections
    without a SYN. `most`: kept bytes of a frame. `side`: of kproxy's own captures, the frames at the client, or those
    at the broker that differ. `closed` receives connections that are over, before their last exchanges.
    """

    def __init__(
        self, path: str | Path, *following: str, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME,
        side: CaptureSide = "client", closed: Callable[[CapturedConnection], None] | None = None,
    ) -> None:  # fmt: skip
        self.closed = closed
        self.file = PacketFile(path, *following)
        self.ports, self.most, self.side = frozenset(ports), most, side
        self.counts = CaptureCounts()
        self.names = TopicIdNames()
        self.open: dict[FlowKey, TcpConnection] = {}
        self.undecided = UndecidedConnections()
        self.ended: BoundedMap[FlowKey, float] = BoundedMap(MOST_ENDED)
        self.over: list[ObservedExchange] = []
        self.damaged: set[int] = set()
        """Keys of the APIs of connections that lack bytes between recorded exchanges."""
        self.older_apis: set[int] = set()
        """Keys of the APIs of connections that began before the capture."""

    @property
    def own(self) -> bool:
        """Return True if kproxy wrote the file; known from its first packet on."""
        return self.file.application == APPLICATION

    def __iter__(self) -> Iterator[ObservedExchange]:
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
        own = self.file.application == APPLICATION
        if own and self.side != "both" and self.file.interfaces[packet.interface].name != self.side:
            return
        segment = segment_of(packet.link, packet.data, packet.length)
        if segment is None:
            counts.other_packets += 1
            return
        if counts.began is None or packet.time < counts.began:
            counts.began = packet.time
        if counts.ended is None or packet.time > counts.ended:
            counts.ended = packet.time
        elif counts.ended - packet.time > counts.back:
            counts.back = counts.ended - packet.time
        counts.truncated += len(segment.data) < segment.size
        at = packet.interface if own else 0  # others' interfaces may show the same packet twice
        there = (at, segment.source, segment.source_port, segment.target, segment.target_port)
        if there in self.open and not segment.flags & SYN:
            self._segment(there, segment, packet)
            return
        back = (at, segment.target, segment.target_port, segment.source, segment.source_port)
        if segment.flags & SYN:
            self._syn(segment, there, back, packet)
        elif back in self.open:
            self._segment(back, segment, packet)
        elif segment.size and not self._ended_before(there, back, packet.time):
            self._begun_before(segment, there, back, packet)

    def _segment(self, key: FlowKey, segment: Segment, packet: Packet) -> None:
        note = packet_note(packet.comment) if packet.comment else NOTHING
        if self.open[key].receive(segment, packet.time, note):
            self.ended[key] = packet.time
            self._end(key, packet.time)

    def _ended_before(self, there: FlowKey, back: FlowKey, time: float) -> bool:
        """Return True if a segment is what the network still had of a connection that is over."""
        ended = self.ended.get(there) or self.ended.get(back)
        return ended is not None and time - ended < LINGER

    def _syn(self, segment: Segment, there: FlowKey, back: FlowKey, packet: Packet) -> None:
        side = 1 if segment.flags & ACK else 0
        key, other = (back, there) if side else (there, back)
        connection = self.open.get(key)
        if connection is not None and connection.begin(side, segment.sequence):
            return
        for before in (key, other):
            if before in self.open:
                self._end(before, packet.time)
        self.undecided.forget(there, back)
        self.ended.pop(key, None)
        connection = self._open(key, packet, begun_before=False)
        connection.begin(side, segment.sequence)
        note = packet_note(packet.comment)
        if "connection" in note:  # kproxy's own, also after an editor has made another file of it
            connection.who.number, connection.exchanges.own = note["connection"], True
        connection.who.take_note(note)

    def _begun_before(self, segment: Segment, there: FlowKey, back: FlowKey, packet: Packet) -> None:
        """Take a segment of a connection that began before the file, and open it once its client is identified."""
        to_known, from_known = segment.target_port in self.ports, segment.source_port in self.ports
        if to_known != from_known:
            decided: tuple[FlowKey, list[KeptSegment]] | None = (
                there if to_known else back,
                [KeptSegment(segment, packet)],
            )
        else:
            decided = self.undecided.meet(there, back, KeptSegment(segment, packet))
        if decided is not None:
            key, kept = decided
            self._open(key, kept[0].packet, begun_before=True)
            for earlier in kept:
                if key in self.open:
                    self._segment(key, earlier.segment, earlier.packet)

    def _open(self, key: FlowKey, packet: Packet, *, begun_before: bool) -> TcpConnection:
        if len(self.open) >= MOST_CONNECTIONS:
            for oldest in nsmallest(max(MOST_CONNECTIONS // AT_ONCE, 1), self.open, key=self._last_heard):
                self._end(oldest, packet.time)
        self.counts.connections += 1
        interface = self.file.interfaces[packet.interface].name
        client, server = (shown(key[1]), key[2]), (shown(key[3]), key[4])
        who = CapturedConnection(self.counts.connections, interface, *client, *server, packet.time, self.names)
        connection = TcpConnection(
            who, (key[1], key[2]), self.over.append, most=self.most, own=self.own, begun_before=begun_before
        )  # fmt: skip
        self.open[key] = connection
        return connection

    def _last_heard(self, key: FlowKey) -> float:
        """Return the time of a connection's last segment, which identifies silent connections."""
        return self.open[key].last

    def _end(self, key: FlowKey, time: float | None) -> None:
        """Finish a connection at its end, or at the end of the file (`time` None)."""
        connection = self.open.pop(key)
        connection.finish(time)
        self.counts.add(connection)
        if connection.damaged:
            self.damaged |= connection.exchanges.apis
        if connection.who.older:
            self.older_apis |= connection.exchanges.apis
        if self.closed is not None:
            self.closed(connection.who)


def shown(address: bytes) -> str:
    """Return an address as text; IPv4 in IPv6 as IPv4."""
    parsed = ip_address(address)
    inner = getattr(parsed, "ipv4_mapped", None)
    return str(inner or parsed)


def read(
    path: str | Path, *, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME, side: CaptureSide = "client"
) -> Iterator[ObservedExchange]:
    """Return an iterator over the exchanges in a capture, each when it is over; see Capture. Raises CaptureError."""
    return iter(Capture(path, ports=ports, most=most, side=side))


def connections(
    path: str | Path, *, ports: Iterable[int] = (KAFKA_PORT,), most: int = MOST_FRAME, side: CaptureSide = "client"
) -> Iterator[RecordedConnection]:
    """Yield connections with all their exchanges, each when it is over; those of open ones are held in memory until
    then.
    """
    over: list[CapturedConnection] = []
    held: dict[CapturedConnection, RecordedConnection] = {}
    for seen in Capture(path, ports=ports, most=most, side=side, closed=over.append):
        who = seen.who
        assert isinstance(who, CapturedConnection), "the reader made it"
        held.setdefault(who, RecordedConnection(who)).exchanges.append(seen)
        if over and over[0] is not who:  # it has given out its last one
            for ended in over:
                if ended in held and ended is not who:
                    yield sorted_by_request(held.pop(ended))
            over[:] = [who] if who in over else []
    for recorded in held.values():
        yield sorted_by_request(recorded)


def sorted_by_request(recorded: RecordedConnection) -> RecordedConnection:
    """Sort the exchanges by their requests: those without acks end before earlier ones."""
    recorded.exchanges.sort(key=lambda seen: seen.number)
    return recorded
