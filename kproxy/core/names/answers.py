"""Metadata and DescribeTopicPartitions: where clients learn names, ids and what exists.

Strategy. Three things go beyond the plain rewrite. (1) A name that the client may not use is asked for as `!name`,
which brokers call invalid (17); the client hears that there is no such topic (3), which is what it would hear of a
topic that does not exist. (2) A hidden topic is left out when the client asked for all, but one asked for by its id
has to be answered: as an id that nobody knows (100). (3) DescribeTopicPartitions' cursor, see `cursor.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import read_uvarint
from kproxy.wire.scan.walk import Hit, Walk, compile_walk, read_string, write_string
from kproxy.wire.table.layout import Struct

from .spell import Spelling

UNKNOWN_TOPIC_OR_PARTITION = b"\x00\x03"
INVALID_TOPIC_EXCEPTION = b"\x00\x11"
UNKNOWN_TOPIC_ID = b"\x00\x64"
ASKED_FOR_ALL = "metadata_all"


@dataclass(frozen=True, slots=True)
class AskedForAll:
    """Reader that notes if a Metadata request is for all topics: null, or in v0, which has no null, an empty array."""

    version: int
    compact: bool
    wanted: frozenset[str] = frozenset(("topics[]",))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("count", "topics[]")

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for mark, start, end in hits:
                if mark == number:
                    null = read_uvarint(buf, start)[0] == 0 if self.compact else buf[start] > 127
                    note = context.note = context.note or {}
                    note[ASKED_FOR_ALL] = null or (self.version == 0 and not any(buf[start:end]))
                    return

        return apply


@dataclass(frozen=True)
class TopicAnswers:
    """Rewrite of `topics[]` in a Metadata or DescribeTopicPartitions response. Elements begin with error_code."""

    struct: Struct
    spelling: Spelling
    by_id: bool  # an entry that nobody can name may be one that was asked for by its id
    wanted: frozenset[str] = frozenset(("topics[]", "topics[].name"))

    @cached_property
    def partitions(self) -> Walk:
        """Return the walk of one element that finds its partitions."""
        topics = next(slot for slot in self.struct.slots if slot.path == "topics[]")
        assert topics.struct is not None
        assert topics.struct.slots[0].name == "error_code"
        return compile_walk(topics.struct, {"topics[].partitions[]"}, "topics[]")

    def bind(self, walk: Walk) -> Apply:
        name, count, element = (
            walk.find(what, path)
            for what, path in (("value", "topics[].name"), ("count", "topics[]"), ("element", "topics[]"))
        )

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            self.rewrite(buf, hits, edits, context, (name, count, element))

        return apply

    def rewrite(self, buf: Buffer, hits: Hits, edits: Edits, context: Context, marks: tuple[int, int, int]) -> None:
        name_mark, count_mark, element_mark = marks
        compact, names = self.struct.flexible, self.spelling.names
        count: Hit = (0, 0, 0)
        span, name, other, changed = (0, 0), None, None, 0  # of the topic at hand: its name, and the client's for it
        for hit in hits:
            mark, start, end = hit
            if mark == name_mark:
                name = read_string(buf, start, end, compact)
                other = names.to_client(name) if name else name
                if other is None:
                    span = start, end
                elif other != name:
                    edits.replace(start, end, write_string(other, compact))
                    changed += 1
            elif mark == element_mark:
                if name and other is None:
                    context.count("topics_hidden")
                    if self.by_id and context.note and not context.note.get(ASKED_FOR_ALL, True):
                        self.deny_id(buf, start, end, span, edits)
                    else:
                        edits.remove(start, end, count)
                elif buf[start : start + 2] == INVALID_TOPIC_EXCEPTION and name and names.is_escaped(name):
                    edits.replace(start, start + 2, UNKNOWN_TOPIC_OR_PARTITION)
            elif mark == count_mark:
                count = hit
        if changed:
            context.rewrote("topic_names", changed)

    def deny_id(self, buf: Buffer, start: int, end: int, name: tuple[int, int], edits: Edits) -> None:
        """Answer as a broker does for an id that it does not know: the error, no name, no partitions."""
        inside: Hits = []
        self.partitions.run(buf, start, end, inside)
        edits.replace(start, start + 2, UNKNOWN_TOPIC_ID)
        edits.replace(*name, write_string(None, True))
        edits.replace(inside[0][1], inside[-1][2], b"\x01")
