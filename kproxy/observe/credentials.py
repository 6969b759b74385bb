"""Takes credentials out of frames before anything keeps them; tables say in which fields credentials stand.

Strategy. They are found by the protocol's structure, never by a search for text. A body that is about credentials is
withheld as a whole, and so is one whose structure is not known where it could hold some. Of APIs that carry configs
only the values are taken out, since who changed which config is what an auditor asks for: each byte of them becomes
`*`, so that the frame keeps its length and its structure. tests/observe/test_credentials.py holds this list against the
table.
"""

from __future__ import annotations

from functools import cache

from kproxy.errors import DecodeError
from kproxy.wire.breath import each
from kproxy.wire.codec.structs import header_version
from kproxy.wire.primitives import Buffer, read_uvarint
from kproxy.wire.scan.head import body_start, known_body_start
from kproxy.wire.scan.walk import walk
from kproxy.wire.table import schema

REQUEST, RESPONSE = "request", "response"

BODIES = {
    (36, REQUEST): "SASL token",
    (36, RESPONSE): "SASL token",
    (38, RESPONSE): "delegation token",
    (39, REQUEST): "delegation token",
    (40, REQUEST): "delegation token",
    (41, RESPONSE): "delegation tokens",
    (51, REQUEST): "SCRAM credentials",
    (58, REQUEST): "a request of another API, sent on",
    (58, RESPONSE): "a response of another API, sent on",
    (59, RESPONSE): "cluster metadata, with SCRAM credentials in it",
}
"""(API key, direction) → what its body holds that is never kept."""

VALUES = {
    (19, REQUEST): "topics[].configs[].value",
    (19, RESPONSE): "topics[].configs[].value",
    (32, RESPONSE): "results[].configs[].value results[].configs[].synonyms[].value",
    (33, REQUEST): "resources[].configs[].value",
    (44, REQUEST): "resources[].configs[].value",
    (88, REQUEST): "topology.subtopologies[].state_changelog_topics[].topic_configs[].value "
    "topology.subtopologies[].repartition_source_topics[].topic_configs[].value",
    (89, RESPONSE): "groups[].topology.subtopologies[].state_changelog_topics[].topic_configs[].value "
    "groups[].topology.subtopologies[].repartition_source_topics[].topic_configs[].value",
}
"""(API key, direction) → paths of config values, which may be passwords."""

SECRET_KINDS = frozenset(("secret", "sasl_token", "request_frame", "response_frame"))
"""Kinds of fields that hold credentials, by the protocol's table; a text of such a field says no more than that."""
WITHHELD = "(withheld)"
CONFIG_VALUES = "config values"
UNKNOWN_API = "an API that is not known"
FILLER = b"*"


@cache
def withheld_body(key: int, version: int, direction: str) -> str:
    """Return why the whole body of such frames is withheld, or an empty text if it is not."""
    if key not in schema.paths():
        return UNKNOWN_API
    if (key, direction) in VALUES and version not in schema.load(key).versions:
        return f"{CONFIG_VALUES} in a version that is not known"
    return BODIES.get((key, direction), "")


@cache
def secret_paths(key: int, direction: str) -> frozenset[str]:
    """Return the paths of the values that are taken out of such frames."""
    return frozenset(VALUES.get((key, direction), "").split())


def header_end(frame: Buffer, key: int, version: int, direction: str) -> int:
    """Return where the header of a frame (without its length) ends, or an earlier place if that cannot be told."""
    fixed = 8 if direction == REQUEST else 4
    unknown = int(direction == REQUEST)  # request headers begin like version 1, but for one API
    form = header_version(key, version, direction) if key in schema.paths() else unknown
    return known_body_start(frame, 0, len(frame), form, direction) or min(fixed, len(frame))


def take_out(frame: Buffer, key: int, version: int, direction: str) -> tuple[bytes, str]:
    """Return a whole frame (without its length) as it may be kept, and what was withheld: mostly all of it and ""."""
    why = withheld_body(key, version, direction)
    if not why:
        paths = secret_paths(key, direction)
        if not paths:
            return bytes(frame), ""
        spans = value_spans(frame, key, version, direction)
        if spans is not None:
            data = bytearray(frame)
            for start, stop in each(spans):
                data[start:stop] = FILLER * (stop - start)
            return bytes(data), CONFIG_VALUES if spans else ""
        why = f"{CONFIG_VALUES} in a body that cannot be read"
    return bytes(frame[: header_end(frame, key, version, direction)]), why


def value_spans(frame: Buffer, key: int, version: int, direction: str) -> list[tuple[int, int]] | None:
    """Return (start, end) of each value that is taken out of a frame, in order; None if the frame cannot be decoded."""
    hits: list[tuple[int, int, int]] = []
    found = walk(key, version, direction, secret_paths(key, direction))
    try:
        start = body_start(frame, 0, len(frame), header_version(key, version, direction), direction)
        end = -1 if start is None else found.run(frame, start, len(frame), hits)
    except DecodeError:
        return None
    if end != len(frame):  # bytes behind the last field could be anything
        return None
    spans = []
    for mark, start, stop in each(hits):
        slot = found.marks[mark].slot
        if slot is None or found.marks[mark].what != "value":
            continue
        text = read_uvarint(frame, start)[1] if slot.compact else start + 2
        if text < stop:
            spans.append((text, stop))
    return spans
