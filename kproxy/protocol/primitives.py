"""The protocol's primitive types: one reader and one writer each.

Strategy: a reader takes `(buf, pos)` and returns `(value, position after it)`; it never looks before `pos`, checks a
length against the bytes that remain before it touches them, and raises nothing but DecodeError. A writer takes a value
and returns its bytes, and raises nothing but EncodeError. Null is None. The end of `buf` is the end of the frame.

Compiled code (`codec.py`, `walk.py`) does the short cases in line and calls these for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any
from uuid import UUID

from kproxy.base.errors import DecodeError, EncodeError, plural

Buffer = bytes | bytearray | memoryview
Chunk = tuple[Buffer, int, int]
"""Part of a frame: the buffer, and where in it the part starts and ends."""
PrimitiveReader = Callable[[Buffer, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

MAX_LENGTH = 0x7FFFFFFF
"""Lengths, counts, tags and sizes are signed 32-bit numbers in Kafka; a varint above this is an error here."""
MAX_STRING = 32767
"""Bytes in a string, compact or not (KIP-482 kept the limit that INT16 lengths had)."""


def cut(pos: int, expected: str, left: int) -> DecodeError:
    return DecodeError(f"{plural(max(left, 0), 'byte')} left", offset=pos, expected=expected)


def read_bits(buf: Buffer, pos: int, width: int, longest: int) -> tuple[int, int]:
    """Read seven bits a byte, low ones first; overlong forms are read, bits above `width` fall off, as in Java."""
    value = 0
    start = pos
    for shift in range(0, 7 * longest, 7):
        if not start <= pos < len(buf):
            raise cut(start, "a varint", len(buf) - start)
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << width) - 1), pos
    raise DecodeError(f"varint goes on after {longest} bytes", offset=start, expected=f"at most {longest} bytes")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 32 bits."""
    if 0 <= pos < len(buf) and buf[pos] < 0x80:
        return buf[pos], pos + 1
    return read_bits(buf, pos, 32, 5)


SHORT = tuple(bytes((number,)) for number in range(0x80))


def write_bits(value: int) -> bytes:
    if value < 0x80:
        return SHORT[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_uvarint(value: int) -> bytes:
    """Return the shortest form of a number in 0 … 2³²−1."""
    if 0 <= value < 0x80:
        return SHORT[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{value} does not fit an unsigned varint, expected 0 to 4294967295")
    return write_bits(value)


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 bits, as in record batches v2."""
    raw, pos = read_uvarint(buf, pos)
    return (raw >> 1) ^ -(raw & 1), pos


def write_varint(value: int) -> bytes:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise EncodeError(f"{value} does not fit a varint, expected a signed 32-bit number")
    return write_bits((value << 1) ^ (value >> 31))


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of 64 bits and at most 10 bytes."""
    raw, pos = read_bits(buf, pos, 64, 10)
    return (raw >> 1) ^ -(raw & 1), pos


def write_varlong(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise EncodeError(f"{value} does not fit a varlong, expected a signed 64-bit number")
    return write_bits((value << 1) ^ (value >> 63))


def fixed(code: str, name: str) -> tuple[PrimitiveReader, Writer]:
    """Return reader and writer of one big-endian number of fixed width."""
    form = Struct(f">{code}")
    size, unpack, pack = form.size, form.unpack_from, form.pack

    def read(buf: Buffer, pos: int) -> tuple[Any, int]:
        if not 0 <= pos <= len(buf) - size:
            raise cut(pos, f"{size} bytes of {name}", len(buf) - pos)
        return unpack(buf, pos)[0], pos + size

    def write(value: Any) -> bytes:
        try:
            return pack(value)
        except (error, TypeError, OverflowError) as mistake:
            raise EncodeError(f"expected {name}, got {value!r:.80}: {mistake}") from None

    return read, write


read_int8, write_int8 = fixed("b", "int8")
read_int16, write_int16 = fixed("h", "int16")
read_uint16, write_uint16 = fixed("H", "uint16")
read_int32, write_int32 = fixed("i", "int32")
read_uint32, write_uint32 = fixed("I", "uint32")
read_int64, write_int64 = fixed("q", "int64")
read_float64, write_float64 = fixed("d", "float64")


def read_bool(buf: Buffer, pos: int) -> tuple[bool, int]:
    """Read one byte; any value but zero is True."""
    value, pos = read_int8(buf, pos)
    return value != 0, pos


def write_bool(value: bool) -> bytes:
    """Return one byte: 1 for true, 0 for false."""
    if value is not True and value is not False:
        raise EncodeError(f"expected True or False, got {value!r:.80}")
    return b"\x01" if value else b"\x00"


def read_uuid(buf: Buffer, pos: int) -> tuple[UUID, int]:
    """Read 16 bytes; all zero stays the zero UUID."""
    if not 0 <= pos <= len(buf) - 16:
        raise cut(pos, "16 bytes of uuid", len(buf) - pos)
    return UUID(bytes=bytes(buf[pos : pos + 16])), pos + 16


def write_uuid(value: UUID) -> bytes:
    """Return the 16 bytes of a UUID."""
    if not isinstance(value, UUID):
        raise EncodeError(f"expected a UUID, got {value!r:.80}")
    return value.bytes


def read_compact_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a length or count in compact form: -1 (null) or more."""
    raw, end = read_uvarint(buf, pos)
    if raw > MAX_LENGTH:
        raise DecodeError(f"compact length {raw}", offset=pos, expected=f"at most {MAX_LENGTH}")
    return raw - 1, end


def checked(length: int, pos: int) -> int:
    if length < -1:
        raise DecodeError(f"length {length}", offset=pos, expected="-1 for null, or more")
    return length


def read_length16(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read the length in front of a classic string: -1 (null) or more."""
    length, end = read_int16(buf, pos)
    return checked(length, pos), end


def read_length32(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read the length in front of classic bytes, records and arrays: -1 (null) or more."""
    length, end = read_int32(buf, pos)
    return checked(length, pos), end


def take(buf: Buffer, pos: int, length: int, what: str) -> memoryview:
    """Return `length` bytes as a view. Raises DecodeError if fewer remain."""
    if length > len(buf) - pos:
        raise cut(pos, f"{length} bytes of {what}", len(buf) - pos)
    return memoryview(buf)[pos : pos + length]


def text(data: memoryview) -> str:
    """Decode UTF-8. Other bytes become lone surrogates, and are encoded unchanged (PEP 383)."""
    return str(data, "utf-8", "surrogateescape")


def read_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """Read a string with an INT16 length."""
    length, pos = read_length16(buf, pos)
    return (None, pos) if length < 0 else (text(take(buf, pos, length, "string")), pos + length)


def read_compact_string(buf: Buffer, pos: int) -> tuple[str | None, int]:
    """Read a string with an unsigned varint of length + 1."""
    length, end = read_compact_length(buf, pos)
    if length > MAX_STRING:
        raise DecodeError(f"string of {length} bytes", offset=pos, expected=f"at most {MAX_STRING} bytes")
    return (None, end) if length < 0 else (text(take(buf, end, length, "string")), end + length)


def read_bytes(buf: Buffer, pos: int) -> tuple[memoryview | None, int]:
    """Read bytes with an INT32 length, as a view into `buf`."""
    length, pos = read_length32(buf, pos)
    return (None, pos) if length < 0 else (take(buf, pos, length, "bytes"), pos + length)


def read_compact_bytes(buf: Buffer, pos: int) -> tuple[memoryview | None, int]:
    """Read bytes with an unsigned varint of length + 1, as a view into `buf`."""
    length, pos = read_compact_length(buf, pos)
    return (None, pos) if length < 0 else (take(buf, pos, length, "bytes"), pos + length)


def encoded(value: str) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"expected a string, got {value!r:.80}")
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as mistake:
        raise EncodeError(f"{value!r:.80} cannot be written as UTF-8: {mistake.reason}") from None
    if len(data) > MAX_STRING:
        raise EncodeError(f"string of {len(data)} bytes, expected at most {MAX_STRING}")
    return data


def write_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = encoded(value)
    return len(data).to_bytes(2, "big") + data


def write_compact_string(value: str | None) -> bytes:
    """Return an unsigned varint of length + 1 and the text in UTF-8."""
    if value is None:
        return b"\x00"
    data = encoded(value)
    return write_uvarint(len(data) + 1) + data


def plain(value: Buffer) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError(f"expected bytes, got {value!r:.80}")
    return bytes(value)


def write_bytes(value: Buffer | None) -> bytes:
    """Return an INT32 length and the bytes behind it."""
    if value is None:
        return b"\xff\xff\xff\xff"
    data = plain(value)
    return write_int32(len(data)) + data


def write_compact_bytes(value: Buffer | None) -> bytes:
    """Return an unsigned varint of length + 1 and the bytes behind it."""
    if value is None:
        return b"\x00"
    data = plain(value)
    return write_uvarint(len(data) + 1) + data


READERS: dict[str, PrimitiveReader] = {
    "bool": read_bool, "int8": read_int8, "int16": read_int16, "uint16": read_uint16, "int32": read_int32,
    "uint32": read_uint32, "int64": read_int64, "float64": read_float64, "uuid": read_uuid,
    "string": read_string, "bytes": read_bytes, "records": read_bytes,
}  # fmt: skip
COMPACT_READERS = READERS | {
    "string": read_compact_string, "bytes": read_compact_bytes, "records": read_compact_bytes
}  # fmt: skip
WRITERS: dict[str, Writer] = {
    "bool": write_bool, "int8": write_int8, "int16": write_int16, "uint16": write_uint16, "int32": write_int32,
    "uint32": write_uint32, "int64": write_int64, "float64": write_float64, "uuid": write_uuid,
    "string": write_string, "bytes": write_bytes, "records": write_bytes,
}  # fmt: skip
COMPACT_WRITERS = WRITERS | {
    "string": write_compact_string, "bytes": write_compact_bytes, "records": write_compact_bytes
}  # fmt: skip
