"""Answers that were rewritten of late, with what they became: brokers say the same to one client after another.

Strategy. Metadata of a large cluster takes milliseconds to rewrite, and every client asks for it when it connects and
every few minutes; after a broker or a pod has gone, all of them ask at once. What an answer becomes depends on its
bytes, on the rules, which are the `Rewriter`'s own, and on what the rewrites ask the `Context`. So what they asked it
is kept beside the bytes, with what it said: a kept answer is used for the same bytes if the context says the same
again. Then all that would be counted is counted. What asks the context for anything else, or leaves something
in it, is not kept (`Plan` says which answers are).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from kproxy.core.counters import Counters

MOST_BYTES = 64 << 20
"""Bytes of all answers that are kept in a process, as they came and as they went; 200,000 partitions have 9 to 16 MB.
"""
SHORTEST = 4096
"""Bytes of an answer that is worth being kept: a hundred partitions."""
MOST_ANSWERS = 100
"""Answers that are kept; those of a hundred names of a hundred topics each, or of clients of as many versions."""
ADDRESS_BYTES = 300
"""Bytes that an address is taken for, without the characters of its host."""

AnswerKey = tuple[int, int]
"""(number of the rewriter, bytes of the answer)"""


class AskedContext(Protocol):
    """Context of a session, as far as it is asked again."""

    note: dict[str, Any] | None
    max_nodes: int
    counters: Counters

    def address(self, node: int, host: str, port: int) -> tuple[str, int] | None: ...


@dataclass(slots=True)
class AnswerInputs:
    """Inputs of the rewrites of one answer, besides its bytes: what they asked a context, with what it said. `counts`
    is what they had it count."""

    note: dict[str, Any] | None
    max_nodes: int
    addresses: list[tuple[int, str, int, tuple[str, int]]] = field(default_factory=list)
    """(node, host, port, what it was given)"""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (events or rewritten, word)."""

    def said_again(self, context: AskedContext) -> bool:
        """Ask this context the same, all of it; return True if it says the same. False, too, where it does not know
        yet: then it is to find out."""
        if context.note != self.note or context.max_nodes != self.max_nodes:
            return False
        same = True
        for node, host, port, given in self.addresses:
            same = context.address(node, host, port) == given and same
        return same

    def count_again(self, context: AskedContext) -> None:
        """Have the context count the same."""
        for (kind, word), number in self.counts.items():
            getattr(context.counters, kind)[word] += number


@dataclass(frozen=True)
class KeptAnswer:
    """Answer behind its correlation id, and what it became; None: it stayed as it was."""

    content: bytes
    written: bytes | None
    inputs: AnswerInputs

    @cached_property
    def size(self) -> int:
        hosts = sum(ADDRESS_BYTES + 4 * len(host) for _, host, _, _ in self.inputs.addresses)
        return len(self.content) + len(self.written or b"") + hosts


class KeptAnswers:
    """Answers of one process, at most `most` bytes of them; that which was used the longest ago goes first."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.size = most, 0
        self.kept: OrderedDict[AnswerKey, KeptAnswer] = OrderedDict()

    @property
    def longest(self) -> int:
        """Return the bytes of the longest answer that is kept: with what it becomes it has to have room."""
        return self.most // 3

    def find(self, number: int, content: bytes) -> KeptAnswer | None:
        """Return what is kept of an answer with these bytes, rewritten by the rewriter of that number."""
        key = number, len(content)
        found = self.kept.get(key)
        if found is None or found.content != content:
            return None
        self.kept.move_to_end(key)
        return found

    def keep(self, number: int, answer: KeptAnswer) -> None:
        """Keep an answer in the place of another one of the same length, unless it has become so long that there is no
        room for it."""
        key = number, len(answer.content)
        if (before := self.kept.pop(key, None)) is not None:
            self.size -= before.size
        if answer.size > self.most:
            return
        self.kept[key] = answer
        self.size += answer.size
        while self.size > self.most or len(self.kept) > MOST_ANSWERS:
            self.size -= self.kept.popitem(last=False)[1].size
