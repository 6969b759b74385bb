"""poison_records: changes that no checksum shows."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Producer, decode, entries


def test_bytes_of_the_value_change(carried: Any, form: dict[str, int]) -> None:
    """As many as are asked for, of the chosen record, with a right checksum; the same ones with the same seed."""
    for at in ("fetch", "produce"):
        talk, again = (carried(f"kind: poison_records\nat: {at}\noffsets: [0, 6]\nbytes: 3") for _ in range(2))
        batch = (
            talk.batch("untouched", "some value", first=5 if at == "fetch" else -1, **form) if at == "fetch" else b""
        )
        batch = batch or talk.batch("some value", "untouched", first=0, **form)
        after = talk.fetched(batch)["records"] if at == "fetch" else talk.produced(batch)
        second = again.fetched(batch)["records"] if at == "fetch" else again.produced(batch)

        values = dict(talk.read(after))
        poisoned = values.pop(6 if at == "fetch" else 0)
        assert list(values.values()) == ["untouched"]
        assert sum(one != other for one, other in zip(poisoned, "some value", strict=True)) == 3
        assert bytes(after) == bytes(second)


def test_keys_instead(carried: Any) -> None:
    """`where: key` leaves the value as it is; null and empty have no bytes to change."""
    talk = carried("kind: poison_records\nwhere: key")
    (entry,) = entries(talk.fetched(talk.batch("a"))["records"])
    (record,) = decode(entry)
    assert (record.key != b"k0", record.value) == (True, b"a")

    talk = carried("kind: poison_records")
    batch = talk.batch(None, "")
    assert bytes(talk.fetched(batch)["records"]) == batch


def test_idempotent_producers_too(carried: Any) -> None:
    """The number of records stays, and with it their sequence and producer."""
    talk = carried("kind: poison_records\nat: produce")
    before = talk.batch("some value", first=0, producer=Producer(7, 3, 11, True))
    (old,), (new,) = entries(before), entries(talk.produced(before))

    for name in ("producer_id", "producer_epoch", "base_sequence", "attributes", "count", "last_offset_delta"):
        assert getattr(old, name) == getattr(new, name)
    assert bytes(old.raw) != bytes(new.raw)
