"""Control records: every type there and back, unknown ones named, bad ones refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproxy.base.errors import RecordsError
from kproxy.protocol.records import (
    Batch,
    Control,
    Record,
    decode,
    decode_control,
    encode_batch,
    encode_control,
    entries,
)
from kproxy.protocol.records.record import TYPES, names

ONE = UUID(int=1)
VALUES = {
    "abort": {"version": 0, "coordinator_epoch": 3},
    "commit": {"version": 0, "coordinator_epoch": 4},
    "leader_change": {
        "version": 1,
        "leader_id": 2,
        "voters": [{"voter_id": 2, "voter_directory_id": ONE}],
        "granting_voters": [],
    },
    "snapshot_header": {"version": 0, "last_contained_log_timestamp": 1700000000000},
    "snapshot_footer": {"version": 0},
    "kraft_version": {"version": 0, "kraft_version": 1},
    "kraft_voters": {
        "version": 0,
        "voters": [
            {
                "voter_id": 1,
                "voter_directory_id": ONE,
                "endpoints": [{"name": "CONTROLLER", "host": "localhost", "port": 65535}],
                "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
            }
        ],
    },
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type(name: str) -> None:
    """Each type goes into a batch of its own and comes back equal, under its name."""
    control = Control(TYPES.index(name), VALUES[name])
    data = encode_batch([encode_control(control, 5, 1000)], control=True)
    (batch,) = entries(data)
    (record,) = decode(batch)

    assert isinstance(batch, Batch)
    assert batch.is_control
    assert (name, control) == (control.name, decode_control(record))


def test_the_table_and_the_names_agree() -> None:
    """The table has a layout for every type that has a name here."""
    assert set(range(len(TYPES))) == set(names())


def test_a_commit_marker_as_brokers_write_it() -> None:
    """Key: version 0, type 1; value: version 0, epoch of the coordinator."""
    record = encode_control(Control(1, {"coordinator_epoch": 7}), 0, 0)

    assert (bytes.fromhex("00000001"), bytes.fromhex("000000000007")) == (record.key, record.value)


def test_versions_from_the_future() -> None:
    """A type that nobody knows has no value; a newer version begins like the newest known."""
    assert Control(99, None) == decode_control(Record(0, 0, b"\x00\x00\x00\x63", b"???"))
    assert "unknown" == Control(99, None).name
    newer = decode_control(Record(0, 0, b"\x00\x05\x00\x00", b"\x00\x05\x00\x00\x00\x07 more"))
    assert Control(0, {"version": 5, "coordinator_epoch": 7}) == newer


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\x00\x00\x00\x00"])
def test_cut_records(key: bytes | None) -> None:
    """A key or value that ends too early is a RecordsError."""
    with pytest.raises(RecordsError, match="control record at offset 3"):
        decode_control(Record(3, 0, key, b"\x00\x00"))


def test_what_cannot_be_made() -> None:
    """A type without a layout, and a value that does not fit its own, are refused."""
    with pytest.raises(RecordsError, match="type 99 cannot be made"):
        encode_control(Control(99, {}), 0, 0)
    with pytest.raises(RecordsError, match="control record at offset 0"):
        encode_control(Control(0, {"coordinator_epoch": "x"}), 0, 0)
