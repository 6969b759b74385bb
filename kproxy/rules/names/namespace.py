"""Namespaces: the three sorts of names that rules translate (topics, groups, transactional ids). Names are bytes.

Strategy: what differs between them is data. Topic names have a small alphabet, so a name outside of it is one that no
broker can have. Group ids and transactional ids may be any text, so nothing is impossible there; names that must not
reach what they spell get a beginning that kproxy keeps for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INTERNAL = frozenset({b"__consumer_offsets", b"__transaction_state", b"__share_group_state", b"__cluster_metadata"})
"""Topics that brokers own (`Topic.java`, and KRaft's log); clients know them by exactly these names."""
MAX_TOPIC_NAME = 249
"""Bytes in a topic name (`Topic.java`, MAX_NAME_LENGTH): a file name with partition and suffix must fit in 255."""
MAX_NAME = 32767
"""Bytes in any other name: the longest string of the protocol."""

_TOPIC = re.compile(rb"[a-zA-Z0-9._-]+")
_NOT_TOPIC = re.compile(r"[^a-zA-Z0-9._*-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """Sort of names, such as topics.

    `noun` is for messages, `plural` for counters (`groups_hidden`), `changed` counts changed names, `escape` stands in
    front of a name that must not be reached.
    """

    noun: str
    plural: str
    changed: str
    escape: bytes
    longest: int
    internal: frozenset[bytes] = frozenset()
    alphabet: re.Pattern[bytes] | None = None

    @property
    def hidden(self) -> str:
        """Return the counter of names left out of answers."""
        return f"{self.plural}_hidden"

    @property
    def unreachable(self) -> str:
        """Return the counter of names that a client may not use."""
        return f"{self.plural}_unreachable"

    def is_legal(self, name: bytes) -> bool:
        """Return True if renames may touch this name: it can exist, and is not internal. Any length, because a result
        that is too long must still lead back to the name that the client asked for."""
        return self.can_exist(name) and name not in self.internal

    def can_exist(self, name: bytes) -> bool:
        """Return True if something can be called so, internal or not."""
        if self.alphabet is None:
            return name != b"" and not name.startswith(self.escape)
        return name not in (b".", b"..") and self.alphabet.fullmatch(name) is not None

    def takes_prefix(self, name: bytes) -> bool:
        """Return True if a tenant's prefix goes in front of it: brokers would take it for a name. A group without one
        is a group, too: simple consumers keep offsets there."""
        if self.alphabet is None:
            return name != b"" or self is GROUP
        return self.can_exist(name)

    def problem(self, text: str) -> str | None:
        """Return why this is no name or glob for a rule, else None; a continuation of "the name …"."""
        if not text:
            return "is empty"
        if self.alphabet is not None and (illegal := _NOT_TOPIC.search(text)) is not None:
            return f'"{text}" holds "{illegal[0]}", topic names have only a-z A-Z 0-9 . _ -'
        if _CONTROL.search(text) is not None:
            return f"{text!r} holds a control character"
        if text.count("*") > 1:
            return f'"{text}" has {text.count("*")} *, at most one is allowed'
        if self.alphabet is not None and text in (".", ".."):
            return f'"{text}" is no topic name'
        if text.encode().startswith(self.escape):
            return f'"{text}" begins with "{self.escape.decode()}", which kproxy keeps for itself'
        if len(text.encode().replace(b"*", b"")) > self.longest:
            return f"has {len(text)} characters, {self.noun}s have at most {self.longest}"
        if text.encode() in self.internal:
            return f'"{text}" is an internal topic, which is never renamed'
        return None


TOPIC = Namespace("topic name", "topics", "topic_names", b"!", MAX_TOPIC_NAME, INTERNAL, _TOPIC)
"""`!` is not legal in topic names: no broker can have such a topic, nor make one."""
GROUP = Namespace("group id", "groups", "group_ids", b"!unreachable:", MAX_NAME)
TRANSACTIONAL_ID = Namespace("transactional id", "transactional_ids", "transactional_ids", b"!unreachable:", MAX_NAME)
NAMESPACES = (TOPIC, GROUP, TRANSACTIONAL_ID)
