"""Metadata and DescribeTopicPartitions: the source of clients' topic names and ids.

Strategy. Three things go beyond the plain rewrite. (1) A name that the client may not use is requested as `!name`,
which brokers call invalid (17). The client receives UNKNOWN_TOPIC_OR_PARTITION (3), as for a topic that does not exist.
(2) A hidden topic is left out when the client asked for all topics. A topic requested by id needs an answer:
UNKNOWN_TOPIC_ID (100). (3) The name that continues a long DescribeTopicPartitions answer is also changed.

That name, the cursor, is a broker-side one in the order of the broker's names, and may be that of a topic which the
client must not see. The client receives a reversible form: `!name` where a rename has hidden it, and a word drawn for a
remembered name where it is another tenant's. Words are remembered per tenant, so they neither lead to another tenant's
cursor nor evict it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from secrets import token_hex
from typing import Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer, read_uvarint
from kproxy.protocol.scan.walk import Hit, Hits, Walk, compile_walk, read_string, write_string
from kproxy.protocol.table.layout import Struct
from kproxy.session.rewrite.context import CURSORS, Context, session_lru
from kproxy.session.rewrite.rewriter import Apply

from .translator import NameTranslator


@dataclass(frozen=True, slots=True)
class CursorName:
    """Rewrite of the cursor of a request or of a response, at `path`."""

    path: str
    translator: NameTranslator

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((self.path,))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", self.path)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            for mark, start, end in hits:
                if mark == number:
                    name = read_string(buf, start, end, True)
                    other = self.other(name, context) if name else name
                    if other != name and other is not None and len(other) <= MAX_STRING:
                        edits.replace(start, end, write_string(other, True))
                        context.rewrote("topic_names")

        return apply

    def other(self, name: bytes, context: Context) -> bytes:
        """Return the cursor's name on the other side; kproxy made it, so it is not counted as unreachable."""
        names = self.translator.names
        escape = names.space.escape
        if self.translator.direction == "response":
            shown = names.to_client(name)
            return escape + (self.word_for(name, context) if names.isolates else name) if shown is None else shown
        if not name.startswith(escape):
            return names.to_broker(name)
        hidden = name[len(escape) :]
        found: bytes = self.places(context).get(hidden, name) if names.isolates else hidden
        return found

    def places(self, context: Context) -> BoundedMap[Any, Any]:
        """Return the broker-side names by the words that replace them for this tenant."""
        return session_lru(context.cluster_memory, (CURSORS, self.translator.names.owner))

    def word_for(self, name: bytes, context: Context) -> bytes:
        """Return a word for a hidden name; it is evicted after 1,000 others."""
        word = token_hex(8).encode()
        self.places(context)[word] = name
        return word


UNKNOWN_TOPIC_OR_PARTITION = b"\x00\x03"
INVALID_TOPIC_EXCEPTION = b"\x00\x11"
UNKNOWN_TOPIC_ID = b"\x00\x64"
ASKED_FOR_ALL = "metadata_all"


@dataclass(frozen=True, slots=True)
class AllTopicsRequest:
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
    translator: NameTranslator
    by_id: bool  # an entry without a visible name may have been requested by id
    wanted: frozenset[str] = frozenset(("topics[]", "topics[].name"))

    @cached_property
    def partitions(self) -> Walk:
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
        compact, names = self.struct.flexible, self.translator.names
        count: Hit = (0, 0, 0)
        span, name, other, changed = (0, 0), None, None, 0  # of the current topic: its name, and the client's for it
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
