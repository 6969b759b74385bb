"""Where the error at the top of a response stands, for those in which only numbers are before it."""

from __future__ import annotations

from functools import cache

from kproxy.wire import layout, schema
from kproxy.wire.layout import FIXED
from kproxy.wire.primitives import Buffer

CORRELATION_ENDS = 8


@cache
def place(key: int, version: int) -> tuple[int, bool] | None:
    """(its offset in the frame with its length, whether an empty tag buffer of the header is before it), or None."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    tags = schema.load(key).header_version("response", version) >= 1
    at = CORRELATION_ENDS + tags
    for slot in layout.body(key, version, "response").slots:
        if slot.kind == "error_code" and not slot.array:
            return at, tags
        if slot.array or slot.type not in FIXED:
            return None
        at += FIXED[slot.type][1]
    return None


def error_at(key: int, version: int, head: Buffer) -> int | None:
    """The error code at the top of a response whose first bytes these are, 0 for none; None: it has no such place."""
    where = place(key, version)
    if where is None or len(head) < where[0] + 2 or (where[1] and head[CORRELATION_ENDS]):
        return None
    return int.from_bytes(head[where[0] : where[0] + 2], "big", signed=True)
