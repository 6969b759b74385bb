"""Cache of rewritten answers: brokers send the same answer to many clients.

Strategy. Metadata of a large cluster takes milliseconds to rewrite, and every client asks for it when it connects and
every few minutes; after a broker or a pod has gone, all of them ask at once. The result for an answer depends on its
bytes, on the rules, which belong to the `Rewriter`, and on the lookups of the rewrites in the `Context`. So lookups and
their results are cached with the bytes: a cached answer is used for the same bytes if the context returns the same
results. Then all that would be counted is counted. Answers with other lookups, or with changes to the context, are not
cached (`Plan` lists the cacheable ones).

Rewriting one message in place: one walk for all rewrites that want something of it, then their edits.

Strategy. A `Rewrite` names the paths that it needs of a message in one version. Bound to the walk, it gives a function
that reads the hits and puts edits. Nothing is decoded, and unedited bytes are not copied. A rewrite reads facts from
the `Context`. If a fact is unknown, the rewrite returns `NeedsLookup`. The lane waits for the lookup and calls again.
An `Apply` that returns `NeedsLookup` leaves the context unchanged.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kproxy.base.cooperative import free_list, yielding_list
from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, walk
from kproxy.protocol.table import schema

if TYPE_CHECKING:
    from .context import Context

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


class NeedsLookup(NamedTuple):
    """Facts to look up before a call can be repeated: `nodes` by id with the broker's host and port, the names of topic
    `ids`, and `all_topics` of the cluster. A lookup of nodes contains nothing else."""

    nodes: Mapping[int, tuple[str, int]] = MappingProxyType({})
    ids: Collection[bytes] = ()
    all_topics: bool = False


@dataclass(slots=True)
class Dependencies:
    """Inputs of the rewrites of one answer, besides its bytes: lookups in a context, with their results. `counts` are
    their counted events."""

    note: dict[str, Any] | None
    max_nodes: int
    addresses: list[tuple[int, str, int, tuple[str, int]]] = field(default_factory=list)
    """(node, host, port, the returned address)"""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (events or rewritten, word)."""

    def still_hold(self, context: Context) -> bool | NeedsLookup:
        """Return True if all recorded lookups have the same values in this context; `NeedsLookup` if some values are
        unknown."""
        if context.note != self.note or context.max_nodes != self.max_nodes:
            return False
        same, missing = True, dict[int, tuple[str, int]]()
        for node, host, port, given in self.addresses:
            same = context.address(node, host, port, missing) == given and same
        return NeedsLookup(missing) if missing else same

    def replay_counters(self, context: Context) -> None:
        for (kind, word), number in self.counts.items():
            getattr(context.counters, kind)[word] += number


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


Pieces = list[Any]  # bytes-like objects that make up a frame
NUMBERS = count()
BEHIND = 4
"""Bytes of the correlation id; answers are compared after it."""

Apply = Callable[[Buffer, Hits, Edits, "Context"], NeedsLookup | None]


class Rewrite(Protocol):
    """Rewrite that one rule needs of one message in one version."""

    @property
    def wanted(self) -> frozenset[str]:
        """Return the paths of the fields it reads, for `protocol.scan.walk`."""

    def bind(self, walk: Walk) -> Apply:
        """Return the function that puts the edits; hits carry the mark numbers of the given walk."""


Splice = tuple[int, int, bytes]
"""(start, stop, bytes) of the only change of a frame."""


class Splicer(Protocol):
    """Rewriter of frames with one place that changes, which need not be held for that."""

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return the change of the frame with its size at `pos`; buf[pos:end] has arrived. None: the entire frame is
        needed."""


class Rewriter:
    """Rewriter of one (api, version, direction): all rewrites of it, compiled when a frame of it first passes.

    `repeats`: responses with rewrites that look up only addresses and the exchange's note, and change nothing in the
    context but counts. Those that were rewritten before are cached.
    """

    def __init__(
        self, key: int, version: int, direction: str, rewrites: Sequence[Rewrite], *, repeats: bool = False
    ) -> None:
        self.repeats, self.number = repeats, next(NUMBERS)
        wanted = frozenset[str]().union(*(each.wanted for each in rewrites))
        self.walk = walk(key, version, direction, wanted, short=direction == "response")
        self.applies = [each.bind(self.walk) for each in rewrites]
        api = schema.load(key)
        self.api, self.version, self.direction = api.name, version, direction
        self.header_version = api.header_version(direction, version)

    def rewrite(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | NeedsLookup | None:
        """Return the frame at buf[start:end], without its size, after all edits. None: unchanged.

        Raises DecodeError for a malformed frame. Bytes after the last field are kept. In long arrays, bytes after the
        last needed field are not inspected.
        """
        if self.repeats and SHORTEST <= end - start <= context.answers.longest:
            return self.rewrite_again(buf, start, end, context)
        return self.rewrite_anew(buf, start, end, context)

    def rewrite_again(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | NeedsLookup | None:
        """Like `rewrite`, with the cached result for the same bytes if it is still valid."""
        content, answers = bytes(memoryview(buf)[start + BEHIND : end]), context.answers
        known = answers.find(self.number, content, context.owner)
        if known is not None:
            again = known.inputs.still_hold(context)
            if isinstance(again, NeedsLookup):
                return again
            if again:
                known.inputs.replay_counters(context)
                return None if known.written is None else [buf[start : start + BEHIND], known.written]
        note = None if context.note is None else context.note.copy()
        inputs = context.inputs = Dependencies(note, context.max_nodes)
        try:
            pieces = self.rewrite_anew(buf, start, end, context)
        finally:
            context.inputs = None
        if isinstance(pieces, NeedsLookup):
            return pieces
        if sum(map(len, pieces or ())) + len(content) <= answers.most:
            written = None if pieces is None else b"".join((pieces[0][BEHIND:], *pieces[1:]))
            answers.keep(self.number, CachedResponse(content, written, inputs), context.owner)
        return pieces

    def rewrite_anew(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | NeedsLookup | None:
        """Like `rewrite`, without the cache."""
        body = body_start(buf, start, end, self.header_version, self.direction)
        if body is None:
            raise DecodeError(
                "header does not end in the frame", api=self.api, version=self.version, offset=end - start
            )
        hits: Hits = []
        after = self.walk.run(buf, body, end, hits)
        hits = yielding_list(hits)
        edits = Edits(buf, start, end, self.walk, hits)
        found: Pieces | NeedsLookup | None = None
        for apply in self.applies if hits else ():
            found = apply(buf, hits, edits, context)
            if found is not None:  # the remaining rewrites would count their changes twice
                break
        if found is None:
            if after != end and self.walk.whole:
                context.count("trailing_bytes")
            found = edits.pieces() if edits else None
        edits.free()
        free_list(hits)
        return found
