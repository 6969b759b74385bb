"""corrupt_records: checksums that show what happened."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import check_crc, entries
from kproxy.protocol.records.entry import BATCH


def flipped(before: bytes, after: Any) -> list[int]:
    """The bytes at which bits differ, one entry for each bit."""
    after = bytes(after)
    assert len(before) == len(after)
    return [
        at for at, (one, other) in enumerate(zip(before, after, strict=True)) for _ in range((one ^ other).bit_count())
    ]


def test_so_many_bits_and_a_wrong_checksum(carried: Any, form: dict[str, int]) -> None:
    """Both ways, the same ones with the same seed."""
    for at in ("fetch", "produce"):
        talk, again = (carried(f"kind: corrupt_records\nat: {at}\nbits: 3\nseed: 4") for _ in range(2))
        batch = talk.batch("some value", **form)
        after = talk.fetched(batch)["records"] if at == "fetch" else talk.produced(batch)
        second = again.fetched(batch)["records"] if at == "fetch" else again.produced(batch)

        assert len(flipped(batch, after)) == 3
        assert bytes(after) == bytes(second)
        with pytest.raises(RecordsError, match="crc"):
            check_crc(next(iter(entries(after))))


def test_the_checksum_alone(carried: Any) -> None:
    """`where: crc` leaves the records whole."""
    talk = carried("kind: corrupt_records\nwhere: crc")
    batch = talk.batch("some value")

    assert set(flipped(batch, talk.fetched(batch)["records"])) <= set(range(17, 21))


def test_batches_that_hold_an_offset(carried: Any) -> None:
    """Others are whole; a batch without records has its checksum to change."""
    talk = carried("kind: corrupt_records\noffsets: 9\nbits: 1")
    first, second = talk.batch("a", "b"), talk.batch("c", "d", "e", first=7)
    (at,) = flipped(first + second, talk.fetched(first + second)["records"])
    assert at >= len(first) + BATCH.size

    talk = carried("kind: corrupt_records")
    empty = talk.batch(base_offset=5, last_offset_delta=3)
    assert set(flipped(empty, talk.fetched(empty)["records"])) <= set(range(17, 21))


def test_control_batches_stay(carried: Any) -> None:
    """They are the brokers' own."""
    talk = carried("kind: corrupt_records")
    control = talk.batch("marker", control=True)

    assert bytes(talk.fetched(control)["records"]) == control
