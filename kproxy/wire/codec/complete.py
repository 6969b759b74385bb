"""The slow writer's half: says which value does not fit a layout, or fills in what was left out.

Strategy: `complete` returns a dict with exactly the layout's names, defaults where a name is missing, or raises
EncodeError with the path of the first value that does not fit. The compiled encoder calls for it only when it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.errors import EncodeError
from kproxy.wire.breath import breathe, each
from kproxy.wire.primitives import COMPACT_WRITERS, MAX_LENGTH, WRITERS
from kproxy.wire.table.layout import Slot, Struct

TAGS = "_tagged_fields"


def complete(struct: Struct, value: Any, path: str = "") -> dict[str, Any]:
    """Return a dict that the encoder takes. Null is let through wherever the wire has a null, as readers do."""
    breathe()
    if not isinstance(value, Mapping):
        raise EncodeError(f"{path or 'message'}: {value!r:.80} is no dict")
    slots = struct.all_slots
    allowed = {slot.name for slot in slots} | ({TAGS} if struct.flexible else set())
    for name in value:
        if name not in allowed:
            raise EncodeError(f"{join(path, name)}: no such field in this version")
    fields = {
        slot.name: checked(slot, value[slot.name], join(path, slot.name)) if slot.name in value else slot.default()
        for slot in slots
    }
    if value.get(TAGS):
        fields[TAGS] = tags(struct, value[TAGS], join(path, TAGS))
    return fields


def join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def checked(slot: Slot, value: Any, path: str) -> Any:
    if not slot.array:
        return checked_one(slot, value, path)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path}: {value!r:.80} is no list")
    return [checked_element(slot, item, f"{path}[{index}]") for index, item in each(enumerate(value))]


def checked_one(slot: Slot, value: Any, path: str) -> Any:
    if value is None and slot.struct is not None and slot.nullable:
        return None
    return checked_element(slot, value, path)


def checked_element(slot: Slot, value: Any, path: str) -> Any:
    if slot.struct is not None:
        return complete(slot.struct, value, path)
    try:
        (COMPACT_WRITERS if slot.compact else WRITERS)[slot.type](value)
    except EncodeError as mistake:
        raise EncodeError(f"{path}: {mistake}") from None
    return value


def tags(struct: Struct, value: Any, path: str) -> list[tuple[int, bytes]]:
    """Return unknown tagged fields, by ascending number. Raises EncodeError for what is no list of them."""
    known, unknown = {slot.tag for slot in struct.tagged}, {}
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path}: {value!r:.80} is no list of (tag, bytes)")
    for pair in value:
        match pair:
            case (int() as tag, bytes() | bytearray() | memoryview() as data) if 0 <= tag <= MAX_LENGTH:
                if tag in known or tag in unknown:
                    raise EncodeError(f"{path}: tag {tag} is there twice, or is a field of its own name")
                unknown[tag] = bytes(data)
            case _:
                raise EncodeError(f"{path}: {pair!r:.80} is no (tag, bytes)")
    return sorted(unknown.items())
