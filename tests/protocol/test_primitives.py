"""Primitive types: each case is read whole and with bytes after it, written back, and refused when cut anywhere."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.base.errors import DecodeError, EncodeError
from kproxy.protocol import primitives as p

CASES: list[tuple[str, Any, Any, Any, str]] = [
    ("uvarint 0", p.read_uvarint, p.write_uvarint, 0, "00"),
    ("uvarint 127", p.read_uvarint, p.write_uvarint, 127, "7f"),
    ("uvarint 128", p.read_uvarint, p.write_uvarint, 128, "80 01"),
    ("uvarint 300", p.read_uvarint, p.write_uvarint, 300, "ac 02"),
    ("uvarint largest", p.read_uvarint, p.write_uvarint, 2**32 - 1, "ff ff ff ff 0f"),
    ("varint -1", p.read_varint, p.write_varint, -1, "01"),
    ("varint 64", p.read_varint, p.write_varint, 64, "80 01"),
    ("varint smallest", p.read_varint, p.write_varint, -(2**31), "ff ff ff ff 0f"),
    ("varlong -1", p.read_varlong, p.write_varlong, -1, "01"),
    ("varlong largest", p.read_varlong, p.write_varlong, 2**63 - 1, "fe ff ff ff ff ff ff ff ff 01"),
    ("varlong smallest", p.read_varlong, p.write_varlong, -(2**63), "ff ff ff ff ff ff ff ff ff 01"),
    ("bool", p.read_bool, p.write_bool, True, "01"),
    ("int8", p.read_int8, p.write_int8, -128, "80"),
    ("int16", p.read_int16, p.write_int16, -2, "ff fe"),
    ("uint16", p.read_uint16, p.write_uint16, 65535, "ff ff"),
    ("int32", p.read_int32, p.write_int32, 1, "00 00 00 01"),
    ("uint32", p.read_uint32, p.write_uint32, 2**32 - 1, "ff ff ff ff"),
    ("int64", p.read_int64, p.write_int64, -1, "ff ff ff ff ff ff ff ff"),
    ("float64", p.read_float64, p.write_float64, -0.0, "80 00 00 00 00 00 00 00"),
    ("uuid", p.read_uuid, p.write_uuid, UUID(int=1), "00" * 15 + "01"),
    ("zero uuid", p.read_uuid, p.write_uuid, UUID(int=0), "00" * 16),
    ("string", p.read_string, p.write_string, "hé", "00 03 68 c3 a9"),
    ("empty string", p.read_string, p.write_string, "", "00 00"),
    ("null string", p.read_string, p.write_string, None, "ff ff"),
    ("no UTF-8", p.read_string, p.write_string, "\udcff\udc80", "00 02 ff 80"),
    ("compact string", p.read_compact_string, p.write_compact_string, "abc", "04 61 62 63"),
    ("empty compact string", p.read_compact_string, p.write_compact_string, "", "01"),
    ("null compact string", p.read_compact_string, p.write_compact_string, None, "00"),
    ("bytes", p.read_bytes, p.write_bytes, b"\x00\xff", "00 00 00 02 00 ff"),
    ("null bytes", p.read_bytes, p.write_bytes, None, "ff ff ff ff"),
    ("compact bytes", p.read_compact_bytes, p.write_compact_bytes, b"\x00", "02 00"),
    ("null compact bytes", p.read_compact_bytes, p.write_compact_bytes, None, "00"),
]


@pytest.mark.parametrize(("read", "write", "value", "text"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_value_has_one_form(read: Any, write: Any, value: Any, text: str) -> None:
    """Reading gives the value and the place after it, whatever stands around it; writing gives the bytes."""
    data = bytes.fromhex(text)

    assert write(value) == data
    for buf in (data, bytearray(data), memoryview(data)):
        assert read(buf, 0) == (value, len(data))
    assert read(b"\xaa" + data + b"\xaa", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("read", "text"), [(case[1], case[4]) for case in CASES], ids=[c[0] for c in CASES])
def test_a_cut_value_is_a_decode_error(read: Any, text: str) -> None:
    """However few bytes are there, the error says where, and nothing else escapes."""
    data = bytes.fromhex(text)

    for length in range(len(data)):
        with pytest.raises(DecodeError):
            read(data[:length], 0)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (p.read_uvarint, "80 80 80 80 80"),
        (p.read_uvarint, "80 80 80 80 80 01"),
        (p.read_varlong, "80 80 80 80 80 80 80 80 80 80 01"),
        (p.read_compact_string, "80 80 80 80 08"),
        (p.read_compact_bytes, "ff ff ff ff 0f"),
        (p.read_string, "80 00"),
        (p.read_string, "7f ff 00"),
        (p.read_compact_string, "81 80 02" + " 00" * 32768),
        (p.read_bytes, "ff ff ff fe"),
        (p.read_bytes, "7f ff ff ff 00"),
        (p.read_compact_bytes, "ff ff ff ff 07 00"),
    ],
)
def test_lengths_that_cannot_be_are_decode_errors(read: Any, text: str) -> None:
    """Varints that go on, top bits, negative lengths but -1, strings above 32767 bytes, more than is there."""
    with pytest.raises(DecodeError):
        read(bytes.fromhex(text), 0)


def test_overlong_varints_are_read_and_written_short() -> None:
    """Java reads them too; bits above the 32nd fall off, as they do there."""
    assert p.read_uvarint(b"\x84\x00", 0) == (4, 2)
    assert p.read_uvarint(b"\x81\x80\x80\x80\x10", 0) == (1, 5)
    assert p.write_uvarint(4) == b"\x04"


def test_any_byte_but_zero_is_true() -> None:
    """As Java reads a bool."""
    assert [p.read_bool(bytes([byte]), 0)[0] for byte in (0, 1, 2, 255)] == [False, True, True, True]


@pytest.mark.parametrize("bits", [0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000000, 0x8000000000000000])
def test_floats_keep_their_bits(bits: int) -> None:
    """NaN payloads, infinity and minus zero come back as they were."""
    data = struct.pack(">Q", bits)

    assert p.write_float64(p.read_float64(data, 0)[0]) == data


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (p.write_uvarint, -1),
        (p.write_uvarint, 2**32),
        (p.write_varint, 2**31),
        (p.write_varlong, -(2**63) - 1),
        (p.write_bool, 1),
        (p.write_int8, 128),
        (p.write_uint16, -1),
        (p.write_int32, 1.0),
        (p.write_int64, "1"),
        (p.write_float64, "1"),
        (p.write_uuid, b"\x00" * 16),
        (p.write_string, b"bytes"),
        (p.write_string, "x" * 32768),
        (p.write_compact_string, "x" * 32768),
        (p.write_compact_string, "\ud800"),
        (p.write_bytes, "text"),
        (p.write_compact_bytes, 5),
    ],
)
def test_values_that_do_not_fit_are_encode_errors(write: Any, value: Any) -> None:
    """Wrong types and numbers out of range."""
    with pytest.raises(EncodeError):
        write(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_string_or_not_there(data: bytes) -> None:
    """A string of any bytes survives reading and writing, in both forms."""
    assert p.write_string(p.read_string(p.write_int16(len(data)) + data, 0)[0])[2:] == data
    assert p.write_compact_string(p.read_compact_string(p.write_uvarint(len(data) + 1) + data, 0)[0])[1:] == data


@given(st.binary(max_size=20), st.integers(0, 25))
def test_no_reader_raises_anything_but_decode_error(data: bytes, pos: int) -> None:
    """On any bytes, at any place, a reader ends inside the bytes or says what is wrong."""
    for read in (*p.READERS.values(), *p.COMPACT_READERS.values(), p.read_varint, p.read_varlong):
        try:
            _, end = read(data, pos)
        except DecodeError:
            continue
        assert pos <= end <= len(data)
