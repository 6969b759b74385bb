"""Blocks of pcapng that captures are made of, and the notes that kproxy leaves in them.

Strategy: bytes of one block per function, little-endian. dpkt has the block types too, but its writer knows neither a
length beside the captured one nor an interface other than the first, and its blocks cost 40 µs each; here it is 1 µs.
Format: draft-ietf-opsawg-pcapng. What kproxy has to say of a packet stands in comments of the form `kproxy {JSON}`,
which Wireshark shows and the reader understands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import Struct, pack
from typing import Any

SECTION, INTERFACE, SIMPLE, NAMES, STATISTICS, PACKET = 0x0A0D0D0A, 1, 3, 4, 5, 6
BYTE_ORDER = 0x1A2B3C4D
COMMENT, APPLICATION, IF_NAME, IF_RESOLUTION, IF_OFFSET, IF_DROP = 1, 4, 2, 9, 14, 5
LINK_RAW = 101
"""Packets begin with their IP header, version 4 or 6."""
NANOSECONDS = 10**9
NOTE = "kproxy "
"""Beginning of the comments that are kproxy's own."""

BlockOptions = Sequence[tuple[int, bytes]]

_PACKET_HEAD = Struct("<IIIIIII").pack
_LENGTH = Struct("<I").pack
_ENDS = tuple(b"\0" * (-size % 4) for size in range(4))


def block(kind: int, body: bytes) -> bytes:
    """Return a block around its body, which has a whole number of 32-bit words."""
    length = _LENGTH(12 + len(body))
    return b"".join((_LENGTH(kind), length, body, length))


def options(given: BlockOptions) -> bytes:
    """Return options as they stand at the end of a block, empty if there are none."""
    if not given:
        return b""
    parts = [pack("<HH", code, len(value)) + value + _ENDS[len(value) & 3] for code, value in given]
    return b"".join((*parts, b"\0\0\0\0"))


def section(application: str, comments: Sequence[str] = ()) -> bytes:
    given = [(APPLICATION, application.encode()), *((COMMENT, one.encode()) for one in comments)]
    return block(SECTION, pack("<IHHq", BYTE_ORDER, 1, 0, -1) + options(given))


def interface(name: str, snap_length: int = 0) -> bytes:
    """Return the block of an interface of raw IP packets with times in nanoseconds. `snap_length` 0: no limit."""
    given = [(IF_NAME, name.encode()), (IF_RESOLUTION, b"\x09")]
    return block(INTERFACE, pack("<HHI", LINK_RAW, 0, snap_length) + options(given))


def packet(number: int, time: float, data: bytes, length: int, comment: str = "") -> bytes:
    """Return the block of a packet at interface `number`; `data` is what is kept of its `length` bytes."""
    ticks = nanoseconds(time)
    size = len(data)
    body = data + _ENDS[size & 3]
    if comment:
        body += options([(COMMENT, comment.encode())])
    whole = 32 + len(body)
    head = _PACKET_HEAD(PACKET, whole, number, ticks >> 32, ticks & 0xFFFFFFFF, size, length)
    return b"".join((head, body, _LENGTH(whole)))


def host_name(address: bytes, name: str) -> bytes:
    value = address + name.encode() + b"\0"
    return block(NAMES, pack("<HH", 1, len(value)) + value + _ENDS[len(value) & 3] + b"\0\0\0\0")


def statistics(number: int, time: float, dropped: int, comment: str) -> bytes:
    """Return the block with an interface's end: the packets that were dropped because they came too fast, and a
    comment.
    """
    ticks = nanoseconds(time)
    given = [(COMMENT, comment.encode()), (IF_DROP, pack("<Q", dropped))]
    return block(STATISTICS, pack("<III", number, ticks >> 32, ticks & 0xFFFFFFFF) + options(given))


def nanoseconds(time: float) -> int:
    """Convert seconds since 1970 to nanoseconds. `seconds` gives back the same float."""
    whole = int(time)
    return whole * NANOSECONDS + round((time - whole) * NANOSECONDS)


def seconds(ticks: int, units: int = NANOSECONDS) -> float:
    """Convert ticks of 1/`units` s to seconds since 1970."""
    whole, rest = divmod(ticks, units)
    return whole + rest / units


def note(**fields: Any) -> str:
    """Return a comment for the reader; None values are left out, and without any other it is empty.

    Bytes of a client that were not UTF-8 become question marks.
    """
    present = {name: value for name, value in fields.items() if value is not None}
    if not present:
        return ""
    return NOTE + json.dumps(present, ensure_ascii=False, separators=(", ", ": ")).encode("utf-8", "replace").decode()


def read_note(comment: str) -> dict[str, Any]:
    """Return the fields of a note of kproxy's; empty for any other comment."""
    if not comment.startswith(NOTE + "{"):
        return {}
    try:
        fields = json.loads(comment[len(NOTE) :])
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
