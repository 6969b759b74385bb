"""Packets made for frames: taken apart again, and judged by Wireshark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.record.captures import pcapng
from kproxy.record.captures.pcapng import PacketFile
from kproxy.record.captures.tcp_stream import SYN, Segment, segment_of
from kproxy.record.captures.writer import LONGEST_SEGMENT, Conversation, checksum, packed, pool_address
from tests.support.capture_files import tshark

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark")]

V4, V6 = (b"\x0a\1\2\3", 40000), (b"\xfd" + b"\0" * 14 + b"\1", 40001)


def conversation(path: Path, client: tuple[bytes, int], data: bytes, size: int, last: float = 1.0) -> list[Segment]:
    """A handshake, one frame each way, and an end; written and taken apart."""
    talk = Conversation(0, client, (b"\x7f\0\0\1", 9092))
    blocks = [pcapng.section("kproxy"), pcapng.interface("client"), *talk.open(0.5, "hello")]
    blocks += [*talk.send(0, data, size, 1.0, last, ""), *talk.send(1, b"\0\0\0\4abcd", 8, 2.0, 2.0, "over")]
    path.write_bytes(b"".join((*blocks, *talk.close(3.0))))
    found = [segment_of(one.link, one.data, one.length) for one in PacketFile(path)]
    assert None not in found
    return [one for one in found if one]


@pytest.mark.parametrize("client", [V4, V6], ids=["IPv4", "IPv6"])
def test_wireshark_finds_nothing_wrong(tmp_path: Path, client: tuple[bytes, int]) -> None:
    """Checksums are right, sequence numbers run on, both ends are closed."""
    path = tmp_path / "c.pcapng"
    data = (200_000).to_bytes(4, "big") + bytes(range(256)) * 782
    conversation(path, client, data[:200_004], 200_004)

    checks = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields")
    status = list(tshark(path, *checks, "-e", "tcp.checksum.status", "-e", "tcp.stream", "-e", "tcp.analysis.flags"))

    assert 3 + 4 + 1 + 3 == len(status)
    assert {("1", "0", "")} == {tuple(one) for one in status}, "good checksums, one stream, no complaints"
    assert not list(tshark(path, *checks[:4], "-Y", "ip.checksum.status != 1 && ip"))


def test_long_frames_have_several_segments(tmp_path: Path) -> None:
    """None is longer than IP allows, and all bytes are there once."""
    data = bytes(i & 0xFF for i in range(2 * LONGEST_SEGMENT + 5))

    found = [one for one in conversation(tmp_path / "c", V4, data, len(data)) if one.source_port == 40000]

    assert data == b"".join(one.data for one in found)
    assert [0, 0, LONGEST_SEGMENT, LONGEST_SEGMENT, 5, 0, 0] == [one.size for one in found]


def test_what_is_cut_keeps_its_length(tmp_path: Path) -> None:
    """Segments say how long they were; what is behind the kept bytes is in none."""
    found = [one for one in conversation(tmp_path / "c", V4, b"abcdef", 70_000) if one.size]

    assert [(b"abcdef", LONGEST_SEGMENT), (b"", 5000), (b"\0\0\0\4abcd", 8)] == [(one.data, one.size) for one in found]


def test_what_took_time_has_two_times(tmp_path: Path) -> None:
    """The first packet has the time of the first byte, the last packet that of the last."""
    conversation(tmp_path / "whole", V4, b"\0\0\0\4abcd", 8, last=1.5)
    conversation(tmp_path / "cut", V4, b"\0\0\0\x09ab", 13, last=1.5)

    for name, sizes in (("whole", [4, 4]), ("cut", [12, 1])):
        packets = list(PacketFile(tmp_path / name))[3:5]
        assert [1.0, 1.5] == [one.time for one in packets]
        assert sizes == [one.length - 40 for one in packets]


def test_addresses(tmp_path: Path) -> None:
    """Text to bytes; names get addresses that no host has; mixed families meet in IPv6."""
    assert (b"\x7f\0\0\1", 16) == (packed("127.0.0.1"), len(packed("fe80::1%eth0") or b""))
    assert packed("broker.example") is None
    assert (b"\xc6\x12\0\1", b"\xc6\x13\xff\xfe") == (pool_address(0), pool_address(0x1FFFD))
    syn = conversation(tmp_path / "c", V6, b"\0\0\0\0", 4)[0]
    assert (V6[0], b"\0" * 10 + b"\xff\xff\x7f\0\0\1", SYN) == (syn.source, syn.target, syn.flags)


def test_the_checksum_of_the_standard() -> None:
    """RFC 1071's example, and what adds up to nothing."""
    assert 0xFFFF - 0xDDF2 == checksum(bytes.fromhex("0001f203f4f5f6f7"))
    assert 0 == checksum(b"\xff\xff")
    assert 0xFFFF - 0x0100 == checksum(b"\1")
