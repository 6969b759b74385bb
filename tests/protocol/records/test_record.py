"""Records inside batches: every field there and back, every wrong length refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import RecordsError
from kproxy.protocol.primitives import write_varint
from kproxy.protocol.records.record import HEADERS_LIMIT, Record, read_records, write_record

MAYBE = st.none() | st.binary(max_size=200)
HEADER_KEYS = st.binary(max_size=20).map(lambda key: key.decode("utf-8", "surrogateescape"))
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**31 - 1),
    timestamp=st.integers(-(2**63), 2**63 - 1),
    key=MAYBE,
    value=MAYBE,
    headers=st.lists(st.tuples(HEADER_KEYS, MAYBE), max_size=4).map(tuple),
    attributes=st.integers(-128, 127).map(lambda bits: bits & 0xFF),
)
PLAIN = Record(5, 1000, b"key", b"value", (("a", b"1"), ("a", None), ("", b"")))


def read(data: bytes, count: int = 1, base: int = 0) -> list[Record]:
    return list(read_records(memoryview(data), count, base, base))


@settings(deadline=None, max_examples=100)
@given(st.lists(RECORDS, max_size=4), st.integers(0, 1000))
def test_there_and_back(records: list[Record], base: int) -> None:
    """Any record comes back equal: null and empty, header keys that repeat or are not UTF-8, negative times."""
    written = b"".join(write_record(record, base, base) for record in records)

    assert records == read(written, len(records), base)


def test_the_bytes() -> None:
    """One record, byte by byte, as the layout in the module says."""
    expected = b"\x2a" + b"\x00" + b"\xd0\x0f" + b"\x0a" + b"\x06key" + b"\x0avalue" + b"\x06"
    expected += b"\x02a\x021" + b"\x02a\x01" + b"\x00\x00"

    assert expected[1:] == write_record(PLAIN, 0, 0)[1:]
    assert 2 * (len(expected) - 1) == write_record(PLAIN, 0, 0)[0]


def test_cut_at_every_byte() -> None:
    """A record that is cut anywhere is an error, and so is a byte too many."""
    written = write_record(PLAIN, 0, 0)
    for length in range(len(written)):
        with pytest.raises(RecordsError, match="record 0 of 1 at byte"):
            read(written[:length])
    with pytest.raises(RecordsError, match="1 byte left after 1 record"):
        read(written + b"\x00")


def body(*pieces: bytes) -> bytes:
    inside = b"\x00\x00\x00" + b"".join(pieces)
    return write_varint(len(inside)) + inside


BAD = {
    "length of 0": (b"\x00", "record of 0 bytes"),
    "length below 0": (b"\x01", "record of -1 bytes"),
    "length of 2**31-1": (write_varint(2**31 - 1) + b"\x00" * 9, "record of 2147483647 bytes where 9 are left"),
    "key of 2**31-1": (body(write_varint(2**31 - 1), b"\x01\x00"), "field of 2147483647 bytes where 2 are left"),
    "value into the next record": (body(b"\x01", write_varint(2), b"\x00") + b"xxxx", "field of 2 bytes where 1 are"),
    "headers below 0": (body(b"\x01\x01\x01"), "-1 headers"),
    "too many headers": (body(b"\x01\x01", write_varint(HEADERS_LIMIT + 1)), f"{HEADERS_LIMIT + 1} headers"),
    "null header key": (body(b"\x01\x01", b"\x02", b"\x01\x01"), "header key is null"),
    "bytes left in it": (body(b"\x01\x01\x00", b"!"), "expected the end of fields at byte 8, got 7"),
    "no headers": (body(b"\x01\x01"), "record 0 of 1"),
    "endless varint": (b"\xff" * 12, "record 0 of 1"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_records(data: bytes, message: str) -> None:
    """Lengths that do not fit are named with both numbers, and allocate nothing."""
    with pytest.raises(RecordsError, match=message):
        read(data)


def test_values_that_do_not_fit() -> None:
    """An offset too far from its base, and a header key with half a character, are errors of the writer."""
    with pytest.raises(RecordsError, match="record at offset 4294967296"):
        write_record(Record(2**32, 0, None, None), 0, 0)
    with pytest.raises(RecordsError, match="expected an int64 timestamp, got 9223372036854775808"):
        write_record(Record(0, 2**63, None, None), 0, 0)
    with pytest.raises(RecordsError, match="record at offset 0"):
        write_record(Record(0, 0, None, None, (("\ud800", None),)), 0, 0)
