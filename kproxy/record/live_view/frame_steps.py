"""Frames and records for viewers: bytes, and a step with a place for each element, for a tree next to the bytes.

The slow reader (`protocol/codec/trace.py`) names every value. After its step for a records field follow steps for each
batch and each record. Records of a compressed batch have no place of their own in the frame. Their steps have the place
of the compressed data and contain the bytes of keys, values and headers, within a bound.

Records are also shown by partition and batch. Keys and values are base64, since they are bytes; null stays null. Long
ones are cut, and the records of a response are bounded: it reports omissions.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from kproxy.base.cooperative import yield_point
from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol.codec.message import UNSUPPORTED_VERSION
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import TraceStep, trace
from kproxy.protocol.primitives import read_varint, read_varlong
from kproxy.protocol.records import Batch, Cut, Entry, LegacyEntry, Record, check_crc, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.records.record import SHORTEST_HEADER, wrapped
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.errors import numbers
from kproxy.protocol.table.layout import Slot
from kproxy.protocol.table.schema import load, paths
from kproxy.record.captures.redact import Redaction
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import SECRET_KINDS, WITHHELD
from kproxy.record.observer.records import MOST_BYTES, NotKept, RecordsField, Unpacked, record_fields
from kproxy.record.observer.response_errors import answered_version
from kproxy.rules.bodies import carries_records
from kproxy.rules.content.schemas import SchemaCache, shown_value
from kproxy.rules.filter.record_fields import Part

LONGEST_NAME = 1000
"""Characters of a header's name that its step has."""
MOST_HEADERS = 20_000
"""Headers of all packed records in one frame."""
MOST_PACKED = 1 << 20
"""Bytes of packed keys, values and headers that the steps of one frame have."""


class PackedRecords:
    """Steps of the records in the packed batches of one frame, which are unpacked as far as there is room."""

    def __init__(self) -> None:
        self.unpacked, self.room = Unpacked(MOST_BYTES, MOST_HEADERS), MOST_PACKED
        self.is_full = False

    def steps(self, batch: Batch, path: str, depth: int, begin: int) -> Iterator[list[Any]]:
        """Yield the steps of a batch's records, as `record_steps` does; none of a batch that cannot be unpacked."""
        end = begin + len(batch.raw)
        here = end - len(batch.payload)
        try:
            for number, record in enumerate(() if self.is_full else self.unpacked.records(batch, stored=True)):
                yield from self.of(record, f"{path}[{number}]", depth, here, end)
        except NotKept:
            self.is_full = True
        except RecordsError:
            return

    def of(self, record: Record, place: str, depth: int, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the steps of one record, all with the place of the compressed data."""
        value = {"offset": record.offset, "time": record.timestamp, "packed": True}
        yield [start, end, depth, place, "record", "RECORD", value]
        for name, part in (("key", record.key), ("value", record.value)):
            yield [start, end, depth + 1, f"{place}.{name}", "part", "BYTES", self.bytes_in(part)]
        for number, (name, part) in enumerate(record.headers):
            shown = {"bytes": None, "packed": True} if part is None else self.bytes_in(part)
            named = {"name": name[:LONGEST_NAME].encode("utf-8", "replace").decode(), **(shown or {})}
            yield [start, end, depth + 2, f"{place}.headers[{number}]", "header", "HEADER", named]

    def bytes_in(self, part: bytes | None) -> dict[str, Any] | None:
        """Return the length of a key or a value with its bytes in base64; null if the bound is reached."""
        if part is None:
            return None
        fits = len(part) <= self.room
        self.room -= len(part) if fits else 0
        return {"bytes": len(part), "packed": True, "data": b64encode(part).decode() if fits else None}


def record_steps(batch: Batch, path: str, depth: int, begin: int) -> Iterator[list[Any]]:
    """Yield the steps of the records of a batch without a codec; nothing behind the first that cannot be read. `path`:
    path of the batch, which starts at byte `begin` of its frame; `depth`: depth of a record."""
    data, position = batch.payload, 0
    at = begin + len(batch.raw) - len(data)
    try:
        for number in range(batch.count):
            length, body = read_varint(data, position)
            end = body + length
            if not body < end <= len(data):
                return
            time, here = read_varlong(data, body + 1)
            offset, here = read_varint(data, here)
            place = f"{path}[{number}]"
            value = {"offset": wrapped(batch.base_offset + offset), "time": wrapped(batch.base_timestamp + time)}
            yield [at + position, at + end, depth, place, "record", "RECORD", value]
            for name in ("key", "value"):
                size, behind = field_end(data, here, end)
                yield [at + here, at + behind, depth + 1, f"{place}.{name}", "part", "BYTES", bytes_of(size)]
                here = behind
            yield from header_steps(data, here, end, place, depth + 2, at)
            position = end
    except (DecodeError, IndexError):
        return


def header_steps(data: memoryview, here: int, end: int, place: str, depth: int, at: int) -> Iterator[list[Any]]:
    """Yield a step for each header of a record. Raises DecodeError, IndexError."""
    count, here = read_varint(data, here)
    for number in range(count):
        size, behind = field_end(data, here, end)
        name = bytes(data[behind - max(size, 0) : behind]).decode(errors="replace")[:LONGEST_NAME]
        size, behind = field_end(data, behind, end)
        value = {"name": name, "bytes": None if size < 0 else size}
        yield [at + here, at + behind, depth, f"{place}.headers[{number}]", "header", "HEADER", value]
        here = behind


def field_end(data: memoryview, here: int, end: int) -> tuple[int, int]:
    """Return the length of a key or a value, -1 for null, and the place behind it. Raises DecodeError."""
    size, here = read_varint(data, here)
    if size > end - here:
        raise DecodeError(f"field of {size} bytes where {end - here} are left", offset=here)
    return max(size, -1), here + max(size, 0)


def bytes_of(size: int) -> dict[str, int] | None:
    return None if size < 0 else {"bytes": size}


AT_ONCE = 2000
"""Steps of one frame in an answer; more are asked for by the number of the first."""
MOST_STEPS = 100_000
"""Steps that are made of one frame at most."""
LONGEST_TEXT = 65536
"""Characters of one value; longer ones are cut, and their bytes remain."""
NO_RECORDS = "records, which this view does not show"

ShownStep = list[Any]
"""[first byte, end, depth, path, kind, type, value], and a name for some numbers."""


@dataclass(slots=True)
class ShownFrame:
    """Frame as it is shown. `data`: its bytes without the length field, as far as they may be shown."""

    size: int
    data: bytes
    form: str
    withheld: str
    steps: list[ShownStep] = field(default_factory=list)
    unread: str = ""

    def shown(self, side: str, first: int) -> dict[str, Any]:
        """Return the frame for JSON, with at most AT_ONCE of its steps, from number `first` on."""
        steps = self.steps[first : first + AT_ONCE]
        more = first + len(steps)
        return {
            "side": side, "bytes": self.size, "kept": len(self.data), "form": self.form, "withheld": self.withheld,
            "data": b64encode(self.data).decode(), "steps": steps, "decode_error": self.unread,
            "next": more if more < len(self.steps) else None,
        }  # fmt: skip


def show_frame(
    seen: ObservedExchange, direction: str, frame: Frame, *, records: bool, most: int = MOST_STEPS
) -> ShownFrame:
    """Return a frame with its first steps, `most` at most. `records`: whether users' records may be shown."""
    hides = not records and carries_records(seen.key, direction)
    kept = Redaction().frame(seen, frame, direction) if hides else frame
    withheld = frame.withheld or (NO_RECORDS if hides and kept.data != frame.data else "")
    shown = ShownFrame(frame.size, kept.data, kept.form.name.lower(), withheld)
    version = seen.version if direction == "request" else response_version(seen, kept)
    if kept.form is not Form.WHOLE:
        return shown
    try:
        for step in islice(frame_steps(seen.key, version, direction, kept.data, records=not hides), most):
            yield_point()
            shown.steps.append(shown_step(step) if isinstance(step, TraceStep) else step)
    except (DecodeError, KeyError) as error:
        shown.unread = str(error.args[0]) if error.args else type(error).__name__
    return shown


def frame_steps(
    key: int, version: int, direction: str, data: bytes, *, records: bool = True
) -> Iterator[TraceStep | ShownStep]:
    """Yield the steps of a frame: of the header, of the body, and of the batches in it; at last what is left over.
    `records`: include single records. Raises DecodeError at the first byte that does not fit, and KeyError for a
    version that is not known."""
    end, packed = 0, PackedRecords() if records else None
    parts = (
        ("header", layout.header(direction, header_version(key, version, direction))),
        ("", layout.body(key, version, direction)),
    )
    for name, struct in parts:
        for step in trace(struct, data, end, name):
            yield step
            end = step.end
            if is_records(step):
                yield from batch_steps(step, step.end - len(step.value), packed)
    if end < len(data):
        yield [end, len(data), 0, "left_over", "unknown", "BYTES", {"bytes": len(data) - end}]


def is_records(step: TraceStep) -> bool:
    return step.what == "value" and step.slot is not None and step.slot.type == "records" and step.value is not None


def batch_steps(field_step: TraceStep, begin: int, packed: PackedRecords | None) -> Iterator[ShownStep]:
    """Yield a step for each batch in a records field, and for its contents; stops at the first unreadable batch.
    `packed`: for those of packed batches; None where single records are not told."""
    try:
        for number, entry in enumerate(entries(memoryview(field_step.value))):
            end = begin + len(entry.raw)
            path = f"{field_step.path}[{number}]"
            depth = depth_of(path)
            yield [begin, end, depth, path, "batch", "RECORD_BATCH", batch_shown(entry)]
            if packed is not None and isinstance(entry, Batch) and not entry.is_control:
                steps_of = packed.steps if entry.codec else record_steps
                yield from steps_of(entry, path, depth + 1, begin)
            begin = end
    except RecordsError:
        return


def batch_shown(entry: Entry) -> dict[str, Any]:
    """Return the fields in the header of a batch, or of a message of an older form."""
    if isinstance(entry, Cut):
        return {"cut": len(entry.raw)}
    codec = CODECS.get(entry.codec, f"codec {entry.codec}")
    if not isinstance(entry, Batch):
        return {"offset": entry.offset, "codec": codec, "magic": entry.magic}
    return {
        "offset": entry.base_offset, "last_offset": entry.last_offset, "count": entry.count, "codec": codec,
        "producer_id": entry.producer_id, "producer_epoch": entry.producer_epoch,
        "base_sequence": entry.base_sequence, "leader_epoch": entry.partition_leader_epoch,
        "transactional": entry.is_transactional, "control": entry.is_control, "magic": 2,
    }  # fmt: skip


def shown_step(step: TraceStep) -> ShownStep:
    """Return a step of the reader for JSON. Values of fields with credentials are not in it."""
    slot = step.slot
    made: ShownStep = [step.start, step.end, depth_of(step.path), step.path, step.what, type_name(step), None]
    if slot is not None and slot.kind in SECRET_KINDS and step.what == "value" and step.value is not None:
        made[6] = WITHHELD
        return made
    made[6] = plain_value(step.value)
    name = name_of(step)
    return [*made, name] if name else made


def depth_of(path: str) -> int:
    """Return the number of names above the last one of a path; an index is a name of its own."""
    return path.count(".") + path.count("[") + (not path.startswith("header"))


def plain_value(value: Any) -> Any:
    """Return a value that JSON has: of bytes their number, since they are in the frame; texts cut to LONGEST_TEXT."""
    match value:
        case None | bool() | int():
            return value
        case bytes() | bytearray() | memoryview():
            return {"bytes": len(value)}
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case _:
            text = str(value)[:LONGEST_TEXT]
            return text if text.isascii() else text.encode("utf-8", "replace").decode()


def type_name(step: TraceStep) -> str:
    """Return the type as the protocol's guide writes it, such as COMPACT_NULLABLE_STRING."""
    slot = step.slot
    if slot is None:
        return {"tags": "TAG_BUFFER"}.get(step.what, "BYTES")
    if step.what == "count":
        return f"{compact(slot)}ARRAY"
    if slot.struct is not None:
        return "STRUCT"
    sized = slot.type in ("string", "bytes", "records")
    return f"{compact(slot) if sized else ''}{'NULLABLE_' if sized and slot.nullable else ''}{slot.type.upper()}"


def compact(slot: Slot) -> str:
    return "COMPACT_" if slot.compact else ""


def name_of(step: TraceStep) -> str:
    """Return the name of a number of an error or an API; empty for other numbers."""
    slot = step.slot
    if slot is None or step.what != "value" or type(step.value) is not int:
        return ""
    if slot.kind == "error_code" and step.value in numbers():
        return str(numbers()[step.value].name)
    if slot.name == "request_api_key" and step.value in paths():
        return str(load(step.value).name)
    return ""


def response_version(seen: ObservedExchange, frame: Frame) -> int:
    """Return the version of a response: an answer of ApiVersions may be in the form of version 0 (KIP-511)."""
    if seen.key not in paths():
        return seen.version
    version = answered_version(seen.key, seen.version)
    if seen.key == API_VERSIONS and frame.data[4:6] == UNSUPPORTED_VERSION:
        return 0
    return version


MOST_RECORDS = 1000
"""Records in one answer."""
LONGEST_VALUE = 65536
"""Bytes of a key, a value or a header in an answer."""
MAX_SHOWN_HEADERS = 20_000
"""Headers of all records in an answer."""
MOST_SHOWN = 4 << 20
"""Bytes of keys, values and headers in one answer."""


encode_value = msgspec.json.Encoder().encode


class ShownRecords:
    """Records of one exchange for a response, and the remaining room. `cache`: schemas of their registry."""

    def __init__(self, cache: SchemaCache | None = None) -> None:
        self.cache = cache
        self.left, self.room = MOST_RECORDS, MOST_SHOWN
        self.unpacked = Unpacked(headers=MAX_SHOWN_HEADERS)

    def partition(self, field: RecordsField) -> dict[str, Any]:
        """Return the readable batches of one partition; `why` is the reason for unreadable ones."""
        shown: dict[str, Any] = {
            "topic": field.topic, "partition": field.partition, "bytes": len(field.data), "batches": [], "why": ""
        }  # fmt: skip
        try:
            for entry in entries(field.data):
                shown["batches"].append(self.batch(entry))
        except RecordsError as error:
            shown["why"] = str(error)
        return shown

    def batch(self, entry: Entry) -> dict[str, Any]:
        """Return a batch with its records. `omitted`: those beyond the bound, as its header counts them; None: unknown
        number."""
        shown = {**batch_shown(entry), "bytes": len(entry.raw), "records": [], "omitted": 0, "why": ""}
        if isinstance(entry, Cut):
            return shown
        shown["crc"] = crc_of(entry)
        if isinstance(entry, Batch) and entry.is_control:
            return shown
        try:
            for record in self.unpacked.records(entry) if self.has_room else ():
                shown["records"].append(self.record(record))
                if not self.has_room:
                    break
        except NotKept as error:
            shown["why"], self.left = str(error), 0
        except RecordsError as error:
            shown["why"] = str(error)
        if not self.has_room:
            shown["omitted"] = entry.count - len(shown["records"]) if isinstance(entry, Batch) else None
        return shown

    @property
    def has_room(self) -> bool:
        return self.left > 0 and self.room > 0

    def values(self, record: Record) -> dict[Part, dict[str, Any]]:
        """Return key and value, as `shown_value` does."""
        headers: dict[bytes, list[bytes | None]] = {}
        for name, value in record.headers:
            headers.setdefault(name.encode("utf-8", "surrogateescape"), []).append(value)
        return {"key": self.value(record.key, headers, "key"), "value": self.value(record.value, headers, "value")}

    def value(self, data: bytes | None, headers: Mapping[bytes, list[bytes | None]], part: Part) -> dict[str, Any]:
        """Return bytes as `shown_value` does, without those that are too long or for which there is no room."""
        if data is None:
            return {"value": None}
        if len(data) > min(LONGEST_VALUE, self.room):
            return {"value": {"omitted": len(data)}}
        shown = shown_value(data, lambda name: headers.get(name, []), part, self.cache)
        # the names of a schema make a decoded value longer than its bytes
        self.room -= len(data) if "format" not in shown else max(len(data), len(encode_value(shown["value"])))
        return shown

    def record(self, record: Record) -> dict[str, Any]:
        self.left -= 1
        shown = {} if self.cache is None else self.values(record)
        decoded = {part: one for part, one in shown.items() if "schema_id" in one}
        return {
            "offset": record.offset,
            "time": record.timestamp if record.timestamp >= 0 else None,
            "key": self.text(record.key),
            "key_bytes": None if record.key is None else len(record.key),
            "value": self.text(record.value),
            "value_bytes": None if record.value is None else len(record.value),
            "headers": [[self.name(name), self.text(value)] for name, value in record.headers],
            "decoded": decoded or None,
        }

    def name(self, name: str) -> str:
        """Return the name of a header, cut if it is long."""
        cut = name[: min(LONGEST_VALUE, max(self.room, 0))]
        self.room -= len(cut) + SHORTEST_HEADER
        return cut.encode("utf-8", "replace").decode()

    def text(self, data: bytes | None) -> str | None:
        """Return bytes in base64, cut if they are long."""
        if data is None:
            return None
        cut = bytes(data[: min(LONGEST_VALUE, max(self.room, 0))])
        self.room -= len(cut)
        return b64encode(cut).decode()


def crc_of(entry: Batch | LegacyEntry) -> str:
    """Return `right`, or what is wrong with the checksum of a batch."""
    try:
        check_crc(entry)
    except RecordsError as error:
        return str(error).partition(": ")[2]
    return "right"


def show_records(seen: ObservedExchange, *, records: bool, cache: SchemaCache | None = None) -> list[dict[str, Any]]:
    """Return the records of an exchange by partition; one entry with `why` where they cannot be shown. `cache`: the
    schemas of their registry; values with the id of a schema are also decoded."""
    try:
        fields = record_fields(seen)
    except NotKept as error:
        return [{"topic": None, "partition": None, "bytes": None, "batches": [], "why": str(error)}]
    if not records:
        return [
            {"topic": one.topic, "partition": one.partition, "bytes": len(one.data), "batches": [], "why": NO_RECORDS}
            for one in fields
        ]
    shown = ShownRecords(cache)
    return [shown.partition(field) for field in fields]
