"""Spans of records: against `decode`, written entries against `rewrite`, and their limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Batch, Producer, Record, decode, encode_batch, encode_message_set, entries, spans
from kproxy.protocol.records.entry import CODEC, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME
from kproxy.protocol.records.spans import END, KEY, START, VALUE, EntrySpans
from tests.lab.fuzz.targets.spans import compare
from tests.protocol.records.test_record import RECORDS as ANY

FORMS = [(2, codec) for codec in range(5)] + [(magic, codec) for magic in (1, 0) for codec in range(4)]
RECORDS = [Record(5 + n, 1000 + n, b"key%d" % n, b"value" * n, ((f"h{n}", b"x"),)) for n in range(6)]


def entry_of(records: list[Record], magic: int = 2, codec: int = 0, **more: Any) -> Any:
    if magic == 2:
        data = encode_batch(records, codec=codec, **more)
    else:
        plain = [dataclasses.replace(one, headers=(), timestamp=one.timestamp if magic else -1) for one in records]
        data = encode_message_set(plain, magic, codec=codec, **more)
    return next(entries(data))


@settings(deadline=None, max_examples=150)
@given(st.lists(ANY, min_size=1, max_size=6), st.sampled_from(FORMS), st.binary(max_size=6), st.integers(0, 2**40))
def test_spans_of_any_records_match_decode(records: list[Record], form: Any, plan: bytes, base: int) -> None:
    records = [dataclasses.replace(record, offset=base + n, attributes=0) for n, record in enumerate(records)]
    compare(entry_of(records, *form), plan)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"magic{form[0]}-codec{form[1]}")
def test_spans_of_damaged_bytes_match_decode(form: tuple[int, int]) -> None:
    """Cut at each byte, and changed at random, also inside a batch with a valid header."""
    raw, random = bytes(entry_of(RECORDS, *form).raw), Random(str(form))
    for length in range(61 if form[0] == 2 else 34, len(raw)):
        compare(next(entries(raw[:8] + (length - 12).to_bytes(4, "big") + raw[12:length])), b"\x01")
    for _ in range(200):
        changed = bytearray(raw)
        for _ in range(random.randint(1, 3)):
            changed[random.randrange(17, len(changed))] = random.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256))
            )
        compare(next(entries(bytes(changed))), random.randbytes(3))


@pytest.mark.parametrize("bits", [0, LOG_APPEND_TIME, DELETE_HORIZON])
@pytest.mark.parametrize("codec", range(5))
def test_written_batch_keeps_its_header(codec: int, bits: int) -> None:
    """Records may go; only length, count, checksum and maximum timestamp change, and the codec of an empty batch."""
    made = entry_of(RECORDS, codec=codec, partition_leader_epoch=6, producer=Producer(5, 1, 100, True))
    batch = dataclasses.replace(made, attributes=made.attributes | bits, max_timestamp=7777)
    found = list(opened := EntrySpans(batch))
    kept, empty = (one for data in (opened.write(found[1:4]), opened.write([])) for one in entries(data))
    assert isinstance(kept, Batch) and isinstance(empty, Batch)

    newest = 7777 if bits == LOG_APPEND_TIME else 1003
    computed = {"length": kept.length, "crc": kept.crc, "raw": kept.raw}
    assert kept == dataclasses.replace(batch, count=3, max_timestamp=newest, **computed)
    assert list(decode(kept, stored=True)) == RECORDS[1:4]
    assert (empty.attributes, empty.count) == (batch.attributes & ~(CODEC | DELETE_HORIZON), 0)
    assert (empty.last_offset, empty.producer_id, empty.max_timestamp) == (batch.last_offset, 5, 7777)


def test_write_copies_unchanged_records_as_bytes() -> None:
    """Varints of more bytes than necessary stay."""
    raw = bytearray(encode_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")]))
    inside = raw[61:].replace(b"\x10\x00\x00\x00", b"\x12\x00\x80\x00\x00")  # the first record's timestamp delta
    raw[8:12], raw[61:] = (len(inside) + 49).to_bytes(4, "big"), inside
    (batch,) = entries(bytes(raw))
    first, second = (opened := EntrySpans(batch))
    written = opened.write([first, opened.edit(second, value=b"c")])

    assert written is not None
    assert written[61:] == inside[: first[END]] + inside[first[END] :].replace(b"b", b"c")
    assert opened.write([first, second]) is None
    assert opened.write([first, opened.edit(second, value=b"b", key=None, timestamp=0)]) is None


def test_edited_span_can_be_edited_and_read() -> None:
    first, *following = (opened := EntrySpans(entry_of(RECORDS)))
    edited = opened.edit(opened.edit(opened.edit(first, value=b"longer" * 50), key=None), headers=[(b"a", b"1")])
    edited = opened.edit(edited, timestamp=-5)

    assert (edited[KEY], opened.value(edited), opened.headers(edited)) == (-1, b"longer" * 50, [(b"a", b"1")])
    assert (opened.timestamp(edited), opened.offset(edited)) == (-5, 5)
    assert opened.header(edited, b"a") == [b"1"] and opened.header(edited, b"b") == []
    written = opened.write([edited, *following])
    assert [one.value for one in decode(next(entries(written)))][:2] == [b"longer" * 50, b"value"]
    assert edited[START] >= opened.gap > following[-1][VALUE]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"magic{form[0]}-codec{form[1]}")
def test_renumbered_records_have_no_gaps(form: tuple[int, int]) -> None:
    """Repeated and omitted records of a Produce request have the offsets from the first one on."""
    base = 5 if form[0] == 2 else 0
    first, *following = (opened := EntrySpans(entry_of(RECORDS, *form)))
    written = opened.write([first, first, *following[1:3]], renumber=True)
    made = [one for entry in entries(written) for one in decode(entry)]
    many = form[0] == 2 or form[1] > 0

    assert [one.offset - base for one in made] == list(range(4 if many else 2))
    assert [one.key for one in made] == ([b"key0", b"key0", b"key2", b"key3"] if many else [b"key0"] * 2)
    assert opened.write([], renumber=True) == b""
    moved = [dataclasses.replace(record, offset=record.offset + 3) for record in RECORDS]
    unchanged = EntrySpans(entry_of(moved, *form, **({"base_offset": 5} if form[0] == 2 else {})))
    assert unchanged.write(unchanged, renumber=True) is None


LITTLE, LARGE = 1 << 20, Record(0, 0, None, bytes(1 << 22))
BOMBS: dict[str, tuple[Callable[[], Any], str]] = {
    "count above the limit": (
        lambda: dataclasses.replace(entry_of(RECORDS), count=spans.MOST_RECORDS + 1),
        "expected 0 to 100000 records, got 100001",
    ),
    "negative count": (lambda: dataclasses.replace(entry_of(RECORDS), count=-1), "0 to 100000 records, got -1"),
    "decompressed bytes": (lambda: entry_of([LARGE], 2, 4), "longer than 1048576 bytes"),
    "decompressed bytes of magic 1": (lambda: entry_of([LARGE], 1, 1), "longer than 1048576 bytes"),
    "headers": (lambda: entry_of([Record(0, 0, None, None, (("", None),) * 101)]), "101 headers, and no more than 100"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BOMBS.values(), ids=BOMBS)
def test_entry_beyond_a_limit_is_an_error(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(RecordsError, match=message):
        list(EntrySpans(make(), LITTLE, 100))


def test_messages_beyond_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_RECORDS", 5)
    with pytest.raises(RecordsError, match="expected at most 5 records"):
        list(EntrySpans(entry_of(RECORDS, 1, 1)))


def test_output_beyond_a_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output of repeated records, of edits, and the number of records after a change."""
    monkeypatch.setattr(spans, "LEAST_OUTPUT", 1000)
    monkeypatch.setattr(spans, "MOST_RECORDS", 300)
    large = [dataclasses.replace(record, value=b"v" * 500) for record in RECORDS]
    most, first = 1000 + 20 * len(entry_of(large).raw), next(iter(opened := EntrySpans(entry_of(large))))
    with pytest.raises(RecordsError, match=f"expected at most {most} bytes of changed records"):
        opened.write([first] * (most // 500))
    with pytest.raises(RecordsError, match=f"expected at most {most} bytes of changed records"):
        opened.edit(first, value=bytes(most))
    few, first = EntrySpans(entry_of([Record(0, 0, None, None)])), None
    (first,) = few
    with pytest.raises(RecordsError, match="expected at most 300 records"):
        few.write([first] * 301)


def test_records_that_do_not_fit_are_errors() -> None:
    (first, second, *_), opened = EntrySpans(batch := entry_of(RECORDS)), EntrySpans(batch)
    for change, message in (({"timestamp": 2**63}, "an int64 timestamp"), ({"offset_delta": 2**31}, "fit a varint")):
        with pytest.raises(RecordsError, match=f"record at offset 5: .*{message}"):
            opened.edit(first, **change)
    with pytest.raises(RecordsError, match="offset 11 outside its batch"):
        opened.write([opened.edit(first, offset_delta=6), second])
    (message,) = (old := EntrySpans(entry_of(RECORDS[:1], 1)))
    with pytest.raises(RecordsError, match="1 headers, magic 1 has none"):
        old.edit(message, headers=[(b"a", b"b")])
    control = EntrySpans(dataclasses.replace(batch, attributes=CONTROL))
    with pytest.raises(RecordsError, match="control batch at offset 5 is never changed"):
        control.write([])
