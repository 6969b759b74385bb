"""Rewriting one message in place: one walk for all rewrites that want something of it, then their edits.

Strategy. A `Rewrite` says which paths it wants of a message in one version and gives, once bound to the walk, a
function that looks at the hits and puts edits. Nothing is decoded and nothing that is not edited is copied. What a
rewrite does not know yet it asks the `Context` for; an answer of None means "not known yet": the session finds out and
calls again, so an `Apply` must leave no trace in the context before it knows that it has all it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from kproxy.base.errors import DecodeError
from kproxy.protocol.breath import drop, spread
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import body_start
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.scan.walk import Hits, Walk, walk
from kproxy.protocol.table import schema

from .context import Context
from .kept_answers import SHORTEST, AnswerInputs, KeptAnswer

Pieces = list[Any]  # bytes-like objects that make up a frame
NUMBERS = count()
BEHIND = 4
"""Bytes of the correlation id, behind which answers are compared."""

Apply = Callable[[Buffer, Hits, Edits, Context], None]


class Rewrite(Protocol):
    """Rewrite that one rule needs of one message in one version."""

    @property
    def wanted(self) -> frozenset[str]:
        """Return the paths of the fields it reads, for `protocol.scan.walk`."""

    def bind(self, walk: Walk) -> Apply:
        """Return the function that puts the edits, given the walk whose mark numbers the hits carry."""


Splice = tuple[int, int, bytes]
"""(start, stop, bytes) of the only change of a frame."""


class Splicer(Protocol):
    """Rewriter of frames with one place that changes, which need not be held for that."""

    def splice(self, buf: Buffer, pos: int, end: int, context: Context) -> Splice | None:
        """Return the change of the frame whose size is at `pos` and of which buf[pos:end] is here. None: it is to be
        looked at whole."""


class Rewriter:
    """Rewriter of one (api, version, direction): all rewrites of it, compiled when a frame of it first passes.

    `repeats`: responses whose rewrites ask the context for no more than addresses and the exchange's note, and leave
    nothing in it but counts. Those that were rewritten before need not be again (`kept_answers.py`).
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

    def rewrite(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | None:
        """Return the frame at buf[start:end] (without its size) after all edits, or None when it stays as it is.

        Look at `context.incomplete` afterwards: if true, the result means nothing and the call is to be repeated.
        Raises DecodeError for a frame that does not follow its grammar. Bytes after the last field are kept; what long
        arrays hold behind the last field that somebody wants to see is not looked at.
        """
        if self.repeats and SHORTEST <= end - start <= context.answers.longest:
            return self.rewrite_again(buf, start, end, context)
        return self.rewrite_anew(buf, start, end, context)

    def rewrite_again(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | None:
        """Return what `rewrite` does: that which the same bytes became before, if nothing speaks against it."""
        content, answers = bytes(memoryview(buf)[start + BEHIND : end]), context.answers
        known = answers.find(self.number, content, context.owner)
        if known is not None:
            if known.inputs.said_again(context):
                known.inputs.count_again(context)
                return None if known.written is None else [buf[start : start + BEHIND], known.written]
            if context.incomplete:
                return None
        note = None if context.note is None else context.note.copy()
        inputs = context.inputs = AnswerInputs(note, context.max_nodes)
        try:
            pieces = self.rewrite_anew(buf, start, end, context)
        finally:
            context.inputs = None
        if not context.incomplete and sum(map(len, pieces or ())) + len(content) <= answers.most:
            written = None if pieces is None else b"".join((pieces[0][BEHIND:], *pieces[1:]))
            answers.keep(self.number, KeptAnswer(content, written, inputs), context.owner)
        return pieces

    def rewrite_anew(self, buf: Buffer, start: int, end: int, context: Context) -> Pieces | None:
        """Return what `rewrite` does, whatever there was before."""
        body = body_start(buf, start, end, self.header_version, self.direction)
        if body is None:
            raise DecodeError(
                "header does not end in the frame", api=self.api, version=self.version, offset=end - start
            )
        hits: Hits = []
        after = self.walk.run(buf, body, end, hits)
        hits = spread(hits)
        edits = Edits(buf, start, end, self.walk, hits)
        if hits:
            for apply in self.applies:
                apply(buf, hits, edits, context)
                if context.incomplete:  # the others would count what they do a second time
                    break
        if after != end and self.walk.whole and not context.incomplete:
            context.count("trailing_bytes")
        pieces = edits.pieces() if edits else None
        edits.free()
        drop(hits)
        return pieces
