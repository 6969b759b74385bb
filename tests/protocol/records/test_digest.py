"""What batch headers tell, and what of them a sketch keeps."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Producer, Record, encode_batch, encode_control, encode_message_set
from kproxy.protocol.records.entry import MOST_HEADERS, RecordsDigest, read_digest
from kproxy.protocol.records.record import Control

IDEMPOTENT = Producer(7, 1, 40, transactional=True)


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(first + number, 1000, None, b"value") for number in range(count)]


def digest(data: bytes) -> RecordsDigest:
    found, after = read_digest(b"ab" + data + b"cd", 2, len(data))
    assert after == 2 + len(data)
    return found


def test_a_field_without_anything() -> None:
    """No batch: no codec, no offsets, and zero records."""
    assert digest(b"") == RecordsDigest(0, 0, 0, "", None, None, None, None, None)


def test_batches() -> None:
    """Counts and sizes are of all, the codec and the producer of the first, the last offset of the last."""
    data = encode_batch(records(3, 10), codec=4, producer=IDEMPOTENT) + encode_batch(records(2, 20), codec=1)
    found = digest(data)
    one, other = found.headers or ()
    crcs = tuple(
        int.from_bytes(data[at + 17 : at + 21], "big") for at in (0, data.index(encode_batch(records(2, 20), codec=1)))
    )
    expected = RecordsDigest(len(data), 2, 5, "zstd", 10, 21, 7, 1, 40, transactional=True)
    expected.crc, expected.attributes, expected.headers = crcs[0], 4 | 0x10, [one, other]
    assert found == expected
    assert one == (10, crcs[0], 4 | 0x10, 2, 7, 1, 40, 3)
    assert other == (20, crcs[1], 1, 1, -1, -1, -1, 2)


def test_headers_of_the_first_batches_only() -> None:
    """A field of many small batches has so many headers, and counts all."""
    found = digest(b"".join(encode_batch(records(1, number)) for number in range(MOST_HEADERS + 5)))
    assert (found.batches, [one[0] for one in found.headers or ()]) == (
        MOST_HEADERS + 5, list(range(MOST_HEADERS)),
    )  # fmt: skip


def test_compaction_leaves_gaps() -> None:
    """The last offset is the batch's, also when the record there is gone."""
    data = encode_batch(records(1, 10), last_offset_delta=8)
    found = digest(data)
    assert (found.records, found.base_offset, found.last_offset) == (1, 10, 18)


def test_markers_of_transactions() -> None:
    """Control batches are told apart, and their records are not counted."""
    marker = encode_control(Control(1, {"version": 0, "coordinator_epoch": 3}), offset=12, timestamp=5)
    data = encode_batch(records(2, 10)) + encode_batch([marker], base_offset=12, producer=IDEMPOTENT, control=True)
    found = digest(data)
    assert (found.batches, found.control, found.records, found.last_offset) == (2, 1, 2, 12)
    assert found.markers == {1: "commit"}
    sketch = data[:61] + data[len(data) - 78 :][:61]
    assert read_digest(sketch, 0, len(data), sketched=True)[0].markers is None


def marker(kind: int, fields: dict[str, Any]) -> bytes:
    control = encode_control(Control(kind, fields), offset=5, timestamp=5)
    return bytes(encode_batch([control], base_offset=5, producer=IDEMPOTENT, control=True))


def test_what_markers_say() -> None:
    """Only of control batches, of the two types there are, and of those whose headers are kept."""
    abort = marker(0, {"version": 0, "coordinator_epoch": 3})
    other = marker(2, {"version": 0, "leader_id": 1, "voters": [], "granting_voters": []})
    user = encode_batch([Record(5, 1000, b"\0\0\0\1", b"no marker")])
    assert digest(abort + other + user).markers == {0: "abort"}
    assert digest(user * MOST_HEADERS + abort).markers is None
    for end in range(61, len(abort)):  # cut, with bytes of others behind it
        assert digest(abort[:end]).markers is None


def test_cut_last_batch() -> None:
    """It counts in the size only."""
    whole, cut = encode_batch(records(2)), encode_batch(records(5, 2))[:-1]
    found = digest(whole + cut)
    assert (found.size, found.batches, found.records, found.last_offset) == (len(whole + cut), 1, 2, 1)
    assert digest(cut) == RecordsDigest(len(cut), 0, 0, "", None, None, None, None, None)


def test_messages_of_magic_0_and_1() -> None:
    """Uncompressed messages are records, and those in a row one batch; in a wrapper nobody can count."""
    row = encode_message_set(records(4, 5), 1)
    assert digest(row) == RecordsDigest(len(row), 1, 4, "none", 5, 8, None, None, None)
    wrapper = encode_message_set(records(4, 5), 1, codec=2)
    assert digest(wrapper) == RecordsDigest(len(wrapper), 1, None, "snappy", None, 8, None, None, None)
    mixed = digest(row + encode_batch(records(2, 9)))
    assert (mixed.batches, mixed.records, mixed.last_offset) == (2, 6, 10)


def test_bytes_that_are_no_batch() -> None:
    """Nothing is raised: the broker is to judge them. How many records they are, nobody can tell."""
    whole = encode_batch(records(2))
    found = digest(whole + bytes(16) + b"\x07" + bytes(50))
    assert (found.batches, found.records, found.size) == (1, None, len(whole) + 67)
    assert digest(bytes(30)).records is None


def test_sketched_form() -> None:
    """Of each whole entry the header is kept, of what is cut as much as says so; both forms say the same."""
    batch, message = encode_batch(records(2)), encode_message_set(records(1, 2), 1)
    for end, kept in ((b"", b""), (batch[:40], batch[:17]), (batch[:16], b"")):
        field = batch + message + end
        sketch = batch[:61] + message[:18] + kept
        assert read_digest(sketch, 0, len(field), sketched=True) == (digest(field), len(sketch))
