"""Whole messages of an exchange for `kproxy tail --body`: all fields of the protocol, and decoded records.

    messages_of(seen)       # {"request": {"topics": [{"partitions": [{"records": [{"value": …}]}]}]}, "response": {…}}

Text and numbers are as in JSON, and other bytes are `{"base64": …}`. `omitted` counts the missing bytes of a message
or value, or the missing records (null: unknown). Fields with credentials are withheld.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import DecodeError, RecordsError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.codec.message import in_json
from kproxy.protocol.records import Record, entries
from kproxy.protocol.records.entry import RecordsDigest
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Struct
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.record.observer.credentials import SECRET_KINDS, WITHHELD
from kproxy.rules.content.schemas import SchemaCache

from .frame_steps import ShownRecords, response_version


def messages_of(seen: ObservedExchange, cache: SchemaCache | None = None) -> dict[str, Any]:
    """Return the request and the response of an exchange; None without one."""
    writer = MessageWriter(cache)
    return {"request": writer.message(seen, "request", seen.request),
            "response": writer.message(seen, "response", seen.response)}  # fmt: skip


class MessageWriter(ShownRecords):
    """Writer of the messages of one exchange."""

    def message(self, seen: ObservedExchange, direction: str, frame: Frame | None) -> dict[str, Any] | None:
        if frame is None:
            return None
        try:
            return self.body(seen, direction, frame)
        except (DecodeError, KeyError) as error:
            return {"omitted": frame.size, "why": str(error.args[0]) if error.args else type(error).__name__}

    def body(self, seen: ObservedExchange, direction: str, frame: Frame) -> dict[str, Any]:
        """Return the fields of a frame. Raises DecodeError and KeyError."""
        version = seen.version if direction == "request" else response_version(seen, frame)
        if frame.form is Form.WHOLE:
            if direction == "request":
                body = decode_request(frame.data, trailing=True).body
            else:
                body = decode_response(frame.data, seen.key, seen.version, trailing=True).body
        else:
            known = seen.request_body if direction == "request" else seen.response_body
            if known is None:
                return {"omitted": frame.size, "why": frame.withheld or seen.unread or "its bytes were not kept"}
            body = known
        shown = self.struct(layout.body(seen.key, version, direction), body)
        return {**shown, "withheld": frame.withheld} if frame.withheld else shown

    def struct(self, struct: Struct, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for slot in struct.all_slots:
            inner = value[slot.name]
            if inner is None:
                found[slot.name] = None
            elif slot.kind in SECRET_KINDS:
                found[slot.name] = WITHHELD
            elif slot.type == "records":
                found |= self.records(slot.name, inner)
            elif (deeper := slot.struct) is not None:
                found[slot.name] = (
                    [self.struct(deeper, one) for one in yielding(inner)] if slot.array else self.struct(deeper, inner)
                )
            else:
                found[slot.name] = plain(inner)
        return found

    def records(self, name: str, data: Any) -> dict[str, Any]:
        """Return the records of one partition, the headers of their batches, and the number of omitted records."""
        if isinstance(data, RecordsDigest):
            return {name: [], "batches": [], "omitted": data.records}
        records: list[Any] = []
        batches: list[dict[str, Any]] = []
        shown: dict[str, Any] = {name: records, "batches": batches}
        omitted: int | None = 0
        try:
            for entry in entries(memoryview(data)):
                batch = self.batch(entry)
                records += batch.pop("records")
                missing = batch.pop("omitted")
                omitted = None if omitted is None or missing is None else omitted + missing
                batches.append({key: one for key, one in batch.items() if one != ""})
        except RecordsError as error:
            shown["why"] = str(error)
            omitted = None
        return shown if omitted == 0 else {**shown, "omitted": omitted}

    def record(self, record: Record) -> dict[str, Any]:
        yield_point()
        self.left -= 1
        made: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
        for part, shown in self.values(record).items():
            made[part] = shown.pop("value")
            made |= {f"{part}_{name}": one for name, one in shown.items()}
        made["headers"] = [{"name": self.name(name), "value": self.header(value)} for name, value in record.headers]
        return made

    def header(self, data: bytes | None) -> Any:
        return self.value(data, {}, "value")["value"]


def plain(value: Any) -> Any:
    return in_json(value, lambda data: {"base64": b64encode(data).decode()})
