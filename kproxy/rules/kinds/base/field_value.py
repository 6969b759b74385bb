"""Values as a user writes them, for fields of messages: checked against the field's type, range and nullability."""

from __future__ import annotations

from typing import Any

from kproxy.rules.document.model import found, unknown
from kproxy.rules.select.selected import topic_id
from kproxy.wire.table.layout import Slot, Struct

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


def field_value(slot: Slot, value: Any, *, element: bool) -> Any:
    """Return the value as `kproxy.wire` has it; `element`: of one element of an array. Raises ValueError.

    Bytes are written as text, for its UTF-8, or as `hex:0a0b`; ids as Kafka's tools print them.
    """
    if slot.array and not element:
        if value is None:
            return nothing(slot, "array")
        if not isinstance(value, list):
            raise ValueError(f"a list is wanted for {slot.path}, found {found(value)}")
        return [field_value(slot, one, element=True) for one in value]
    if value is None:
        return nothing(slot, "field") if not slot.array else nothing(slot, "element")
    if slot.struct is not None:
        return struct_value(slot, slot.struct, value)
    return plain_value(slot, value)


def nothing(slot: Slot, what: str) -> None:
    """Check that null is legal for a field (or array). Raises ValueError if it is not, and for each null element."""
    if not slot.nullable or what == "element":
        raise ValueError(f"null is not legal for this {what} ({slot.path})")


def struct_value(slot: Slot, struct: Struct, value: Any) -> dict[str, Any]:
    """Return the fields of a struct from a mapping; those that are left out have their defaults. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"a mapping of fields is wanted for {slot.path}, found {found(value)}")
    fields = {inner.name: inner for inner in struct.all_slots}
    for name in value:
        if name not in fields:
            raise ValueError(unknown("field", name, fields))
    return {
        name: field_value(inner, value[name], element=False) if name in value else inner.default()
        for name, inner in fields.items()
    }


def plain_value(slot: Slot, value: Any) -> Any:
    """Return a number, text, truth value, id or bytes of the slot's type. Raises ValueError for a value of another
    type."""
    kind = slot.type
    if kind in BITS:
        return whole_number(slot, value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "float64" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "uuid":
        return topic_id(value)
    if kind in ("bytes", "records") and isinstance(value, str):
        return bytes.fromhex(value.removeprefix("hex:")) if value.startswith("hex:") else value.encode()
    raise ValueError(f"{WANTED[kind]} is wanted for {slot.path}, found {found(value)}")


def whole_number(slot: Slot, value: Any) -> int:
    bits = BITS[slot.type]
    low = 0 if slot.type.startswith("u") else -1 << (bits - 1)
    high = low + (1 << bits) - 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"a whole number is wanted for {slot.path}, found {found(value)}")
    if not low <= value <= high:
        raise ValueError(f"{slot.path} is {slot.type}, from {low} to {high}, found {value}")
    return value


WANTED = {
    "bool": "true or false",
    "float64": "a number",
    "string": "text",
    "bytes": "text, or hex:0a0b,",
    "records": "text, or hex:0a0b,",
}
