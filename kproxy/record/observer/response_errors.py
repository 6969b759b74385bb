"""Error codes of responses: their places, and the codes of a response.

For most APIs the only code is at the top, after numbers only, so the first bytes of a response contain it (`error_at`).
If others follow deeper (`has_errors_inside`), the whole body is walked for all of them (`errors_in`), without decoding.
Produce, Fetch and ShareFetch have theirs in rows instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import CORRELATION_ID_ENDS, known_body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import code_slots, error_codes_in, walk
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import API_VERSIONS, FETCH, PRODUCE, SHARE_FETCH
from kproxy.protocol.table.layout import FIXED
from kproxy.record.exchange import NO_ERRORS, Errors, Form, ObservedExchange
from kproxy.rules.permissions import permissions

from .credentials import RESPONSE, withheld_body

SIZE_BYTES = 4
ERROR_HEAD = 24
"""Bytes of a response up to the end of an error code at a fixed place: length, correlation id, an empty tag buffer,
throttle time, error code."""
THROTTLE = "throttle_time_ms"
ONLY_THROTTLE = frozenset((THROTTLE,))
MOST_CODES = 20
"""Different errors at most that are recorded of one response. A broker has few in one; broken bytes may have 65,535."""
LONGEST_LIST = 256 * 1024
"""Bytes of the longest response of a read-only API that is read, such as Metadata of all topics: 30 ms at worst, in
which no other connection is served. Responses to changes are read at any length."""
LISTS = frozenset(key for key, asked in permissions().items() if asked.changes == "nothing") - {FETCH, SHARE_FETCH}
"""Read-only APIs, without Fetch and ShareFetch: most of a long response of these is records, of which only the headers
are read."""
ROW_APIS = frozenset((PRODUCE, FETCH, SHARE_FETCH))
"""APIs with errors in rows, by partition."""


def answered_version(key: int, version: int) -> int:
    """Return the version that a response is in: brokers answer ApiVersions that they lack as in version 0 (KIP-511)."""
    return 0 if key == API_VERSIONS and version not in schema.load(key).versions else version


@cache
def error_position(key: int, version: int, *, throttle: bool = False) -> tuple[int, bool] | None:
    """Return the offset of the top-level error code of responses, or of throttle_time_ms; None if it is not fixed.

    The offset is in bytes of the frame with its length field. The flag is True if an empty tag buffer of the response
    header precedes it.
    """
    version = answered_version(key, version)
    if not is_known(key, version):
        return None
    tags = schema.load(key).header_version("response", version) >= 1
    at = CORRELATION_ID_ENDS + tags
    for slot in layout.body(key, version, "response").slots:
        if (slot.name == THROTTLE if throttle else slot.kind == "error_code") and not slot.array:
            return at, tags
        if slot.array or slot.type not in FIXED:
            return None
        at += FIXED[slot.type][1]
    return None


def throttle_at(key: int, version: int, head: Buffer) -> int:
    """Return throttle_time_ms of a response that begins with `head` (length field first); 0 if that does not show it,
    as for versions without a fixed offset of the field."""
    where = error_position(key, version, throttle=True)
    if where is None or len(head) < where[0] + 4 or (where[1] and head[CORRELATION_ID_ENDS]):
        return 0
    return max(0, int.from_bytes(head[where[0] : where[0] + 4], "big", signed=True))


@cache
def moves_throttle(key: int, version: int) -> bool:
    """Return True if responses have throttle_time_ms at an offset that is not fixed, as Produce has. Not for responses
    with credentials, which are not read."""
    version = answered_version(key, version)
    if not is_known(key, version) or error_position(key, version, throttle=True) is not None:
        return False
    if withheld_body(key, version, RESPONSE):
        return False
    return any(slot.name == THROTTLE for slot in layout.body(key, version, RESPONSE).slots)


def throttle_in(key: int, version: int, buf: Buffer, pos: int, end: int) -> int:
    """Return throttle_time_ms of the response in buf[pos:end] (length field first); 0 if it cannot be read."""
    if not moves_throttle(key, version):
        return throttle_at(key, version, buf[pos : min(pos + 32, end)])
    if is_long_list(key, end - pos - SIZE_BYTES):
        return 0
    version, hits = answered_version(key, version), list[tuple[int, int, int]]()
    start = known_body_start(buf, pos + SIZE_BYTES, end, header_version(key, version, RESPONSE), RESPONSE)
    try:
        if start is not None:
            walk(key, version, RESPONSE, ONLY_THROTTLE).run(buf, start, end, hits)
    except DecodeError:
        return 0
    return max(0, int.from_bytes(buf[hits[0][1] : hits[0][2]], "big", signed=True)) if hits else 0


def error_at(key: int, version: int, head: Buffer) -> int | None:
    """Return the error code at the top of a response that begins with `head` (length field first), 0 for no error.

    None if such responses have no code at a fixed offset, or `head` ends before it.
    """
    where = error_position(key, version)
    if where is None or len(head) < where[0] + 2 or (where[1] and head[CORRELATION_ID_ENDS]):
        return None
    return int.from_bytes(head[where[0] : where[0] + 2], "big", signed=True)


@cache
def has_errors_inside(key: int, version: int) -> bool:
    """Return True if responses have error codes that `error_at` does not show, and no rows that do. Also for responses
    of other APIs with throttle_time_ms at an offset that is not fixed: they are read as well."""
    if key in ROW_APIS or not is_known(key, version):
        return False
    if moves_throttle(key, version):
        return True
    return len(list(code_slots(layout.body(key, version, RESPONSE)))) > (error_position(key, version) is not None)


def errors_in(key: int, version: int, buf: Buffer, pos: int, end: int) -> Errors:
    """Return all errors of the response in buf[pos:end] (length field first), none if it is too long a list to read."""
    if is_long_list(key, end - pos - SIZE_BYTES):
        return NO_ERRORS
    first, codes = error_codes_in(key, version, buf, pos + SIZE_BYTES, end)
    return in_order(first, codes)


def in_order(top: int, codes: Iterable[int]) -> Errors:
    """Return the errors among `codes`, each once, behind the one at the `top` of the response; 0 means no error."""
    both = dict.fromkeys((top, *codes))
    both.pop(0, None)
    return Errors(tuple(both)[:MOST_CODES], bool(top)) if both else NO_ERRORS


def is_long_list(key: int, size: int) -> bool:
    """Return True for an answer that only shows something, and has too many bytes to be read for that."""
    return key in LISTS and size > LONGEST_LIST


def is_known(key: int, version: int) -> bool:
    """Return True if the table contains frames of this API and version."""
    return key in schema.paths() and version in schema.load(key).versions


def errors_of(seen: ObservedExchange) -> Errors:
    """Return the errors in the response of an exchange; those its first bytes told where it was not kept whole."""
    response = seen.response
    if response is None or response.form is not Form.WHOLE or not is_known(seen.key, seen.version):
        return seen.known_errors
    frame = bytes(SIZE_BYTES) + response.data
    return errors_in(seen.key, answered_version(seen.key, seen.version), frame, 0, len(frame))


def throttle_of(seen: ObservedExchange) -> int:
    """Return throttle_time_ms of the response of an exchange; 0 for none, or if its bytes were not kept."""
    response = seen.answer
    if response is None or not moves_throttle(seen.key, seen.version):
        return seen.known_throttle if response is not None else 0
    if response.form is Form.WHOLE:
        frame = bytes(SIZE_BYTES) + response.data
        return throttle_in(seen.key, seen.version, frame, 0, len(frame))
    return seen.known_throttle
