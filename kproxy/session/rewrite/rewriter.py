"""Rewriter of messages in place: one walk for all rewrites of a message, then their edits.

Strategy. A `Rewrite` names the paths that it needs of a message in one version. Bound to the walk, it gives a function
that reads the hits and puts edits. Nothing is decoded, and unedited bytes are not copied. A rewrite reads facts from
the `Context`. If a fact is unknown, the rewrite returns `NeedsLookup`. The lane waits for the lookup and calls again.
An `Apply` that returns `NeedsLookup` leaves the context unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from kproxy.base.cooperative import free_list, yielding_list
from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, walk
from kproxy.protocol.table import schema
from kproxy.session.rewrite.context import SHORTEST, CachedResponse

from .context import Context, Dependencies, NeedsLookup

Pieces = list[Any]  # bytes-like objects that make up a frame
NUMBERS = count()
BEHIND = 4
"""Bytes of the correlation id; answers are compared after it."""

Apply = Callable[[Buffer, Hits, Edits, Context], NeedsLookup | None]


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
            return self.rewrite_cached(buf, start, end, context)
        return self.rewrite_uncached(buf, start, end, context)

    def rewrite_cached(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | NeedsLookup | None:
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
            pieces = self.rewrite_uncached(buf, start, end, context)
        finally:
            context.inputs = None
        if isinstance(pieces, NeedsLookup):
            return pieces
        if sum(map(len, pieces or ())) + len(content) <= answers.most:
            written = None if pieces is None else b"".join((pieces[0][BEHIND:], *pieces[1:]))
            answers.keep(self.number, CachedResponse(content, written, inputs), context.owner)
        return pieces

    def rewrite_uncached(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | NeedsLookup | None:
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
