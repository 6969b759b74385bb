"""Where two answers to the same request differ, field by field.

Strategy: both are decoded, and walked together by their layout. Elements of arrays find each other by their keys, since
brokers list in any order; a path names them by these. Topic ids are compared as the topics' names. Records are not
looked at here (reading.py does), nor is whether a Fetch answer lists a partition that has nothing to say: that depends
on the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kproxy.wire import Message, error_codes
from kproxy.wire.layout import Slot, Struct

from .normal import Normal
from .structs import ERROR_CODE, layout_of

FETCHES = frozenset((1, 78))
SHOWN = 60
"""Letters of a value that a difference shows."""

Name = Callable[[UUID], str | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """`path` has the keys of elements, `field` has not: topics[orders].partitions[0].error_code, and
    topics[].partitions[].error_code. Values are text."""

    path: str
    field: str
    recorded: str
    now: str
    error: bool = False


class Comparison:
    """`recorded_name`, `name`: names of topic ids of the recording and of the target."""

    def __init__(self, normal: Normal, recorded_name: Name, name: Name) -> None:
        self.normal, self.names = normal, (recorded_name, name)

    def differences(self, recorded: Message, now: Message) -> list[Difference]:
        """Those of two responses to the same request."""
        if recorded.version != now.version:
            return [Difference("version", "version", str(recorded.version), str(now.version), error=True)]
        return list(self.structs(recorded.api.name, layout_of(recorded), recorded.body, now.body, "", ""))

    def structs(
        self, api: str, struct: Struct, one: Mapping[str, Any], two: Mapping[str, Any], path: str, field: str
    ) -> Iterator[Difference]:
        """Fields of one struct."""
        for slot in (*struct.slots, *struct.tagged):
            if slot.type == "records" or self.normal.leaves_out(api, slot):
                continue
            here = f"{path}.{slot.name}" if path else slot.name
            inside = f"{field}.{slot.name}" if field else slot.name
            yield from self.values(api, slot, one.get(slot.name), two.get(slot.name), here, inside)

    def values(self, api: str, slot: Slot, one: Any, two: Any, path: str, field: str) -> Iterator[Difference]:
        if slot.struct is None or one is None or two is None:
            was, is_ = self.plain(slot, one, 0), self.plain(slot, two, 1)
            if was != is_:
                yield Difference(path, field, shown(was), shown(is_), slot.kind == ERROR_CODE)
        elif not slot.array:
            yield from self.structs(api, slot.struct, one, two, path, field)
        else:
            yield from self.arrays(api, slot.struct, self.keyed(slot.struct, one, 0), self.keyed(slot.struct, two, 1),
                                   path, f"{field}[]")  # fmt: skip

    def arrays(
        self, api: str, struct: Struct, one: Mapping[str, Any], two: Mapping[str, Any], path: str, field: str
    ) -> Iterator[Difference]:
        """Elements by their keys."""
        for key in {**one, **two}:
            here = f"{path}[{key}]"
            if key in one and key in two:
                yield from self.structs(api, struct, one[key], two[key], here, field)
            elif api in ("Fetch", "ShareFetch"):
                blank = {slot.name: slot.default() for slot in (*struct.slots, *struct.tagged)}
                yield from (found for found in self.structs(
                    api, struct, one.get(key, blank), two.get(key, blank), here, field) if found.error)  # fmt: skip
            else:
                yield Difference(here, field, *(("there", "not there") if key in one else ("not there", "there")))

    def keyed(self, struct: Struct, elements: list[dict[str, Any]], side: int) -> dict[str, Any]:
        """Elements by key as text, by their place where they have none or share one."""
        slots = [slot for slot in (*struct.slots, *struct.tagged) if self.normal.tells_apart(slot)]
        found: dict[str, Any] = {}
        for number, element in enumerate(elements):
            values = (self.plain(slot, element.get(slot.name), side) for slot in slots)
            key = " ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))
            found[f"#{number}" if not key or key in found else key] = element
        return found

    def plain(self, slot: Slot, value: Any, side: int) -> Any:
        """A value as it is compared and shown."""
        if slot.array and isinstance(value, list):
            return [self.single(slot, one, side) for one in value]
        return self.single(slot, value, side)

    def single(self, slot: Slot, value: Any, side: int) -> Any:
        if isinstance(value, UUID):
            found = self.names[side](value) if slot.kind == "topic_id" else None
            return found if found is not None else None if not value.int else str(value)
        if slot.kind == ERROR_CODE and value is not None:
            return error_name(value)
        return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else value


def error_name(code: int) -> str:
    """NONE, the error's name, or its number if it has none here."""
    if not code:
        return "NONE"
    return error_codes.numbers()[code].name if code in error_codes.numbers() else str(code)


def shown(value: Any) -> str:
    """A value in a line."""
    text = "null" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} letters)"
