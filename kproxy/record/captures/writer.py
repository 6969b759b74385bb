"""Writer of exchanges into a pcapng file, as TCP packets of their connections.

An exchange is written at its end, its request followed by its response. So no state is needed for exchanges in flight.
A connection begins in the file with its first exchange. Facts that are not in the bytes (fired rules, waits, redacted
data, the client) are in notes at the packets (`pcapng.note`). The file may end at any moment: every block is complete,
and the last one contains the totals.

A conversation has a handshake, data both ways, and an end, as Wireshark's reassembly needs it. Sequence numbers count
written frames only: the file does not contain filtered frames. Addresses and ports are the real ones. Packets begin
with the IP header, IPv6 if one side has such an address. Checksums are correct for complete segments. A cut segment has
none, since it cannot be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address
from struct import Struct
from typing import IO, TYPE_CHECKING, Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.framing import acks_of
from kproxy.protocol.table.api_keys import SASL_HANDSHAKE
from kproxy.record.exchange import Errors, Frame, ObservedExchange, Who
from kproxy.record.observer.response_errors import errors_of

from . import pcapng
from .pcapng import packet
from .policy import Policy
from .tcp_stream import ACK, FIN, SYN

if TYPE_CHECKING:
    from .capture_file import BlockFile

LONGEST_SEGMENT = 65000
"""Bytes; an IPv4 packet has at most 65,535 with its headers."""
PUSH = 8
WINDOW = 65535
_TCP_IP = 6
_DONT_FRAGMENT = 0x4000
_TTL = 64

_IPV4 = Struct(">BBHHHBBH4s4s").pack
_IPV6 = Struct(">IHBB16s16s").pack
_TCP = Struct(">HHIIBBHHH").pack
_TCP_SIZE = 20
_IPV4_SIZE = 20


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071).

    It is the sum of 16-bit words in ones' complement, which is the remainder by 65,535.
    """
    padded = data + b"\0" if len(data) & 1 else data
    return -int.from_bytes(padded, "big") % 65535


def packed(address: str) -> bytes | None:
    """Return an IP address as 4 or 16 bytes, without a scope (`%eth0`); None if the text is not an address."""
    try:
        return ip_address(address.partition("%")[0]).packed
    except ValueError:
        return None


def mapped(address: bytes) -> bytes:
    """Return an IPv4 address as IPv6 has it (::ffff:…)."""
    return address if len(address) == 16 else b"\0" * 10 + b"\xff\xff" + address


def pool_address(number: int) -> bytes:
    """Return an address for a host that has only a name: in 198.18.0.0/15, which no real host has (RFC 2544)."""
    return (IPv4Address("198.18.0.1") + number % 0x1FFFE).packed


class Conversation:
    """TCP conversation at interface `number`, as pcapng blocks.

    `client`, `server`: packed address and port. `start`: the first sequence number of both, which distinguishes
    connections at the same ports.
    """

    __slots__ = ("ends", "next", "number", "ports", "pseudo")

    def __init__(self, number: int, client: tuple[bytes, int], server: tuple[bytes, int], start: int = 0) -> None:
        addresses = [client[0], server[0]]
        if len(addresses[0]) != len(addresses[1]):
            addresses = [mapped(one) for one in addresses]
        self.number = number
        self.ends = (addresses, addresses[::-1])
        self.ports = ((client[1], server[1]), (server[1], client[1]))
        self.pseudo = sum(int.from_bytes(one, "big") for one in addresses) + _TCP_IP
        self.next = [start & 0xFFFFFFFF, start & 0xFFFFFFFF]
        """The next sequence number of client and server."""

    def open(self, time: float, comment: str) -> Iterator[bytes]:
        """Yield the handshake; the comment is at its first packet."""
        for side, flags, text in ((0, SYN, comment), (1, SYN | ACK, ""), (0, ACK, "")):
            yield self._packet(side, flags, b"", 0, time, text)
            self.next[side] = (self.next[side] + bool(flags & SYN)) & 0xFFFFFFFF

    def close(self, time: float) -> Iterator[bytes]:
        for side in (0, 1):
            yield self._packet(side, FIN | ACK, b"", 0, time, "")
            self.next[side] = (self.next[side] + 1) & 0xFFFFFFFF
        yield self._packet(0, ACK, b"", 0, time, "")

    def send(self, side: int, data: bytes, size: int, first: float, last: float, comment: str) -> Iterator[bytes]:
        """Yield `size` bytes from side 0 (client) or 1, of which `data` is kept. The comment is at the last packet.

        A frame that took time has at least two packets: one at its start and one at its end. The first packet of a cut
        frame has all kept bytes, and more than the length field: Wireshark reassembles only complete frames.
        """
        begin = 0 if first == last else min(4 if len(data) == size else LONGEST_SEGMENT, size - 1)
        sent = 0
        while sent < size:
            piece = begin if begin and not sent else min(LONGEST_SEGMENT, size - sent)
            final = sent + piece == size
            yield self._packet(
                side, PUSH | ACK if final else ACK, data[sent : sent + piece], piece,
                last if final else first, comment if final else "",
            )  # fmt: skip
            sent += piece
            self.next[side] = (self.next[side] + piece) & 0xFFFFFFFF

    def _packet(self, side: int, flags: int, data: bytes, size: int, time: float, comment: str) -> bytes:
        """Return one packet from a side. `data`: the kept part of `size` bytes."""
        ports, ends = self.ports[side], self.ends[side]
        acknowledged = self.next[1 - side] if flags & ACK else 0
        length = _TCP_SIZE + size
        fields = (*ports, self.next[side], acknowledged, _TCP_SIZE // 4 << 4, flags, WINDOW)
        total = 0
        if len(data) == size:
            head = _TCP(*fields, 0, 0)
            padded = data + b"\0" if size & 1 else data
            words = self.pseudo + length + int.from_bytes(head, "big") + int.from_bytes(padded, "big")
            total = -words % 65535
        tcp = _TCP(*fields, total, 0)
        ip = ipv4(length, *ends) if len(ends[0]) == 4 else ipv6(length, *ends)
        return packet(self.number, time, ip + tcp + data, len(ip) + length, comment)


def ipv4(payload: int, source: bytes, target: bytes) -> bytes:
    """Return an IPv4 header before `payload` bytes of TCP."""
    fields = (0x45, 0, _IPV4_SIZE + payload, 0, _DONT_FRAGMENT, _TTL, _TCP_IP)
    return _IPV4(*fields, checksum(_IPV4(*fields, 0, source, target)), source, target)


def ipv6(payload: int, source: bytes, target: bytes) -> bytes:
    """Return an IPv6 header before `payload` bytes of TCP."""
    return _IPV6(0x60000000, payload, _TCP_IP, _TTL, source, target)


CLIENT, BROKER = 0, 1
INTERFACES = ("client", "broker")
"""Names of the interfaces: frames at the client, and frames at the broker where these are other bytes."""
APPLICATION = "kproxy"
MOST_KNOWN = 100_000
"""Connections with remembered sequence numbers, about 100 MB; the oldest one is evicted."""
PACKET = 128
"""Bytes of a packet without its payload: its block, and headers of IPv6 and TCP."""
AROUND = 4096
"""Bytes around an exchange: a handshake, names of rules, ends of connections, and the last block."""

APART = 100_003
"""Between the first sequence numbers of two connections, so that they differ where ports are used again."""
NOTHING: Mapping[str, Any] = {}
PartNote = Mapping[str, Any]
"""Traffic that one process did not record. `dropped`: exchanges by API, for want of time. `open`: requests by API that
were under way when the capture ended. `topics`: why topics were not recorded."""

CaptureEndpoint = tuple[str, int]
ToWallTime = Callable[[float], float]
"""Converter from the clock of exchanges, such as monotonic seconds, to seconds since 1970."""


@dataclass(slots=True)
class ConnectionInFile:
    """Connection that is in the file already: its conversation, and what was noted of its client."""

    talk: Conversation
    about: dict[str, Any]


@dataclass(slots=True)
class WrittenTotals:
    """Totals of a file so far."""

    size: int = 0
    exchanges: int = 0
    connections: int = 0
    broker_exchanges: int = 0
    dropped: int = 0
    """Exchanges dropped for lack of time."""
    began: float | None = None
    ended: float | None = None
    names: dict[str, bytes] = field(default_factory=dict)


class CaptureWriter:
    """Writer into `file`, which stays the caller's. `wall` converts the exchanges' times to seconds since 1970.

    `begun`: another process has begun the file, and will end it. `names_from`: see
    `record.captures.capture_file.CapturePart`.
    """

    def __init__(
        self, file: IO[bytes] | BlockFile, policy: Policy, *, wall: ToWallTime = float,
        about: dict[str, Any] | None = None, begun: bool = False, names_from: int = 0,
    ) -> None:  # fmt: skip
        self.file, self.policy, self.wall, self.names_from = file, policy, wall, names_from
        self.written = WrittenTotals()
        self.open: BoundedMap[tuple[int, int], ConnectionInFile] = BoundedMap(MOST_KNOWN)
        if begun:
            return
        comment = pcapng.note(
            payload=policy.payload, head=policy.head if policy.payload == "head" else None, **about or {}
        )
        self._put([pcapng.section(APPLICATION, [comment]), *(pcapng.interface(name) for name in INTERFACES)])

    def write(
        self, seen: ObservedExchange, server: CaptureEndpoint, *, opened: float | None = None, older: bool = False
    ) -> None:
        """Write an exchange between the client and kproxy at `server`.

        `opened`: when the client connected, if known. `older`: before the capture began.
        """
        self._exchange(CLIENT, seen, server, opened, older=older)
        self.written.exchanges += 1

    def write_broker(
        self, seen: ObservedExchange, broker: CaptureEndpoint, *, opened: float | None = None, older: bool = False
    ) -> None:
        """Write the exchange as it passed between kproxy and the broker; the client's port replaces kproxy's own."""
        self._exchange(BROKER, seen, broker, opened, older=older)
        self.written.broker_exchanges += 1

    def write_own(self, seen: ObservedExchange, broker: CaptureEndpoint) -> None:
        """Write an exchange of kproxy's own with a broker, which records topics."""
        self._exchange(BROKER, seen, broker, None, older=False)

    def most(self, seen: ObservedExchange) -> int:
        """Return the most bytes by which the file grows when this is written, including its end."""
        return AROUND + sum(
            self.policy.most(frame) + (3 + frame.size // LONGEST_SEGMENT) * PACKET
            for frame in (seen.request, seen.response)
            if frame is not None
        )

    def closed(self, who: Who, now: float) -> None:
        """Write the end of a connection, if it is in the file."""
        for side in (CLIENT, BROKER):
            known = self.open.pop((side, who.number), None)
            if known is not None:
                self._put(known.talk.close(self.wall(now)))

    def finish(self, now: float, stopped: str, dropped: int = 0, *, writers: int | None = None) -> None:
        """Write the last block: why the capture ended, and how many exchanges were dropped for want of time.

        `writers`: processes that wrote into the file.
        """
        written = self.written
        written.dropped = dropped
        comment = pcapng.note(stopped=stopped, exchanges=written.exchanges, broker_exchanges=written.broker_exchanges,
                           connections=written.connections, dropped=dropped, writers=writers)  # fmt: skip
        self._put([pcapng.statistics(CLIENT, self.wall(now), dropped, comment)])
        self.file.flush()

    def finish_part(self, now: float, part: PartNote) -> None:
        """Write the last block of one process of several, with the traffic that it did not record."""
        self._put([pcapng.statistics(CLIENT, self.wall(now), 0, pcapng.note(part=part))])
        self.file.flush()

    def _exchange(
        self, side: int, seen: ObservedExchange, server: CaptureEndpoint, opened: float | None, *, older: bool
    ) -> None:
        request, response = seen.request, seen.response
        first = request or response
        if first is None:
            return
        known, news = self._known(side, seen.who, server, first.first if opened is None else opened, older=older)
        note = about_exchange(seen) | ({"who": news} if news else {})
        if request is None:
            note["earlier"] = seen.key
        if request is not None:
            self._frame(known.talk, 0, seen, request, {} if response else note)
        if response is not None:
            self._frame(known.talk, 1, seen, response, note)

    def _frame(self, talk: Conversation, side: int, seen: ObservedExchange, frame: Frame, note: dict[str, Any]) -> None:
        kept, sketch = self.policy.written(seen, frame, response=side == 1)
        if seen.acks is not None and side == 0 and (len(kept) < frame.size - 4 and acks_of(kept, seen.version) is None):
            note = {**note, "acks": seen.acks}
        if side == 1 and len(kept) < frame.size - 4:
            note = note | about_errors(errors_of(seen))
        if sketch:
            note = {**note, "sketch": True}
        if frame.withheld:
            note = {**note, "withheld": frame.withheld}
        first, last = self.wall(frame.first), self.wall(frame.last)
        data = (frame.size - 4).to_bytes(4, "big") + kept
        self._put(talk.send(side, data, frame.size, first, last, pcapng.note(**note) if note else ""))
        written = self.written
        written.began = first if written.began is None else min(first, written.began)
        written.ended = last if written.ended is None else max(last, written.ended)

    def _known(
        self, side: int, who: Who, server: CaptureEndpoint, opened: float, *, older: bool
    ) -> tuple[ConnectionInFile, dict[str, Any]]:
        """Return the connection, begun in the file if need be, and what has become known of it since."""
        about = about_client(who)
        known = self.open.get((side, who.number))
        if known is not None:
            if known.about == about:
                return known, {}
            known.about = about
            return known, about
        client = (self._address(who.client_address), who.client_port)
        known = ConnectionInFile(
            Conversation(side, client, (self._address(server[0]), server[1]), who.number * APART), about
        )
        self.open[side, who.number] = known
        self.written.connections += side == CLIENT
        self._put(known.talk.open(self.wall(opened), pcapng.note(connection=who.number, older=older or None, **about)))
        return known, {}

    def _address(self, host: str) -> bytes:
        """Return the packed address of a host. A name gets an address of its own, and a block maps it to the name."""
        address = packed(host) or self.written.names.get(host)
        if address is None:
            address = self.written.names[host] = pool_address(self.names_from + len(self.written.names))
            self._put([pcapng.host_name(address, host)])
        return address

    def _put(self, blocks: Iterable[bytes]) -> None:
        data = b"".join(blocks)
        self.file.write(data)
        self.written.size += len(data)


def about_client(who: Who) -> dict[str, Any]:
    """Return the facts about a connection's client that are not in the packets."""
    client = {
        "cluster": who.cluster, "listener": who.listener, "node": who.node, "broker": who.broker,
        "principal": who.principal, "software_name": who.software_name, "software_version": who.software_version,
    }  # fmt: skip
    return {name: value for name, value in client.items() if value is not None}


def about_errors(errors: Errors) -> dict[str, Any]:
    """Return the note about a response's errors, which may be missing in the kept bytes; empty without errors."""
    return {"errors": list(errors.codes), "error_at_top": errors.top} if errors.codes else {}


def about_exchange(seen: ObservedExchange) -> dict[str, Any]:
    """Return the facts about an exchange that are not in its bytes; empty for most."""
    note: dict[str, Any] = {}
    if seen.rules:
        note["rules"] = list(seen.rules)
    if seen.answered_by_rule:
        note["responder"] = "kproxy"
    if seen.own_errors:
        note["failed"] = sorted(seen.own_errors)
    if seen.rule_wait != (0.0, 0.0):
        note["rule_wait"] = list(seen.rule_wait)
    if seen.other_wait != (0.0, 0.0):
        note["other_wait"] = list(seen.other_wait)
    if seen.known_throttle or seen.throttler:
        note["throttle"] = [seen.known_throttle, seen.throttler, seen.mute]
    if seen.outcome == "closed":
        note["outcome"] = "closed"
    if (seen.key, seen.version) == (SASL_HANDSHAKE, 0) and seen.response is not None:
        note["behind"] = "raw SASL tokens are not recorded"  # KIP-43: they follow without headers
    return note
