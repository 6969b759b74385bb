"""Fields and records of one message with other values: each is checked against the protocol's table first, and nothing
is changed if any does not fit.

    topic_data[0].name                                a field; [2] of two elements adds a third one, with defaults
    topic_data[0].partition_data[0].records[3].value  of a record key, value or headers; counted over all batches
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from kproxy.base.cooperative import yield_now, yield_point
from kproxy.base.errors import DecodeError, EncodeError, RecordsError
from kproxy.protocol import Message, decode_request, decode_response, encode
from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.layout import Slot
from kproxy.protocol.table.schema import Api
from kproxy.rules.content.edits import RecordBudget, is_control, whole_entries
from kproxy.rules.kinds.base.fields import (
    EVERY,
    FieldFinder,
    Path,
    PathStep,
    field_value,
    nearest_path,
    parse_path,
    slot_at,
)
from kproxy.rules.values.model import found, unknown

RECORD_FIELDS = ("key", "value", "headers")
ACKS = "acks"
MOST_MISTAKES = 100


class BadEdit(Exception):
    """Edit that cannot be made; `mistakes` are (path, or `byte 24`, and why)."""

    def __init__(self, mistakes: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{where}: {text}" for where, text in mistakes))
        self.mistakes = tuple(mistakes[:MOST_MISTAKES])


ChangesByRecord = dict[int, list[tuple[str, str, Any]]]
"""By the record's number: (its field, the path that named it, the value)."""


class MessageEdit:
    """Edit of one message, in the client's names. `direction`: "request" or "response"."""

    def __init__(self, frame: bytes, key: int, version: int, direction: str) -> None:
        """Decode the frame, without its size. Raises BadEdit if it cannot be read."""
        self.direction = direction
        self.mistakes: list[tuple[str, str]] = []
        try:
            if direction == "request":
                self.message = decode_request(frame, trailing=True)
            else:
                self.message = decode_response(frame, key, version, trailing=True)
        except DecodeError as error:
            raise BadEdit([("", f"its fields cannot be read: {error}")]) from None
        self.records: dict[tuple[int, str], tuple[Any, str, ChangesByRecord]] = {}

    def made(self, changes: Sequence[tuple[str, Any]]) -> bytes:
        """Return the frame with these (path, value) set. Raises BadEdit, with all errors."""
        before = self.message.body.get(ACKS) if self.message.api.key == PRODUCE else None
        for text, value in changes:
            yield_now()
            if len(self.mistakes) >= MOST_MISTAKES:  # hints take long to find
                break
            try:
                self.set(text, parse_path(text), value)
            except ValueError as error:
                self.mistakes.append((text, str(error)))
        for container, name, by_number in self.records.values():
            self.put_records(container, name, by_number)
        if before is not None and (before == 0) != (self.message.body[ACKS] == 0):
            self.mistakes.append((ACKS, "with acks 0 no answer is due: 0 cannot become another one, nor another one 0"))
        if self.mistakes:
            raise BadEdit(self.mistakes)
        return encoded(self.message)

    def set(self, text: str, path: Path, value: Any) -> None:
        """Put a value at a path. Raises ValueError."""
        message = self.message
        key, version = message.api.key, message.version
        if any(step.index == EVERY for step in path):
            raise ValueError("one element is changed at a time, write [0] for the first one")
        slot = slot_at(path, key, version, self.direction)
        if slot is None:
            if self.note_record(text, path, value):
                return
            near = nearest_path(path, key, [version], self.direction)
            hint = f', did you mean "{near}"?' if near else ""
            raise ValueError(f"a {message.api.name} {self.direction} of version {version} has no such field{hint}")
        made = field_value(slot, value, element=path[-1].index is not None)
        struct = layout.body(key, version, self.direction)
        self.grow(path)
        places = list(FieldFinder(struct, path).find(message.body))
        if not places:
            raise ValueError("expected an existing element at this index")
        for container, name in places:
            container[name] = made

    def grow(self, path: Path) -> None:
        """Add an element of defaults to each array on the path whose end it names. Raises ValueError beyond it."""
        parent: Any = self.message.body
        for depth, step in enumerate(path):
            if step.index is None:
                parent = parent.get(step.name) if isinstance(parent, dict) else None
            else:
                parent = self.element(parent, path[: depth + 1], step)
            if parent is None:
                return

    def element(self, parent: dict[str, Any], path: Path, step: PathStep) -> Any:
        """Return an element of an array in `parent`, adding it if it is the next one. Raises ValueError."""
        assert step.index is not None
        array = parent.get(step.name)
        if not isinstance(array, list):
            array = parent[step.name] = list(array or ())
        if step.index > len(array):
            raise ValueError(f"{step.name} has {len(array)} elements, [{len(array)}] would be the next one")
        if step.index == len(array):
            slot = slot_at(path, self.message.api.key, self.message.version, self.direction)
            assert slot is not None, "it is on the way to a field that there is"
            array.append(default_element(slot))
        return array[step.index]

    # ---- records

    def note_record(self, text: str, path: Path, value: Any) -> bool:
        """Note a value for a part of a record, if the path names one. Raises ValueError."""
        for depth, step in enumerate(path):
            before = (*path[:depth], PathStep(step.name))
            slot = slot_at(before, self.message.api.key, self.message.version, self.direction)
            if slot is None or slot.type != "records" or step.index is None:
                continue
            rest_of = path[depth + 1 :]
            if len(rest_of) != 1 or rest_of[0].index is not None or rest_of[0].name not in RECORD_FIELDS:
                raise ValueError(f"of a record {', '.join(RECORD_FIELDS)} can be set")
            made = record_value(rest_of[0].name, value)
            struct = layout.body(self.message.api.key, self.message.version, self.direction)
            places = list(FieldFinder(struct, before).find(self.message.body))
            if not places:
                raise ValueError("expected an existing element at this index")
            for container, name in places:
                _, _, changes = self.records.setdefault((id(container), name), (container, name, {}))
                changes.setdefault(step.index, []).append((rest_of[0].name, text, made))
            return True
        return False

    def put_records(self, container: dict[str, Any], name: str, changes: ChangesByRecord) -> None:
        """Change records of one partition; lengths and checksums of its batches are recomputed."""
        data = container[name]
        whole, behind = whole_entries(data)
        room = RecordBudget()
        room.add(len(data or b""))
        pieces: list[Any] = []
        numbers, left = count(), sorted(changes, reverse=True)

        def edited(spans: EntrySpans) -> Iterator[Span]:
            for span in spans:
                number = next(numbers)
                if left and left[-1] == number:
                    span = spans.edit(span, **{name: value for name, _, value in changes[left.pop()]})
                yield span

        try:
            for entry in whole:
                yield_point()
                if is_control(entry) or not left:
                    pieces.append(entry.raw)
                    continue
                with room.opened(entry) as spans:
                    pieces.append(spans.write(edited(spans), fast=self.direction == "response") or entry.raw)
        except RecordsError as error:
            self.mistakes += [(text, f"the records cannot be read: {error}") for _, text, _ in changes[min(changes)]]
            return
        records = next(numbers)
        for beyond in left:
            self.mistakes += [(text, f"there are {records} records here") for _, text, _ in changes[beyond]]
        yield_now()
        container[name] = b"".join((*pieces, behind))


def record_value(name: str, value: Any) -> Any:
    """Return a key, a value or headers as records have them. Raises ValueError."""
    if name != "headers":
        return None if value is None else some_bytes(value)
    if not isinstance(value, list):
        raise ValueError(f"expected a list of headers, each with key and value, got {found(value)}")
    headers = []
    for one in value:
        if not isinstance(one, dict) or not isinstance(one.get("key"), str) or not set(one) <= {"key", "value"}:
            raise ValueError(f"expected a header with key (text) and value, got {found(one)}")
        inside = one.get("value")
        name = one["key"].encode("utf-8", "surrogateescape")
        headers.append((name, None if inside is None else some_bytes(inside)))
    return headers


def some_bytes(value: Any) -> bytes:
    """Return text as its UTF-8, `hex:0a0b` as those bytes. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"expected text or hex:0a0b, got {found(value)}")
    return bytes.fromhex(value.removeprefix("hex:")) if value.startswith("hex:") else value.encode()


def default_element(slot: Slot) -> Any:
    if slot.struct is not None:
        return slot.struct.defaults()
    return {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0, "uuid": layout.ZERO_UUID}.get(
        slot.type, 0
    )


def encoded(message: Message) -> bytes:
    """Return a message's frame, without its size. Raises BadEdit."""
    try:
        return encode(message)
    except EncodeError as error:
        raise BadEdit([("", str(error))]) from None


def answer_of(api: Api, version: int, correlation: int, fields: Mapping[str, Any]) -> bytes:
    """Return the frame of a response with these fields, and defaults where some are left out. Raises BadEdit."""
    slots = {slot.name: slot for slot in layout.body(api.key, version, "response").all_slots}
    mistakes, body = [], {}
    for name, value in fields.items():
        if name not in slots:
            mistakes.append((str(name), unknown("field", name, slots)))
            continue
        try:
            body[name] = field_value(slots[name], value, element=False)
        except ValueError as error:
            mistakes.append((name, str(error)))
    if mistakes:
        raise BadEdit(mistakes)
    defaults = {name: slot.default() for name, slot in slots.items()}
    return encoded(Message(api, version, {"correlation_id": correlation}, defaults | body))
