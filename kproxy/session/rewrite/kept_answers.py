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

from kproxy.session.counters import Counters

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


AnswerOwner = tuple[str, str]
"""(cluster, client network); the network is empty for an answer that several networks use."""
NOBODY: AnswerOwner = ("", "")


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
    """Cache of answers of one process, of at most `most` bytes and `MOST_ANSWERS` entries.

    The cluster with the most is evicted from, and within it the client network with the most: the entry that was used
    the longest ago. An entry that two networks of a cluster have used belongs to all of them.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.size = most, 0
        self.kept: OrderedDict[AnswerKey, KeptAnswer] = OrderedDict()
        self.owners: dict[AnswerKey, AnswerOwner] = {}

    @property
    def longest(self) -> int:
        """Return the bytes of the longest answer that is kept: with what it becomes it has to have room."""
        return self.most // 3

    def find(self, number: int, content: bytes, owner: AnswerOwner = NOBODY) -> KeptAnswer | None:
        """Return the entry of an answer with these bytes for the rewriter of this number; None without one."""
        key = number, len(content)
        found = self.kept.get(key)
        if found is None or found.content != content:
            return None
        self.kept.move_to_end(key)
        if self.owners[key] != owner:
            self.owners[key] = owner[0], ""
        return found

    def keep(self, number: int, answer: KeptAnswer, owner: AnswerOwner = NOBODY) -> None:
        """Put an answer in the cache, in the place of another one of the same length; not if it is longer than all
        entries may be together."""
        key = number, len(answer.content)
        if (before := self.kept.pop(key, None)) is not None:
            self.size -= before.size
            del self.owners[key]
        if answer.size > self.most:
            return
        self.kept[key], self.owners[key] = answer, owner
        self.size += answer.size
        while self.size > self.most or len(self.kept) > MOST_ANSWERS:
            self.evict()

    def evict(self) -> None:
        """Remove one entry of the owner with the most bytes, or with the most entries if only these are too many."""
        by_size = self.size > self.most
        clusters, owners = Counter[str](), Counter[AnswerOwner]()
        for key, owner in self.owners.items():  # at most MOST_ANSWERS + 1
            weight = self.kept[key].size if by_size else 1
            clusters[owner[0]] += weight
            owners[owner] += weight
        cluster = max(clusters, key=clusters.__getitem__)
        largest = max((owner for owner in owners if owner[0] == cluster), key=owners.__getitem__)
        oldest = next(key for key in self.kept if self.owners[key] == largest)
        self.size -= self.kept.pop(oldest).size
        del self.owners[oldest]
