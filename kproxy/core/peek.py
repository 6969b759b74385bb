"""A first look at a request: whether it names what some rule names. Most do not, and are spared all else.

Only where that is all there is to know: every rule names its topics or client ids exactly, the request names topics in
plain fields, and no fetch session has to be followed.
"""

from __future__ import annotations

from kproxy.rules.frame_match import FIELD_KINDS
from kproxy.wire import layout, schema
from kproxy.wire.head import body_start
from kproxy.wire.walk import Hits, read_string, walk

from .part_index import PartIndex
from .rewrite import Buffer

SESSIONS = frozenset((1, 78, 79))
TOPIC_NAME = "topic_name"


class Peek:
    """Of one (api, version). `topics` and `clients` are the names, as bytes."""

    __slots__ = ("clients", "compact", "header", "topics", "walk")

    def __init__(self, key: int, version: int, index: PartIndex) -> None:
        struct = layout.body(key, version, "request")
        slots = [slot for slot in struct.everywhere() if slot.kind == TOPIC_NAME]
        self.topics = frozenset(name.encode() for name in index.tables.get("topic", ()))
        self.clients = frozenset(name.encode() for name in index.tables.get("client_id", ()))
        self.walk = walk(key, version, "request", frozenset(slot.path for slot in slots)) if self.topics else None
        self.header = schema.load(key).header_version("request", version)
        self.compact = any(slot.compact for slot in slots)

    def is_for_nobody(self, buf: Buffer, pos: int, end: int) -> bool:
        """For the request buf[pos:end], size included; without topics among the names its header does. Raises
        DecodeError."""
        if self.clients:
            length = int.from_bytes(buf[pos + 12 : pos + 14], "big", signed=True)
            if length > 0 and bytes(buf[pos + 14 : pos + 14 + length]) in self.clients:
                return False
        if self.walk is None:
            return True
        body = body_start(buf, pos + 4, end, self.header, "request")
        if body is None:
            return False
        hits: Hits = []
        self.walk.run(buf, body, end, hits)
        return all(read_string(buf, start, stop, self.compact) not in self.topics for _, start, stop in hits)


def peek(key: int, version: int, index: PartIndex) -> Peek | None:
    """None where a first look cannot tell."""
    if index.general or not index.tables or not index.tables.keys() <= {"topic", "client_id"} or key in SESSIONS:
        return None
    slots = list(layout.body(key, version, "request").everywhere())
    kinds = {slot.kind for slot in slots}
    if "topic" in index.tables and (kinds & FIELD_KINDS["topic"]) != {TOPIC_NAME}:
        return None
    if any(slot.kind == TOPIC_NAME and slot.array for slot in slots):
        return None
    return Peek(key, version, index)
