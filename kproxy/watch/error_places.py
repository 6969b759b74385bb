"""Error codes of responses: where they stand, and which ones a response has.

Strategy: for most APIs the only code stands at the top, behind nothing but numbers, so the first bytes of a response
tell it (`error_at`). Where others stand further in (`has_errors_inside`), the whole body is walked for all of them
(`errors_in`), with nothing decoded; Produce, Fetch and ShareFetch tell theirs by their rows instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kproxy.errors import DecodeError
from kproxy.rules.permissions import permissions
from kproxy.wire import layout, schema
from kproxy.wire.head import body_start
from kproxy.wire.headers import header_version
from kproxy.wire.layout import FIXED, Slot, Struct
from kproxy.wire.primitives import Buffer
from kproxy.wire.walk import Walk, walk

from .credentials import RESPONSE
from .seen import NO_ERRORS, Errors, Form, Seen

SIZE_BYTES = 4
CORRELATION_ENDS = 8
MOST_CODES = 20
"""Different errors that are told of one response. A broker has few in one; a number may be any of 65,535."""
LONGEST_LIST = 256 * 1024
"""Bytes of an answer that is read although it only shows something, such as Metadata of all topics: 30 ms at worst, in
which no other connection is served. What a request has changed is read whatever the length."""
LISTS = frozenset(key for key, asked in permissions().items() if asked.changes == "nothing") - {1, 78}
"""APIs that only show something; without Fetch and ShareFetch: most of a long answer of theirs is records, of which
only the headers are read."""
API_VERSIONS = 18
ROW_APIS = frozenset((0, 1, 78))
"""Produce, Fetch and ShareFetch."""


def answered_version(key: int, version: int) -> int:
    """The version in which a response stands: brokers answer ApiVersions that they lack as in version 0 (KIP-511)."""
    return 0 if key == API_VERSIONS and version not in schema.load(key).versions else version


@cache
def place(key: int, version: int) -> tuple[int, bool] | None:
    """(its offset in the frame with its length, whether an empty tag buffer of the header is before it), or None."""
    version = answered_version(key, version)
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


@cache
def top_code(key: int, version: int) -> str | None:
    """The field at the top of a response that holds an error code; None: there is none."""
    if key not in schema.paths() or version not in schema.load(key).versions:
        return None
    return next((slot.name for slot in layout.body(key, version, RESPONSE).slots if is_code(slot)), None)


def is_code(slot: Slot) -> bool:
    """Return True if the slot is one error code, no list of them."""
    return slot.kind == "error_code" and not slot.array


def slots_of(struct: Struct) -> Iterable[Slot]:
    """All slots of a struct that hold error codes, however deep, those of tagged fields among them."""
    return (slot for slot in struct.everywhere() if slot.kind == "error_code")


@cache
def has_errors_inside(key: int, version: int) -> bool:
    """Return True if responses have error codes that `error_at` does not tell, and no rows that do."""
    if key in ROW_APIS or key not in schema.paths() or version not in schema.load(key).versions:
        return False
    return len(list(slots_of(layout.body(key, version, RESPONSE)))) > (place(key, version) is not None)


@cache
def error_walk(key: int, version: int) -> tuple[Walk, frozenset[int], int]:
    """The walk that finds the codes of a response, the marks of codes, and that of the one at the top (-1: none)."""
    struct = layout.body(key, version, RESPONSE)
    found = walk(key, version, RESPONSE, frozenset(slot.path for slot in slots_of(struct)))
    codes = {number for number, mark in enumerate(found.marks) if mark.what in ("value", "element")}
    top = top_code(key, version)
    return found, frozenset(codes), -1 if top is None else found.find("value", top)


def errors_in(key: int, version: int, buf: Buffer, pos: int, end: int) -> Errors:
    """All error codes of the response whose length is at `pos` and which ends at `end`; none where it is not read."""
    start = body_start(buf, pos + 4, end, header_version(key, version, RESPONSE), RESPONSE)
    if start is None or is_long_list(key, end - pos - 4):
        return NO_ERRORS
    found, marks, top = error_walk(key, version)
    hits: list[tuple[int, int, int]] = []
    try:
        found.run(buf, start, end, hits)
    except DecodeError:
        return NO_ERRORS
    codes: dict[int, None] = {}
    first = 0
    for mark, at, after in hits:
        if mark in marks and after - at == 2 and (buf[at] or buf[at + 1]):
            code = int.from_bytes(buf[at:after], "big", signed=True)
            codes[code] = None
            first = code if mark == top else first
    return in_order(first, codes)


def in_order(top: int, codes: Iterable[int]) -> Errors:
    """`codes`, each once, with the one at the top first; 0 is none."""
    both = dict.fromkeys((top, *codes))
    both.pop(0, None)
    return Errors(tuple(both)[:MOST_CODES], bool(top)) if both else NO_ERRORS


def is_long_list(key: int, size: int) -> bool:
    """Return True for an answer that only shows something, and has too many bytes to be read for that."""
    return key in LISTS and size > LONGEST_LIST


def errors_of(seen: Seen) -> Errors:
    """The errors in the response of an exchange, as far as it was kept; else those that its head tells."""
    response = seen.response
    if response is None or response.form is not Form.WHOLE or seen.key not in schema.paths():
        return seen.known_errors
    frame = bytes(SIZE_BYTES) + response.data
    return errors_in(seen.key, answered_version(seen.key, seen.version), frame, 0, len(frame))
