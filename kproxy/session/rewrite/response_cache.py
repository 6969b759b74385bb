"""Cache of rewritten responses: brokers send the same response to many clients.

Strategy. Metadata of a large cluster takes milliseconds to rewrite. Every client requests it when it connects and every
few minutes, and all clients at once after a broker or a pod has gone. The result for a response depends on its bytes,
on the rules, which belong to the `Rewriter`, and on the lookups of the rewrites in the `Context`. So the lookups and
their results are cached with the bytes. A cached response is used for the same bytes if the context returns the same
results; its counted events are then counted again. Responses with other lookups, or with changes to the context, are
not cached (`Plan` lists the cacheable ones).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Dependencies

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


@dataclass(frozen=True)
class CachedResponse:
    """Answer without its correlation id, and its rewritten form; None: unchanged."""

    content: bytes
    written: bytes | None
    inputs: Dependencies

    @cached_property
    def size(self) -> int:
        hosts = sum(ADDRESS_BYTES + 4 * len(host) for _, host, _, _ in self.inputs.addresses)
        return len(self.content) + len(self.written or b"") + hosts


class ResponseCache:
    """Cache of answers of one process, of at most `most` bytes and `MOST_ANSWERS` entries.

    The cluster with the most is evicted from, and within it the client network with the most: the entry that was used
    the longest ago. An entry that two networks of a cluster have used belongs to all of them.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.size = most, 0
        self.kept: OrderedDict[AnswerKey, CachedResponse] = OrderedDict()
        self.owners: dict[AnswerKey, AnswerOwner] = {}

    @property
    def longest(self) -> int:
        """Return the bytes of the longest cached answer: its rewritten form also has to fit."""
        return self.most // 3

    def find(self, number: int, content: bytes, owner: AnswerOwner = NOBODY) -> CachedResponse | None:
        """Return the entry of an answer with these bytes for the rewriter of this number; None without one."""
        key = number, len(content)
        found = self.kept.get(key)
        if found is None or found.content != content:
            return None
        self.kept.move_to_end(key)
        if self.owners[key] != owner:
            self.owners[key] = owner[0], ""
        return found

    def keep(self, number: int, answer: CachedResponse, owner: AnswerOwner = NOBODY) -> None:
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
