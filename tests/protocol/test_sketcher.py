"""A Sketcher is bounded, and says why it gave up."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.scan.sketch import MOST_SKETCH, Sketcher, decode_sketch
from kproxy.protocol.table.schema import load
from tests.protocol.test_sketch import WITH_RECORDS, encode, layout, random_frame, write_header


def fetched(size: int) -> bytes:
    """A Fetch response with one batch of a record of `size` bytes."""
    batch = encode_batch([Record(5, 0, None, bytes(size))])
    partition = {"partition_index": 0, "high_watermark": 6, "records": batch}
    body = {"responses": [{"topic": "a", "partitions": [partition]}]}
    return write_header(load(1), 12, "response", {"correlation_id": 1}) + encode(layout.body(1, 12, "response"), body)


def test_memory_does_not_grow_with_records() -> None:
    """Of ten megabytes of records, less than 200 bytes are kept."""
    frame = fetched(10_000_000)
    sketcher = Sketcher(1, 12, "response")
    for start in range(0, len(frame), 65536):
        sketcher.feed(frame, start, min(start + 65536, len(frame)))
    assert not sketcher.failed
    assert len(sketcher.data()) < 200
    (topic,) = decode_sketch(sketcher.data(), 1, 12, "response", sketched=True)["responses"]
    digest = topic["partitions"][0]["records"]
    assert (digest.records, digest.batches, digest.base_offset) == (1, 1, 5)
    assert digest.size > 10_000_000


@pytest.mark.parametrize(("key", "version", "direction"), WITH_RECORDS)
def test_what_is_passed_over_changes_nothing(key: int, version: int, direction: str) -> None:
    """Whoever leaves out what the sketcher does not have to see, as a whole or in parts, gets the same sketch."""
    passed = 0
    for seed in range(8):
        random = Random(seed)
        frame = random_frame(key, version, direction, random)
        sketcher, plain = (Sketcher(key, version, direction, most=1 << 30) for _ in range(2))
        plain.feed(frame, 0, len(frame))
        at = 0
        while at < len(frame):
            unseen = min(sketcher.unseen, len(frame) - at)
            if unseen > 0 and random.random() < 0.8:
                size = random.choice((unseen, random.randint(1, unseen)))
                sketcher.pass_over(size)
                passed += size
            else:
                size = random.randint(1, min(random.choice((3, 70, 1000)), len(frame) - at))
                sketcher.feed(frame, at, at + size)
            at += size
        assert not sketcher.failed
        assert sketcher.data() == plain.data()
    assert passed


@pytest.mark.parametrize(("key", "version"), [(3, 12), (0, 99), (999, 0)])
def test_long_frame_without_records(key: int, version: int) -> None:
    """A frame without records, or of an unknown kind, is kept up to the bound; then the sketcher says so."""
    sketcher = Sketcher(key, version, "request")
    piece = bytes(range(256)) * 256
    for _ in range(MOST_SKETCH // len(piece)):
        sketcher.feed(piece, 0, len(piece))
    assert not sketcher.failed
    sketcher.feed(piece, 0, 1)
    assert str(MOST_SKETCH) in sketcher.failed
    sketcher.feed(piece, 0, len(piece))
    assert len(sketcher.data()) == MOST_SKETCH


def test_long_frame_with_records() -> None:
    """What is not the inside of records counts against the bound, also when it comes in one chunk."""
    frame = random_frame(0, 12, "request", Random(5))
    sketcher = Sketcher(0, 12, "request", most=20)
    sketcher.feed(frame, 0, len(frame))
    assert "20 bytes" in sketcher.failed
    assert sketcher.data() == frame[:20]
    sketcher.pass_over(sketcher.unseen)
    assert sketcher.data() == frame[:20]


def test_noise_never_raises() -> None:
    """Bytes that follow no layout make the sketcher give up with a reason, or wait for more; it never raises."""
    reasons = set()
    for seed in range(600):
        random = Random(seed)
        key, version, direction = random.choice(WITH_RECORDS)
        sketcher = Sketcher(key, version, direction, most=10_000)
        for _ in range(10):
            noise = bytes(random.choice((0, 1, 2, 0x7F, 0x80, 0xFF)) for _ in range(random.randrange(60)))
            sketcher.feed(noise, 0, len(noise))
            assert len(sketcher.data()) <= 10_000
        reasons.add(sketcher.failed.partition(":")[0])
    assert "its structure cannot be followed" in reasons
