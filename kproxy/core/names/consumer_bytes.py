"""The consumer protocol's bytes: subscriptions and assignments inside the group APIs, and what is inside of these.

Strategy. The same walk and edits as for whole messages. A version above 3 is read as 3 and the bytes after it are
kept, as `ConsumerProtocol.java` does. Some clients write a version and leave out what it added; such bytes are read
as the newest version that they fill exactly. What no version fits is given back as it came.

The `sticky` assignor (StickyAssignor.java) keeps the previous assignment in user_data: topics with their partitions,
then a generation that older ones lack. Other assignors keep no topic names there, or (Kafka Streams) in bytes of
their own that clients alone read.
"""

from __future__ import annotations

from functools import cache

from kproxy.core.rewrite import Context, Hits
from kproxy.errors import DecodeError
from kproxy.wire.breath import spread
from kproxy.wire.edit import Edits
from kproxy.wire.scan.walk import Walk, compile_walk
from kproxy.wire.table import layout, schema
from kproxy.wire.table.layout import Struct

from .plain import PlainNames, innermost
from .spell import Spelling

SUBSCRIPTION, ASSIGNMENT = "consumer_subscription", "consumer_assignment"
STICKY = b"sticky"
PREFIX = 2  # the version, INT16, in front
LENGTH = 4  # bytes of the length in front of a bytes field
STICKY_FIELDS = {"previous_assignment []struct 0+": ["topic string 0+ is topic_name", "partitions []int32 0+"]}
USER_DATA = "user_data"


@cache
def sticky_struct() -> Struct:
    return layout.build((schema.parse_field(STICKY_FIELDS),), 0, False)


@cache
def embedded_walk(name: str, version: int) -> tuple[Walk, frozenset[str]]:
    """Return a walk that finds all topic names, and their paths."""
    struct = sticky_struct() if name == "sticky" else layout.embedded(name, version)
    paths = frozenset(slot.path for slot in struct.everywhere() if slot.kind == "topic_name")
    return compile_walk(struct, paths | {innermost(path) for path in paths} | {USER_DATA}, name, version), paths


def rewrite_struct(
    data: bytes, start: int, name: str, version: int, spelling: Spelling, assignor: bytes, context: Context, whole: bool
) -> bytes:
    """Return the bytes with the names of the other side. Raises DecodeError if they are not this struct.

    `whole`: bytes after the last field are refused, too.
    """
    walk, paths = embedded_walk(name, version)
    hits: Hits = []
    after = walk.run(data, start, len(data), hits)
    if whole and after != len(data):
        raise DecodeError(f"{len(data) - after} bytes after the last field", api=name, version=version, offset=after)
    hits = spread(hits)
    edits = Edits(data, 0, len(data), walk, hits)
    PlainNames(dict.fromkeys(paths, spelling), compact=False).bind(walk)(data, hits, edits, context)
    if assignor == STICKY:
        number = walk.find("value", USER_DATA)
        for mark, begin, end in hits:
            if mark == number and end > begin + LENGTH:
                inner = rewrite_user_data(data[begin + LENGTH : end], spelling, context)
                edits.replace(begin, end, len(inner).to_bytes(LENGTH, "big") + inner)
    return b"".join(edits.pieces()) if edits else data


def rewrite_user_data(data: bytes, spelling: Spelling, context: Context) -> bytes:
    """Return the sticky assignor's remembered assignment with the names of the other side; a generation and other bytes
    behind it stay. Bytes that cannot be read are counted and returned as they are."""
    try:
        return rewrite_struct(data, 0, "sticky", 0, spelling, b"", context, False)
    except DecodeError:
        context.count("group_bytes_unreadable")
        return data


def rewrite_consumer_bytes(
    data: bytes, name: str, spelling: Spelling, assignor: bytes, context: Context, exactly: bool = False
) -> bytes | None:
    """Return a subscription or assignment with the names of the other side. None: it cannot be read as one.

    `exactly`: refuse bytes after the last field; for bytes of which nobody said that they are the consumer protocol's.
    """
    version = int.from_bytes(data[:PREFIX], "big", signed=True)
    if len(data) < PREFIX or version < 0:
        return None
    newest = schema.embedded()[name].versions.last
    first = min(version, newest)
    for candidate in range(first, -1, -1):
        whole = candidate < first or (exactly and version <= newest)
        try:
            return rewrite_struct(data, PREFIX, name, candidate, spelling, assignor, context, whole)
        except DecodeError:
            continue
    return None
