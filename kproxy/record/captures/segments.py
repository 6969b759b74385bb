"""TCP segments of packets, under the link layers that people record Kafka on.

Strategy: the link type says where the IP header is; all else is IPv4 or IPv6 from there. What was not captured of a
segment is known from the lengths in the headers: `size` counts it, `data` lacks it. IP fragments are not put together:
hosts do not make them of TCP (path MTU discovery), and one that is met counts as not captured.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, LOOP, SLL, IPV4, IPV6, SLL2 = 0, 1, 12, 14, 101, 108, 113, 228, 229, 276
IP_AT = {NULL: 4, RAW_BSD: 0, RAW_OPENBSD: 0, RAW: 0, LOOP: 4, SLL: 16, IPV4: 0, IPV6: 0, SLL2: 20}
"""Offset of the IP header by link type, except for Ethernet."""
VLAN = frozenset((0x8100, 0x88A8, 0x9100))
TCP, FRAGMENT = 6, 44
EXTENSIONS = frozenset((0, 43, 60, 135))
"""IPv6 headers that stand before TCP: hop-by-hop, routing, destination, mobility."""
PLAIN_IPV4 = 0x45
"""First byte of an IPv4 header without options, which has 20 bytes."""
FIN, SYN, RST, ACK = 1, 2, 4, 16

_IPV4 = Struct(">BBHHHBBH4s4s").unpack_from
_IPV6 = Struct(">IHBB16s16s").unpack_from
_TCP = Struct(">HHIIBB").unpack_from
_IPV4_TCP = Struct(">BBHHHBBH4s4sHHIIBB").unpack_from
_SHORT = Struct(">H").unpack_from


class Segment(NamedTuple):
    """TCP segment of a packet. Addresses as in the packet, 4 or 16 bytes. `data` is what was kept of `size` bytes."""

    source: bytes
    source_port: int
    target: bytes
    target_port: int
    sequence: int
    acknowledged: int
    flags: int
    data: bytes
    size: int


def segment_of(link: int, data: bytes, length: int) -> Segment | None:
    """Return the segment in a packet; None if it is not TCP, a fragment, or cut before the end of its headers.

    `length`: bytes of the whole packet.
    """
    at = IP_AT.get(link)
    if at is None:
        at = _after_ethernet(data) if link == ETHERNET else None
    elif link in (SLL, SLL2) and len(data) > at and _SHORT(data, 14 if link == SLL else 0)[0] in VLAN:
        at += 4
    if at is None or len(data) < at + 20:
        return None
    version = data[at] >> 4
    if version == 4:
        return _in_ipv4(data, at, length)
    return _in_ipv6(data, at, length) if version == 6 and len(data) >= at + 40 else None


def _after_ethernet(data: bytes) -> int | None:
    at = 12
    while len(data) >= at + 4 and _SHORT(data, at)[0] in VLAN:
        at += 4
    return at + 2 if len(data) >= at + 2 and _SHORT(data, at)[0] in (0x0800, 0x86DD) else None


def _in_ipv4(data: bytes, at: int, length: int) -> Segment | None:
    if data[at] == PLAIN_IPV4 and len(data) >= at + 34:  # nearly all
        (_, _, total, _, fragment, _, protocol, _, source, target,
         source_port, target_port, sequence, acknowledged, offset, flags) = _IPV4_TCP(data, at)  # fmt: skip
        if protocol != TCP or fragment & 0x3FFF:
            return None
        end = at + total if total and at + total < length else length
        start = at + 20 + (offset >> 4) * 4
        if end < start:
            return None
        return Segment(
            source, source_port, target, target_port, sequence, acknowledged, flags, data[start:end], end - start
        )
    first, _, total, _, fragment, _, protocol, _, source, target = _IPV4(data, at)
    if protocol != TCP or fragment & 0x3FFF:
        return None
    end = at + total if total else length  # 0: longer than 65,535, as segmentation offload makes them
    return _tcp(data, at + (first & 15) * 4, min(end, length), source, target)


def _in_ipv6(data: bytes, at: int, length: int) -> Segment | None:
    _, payload, following, _, source, target = _IPV6(data, at)
    end = at + 40 + payload if payload else length
    pos = at + 40
    while following in EXTENSIONS and len(data) >= pos + 2:
        following, pos = data[pos], pos + (data[pos + 1] + 1) * 8
    return _tcp(data, pos, min(end, length), source, target) if following == TCP else None


def _tcp(data: bytes, at: int, end: int, source: bytes, target: bytes) -> Segment | None:
    if len(data) < at + 14:
        return None
    source_port, target_port, sequence, acknowledged, offset, flags = _TCP(data, at)
    start = at + (offset >> 4) * 4
    size = end - start
    if size < 0:
        return None
    return Segment(source, source_port, target, target_port, sequence, acknowledged, flags, data[start:end], size)
