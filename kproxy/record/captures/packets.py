"""Packets made for frames that were seen: the TCP conversation around them, as Wireshark wants to follow it.

Strategy: a conversation has a handshake, data both ways with sequence numbers that run on over what is recorded, and an
end. Addresses and ports are the real ones; packets begin with the IP header, IPv6 as soon as one side has such an
address. Checksums are right wherever all bytes are there; a cut segment has none, since it cannot be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address
from struct import Struct

from .pcapng import packet
from .segments import ACK, FIN, SYN

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
    """Return an IP address as 4 or 16 bytes, without a scope (`%eth0`); None for text that is no address."""
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

    `client`, `server`: packed address and port. `start`: the first sequence number of both, which tells connections at
    the same ports apart.
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
        """Yield `size` bytes from side 0 (client) or 1, of which `data` are kept. The comment is at the last packet.

        What took time comes in two packets at least: one when it began, one when it was over. Of what is cut the first
        one has all that is kept, and is not the length field alone: Wireshark reassembles only what is all there.
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
        """Return one packet from a side. `data`: what is kept of `size` bytes."""
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
