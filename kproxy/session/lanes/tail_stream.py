"""Long Fetch and ShareFetch responses: they pass as they arrive, and only their tail is decoded and may be changed.

Strategy. The frame's length has been sent before its tail arrives, so the tail keeps its length. Shorter addresses are
padded by an unknown tagged field. If the addresses are longer, the whole list of endpoints is blanked into such a
field; the client then sends Metadata, which is never streamed. Readers must skip unknown tagged fields (KIP-482).
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from itertools import count

from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import Buffer, write_uvarint
from kproxy.protocol.scan.response_tail import PrefixSkipper, tail_layout
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk
from kproxy.session.commands import LONG
from kproxy.session.plan import Step
from kproxy.session.rewrite.addresses import address_rewrite
from kproxy.session.rewrite.context import Context, NeedsLookup
from kproxy.session.rewrite.rewriter import Apply

from .lane import Lane

REST = 8192
"""Bytes at the end of long records that are scanned: they arrive in one read with the tail."""
LONGEST_TAIL = 65536
"""Endpoints of some hundred brokers; a longer tail is not from a real broker, and is not held."""
FILLER_TAG = 97
"""A tag far above those in use that still fits one byte."""
WIDE_FILLER_TAG = 9797
WIDEST_FILLER_TAG = 97979797
"""Wider ones, for lengths that the first cannot make."""


class TailStream:
    """Long frame that passes as it comes and is rewritten in its tail. `left`: bytes still to come, with the tail."""

    __slots__ = ("correlation", "lane", "left", "length", "skipper", "step")

    def __init__(self, lane: Lane, step: Step, correlation: int, left: int) -> None:
        self.lane, self.step, self.correlation, self.left = lane, step, correlation, left
        self.skipper = PrefixSkipper(step.key, step.version)
        self.length = 0  # bytes of the tail, once it is reached

    def receive(self, buf: Buffer, pos: int, n: int, now: float, direct: bool) -> int:
        """Take buf[pos:n]; return, if `direct`, how many bytes from the buffer's start pass unchanged."""
        chunk = min(self.left, n - pos)
        try:
            prefix = self.skipper.feed(buf, pos, pos + chunk)
        except DecodeError as error:
            self.lane.session.close("decode", str(error), "broker")
            return pos if direct else 0
        self.left -= prefix
        passed = pos + prefix
        if not direct:
            self.lane.emit(buf[pos:passed])
        if self.skipper.done:
            if self.left == 1 and passed < n and not buf[passed]:  # no tagged field: no node is named
                self.lane.stream = None
                return self.lane.run(buf, 0 if direct else passed, passed + 1, n, now, direct)
            self.begin_tail(buf, passed, n, now)
        elif self.skipper.ahead >= self.left:
            self.lane.session.close("decode", f"{self.step.api} response ends before its last field", "broker")
        else:
            ahead = self.skipper.ahead
            self.leave_out(ahead if ahead < LONG else ahead - REST)
        return passed if direct else 0

    def leave_out(self, size: int) -> None:
        """Let `size` bytes of some records pass without a look, as the body of any frame does."""
        self.skipper.passed(size)
        self.left -= size
        self.lane.skip = size

    def begin_tail(self, buf: Buffer, pos: int, n: int, now: float) -> None:
        if self.left > LONGEST_TAIL:
            text = f"{self.step.api} response has {self.left} bytes behind its records, the limit is {LONGEST_TAIL}"
            self.lane.session.close("frame_too_large", text, "broker")
            return
        self.length = self.left
        self.lane.kept, self.lane.need = bytearray(), self.length
        self.lane.receive_slowly(buf, pos, n, now)

    def rewrite_tail(self, tail: Buffer, context: Context) -> bytes | NeedsLookup | None:
        """Return the tail with the proxy's addresses, in as many bytes as it had. None: unchanged."""
        walk, apply = bound_tail(self.step.key, self.step.version)
        hits: Hits = []
        walk.run(tail, 0, len(tail), hits)
        edits = Edits(tail, 0, len(tail), walk, hits)
        needed = apply(tail, hits, edits, context)
        if needed is not None or not edits:
            return needed
        exact = padded(b"".join(edits.pieces()), len(tail), walk)
        if exact is not None:
            return exact
        context.count("endpoints_blanked")
        return blank(tail, walk, hits)


@cache
def bound_tail(key: int, version: int) -> tuple[Walk, Apply]:
    """Return the walk of a tail and the function that puts the edits, for Fetch or ShareFetch in this version."""
    rewrite = address_rewrite(key, version)
    assert rewrite is not None
    walk = compile_walk(tail_layout(key, version), rewrite.wanted | {"_tagged_fields"})
    return walk, rewrite.bind(walk)


def padded(tail: bytes, length: int, walk: Walk) -> bytes | None:
    """Return the tail made `length` bytes long by one more tagged field; None when no field has that length."""
    if length == len(tail):
        return tail
    hits: Hits = []
    walk.run(tail, 0, len(tail), hits)
    tags = next(hit for hit in hits if walk.marks[hit[0]].what == "tags")
    _, start, end = tags
    spans = Edits(tail, 0, len(tail), walk, hits).tag_spans(tags)
    more = write_uvarint(len(spans) + 1)
    found = filler(length - len(tail) - len(more) + end - start, {number for number, _, _ in spans})
    if found is None:
        return None
    tag, field = found
    behind = spans[-1][2] if spans else end
    place = min((since for number, since, _ in spans if number > tag), default=behind)  # tags ascend
    return tail[:start] + more + tail[end:place] + field + tail[place:]


def blank(tail: Buffer, walk: Walk, hits: Hits) -> bytes:
    """Return the tail without any endpoint, in as many bytes as it had."""
    edits = Edits(tail, 0, len(tail), walk, hits)
    array = (0, 0, 0)
    for hit in hits:
        what = walk.marks[hit[0]].what
        if what == "count":
            array = hit
        elif what == "element":
            edits.remove(hit[1], hit[2], array)
    result = padded(b"".join(edits.pieces()), len(tail), walk)
    assert result is not None, "an endpoint takes more bytes than any filler's tag and size"
    return result


def filler(length: int, used: Container[int]) -> tuple[int, bytes] | None:
    """Return an unused tag, and a field of it with zeros that takes exactly `length` bytes. None: not possible."""
    for first in (FILLER_TAG, WIDE_FILLER_TAG, WIDEST_FILLER_TAG):
        tag = next(tag for tag in count(first) if tag not in used)
        number = write_uvarint(tag)
        for digits in (1, 2, 3, 4):
            content = length - len(number) - digits
            if content >= 0 and len(write_uvarint(content)) == digits:
                return tag, number + write_uvarint(content) + bytes(content)
    return None
