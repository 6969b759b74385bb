"""Broker's error messages about topics that cannot be made because of their names.

Names that differ in dots and underscores only collide, and the broker's message then tells the other one: `a.x` cannot
be made where there is `a_x`, which may be somebody else's. A tenant is told why in words that name nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.scan.walk import Walk, write_string

MESSAGES_FROM: Final = 1  # the version of CreateTopics
INVALID_TOPIC_EXCEPTION: Final = b"\x00\x11"
CODE, MESSAGE = "topics[].error_code", "topics[].error_message"
INSTEAD: Final = b"the topic name is not valid, or like another one but for dots and underscores"


@dataclass(frozen=True, slots=True)
class NoOtherNames:
    """Rewrite of the messages of a CreateTopics response, so that they name no topic of others."""

    compact: bool
    wanted: frozenset[str] = frozenset((CODE, MESSAGE))

    def bind(self, walk: Walk) -> Apply:
        code_mark, message_mark = (walk.find("value", path) for path in (CODE, MESSAGE))

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            code = b""
            for mark, start, end in hits:
                if mark == code_mark:
                    code = bytes(buf[start:end])
                elif mark == message_mark and code == INVALID_TOPIC_EXCEPTION:
                    edits.replace(start, end, write_string(INSTEAD, self.compact))

        return apply
