"""TCP segments under all link layers that are known."""

from __future__ import annotations

from struct import pack

import pytest

from kproxy.record.captures.tcp_stream import ETHERNET, IPV4, IPV6, LOOP, NULL, RAW, SLL, SLL2, Segment, segment_of
from kproxy.record.captures.writer import ipv4, ipv6

SOURCE, TARGET = b"\x0a\0\0\1", b"\x0a\0\0\2"
TCP = pack(">HHIIBBHHH", 1000, 9092, 7, 8, 8 << 4, 0x18, 1, 0, 0) + b"\1" * 12
V4 = ipv4(len(TCP) + 5, SOURCE, TARGET) + TCP + b"hello"
V6 = ipv6(len(TCP) + 5, SOURCE * 4, TARGET * 4) + TCP + b"hello"
WANTED = (1000, 9092, 7, 8, 0x18, b"hello", 5)
MACS = b"\2" * 12


def told(found: Segment | None) -> tuple[object, ...] | None:
    return None if found is None else (found.source_port, found.target_port, *found[4:])


@pytest.mark.parametrize(
    ("link", "data"),
    [
        (ETHERNET, MACS + b"\x08\0" + V4),
        (ETHERNET, MACS + b"\x86\xdd" + V6),
        (ETHERNET, MACS + b"\x81\0\0\7\x08\0" + V4),
        (ETHERNET, MACS + b"\x88\xa8\0\7\x81\0\0\7\x86\xdd" + V6),
        (NULL, b"\2\0\0\0" + V4),
        (NULL, b"\0\0\0\x1e" + V6),
        (LOOP, b"\0\0\0\2" + V4),
        (RAW, V4),
        (RAW, V6),
        (IPV4, V4),
        (IPV6, V6),
        (SLL, b"\0" * 14 + b"\x08\0" + V4),
        (SLL, b"\0" * 14 + b"\x81\0\0\7\x86\xdd" + V6),
        (SLL2, b"\x86\xdd" + b"\0" * 18 + V6),
        (SLL2, b"\x81\0" + b"\0" * 18 + b"\0\7\x08\0" + V4),
    ],
)
def test_link_layers(link: int, data: bytes) -> None:
    """Ethernet with and without VLAN tags, Linux cooked 1 and 2, loopback, raw; what pads the frame is none of it."""
    assert WANTED == told(segment_of(link, data, len(data)))
    assert WANTED == told(segment_of(link, data + b"\0" * 6, len(data) + 6))
    assert segment_of(999, data, len(data)) is None


@pytest.mark.parametrize("data", [V4, V6], ids=["IPv4", "IPv6"])
def test_cut_packets(data: bytes) -> None:
    """With all headers the segment says how long it was; with fewer there is none, and nothing is raised."""
    for size in range(len(data)):
        found = segment_of(RAW, data[:size], len(data))
        if size < len(data) - 5 - 18:
            assert found is None
        elif found is not None:
            assert (data[-5:][: max(0, size - len(data) + 5)], 5) == (found.data, found.size)


def test_more_of_ip() -> None:
    """Options and extension headers are passed over; fragments and others are none; a length of 0 means all."""
    options = bytes([0x46]) + V4[1:3] + bytes([V4[3] + 4]) + V4[4:20] + b"\1" * 4 + V4[20:]
    extended = V6[:4] + (len(V6) - 40 + 16).to_bytes(2, "big") + b"\0" + V6[7:40] + b"\x3c\0" + b"\0" * 6 + b"\6\0"
    extended += b"\0" * 6 + V6[40:]
    offloaded = V4[:2] + b"\0\0" + V4[4:]
    for data in (options, extended, offloaded):
        assert WANTED == told(segment_of(RAW, data, len(data)))
    fragment, udp = V4[:6] + b"\x20\0" + V4[8:], V4[:9] + b"\x11" + V4[10:]
    for data in (fragment, udp, V6[:6] + b"\x2c" + V6[7:], b"\x50" * 60):
        assert segment_of(RAW, data, len(data)) is None
