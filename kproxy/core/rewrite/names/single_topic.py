"""The only topic of a message: Produce requests, and answers of Produce and Fetch, that are about one topic.

Strategy. Such a frame need not be held: its names stand before its records, so once they are here the new length is
known, and the rest passes as it streams in. Most frames of clients that name topics are like that, long ones and those
that come by the thousand. A message of several topics, one that is to be hidden, and one whose topic id is not known
to be the client's own are left to those who look at whole frames.
"""

from __future__ import annotations

from kproxy.core.rewrite.rewriter import Context, Splice
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.head import PlainHead, body_start, plain_head, single_topic
from kproxy.wire.scan.walk import read_string, write_string
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import FETCH, PRODUCE

from .ids import VisibleIds
from .translator import NameTranslator

BY_ID_FROM = 13  # Produce and Fetch name topics by id from this version on (KIP-516)

MOST_KNOWN, LONGEST_KNOWN = 1000, 256
"""Names whose other spelling is remembered, and bytes of one; topics have at most 249."""
REQUEST_HEAD, RESPONSE_HEAD = 14, 8
"""Bytes up to the client id, whose length ends there, and up to the end of a response's header, but for tags."""


class SingleTopicRewriter:
    """Rewriter of the only topic of a message; `splice` gives where the name stands and the bytes to put there instead.

    `leading` spells the string in front, the transactional id of a Produce request; `topics` is None when topics have
    the same names on both sides, or are told by ids that need no check. `known`: how topics that were met are written.
    """

    __slots__ = ("compact", "direction", "find", "header_version", "known", "leading", "plain", "topic", "visible")

    def __init__(self, key: int, version: int, direction: str, topics: NameMap | None, leading: NameMap | None) -> None:
        self.direction = direction
        self.find = single_topic(key, version, direction)
        self.header_version = schema.load(key).header_version(direction, version)
        self.compact = layout.body(key, version, direction).flexible
        by_id = version >= BY_ID_FROM
        self.leading = None if leading is None else NameTranslator(leading, direction)
        self.topic = None if topics is None or by_id else NameTranslator(topics, direction)
        self.visible = VisibleIds(frozenset(), topics) if topics is not None and by_id else None
        self.plain = None if self.topic is None else plain_head(key, version, direction)
        self.known: dict[bytes, bytes] = {}

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return (start, stop, bytes) for the frame whose size is at `pos` and of which buf[pos:end] is here.

        None: the name is not all here, or there are more of them, or the topic is hidden.
        """
        if self.plain is not None and (found := self.met_before(self.plain, buf, pos, end, context)) is not None:
            return found
        body = body_start(buf, pos + 4, end, self.header_version, self.direction)
        spans = None if body is None else self.find(buf, body, end)
        if spans is None:
            return None
        *strings, (start, stop) = spans
        if self.visible is not None and not self.visible.known(bytes(buf[start:stop]), context):
            return None
        name = bytes(buf[start:stop])
        if self.topic is not None:
            other = self.other(buf, start, stop, self.topic, context)
            if other is None:
                return None
            self.remember(name, other, self.topic)
            name = other
        if self.leading is None or not strings:
            return start, stop, name
        first, after = strings[0]
        leading = self.other(buf, first, after, self.leading, context)
        return None if leading is None else (first, stop, leading + bytes(buf[after:start]) + name)

    def met_before(self, plain: PlainHead, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return what `splice` does for a topic that was met before, in a frame with a plain head, as nearly all
        have."""
        at = pos + RESPONSE_HEAD
        if self.direction == "request":
            at = pos + REQUEST_HEAD
            length = buf[at - 2] << 8 | buf[at - 1]
            at += length if length < 0x8000 else 0
        span = plain.topic(buf, at, end)
        if span is None:
            return None
        start, stop = span
        name = bytes(buf[start:stop])
        other = self.known.get(name)
        if other is None:
            return None
        if other != name:
            assert self.topic is not None
            context.rewrote(self.topic.space.changed)
        return start, stop, other

    def remember(self, name: bytes, other: bytes, translator: NameTranslator) -> None:
        """Remember how a topic is written on the other side, unless that is counted each time, or takes too much
        memory."""
        if name in self.known or len(name) > LONGEST_KNOWN:
            return
        old = read_string(name, 0, len(name), self.compact)
        if old is None or translator.escapes(old):
            return
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[name] = other

    def other(self, buf: Buffer, start: int, stop: int, translator: NameTranslator, context: Context) -> bytes | None:
        """Return the encoded name of the other side. None: it is hidden."""
        old = read_string(buf, start, stop, self.compact)
        new = None if old is None else translator.translate(old, context)
        if new is None:
            return None if old is not None else bytes(buf[start:stop])
        if new != old:
            context.rewrote(translator.space.changed)
        return write_string(new, self.compact)


def single_topic_rewriter(key: int, version: int, direction: str, names: NameMaps) -> SingleTopicRewriter | None:
    """Return the rewriter of these messages. None: messages of this kind are looked at whole."""
    if (key, direction) not in {(PRODUCE, "request"), (PRODUCE, "response"), (FETCH, "response")}:
        return None
    if direction == "response":
        ids = version >= BY_ID_FROM
        return None if ids or names.topics is None else SingleTopicRewriter(key, version, direction, names.topics, None)
    topics = names.topics if version < BY_ID_FROM or (names.topics and names.topics.isolates) else None
    leading = names.transactional_ids if version >= 3 else None
    return None if topics is leading is None else SingleTopicRewriter(key, version, direction, topics, leading)
