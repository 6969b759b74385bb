"""The name at which a long DescribeTopicPartitions answer goes on.

Strategy. It is a broker-side name in the order of the broker's names, and may be that of a topic which the client must
not see. Such a one is given to the client in a form that leads back: as `!name` where a rename has hidden it, and as
a word drawn for a remembered name where it is another tenant's. Words are remembered for each tenant apart, so none
leads to the place of another, or makes kproxy forget it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from kproxy.core.rewrite import Apply, Buffer, Context, Hits
from kproxy.wire.edit import Edits
from kproxy.wire.primitives import MAX_STRING
from kproxy.wire.scan.walk import Walk, read_string, write_string

from .remembered import CURSORS, MAX_CURSORS, recall, remember
from .spell import Spelling


@dataclass(frozen=True, slots=True)
class CursorName:
    """Rewrite of the cursor of a request or of a response, at `path`."""

    path: str
    spelling: Spelling

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
        """Return the cursor's name on the other side; as kproxy made it, nothing is counted as unreachable."""
        names = self.spelling.names
        escape = names.space.escape
        if self.spelling.direction == "response":
            shown = names.to_client(name)
            return escape + (self.word_for(name, context) if names.isolates else name) if shown is None else shown
        if not name.startswith(escape):
            return names.to_broker(name)
        hidden = name[len(escape) :]
        found: bytes = self.places(context).get(hidden, name) if names.isolates else hidden
        return found

    def places(self, context: Context) -> OrderedDict[Any, Any]:
        """Return the broker-side names by the words that stand for them with this tenant."""
        return recall(context.cluster_memory, (CURSORS, self.spelling.names.owner))

    def word_for(self, name: bytes, context: Context) -> bytes:
        """Return a word that stands for a hidden name until 1,000 others have come after it."""
        word = token_hex(8).encode()
        remember(self.places(context), word, name, MAX_CURSORS)
        return word
