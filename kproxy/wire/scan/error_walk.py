"""The error codes in a response, found by one walk over its body, with nothing decoded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kproxy.errors import DecodeError
from kproxy.wire.breath import drop, each
from kproxy.wire.codec.headers import header_version
from kproxy.wire.primitives import Buffer
from kproxy.wire.table import layout, schema
from kproxy.wire.table.layout import Slot, Struct

from .head import body_start
from .walk import Walk, walk

RESPONSE = "response"


def code_slots(struct: Struct) -> Iterable[Slot]:
    """Return the slots of a struct that hold error codes, however deep, those of tagged fields among them."""
    return (slot for slot in struct.everywhere() if slot.kind == "error_code")


@cache
def top_code(key: int, version: int) -> str | None:
    """Return the field at the top of a response that holds an error code; None: there is none."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    slots = layout.body(key, version, RESPONSE).slots
    return next((slot.name for slot in slots if slot.kind == "error_code" and not slot.array), None)


@cache
def error_walk(key: int, version: int) -> tuple[Walk, frozenset[int], int]:
    """Return the walk that finds the codes of a response, the marks of codes, and that of the one at the top (-1:
    none)."""
    struct = layout.body(key, version, RESPONSE)
    codes_walk = walk(key, version, RESPONSE, frozenset(slot.path for slot in code_slots(struct)))
    codes = {number for number, mark in enumerate(codes_walk.marks) if mark.what in ("value", "element")}
    top = top_code(key, version)
    return codes_walk, frozenset(codes), -1 if top is None else codes_walk.find("value", top)


def error_codes_in(key: int, version: int, buf: Buffer, pos: int, end: int) -> tuple[int, list[int]]:
    """Return the code at the top of the response in buf[pos:end], and all codes in its order; 0 and none where it is
    broken."""
    start = body_start(buf, pos, end, header_version(key, version, RESPONSE), RESPONSE)
    if start is None:
        return 0, []
    codes_walk, marks, top = error_walk(key, version)
    hits: list[tuple[int, int, int]] = []
    try:
        codes_walk.run(buf, start, end, hits)
    except DecodeError:
        return 0, []
    first, codes = 0, []
    for mark, at, after in each(hits):
        if mark in marks and after - at == 2 and (buf[at] or buf[at + 1]):
            codes.append(int.from_bytes(buf[at:after], "big", signed=True))
            first = codes[-1] if mark == top else first
    drop(hits)
    return first, codes
