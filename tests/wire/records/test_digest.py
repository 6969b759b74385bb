"""What batch headers tell, and what of them a sketch keeps."""

from __future__ import annotations

from kproxy.wire.records import Producer, Record, encode_batch, encode_control, encode_message_set
from kproxy.wire.records.digest import RecordsDigest, read_digest
from kproxy.wire.records.record import Control

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
    assert digest(data) == RecordsDigest(len(data), 2, 5, "zstd", 10, 21, 7, 1, 40, transactional=True)


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
