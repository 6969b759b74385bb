"""Frames for those who look: their bytes, and a step for each thing in them with its place, so that a tree can be drawn
beside the bytes.

Strategy. The slow reader (`protocol/codec/trace.py`) names every value; what it says of records fields is followed by a
step for each batch in them, and for each record. A frame is read in turns with others'
work: one of a megabyte takes a second. Where records are not to be shown, frames are redacted first, as captures are
(`record/captures/redact.py`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol.breath import breathe
from kproxy.protocol.codec.message import UNSUPPORTED_VERSION
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.codec.trace import TraceStep, trace
from kproxy.protocol.records import Batch, Cut, Entry, entries
from kproxy.protocol.records.compression import CODECS
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import API_VERSIONS
from kproxy.protocol.table.errors import numbers
from kproxy.protocol.table.layout import Slot
from kproxy.protocol.table.schema import load, paths
from kproxy.record.captures.redact import Redaction
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import SECRET_KINDS, WITHHELD
from kproxy.record.observer.response_errors import answered_version
from kproxy.rules.bodies import carries_records

from .record_steps import PackedRecords, record_steps

AT_ONCE = 2000
"""Steps of one frame in an answer; more are asked for by the number of the first."""
MOST_STEPS = 100_000
"""Steps that are made of one frame at most."""
LONGEST_TEXT = 65536
"""Characters of one value; longer ones are cut, and their bytes are there."""
NO_RECORDS = "records, which this view does not show"

ShownStep = list[Any]
"""[first byte, byte behind the last, depth, path, what, type, value], and a name for what is a number."""


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
            "data": b64encode(self.data).decode(), "steps": steps, "unread": self.unread,
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
            breathe()
            shown.steps.append(shown_step(step) if isinstance(step, TraceStep) else step)
    except (DecodeError, KeyError) as error:
        shown.unread = str(error.args[0]) if error.args else type(error).__name__
    return shown


def frame_steps(
    key: int, version: int, direction: str, data: bytes, *, records: bool = True
) -> Iterator[TraceStep | ShownStep]:
    """Yield the steps of a frame: of the header, of the body, and of the batches in it; at last what is left over.
    `records`: whether single records are told.
    Raises DecodeError at the first byte that does not fit, and KeyError for a version that is not known."""
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
    """Yield a step for each batch in a records field, and for what is in it; nothing behind the first batch that cannot
    be read. `packed`: for those of packed batches; None where single records are not told."""
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
    """Return what the header of a batch says, or of a message of an older form."""
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
    """Return how many names stand above the last one of a path; an index is a name of its own."""
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
    """Return the name that a number stands for: of an error or an API; empty for all others."""
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
