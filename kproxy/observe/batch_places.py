"""Finds the only record batch of a Produce request or a Fetch response, and says when learning is worth its price."""

from __future__ import annotations

from struct import Struct
from typing import Any

from kproxy.wire.codec.headers import header_version
from kproxy.wire.primitives import Buffer, read_uvarint
from kproxy.wire.records.entry import BATCH, LENGTH_AT, MAGIC_AT, OVERHEAD, batch_fields
from kproxy.wire.scan.head import body_start, short_uvarint
from kproxy.wire.scan.sketch import RecordsDigest
from kproxy.wire.scan.walk import walk
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import FETCH, PRODUCE

from .credentials import REQUEST, RESPONSE
from .hot import Place
from .wanted import signed

MOST_LEARNT = 200
"""Templates of requests of one API, and of responses to one of these. More partitions on one connection are rare."""
LONGEST_HEAD = 1024
"""Bytes of a frame in which its first batch is looked for. Names and ids are far shorter."""
SMALLEST_HEAD, WIDEST = 8, 5
"""Bytes that stand in front of the records at least, and bytes that their length takes at most."""
PATIENCE = 16
"""Failures in a row after which learning is tried only once in as many frames."""
RECORDS_ASKED = frozenset(("topic_data[].partition_data[].records",))
RECORDS_READ = frozenset(("responses[].partitions[].high_watermark", "responses[].partitions[].records"))
CONSTANTS = Struct(">" + batch_fields("attributes", "producer_id"))
"""Fields of a batch's header that are the same in all batches of one producer."""


def worth_trying(what: Any) -> bool:
    """Count a failure of `what` (its `misses`), and return True if learning is worth another try."""
    what.misses += 1
    return what.misses <= PATIENCE or not what.misses % PATIENCE


def spans(frame: bytes, key: int, version: int, direction: str, paths: frozenset[str]) -> list[tuple[int, int, int]]:
    """Return (mark, start, end) of each value at `paths` in a frame without its length field, which can be read."""
    hits: list[tuple[int, int, int]] = []
    found = walk(key, version, direction, paths)
    start = body_start(frame, 0, len(frame), header_version(key, version, direction), direction) or 0
    found.run(frame, start, len(frame), hits)
    return [hit for hit in hits if found.marks[hit[0]].what == "value"]


def shortened(buf: Buffer, pos: int, n: int, size: int, code: int, direction: str) -> bytes | None:
    """Return the frame at `pos` with its only record batch cut to the header, if as much of it is before `n`.

    None if that cannot be told. The result has to be decoded like any frame: bytes may look like a batch and be none.
    """
    key, version = signed(code >> 16), signed(code & 0xFFFF)
    if version not in schema.load(key).versions:
        return None
    head = bytes(buf[pos + 4 : min(n, pos + 4 + LONGEST_HEAD)])
    flexible = layout.body(key, version, direction).flexible
    behind = 3 if flexible else 0
    for before in range(SMALLEST_HEAD, len(head) - BATCH.size - WIDEST):
        if flexible:
            read = short_uvarint(head, before, before + WIDEST)
            length, start = (read[0] - 1, read[1]) if read is not None else (-1, before)
        else:
            length, start = int.from_bytes(head[before : before + 4], "big", signed=True), before + 4
        if start + length + behind != size or head[start + MAGIC_AT] != 2:
            continue
        if int.from_bytes(head[start + LENGTH_AT : start + LENGTH_AT + 4], "big") + OVERHEAD != length:
            continue
        batch = bytearray(head[start : start + BATCH.size])
        batch[LENGTH_AT : LENGTH_AT + 4] = (BATCH.size - OVERHEAD).to_bytes(4, "big")
        width = bytes([BATCH.size + 1]) if flexible else BATCH.size.to_bytes(4, "big")
        return head[:before] + width + batch + bytes(behind)
    return None


def batch_place(frame: bytes, version: int, direction: str, records: RecordsDigest | None) -> Place | None:
    """Return the place of the only batch of a frame; None unless that is a whole batch of magic 2 with records."""
    if records is None or records.batches != 1 or records.control or not records.records or records.records < 0:
        return None
    key, paths = (PRODUCE, RECORDS_ASKED) if direction == REQUEST else (FETCH, RECORDS_READ)
    hits = spans(frame, key, version, direction, paths)
    start, end = hits[-1][1:]
    flexible = layout.body(key, version, direction).flexible
    width = read_uvarint(frame, start)[1] - start if flexible else 4
    behind = 3 if flexible else 0
    if end - start - width != records.size or frame[end:] != bytes(behind) or frame[start + width + MAGIC_AT] != 2:
        return None
    if int.from_bytes(frame[start + width + 8 : start + width + 12], "big") + 12 != records.size:
        return None
    prefix = middle = 0
    if direction == RESPONSE:
        prefix = hits[0][1]
        partition = layout.body(key, version, direction).everywhere()
        offsets = sum(slot.name in ("last_stable_offset", "log_start_offset") for slot in partition)
        middle = start - prefix - 8 - 8 * offsets
    found = Place(start, width, behind, flexible, prefix, middle)
    return found if found.sizes[0] <= len(frame) <= found.sizes[1] else None
