"""The only topic name of a message: Produce and Fetch by name, of one topic.

Strategy. Such a frame need not be held: its one name stands before its records, so once the name is here the new length
is known, and the rest passes as it streams in. Most frames of clients that name topics are like that, long ones and
those that come by the thousand. A message of several topics, or one that is to be hidden, is left to those who look at
whole frames.
"""

from __future__ import annotations

from kproxy.core.rewrite import Buffer, Context
from kproxy.rules.names import NameMap
from kproxy.wire import layout, schema
from kproxy.wire.head import body_start, lone_topic
from kproxy.wire.walk import read_string, write_string

from .spell import Spelling

PRODUCE, FETCH = 0, 1
MESSAGES = {(PRODUCE, "request"), (PRODUCE, "response"), (FETCH, "response")}
BY_ID_FROM = 13  # Produce and Fetch name topics by id from this version on (KIP-516)

Splice = tuple[int, int, bytes]


class LoneName:
    """Finds and translates the name; `splice` gives where it stands and what is to stand there instead."""

    __slots__ = ("compact", "direction", "find", "header_version", "spelling")

    def __init__(self, key: int, version: int, direction: str, names: NameMap) -> None:
        self.direction = direction
        self.find = lone_topic(key, version, direction)
        self.header_version = schema.load(key).header_version(direction, version)
        self.compact = layout.body(key, version, direction).flexible
        self.spelling = Spelling(names, direction)

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """(start, stop, bytes) for the frame whose size is at `pos` and of which buf[pos:end] is here.

        None: the name is not all here, or there are more of them, or the topic is hidden.
        """
        body = body_start(buf, pos + 4, end, self.header_version, self.direction)
        span = None if body is None else self.find(buf, body, end)
        name = None if span is None else read_string(buf, *span, self.compact)
        other = self.spelling.translate(name, context) if name else None
        if span is None or other is None:
            return None
        if other != name:
            context.rewrote("topic_names")
        return *span, write_string(other, self.compact)


def lone_name(key: int, version: int, direction: str, names: NameMap) -> LoneName | None:
    """None: messages of this kind are looked at whole."""
    if (key, direction) not in MESSAGES or version >= BY_ID_FROM:
        return None
    return LoneName(key, version, direction, names)
