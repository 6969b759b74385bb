"""Error columns of a response: all error codes in it, wherever they stand, and the broker's words about them.

Strategy: the fields of codes and texts are found once in the layout, by their kinds; then a response is gone through in
wire order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kproxy.observe.exchange import Errors, ObservedExchange
from kproxy.wire.table import layout
from kproxy.wire.table.errors import error_name
from kproxy.wire.table.layout import Slot, Struct

WORDS = ("error_message", "acknowledge_error_message")
"""Fields with what a broker says about a request or a partition; not those that are about single records."""

SILENT = frozenset((19, 33, 44))
"""APIs that set configs: brokers quote the value that they do not like, and that may be a password."""


class ErrorField(NamedTuple):
    """Response field on the way to error codes: itself a code, a text, or a struct with such fields in it."""

    name: str
    array: bool
    text: bool
    inside: tuple[ErrorField, ...]


class ErrorCodes:
    """Error codes of one response in wire order, each once, and the first text of a broker that is not empty."""

    __slots__ = ("codes", "text")

    def __init__(self) -> None:
        self.codes: dict[int, None] = {}
        self.text: str | None = None

    def collect(self, fields: tuple[ErrorField, ...], body: Mapping[str, Any]) -> None:
        """Collect the codes and the text of a struct and of those in it."""
        for name, array, text, inside in fields:
            value = body.get(name)
            if not value:
                continue
            if array:
                for element in value:
                    self.collect(inside, element)
            elif inside:
                self.collect(inside, value)
            elif text:
                self.text = self.text or value
            else:
                self.codes[value] = None


def error_columns(errors: Errors, seen: ObservedExchange) -> dict[str, Any]:
    """Return the columns that tell of the errors in a response, none if there are no errors."""
    if not errors.codes:
        return {}
    data: dict[str, Any] = {"error": error_name(errors.codes[0])}
    data["errors"] = [error_name(code) for code in errors.codes]
    data["error_level"] = "request" if errors.top else "part"
    own = [error_name(code) for code in errors.codes if seen.kproxy_made(code)]
    if own:
        data["kproxy_errors"] = own
    return data


@cache
def error_fields(key: int, version: int) -> tuple[ErrorField, ...]:
    """Return the fields of an API's response in which codes and texts stand."""
    return fields_inside(layout.body(key, version, "response"), key not in SILENT)


def fields_inside(struct: Struct, texts: bool) -> tuple[ErrorField, ...]:
    fields = []
    for slot in struct.all_slots:
        inner = fields_inside(slot.struct, texts) if slot.struct is not None else ()
        if inner or slot.kind == "error_code" or (texts and is_text(slot)):
            fields.append(ErrorField(slot.name, slot.array, is_text(slot), inner))
    return tuple(fields)


def is_text(slot: Slot) -> bool:
    return slot.kind == "error_text" and slot.name in WORDS
