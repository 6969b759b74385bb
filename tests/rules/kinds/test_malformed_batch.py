"""malformed_batch: batches that no broker would send."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import Control, Producer, check_crc, encode_batch, encode_control, entries
from kproxy.protocol.records.entry import crc_of


def malformed(carried: Any, how: str, form: dict[str, int], at: str = "fetch") -> tuple[bytes, bytes, int]:
    """Two batches before and after, and the length of the first."""
    talk = carried(f"kind: malformed_batch\ndefect: {how}\nat: {at}")
    first = talk.batch("a", "b", first=0, **form)
    both = first + talk.batch("c", first=2, **form)
    length = int.from_bytes(first[8:12], "big") + 12
    return both, bytes(talk.fetched(both)["records"] if at == "fetch" else talk.produced(both) or b""), length


@pytest.mark.parametrize("at", ["fetch", "produce"])
def test_the_first_batch_is_wrong_in_one_place(carried: Any, form: dict[str, int], at: str) -> None:
    """Only it; where the checksum covers the place it is right."""
    places = {"negative_length": (8, 12), "bad_magic": (16, 17), "unknown_codec": (17, 18)}
    crc = (12, 16)
    if form["magic"] == 2:
        places |= {"unknown_codec": (22, 23), "negative_count": (57, 61)}
        crc = (17, 21)
    for how, (start, end) in places.items():
        before, after, length = malformed(carried, how, form, at)
        differ = {n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other}
        assert differ
        assert differ <= set(range(start, end)) | set(range(*crc))
        if how != "negative_length":
            assert int.from_bytes(after[slice(*crc)], "big") == crc_of(after[:length], min(form["magic"], 2))


def test_what_is_read_of_it(carried: Any) -> None:
    """A negative length and an unknown format are no entries any more."""
    for how in ("negative_length", "bad_magic"):
        _, after, _ = malformed(carried, how, {"magic": 2})
        with pytest.raises(RecordsError):
            list(entries(after))
    for how in ("negative_count", "unknown_codec"):
        _, after, _ = malformed(carried, how, {"magic": 2})
        check_crc(next(iter(entries(after))))


def test_double_abort(carried: Any) -> None:
    """The marker stands there twice, and so does the transaction in the list of those that were aborted."""
    producer = Producer(7, 0, -1, True)
    data = carried.batch("a", producer=Producer(7, 0, 0, True))
    markers = [
        encode_batch(
            [encode_control(Control(kind, {"version": 0, "coordinator_epoch": 0}), 6 + kind, 0)],
            producer=producer,
            control=True,
        )
        for kind in (0, 1)
    ]
    part = carried("kind: malformed_batch\ndefect: double_abort").fetched(
        data + markers[0] + markers[1], aborted_transactions=[{"producer_id": 7, "first_offset": 5}]
    )

    assert bytes(part["records"]) == data + markers[0] * 2 + markers[1]
    assert [one["producer_id"] for one in part["aborted_transactions"]] == [7, 7]
