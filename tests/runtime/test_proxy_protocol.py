"""PROXY headers: the exact bytes of the published specification, and what is none."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.runtime.io.sniff import LONGEST, SIGNATURE, BadHeader, Header, binary, line, own, parse

V2_TCP4 = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0a80001 c0a8000b dc04 01bb")
V2_TCP6 = bytes.fromhex(
    "0d0a0d0a000d0a515549540a 21 21 0024 20010db8000000000000000000000001 20010db8000000000000000000000002 dc04 01bb"
)
ONE, OTHER = ("192.168.0.1", 56324), ("192.168.0.11", 443)
ONE6, OTHER6 = ("2001:db8::1", 56324), ("2001:db8::2", 443)


@pytest.mark.parametrize(
    ("data", "source", "target"),
    [
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", ONE, OTHER),
        (b"PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 56324 443\r\n", ONE6, OTHER6),
        (b"PROXY TCP6 ::ffff:192.168.0.1 ::ffff:192.168.0.11 56324 443\r\n", ONE, OTHER),
        (b"PROXY UNKNOWN\r\n", None, None),
        (b"PROXY UNKNOWN " + b"f" * 90 + b" \r\n", None, None),
        (V2_TCP4, ONE, OTHER),
        (V2_TCP6, ONE6, OTHER6),
        (SIGNATURE + bytes.fromhex("2000 0000"), None, None),
        (SIGNATURE + bytes.fromhex("2032 0003 010203"), None, None),
        (SIGNATURE + bytes.fromhex("2100 0005 0102030405"), None, None),
        (SIGNATURE + bytes.fromhex("2110 0000"), None, None),
    ],
    ids=["v1 IPv4", "v1 IPv6", "v1 mapped", "v1 unknown", "v1 unknown and more", "v2 IPv4", "v2 IPv6", "v2 local",
         "v2 local with a block", "v2 unspec", "v2 IPv4 unspec"],
)  # fmt: skip
def test_headers_are_read(data: bytes, source: Any, target: Any) -> None:
    """Whole or with Kafka's bytes behind them; a byte less is not whole yet, wherever it is cut."""
    for more in (b"", b"\x00\x00\x00\x20", data):
        assert parse(data + more) == Header(len(data), source, target)
    for cut in range(len(data)):
        assert parse(data[:cut]) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x20", "expected a PROXY header, got 00 00 00 20"),
        (b"\x16\x03\x01", "expected a PROXY header, got 16 03 01"),
        (b"PROXY\t", "expected a PROXY header, got 50 52 4f 58 59 09"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", "a PROXY line that ends without CR LF"),
        (b"PROXY TCP4 1.2.3.4\r5.6.7.8 1 2\r\n", "a PROXY line that is not understood"),
        (b"PROXY " + b"x" * 101, "a PROXY line has no end in 107 bytes, the most that it may have"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", "a PROXY line that is not understood: 'PROXY TCP4 1.2.3.4 5.6.7.8 1'"),
        (b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n", "a PROXY line that is not understood"),
        (b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", "a PROXY line that is not understood"),
        (b"PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n", "expected an IPv4 address in the PROXY line of TCP4"),
        (b"PROXY TCP4 ::1 ::2 1 2\r\n", "expected an IPv4 address in the PROXY line of TCP4"),
        (
            b"PROXY TCP6 fe80::1%lo ::2 1 2\r\n",
            "expected an IPv6 address in the PROXY line of TCP6: fe80::1%lo has a z",
        ),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", "a PROXY line with the port '65536', expected 0 to 65535"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", "a PROXY line with the port '01'"),
        (SIGNATURE + b"\x11", "a PROXY header with version and command 0x11, expected 0x20 or 0x21"),
        (SIGNATURE + b"\x22", "a PROXY header with version and command 0x22"),
        (SIGNATURE + bytes.fromhex("2112 000c"), "a PROXY header about UDP over IPv4, and Kafka is spoken over TCP"),
        (SIGNATURE + bytes.fromhex("2131 00d8"), "a PROXY header about a Unix stream"),
        (SIGNATURE + bytes.fromhex("2141 0000"), "a PROXY header with family and protocol 0x41, which are not known"),
        (SIGNATURE + bytes.fromhex("2111 000b"), "a PROXY header with 11 bytes of addresses, expected at least 12"),
        (SIGNATURE + bytes.fromhex("2111 ffff"), "a PROXY header of 65551 bytes, expected at most 4096"),
        (V2_TCP4[:15] + b"\x0e" + V2_TCP4[16:] + b"\x04\x00", "expected a value from byte"),
        (V2_TCP4[:15] + b"\x10" + V2_TCP4[16:] + b"\x04\x00\x02\x00", "expected a value from byte 28 within the PROXY"),
    ],
)
def test_what_is_no_header_is_told_apart(data: bytes, why: str) -> None:
    """In the words of a log line, and as soon as the bytes that are wrong are there."""
    with pytest.raises(BadHeader) as caught:
        parse(data)

    assert str(caught.value).startswith(why)


def test_the_checksum_must_be_right() -> None:
    """§2.2.3: over the header with zeros in its place."""
    head = bytearray(V2_TCP4 + b"\x02\x00\x01a" + b"\x03\x00\x04" + bytes(4))
    head[14:16] = struct.pack(">H", len(head) - 16)
    right = crc32c.crc32c(bytes(head)).to_bytes(4, "big")

    assert parse(bytes(head[:-4]) + right) == Header(len(head), ONE, OTHER)
    with pytest.raises(BadHeader, match=f"with the checksum 00000000, expected {right.hex()}"):
        parse(bytes(head))


def test_headers_are_written_as_published() -> None:
    """The examples of the specification; the two ends are of one family."""
    assert line(ONE, OTHER) == b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
    assert line(ONE6, OTHER6) == b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"
    assert line(ONE, OTHER6) == b"PROXY TCP6 ::ffff:c0a8:1 2001:db8::2 56324 443\r\n"
    assert line(ONE, ("/run/kafka", 0)) == b"PROXY UNKNOWN\r\n"
    assert binary(ONE, OTHER) == V2_TCP4
    assert binary(ONE6, OTHER6) == V2_TCP6
    assert binary(ONE, ("/run/kafka", 0)) == SIGNATURE + bytes.fromhex("2100 0000")
    assert own() == SIGNATURE + bytes.fromhex("2000 0000")


addresses = st.ip_addresses().filter(lambda one: one.version == 4 or (one.ipv4_mapped is None and one.scope_id is None))
ends = st.tuples(addresses.map(str), st.integers(0, 65535))


@given(source=ends, target=ends, write=st.sampled_from([line, binary]), more=st.binary(max_size=20))
def test_what_is_written_is_read_again(source: Any, target: Any, write: Any, more: bytes) -> None:
    """Both versions, any addresses, whatever comes behind; what crosses families comes back as it was."""
    data = write(source, target)

    assert parse(data + more) == Header(len(data), source, target)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=5000).map(lambda tail: SIGNATURE + b"\x21" + tail),
                 st.binary(max_size=120).map(lambda tail: b"PROXY TCP4 " + tail)))  # fmt: skip
def test_any_bytes_are_a_header_or_not_whole_or_wrong(data: bytes) -> None:
    """No other error; the size lies within the bytes and the limit; a longer beginning does not change the answer."""
    try:
        found = parse(data)
    except BadHeader:
        return
    if found is None:
        assert len(data) < LONGEST
    else:
        assert 15 <= found.size <= min(len(data), LONGEST)
        assert parse(data[: found.size]) == found
