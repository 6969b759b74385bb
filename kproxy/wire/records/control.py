"""Control records, which a broker writes into a partition for its own use, alone in a batch with the control bit.

    key    version int16 · type int16          value  version int16 · fields by type, from `messages/embedded.yaml`

They are read here and never changed: without a commit or abort marker, readers of committed records and the list of
aborted transactions in a Fetch response no longer agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kproxy.errors import DecodeError, EncodeError, RecordsError
from kproxy.wire.codec import structs as codec
from kproxy.wire.table import layout, schema

from .record import Record

TYPES = ("abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")
KEY = "control_record_key"


@dataclass(frozen=True, slots=True)
class Control:
    """Control record. `value` has the fields of its type, `version` among them; None if the type is not known."""

    type: int
    value: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """Return a word for the type, `unknown` for one that is newer than this table."""
        return TYPES[self.type] if 0 <= self.type < len(TYPES) else "unknown"


@cache
def names() -> Mapping[int, str]:
    """Return the name of the value's layout for each type. The two ends of a transaction share one."""
    return {number: entry.name for entry in schema.embedded().values() for number in entry.control_types}


@cache
def value_layout(kind: int, version: int) -> layout.Struct:
    """Return the value's fields with the version in front, which the table has as a prefix for some and a field for
    others."""
    entry = schema.embedded()[names()[kind]]
    version = max(entry.versions.first, min(version, entry.versions.last))  # a newer one begins like the newest
    return layout.build((*entry.prefix, *entry.fields), version, version in entry.flexible)


@cache
def key_layout() -> layout.Struct:
    entry = schema.embedded()[KEY]
    return layout.build((*entry.prefix, *entry.fields), 0, False)


def decode_control(record: Record) -> Control:
    """Return what a control record says. Raises RecordsError if its bytes do not; bytes after the fields are passed
    over."""
    try:
        key, _ = codec.decode(key_layout(), record.key or b"", api=KEY)
        kind = key["type"]
        if kind not in names():
            return Control(kind, None)
        value = record.value or b""
        version = int.from_bytes(value[:2], "big", signed=True)
        return Control(kind, codec.decode(value_layout(kind, version), value, api=names()[kind], version=version)[0])
    except DecodeError as problem:
        raise RecordsError(f"control record at offset {record.offset}: {problem}") from problem


def encode_control(control: Control, offset: int, timestamp: int) -> Record:
    """Return the record of a control, to stand alone in `encode_batch([…], control=True)`. Raises RecordsError if it
    does not fit."""
    if control.value is None or control.type not in names():
        raise RecordsError(f"control record of type {control.type} cannot be made, expected one of {sorted(names())}")
    version = control.value.get("version", 0)
    try:
        key = codec.encode(key_layout(), {"version": 0, "type": control.type}, api=KEY)
        name = names()[control.type]
        value = codec.encode(value_layout(control.type, version), control.value, api=name, version=version)
    except EncodeError as problem:
        raise RecordsError(f"control record at offset {offset}: {problem}") from problem
    return Record(offset, timestamp, key, value)
