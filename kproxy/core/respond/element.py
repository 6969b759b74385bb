"""Elements of a response made from nothing: the layout's defaults, what a failed one has instead, and its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.wire.breath import breathe
from kproxy.wire.table.layout import Slot, Struct
from kproxy.wire.table.shapes import Level, Shape

from .failure import Failure


def empty(struct: Struct, blank: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct of defaults, except for the names in `blank`."""
    breathe()
    slots = struct.all_slots
    return {slot.name: blank[slot.name] if slot.name in blank else slot.default() for slot in slots}


def element(form: Shape, level: Level, roles: Mapping[str, Any], failure: Failure | None) -> dict[str, Any]:
    """Return an element of a response level with these keys, and the error if its level carries one."""
    assert level.struct is not None
    made = empty(level.struct, form.blank)
    for slot in level.struct.slots:
        for role, field in level.keys:
            if field == slot.name and role in roles:
                made[field] = fitted(slot, roles[role])
    if failure is not None:
        put(made, level.code, level.text, failure)
    return made


def put(struct: dict[str, Any], code: str | None, text: str | None, failure: Failure) -> None:
    """Set the error and its text in a struct that has fields for them."""
    if code is not None:
        struct[code] = failure.code
    if text is not None:
        struct[text] = failure.message


def fitted(slot: Slot, value: Any) -> Any:
    """Return a request's key as the response's field takes it: null only where that may be, structs without unknown
    tags."""
    if slot.struct is not None and value:
        return [{inner.name: one[inner.name] for inner in slot.struct.slots} for one in value]
    return slot.default() if value is None and not slot.nullable else value
