"""Records fields of cases: as a test file has them, and as they are found in a frame.

records: [a, {key: k, value: b, headers: {h: x}}]
records: {batch: [a, b], compression: zstd, producer_id: 7, producer_epoch: 0, base_sequence: 0}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from kproxy.errors import RecordsError
from kproxy.rules.document.model import Model, found, unknown, validate
from kproxy.rules.document.source import Source, Where
from kproxy.wire.records import Batch, LegacyEntry, Producer, Record, check_crc, decode, encode_batch, entries
from kproxy.wire.records.compression import CODECS

TIMESTAMP = 1_700_000_000_000
"""Timestamp, in milliseconds, of records for which the test gives none."""
RECORD_KEYS = ("offset", "timestamp", "key", "value", "headers")

ReadBytes = Callable[[Any, Where], bytes | None]


class Written(Model):
    """A batch of records."""

    batch: list[Any] = Field(description="records: the value alone, or {key, value, headers, offset, timestamp}")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = Field(default=None, description="codec")
    producer_id: int | None = Field(default=None, description="id of an idempotent producer")
    producer_epoch: int | None = Field(default=None, description="its epoch")
    base_sequence: int | None = Field(default=None, description="its sequence number of the first record")
    transactional: bool | None = Field(default=None, description="whether the batch is part of a transaction")
    crc: Literal["good", "bad"] | None = Field(default=None, description="whether the checksum fits (expected only)")


@dataclass(frozen=True)
class RecordsRead:
    """A batch that a case sends or expects. `records` hold only the fields that were given."""

    about: Written
    records: tuple[Mapping[str, Any], ...]

    def encoded(self, source: Source, at: Where) -> bytes:
        """Return one batch of magic 2 as bytes; offsets from 0 on unless given."""
        about = self.about
        if about.crc is not None:
            source.note((*at, "crc"), "the checksum of what is sent always fits; crc can be expected only", key=True)
        made = [
            Record(
                one.get("offset", index),
                one.get("timestamp", TIMESTAMP),
                one.get("key"),
                one.get("value"),
                tuple(one.get("headers", {}).items()),
            )
            for index, one in enumerate(self.records)
        ]
        numbers = {name: number for number, name in CODECS.items()}
        ids = [-1 if one is None else one for one in (about.producer_id, about.producer_epoch, about.base_sequence)]
        producer = Producer(ids[0], ids[1], ids[2], bool(about.transactional))
        try:
            return encode_batch(made, codec=numbers[about.compression or "none"], producer=producer)
        except RecordsError as error:
            source.note(at, str(error))
            return b""


def read_records(source: Source, raw: dict[Any, Any], at: Where, inside: Where, read: ReadBytes) -> RecordsRead:
    """Return the batch that stands at `at`, with its records at `inside`; mistakes are noted in the source."""
    about = validate(Written, raw, source, at)
    if about is None:
        return RecordsRead(Written(batch=[]), ())
    records = (_record(source, one, (*inside, index), read) for index, one in enumerate(about.batch))
    return RecordsRead(about, tuple(records))


def _record(source: Source, raw: Any, at: Where, read: ReadBytes) -> dict[str, Any]:
    if not isinstance(raw, dict) or set(raw) in ({"hex"}, {"zeros"}):
        return {"value": read(raw, at)}
    one: dict[str, Any] = {}
    for name, value in raw.items():
        where = (*at, name)
        if name not in RECORD_KEYS:
            source.note(where, unknown("key", name, RECORD_KEYS), key=True)
        elif name in ("key", "value"):
            one[name] = read(value, where)
        elif name == "headers":
            if isinstance(value, dict):
                one[name] = {str(key): read(inner, (*where, key)) for key, inner in value.items()}
            else:
                source.note(where, f"a mapping of headers is wanted, found {found(value)}")
        elif isinstance(value, int) and not isinstance(value, bool):
            one[name] = value
        else:
            source.note(where, f"a whole number is wanted, found {found(value)}")
    return one


def seen_in(data: bytes) -> dict[str, Any]:
    """Return the content of a records field in the words of a test: `batch`, `compression`, `crc` and so on. Raises
    RecordsError."""
    facts: dict[str, Any] = {"batch": [], "crc": "good"}
    for entry in entries(data):
        if isinstance(entry, Batch | LegacyEntry):
            facts["compression"] = CODECS.get(entry.codec, str(entry.codec))
            try:
                check_crc(entry)
            except RecordsError:
                facts["crc"] = "bad"
        if isinstance(entry, Batch):
            facts |= {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "base_sequence": entry.base_sequence,
                "transactional": entry.is_transactional,
            }
        for record in decode(entry):
            one = {name: getattr(record, name) for name in RECORD_KEYS}
            facts["batch"].append(one | {"headers": dict(record.headers)})
    return facts
