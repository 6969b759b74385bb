"""Files of packets: pcapng and pcap, in both byte orders, whole, torn and damaged."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from struct import pack

import pytest

from kproxy.base.errors import CaptureError
from kproxy.record.captures import pcapng
from kproxy.record.captures.pcapng import MOST_COMMENTS, MOST_INTERFACES, PacketFile


def whole_file() -> bytes:
    return (
        pcapng.section("kproxy", ["a note"])
        + pcapng.interface("client")
        + pcapng.interface("broker")
        + pcapng.packet(0, 1000.25, b"one", 3)
        + pcapng.host_name(b"\xc6\x12\0\1", "broker.example")
        + pcapng.packet(1, 1001.5, b"second", 60, "said")
        + pcapng.statistics(0, 1002.0, 7, "the end")
    )


def read(path: Path, data: bytes) -> PacketFile:
    path.write_bytes(data)
    return PacketFile(path)


def test_all_that_is_in_a_file(tmp_path: Path) -> None:
    """Packets with their interfaces, lengths and comments; what stands around them as it comes."""
    file = read(tmp_path / "c", whole_file())

    found = [(one.time, one.data, one.length, one.interface, one.link, one.comment) for one in file]

    assert [(1000.25, b"one", 3, 0, 101, ""), (1001.5, b"second", 60, 1, 101, "said")] == found
    assert ("kproxy", ["a note"], ["the end"], 7) == (file.application, file.notes, file.ends, file.dropped)
    assert ["client", "broker"] == [one.name for one in file.interfaces]
    assert not file.torn


def test_what_stands_around_packets_is_bounded(tmp_path: Path) -> None:
    """Ten million interfaces, or comments of 60 kB each, in a file of 300 kB that unpacks to what it likes."""
    comments = pcapng.section("x", ["c" * 100] * 3) + pcapng.statistics(0, 1.0, 0, "e")
    file = read(tmp_path / "c", comments * MOST_COMMENTS + pcapng.statistics(0, 1.0, 0, "last"))
    assert list(file) == []
    assert (len(file.notes), len(file.ends), file.ends[-1]) == (MOST_COMMENTS, MOST_COMMENTS, "last")

    many = read(tmp_path / "c", pcapng.section("x") + pcapng.interface("i") * (MOST_INTERFACES + 1))
    with pytest.raises(CaptureError, match=f"more than {MOST_INTERFACES} interfaces"):
        list(many)
    assert len(many.interfaces) == MOST_INTERFACES


def test_a_file_may_end_anywhere(tmp_path: Path) -> None:
    """Cut at any byte it gives the packets that are whole, and says that it is torn unless a block ended there."""
    data = whole_file()
    ends = set()
    pos = 0
    while pos < len(data):
        pos += int.from_bytes(data[pos + 4 : pos + 8], "little")
        ends.add(pos)

    for size in range(4, len(data)):
        file = read(tmp_path / "c", data[:size])
        assert len(list(file)) <= 2
        assert file.torn == (size not in ends), size


def test_packed_files_and_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gzip is seen by its first bytes, cut gzip is a torn file, and - is standard input."""
    data = gzip.compress(whole_file())
    assert 2 == len(list(read(tmp_path / "c.gz", data)))
    cut = read(tmp_path / "c.gz", data[:-20])
    list(cut)
    assert cut.torn
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(whole_file())))
    assert 2 == len(list(PacketFile("-")))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "units"), [(0xA1B2C3D4, 10**6), (0xA1B23C4D, 10**9)])
def test_pcap_in_both_orders_and_resolutions(tmp_path: Path, order: str, magic: int, units: int) -> None:
    """As tcpdump writes it here and elsewhere; bits above the link type say other things."""
    data = pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 96, 0x10000001)
    data += pack(f"{order}IIII", 1000, units // 4, 3, 60) + b"abc"

    (one,) = read(tmp_path / "c", data)

    assert (1000.25, b"abc", 60, 0, 1) == (one.time, one.data, one.length, one.interface, one.link)
    torn = read(tmp_path / "c", data[:-1])
    assert not list(torn) and torn.torn


def test_pcapng_of_the_other_byte_order(tmp_path: Path) -> None:
    """Big-endian sections, resolutions by powers of two, offsets of times, simple packets, and a second section."""

    def block(kind: int, body: bytes) -> bytes:
        size = 12 + len(body)
        return pack(">II", kind, size) + body + pack(">I", size)

    options = pack(">HHB3x", 9, 1, 0x8A) + pack(">HHq", 14, 8, 500) + pack(">HH", 0, 0)
    data = block(pcapng.SECTION, pack(">IHHq", pcapng.BYTE_ORDER, 1, 0, -1))
    data += block(pcapng.INTERFACE, pack(">HHI", 1, 0, 0) + options)
    data += block(pcapng.PACKET, pack(">IIIII", 0, 0, 2048 + 512, 4, 4) + b"abcd")
    data += block(pcapng.SIMPLE, pack(">I", 3) + b"xyz\0")
    data += block(99, b"unknown!")

    found = [(one.time, one.data, one.link) for one in read(tmp_path / "c", data + whole_file())]

    assert [(502.5, b"abcd", 1), (0.0, b"xyz", 1), (1000.25, b"one", 101), (1001.5, b"second", 101)] == found


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    """Other files, files that are not there, and damaged ones: with what is wrong, and where."""
    for data, why in (
        (b"", "expected a capture, got 0 bytes"),
        (b"GET / HTTP/1.1", "expected pcapng or pcap, got 47455420"),
        (whole_file()[:100] + b"\x06\0\0\0\xff\xff\xff\x7f", "2147483647 bytes in one piece, at most 67108864"),
        (pcapng.section("a") + pcapng.packet(0, 1.0, b"", 0), "a packet of interface 0, 0 are described"),
        (pcapng.section("a") + pack("<III", 6, 8, 8), "a block of 8 bytes"),
        (pcapng.section("a") + pcapng.interface("b") + pcapng.block(6, b"1234"), "a packet block of 4 bytes"),
        (pcapng.section("a") + pcapng.interface("b") + pcapng.block(6, pack("<IIIII", 0, 0, 0, 9, 9) + b"1234"),
         "9 bytes in a smaller block"),
    ):  # fmt: skip
        with pytest.raises(CaptureError, match=why):
            list(read(tmp_path / "c", data))
    with pytest.raises(CaptureError, match="cannot be read: no such file"):
        list(PacketFile(tmp_path / "nothing"))
