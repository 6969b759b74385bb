"""Removal of credentials from frames before anything keeps them, by tables of the fields that carry credentials.

Strategy. Credentials are found by the protocol's structure, never by a search for text. A body about credentials is
withheld as a whole, and so is a body of unknown structure that could hold some. In APIs that carry configs, each byte
of a value becomes `*`, so that the frame keeps its length and its structure. Values of a few configs of topics stay
(`KEPT_VALUES`), since verification depends on them. tests/record/observer/test_credentials.py compares the tables with
the protocol's.
"""

from __future__ import annotations

import re
from functools import cache

from kproxy.base.cooperative import free_list, yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol.codec.structs import header_version
from kproxy.protocol.framing import body_start, known_body_start
from kproxy.protocol.primitives import Buffer, read_uvarint
from kproxy.protocol.scan.walk import walk
from kproxy.protocol.table import schema

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

CONFIG_PLACES = {
    (19, REQUEST): "topics[].configs[]",
    (19, RESPONSE): "topics[].configs[]",
    (32, RESPONSE): "results[].configs[] results[].configs[].synonyms[]",
    (33, REQUEST): "resources[].configs[]",
    (44, REQUEST): "resources[].configs[]",
}
"""(API key, direction) → paths of configs with values that stay if they match KEPT_VALUES."""
RESOURCE_TYPES = {
    (32, RESPONSE): ("results[].resource_type", frozenset((2, 4))),
    (33, REQUEST): ("resources[].resource_type", frozenset((2,))),
    (44, REQUEST): ("resources[].resource_type", frozenset((2,))),
}
"""(API key, direction) → path of the resource's type, and the types with values that stay: topics (2), brokers (4)."""

_NUMBER, _CHOICE = rb"-?[0-9]{1,19}", rb"true|false"
_POLICY = rb"(?:compact|delete)(?: ?, ?(?:compact|delete))?"
_TIMESTAMP = rb"CreateTime|LogAppendTime"
KEPT_VALUES = {
    name: re.compile(pattern)
    for name, pattern in (
        (b"cleanup.policy", _POLICY),
        (b"log.cleanup.policy", _POLICY),
        (b"unclean.leader.election.enable", _CHOICE),
        (b"min.insync.replicas", _NUMBER),
        (b"retention.ms", _NUMBER),
        (b"retention.bytes", _NUMBER),
        (b"log.retention.ms", _NUMBER),
        (b"log.retention.minutes", _NUMBER),
        (b"log.retention.hours", _NUMBER),
        (b"log.retention.bytes", _NUMBER),
        (b"delete.retention.ms", _NUMBER),
        (b"log.cleaner.delete.retention.ms", _NUMBER),
        (b"compression.type", rb"uncompressed|none|producer|gzip|snappy|lz4|zstd"),
        (b"message.timestamp.type", _TIMESTAMP),
        (b"log.message.timestamp.type", _TIMESTAMP),
    )
}
"""Configs with values that stay, by name, and patterns of these values. A client or a broker may put anything into a
value, so other values are overwritten."""

SECRET_KINDS = frozenset(("secret", "sasl_token", "request_frame", "response_frame"))
"""Kinds of fields that contain credentials, by the protocol's table. The text of such a field is withheld."""
WITHHELD = "(withheld)"
CONFIG_VALUES = "config values"
UNKNOWN_API = "an API that is not known"
FILLER = b"*"
LONGEST_KEPT = 40
"""Bytes of the name, or of the value, of a config that stays."""


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


@cache
def walked_paths(key: int, direction: str) -> frozenset[str]:
    """Return the paths of the values, and of the names and resource types that decide which of them stay."""
    places = CONFIG_PLACES.get((key, direction), "").split()
    types = [RESOURCE_TYPES[key, direction][0]] if (key, direction) in RESOURCE_TYPES else []
    return secret_paths(key, direction).union(types, (f"{place}.name" for place in places))


def header_end(frame: Buffer, key: int, version: int, direction: str) -> int:
    """Return the end of a frame's header (without its length), or an earlier offset if unknown."""
    fixed = 8 if direction == REQUEST else 4
    unknown = int(direction == REQUEST)  # request headers begin like version 1, but for one API
    form = header_version(key, version, direction) if key in schema.paths() else unknown
    return known_body_start(frame, 0, len(frame), form, direction) or min(fixed, len(frame))


def take_out(frame: Buffer, key: int, version: int, direction: str) -> tuple[bytes, str]:
    """Return a whole frame (without its length) as it may be kept, and the reason if anything was withheld, or ""."""
    why = withheld_body(key, version, direction)
    if not why:
        paths = secret_paths(key, direction)
        if not paths:
            return bytes(frame), ""
        spans = value_spans(frame, key, version, direction)
        if spans is not None:
            data = bytearray(frame)
            for start, stop in yielding(spans):
                data[start:stop] = FILLER * (stop - start)
            why = CONFIG_VALUES if spans else ""
            free_list(spans)
            return bytes(data), why
        why = f"{CONFIG_VALUES} in a body that cannot be read"
    return bytes(frame[: header_end(frame, key, version, direction)]), why


def value_spans(frame: Buffer, key: int, version: int, direction: str) -> list[tuple[int, int]] | None:
    """Return (start, end) of each value that is removed from a frame, in order; None if the frame cannot be decoded."""
    hits: list[tuple[int, int, int]] = []
    found = walk(key, version, direction, walked_paths(key, direction))
    values = secret_paths(key, direction)
    type_path, types = RESOURCE_TYPES.get((key, direction), ("", frozenset()))
    kept, name = not type_path, b""
    try:
        start = body_start(frame, 0, len(frame), header_version(key, version, direction), direction)
        end = -1 if start is None else found.run(frame, start, len(frame), hits)
    except DecodeError:
        return None
    if end != len(frame):  # bytes behind the last field could be anything
        return None
    spans = []
    for mark, start, stop in yielding(hits):
        slot = found.marks[mark].slot
        if slot is None or found.marks[mark].what != "value":
            continue
        if slot.path == type_path:
            kept = frame[start] in types
            continue
        text = read_uvarint(frame, start)[1] if slot.compact else start + 2
        if slot.path not in values:
            name = bytes(frame[text:stop]) if stop - text <= LONGEST_KEPT else b""
            continue
        pattern = KEPT_VALUES.get(name) if kept else None
        name = b""
        if text < stop and not (pattern and stop - text <= LONGEST_KEPT and pattern.fullmatch(bytes(frame[text:stop]))):
            spans.append((text, stop))
    free_list(hits)
    return spans
