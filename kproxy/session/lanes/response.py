"""A long Fetch or ShareFetch response: it streams through, and only its tail is decoded and may be changed.

Strategy. The frame's length has been sent before its tail arrives, so the tail keeps its length. Shorter addresses are
padded by an unknown tagged field. If the addresses are longer, the whole list of endpoints is blanked into such a
field; the client then sends Metadata, which is never streamed. Readers must skip unknown tagged fields (KIP-482).

Handling of a decoded response: it is classified, rewritten, evaluated, and leaves the FIFO.

    classify   responses and requests made by kproxy, the client's identity, new sessions
    rewrite    brokers' addresses become the proxy's, their names the client's; unknown ones are looked up
    evaluate   the live rules that wait for the response decide (`response_rules.py`)
    leave      the request leaves the FIFO, and its time is counted
    forward    the response goes on, changed or not, or streams on

A frame that waits or is incomplete is given to `handle` again.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from itertools import count

from kproxy.base.cooperative import yield_now, yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.edit import Edits
from kproxy.protocol.framing import MAX_RESPONSE_HEADER
from kproxy.protocol.primitives import Buffer, write_uvarint
from kproxy.protocol.scan.response_tail import PrefixSkipper, tail_layout
from kproxy.protocol.scan.walk import Hits, Walk, compile_walk
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.session.commands import LONG
from kproxy.session.frame import PASS, Disposition, Need, Reject, Replace, ResponseView, Streaming, Wait
from kproxy.session.inflight import ANSWER, OWN
from kproxy.session.plan import LIVE, STREAM, Step
from kproxy.session.rewrite.addresses import address_rewrite
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names import DISGUISED, OPENS, learn_session
from kproxy.session.rewrite.response_cache import Apply, NeedsLookup
from kproxy.session.rewrite.versions import MAX_VERSIONS_RESPONSE
from kproxy.session.sasl.login import MAX_TOKEN, RawTokens

from .lane import Lane, too_long
from .response_rules import ResponseRules, ResponseScan

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


STREAM_HEAD = 16
"""Enough of a streamed response for its header: size, correlation id, an empty tag buffer, and some."""
NO_ERROR = b"\x00\x00"
MAX_RESPONSES = {SASL_HANDSHAKE: MAX_TOKEN, SASL_AUTHENTICATE: MAX_TOKEN, API_VERSIONS: MAX_VERSIONS_RESPONSE}
"""Bytes without the size; responses of these APIs are decoded in one piece or cached."""


class ResponseLane(ResponseScan):
    """Response lane of one connection."""

    rules: ResponseRules | None = None  # made when live rules look at a frame

    def handle(self, frame: ResponseView) -> Disposition:
        """Take a response through its stages; the scan takes one that passes off the FIFO.

        A response that cannot be decoded as far as a stage needs it closes the connection.
        """
        try:
            return self.judge(frame)
        except DecodeError as error:
            return Reject("decode", f"{frame.step.api} response that has to be read: {error}", "broker")

    def judge(self, frame: ResponseView) -> Disposition:
        """Return the disposition of a response. Raises DecodeError."""
        step = frame.step
        most = MAX_RESPONSES.get(step.key)
        if most is not None and (refusal := too_long(frame, "response", "broker", most)) is not None:
            return refusal
        if step.splice_response is None or step.response == LIVE:
            yield_now()
        else:  # a name in its head is mostly all there is to do, which takes microseconds
            yield_point()
        if step is ANSWER:
            return Replace(self.session.inflight.take_answers(), frame.start)
        if step.response == LIVE:
            if self.rules is None:
                self.rules = ResponseRules(self)
            return self.rules.handle(frame)
        note = frame.note
        if note is not None and step is not OWN and OPENS in note:
            context = self.session.context
            need = learn_session(step.version, frame.buf, frame.start, frame.have, frame.end, context)
            if need:
                return Need(need)
        return self.rewrite(frame)

    # ---- rewrite

    def rewrite(self, frame: ResponseView) -> Disposition:
        """Return the disposition of a response that no live rule looks at. Raises DecodeError."""
        step, whole = frame.step, frame.have == frame.end
        ids = step.by_id and DISGUISED in self.session.context.memory
        no_nodes = step.no_nodes is not None and whole and step.no_nodes(frame.buf, frame.start, frame.end)
        if step.by_id and not ids and (step.only_ids or no_nodes):
            return PASS
        if step.splice_response is not None and (step.no_nodes is None or no_nodes):
            disposition = self.splice(step.splice_response, frame)
            if isinstance(disposition, Replace):
                self.release(frame)
            if disposition is not None:
                return disposition
            yield_now()
        if (
            step.response == STREAM
            and not whole
            and frame.length - 4 > self.session.shared.buffer_threshold
            and not ids
        ):
            return self.stream_on(frame)
        missing = frame.missing
        if missing is not None:
            return missing
        if step is OWN:
            return self.take_own(frame)
        self.identify(frame, step)
        if step.key == SASL_HANDSHAKE and step.version == 0:
            return self.begin_tokens(frame)
        pieces = self.rewritten(frame, step, frame.note)
        if isinstance(pieces, list):
            self.release(frame)
            return Replace(pieces, frame.end)
        return PASS if pieces is None else pieces

    # ---- what is not for the client

    def take_own(self, frame: ResponseView) -> Replace:
        self.fifo.popleft()
        frame.note(frame.content(), frame.now)  # purpose of the request
        return Replace([], frame.end)

    def begin_tokens(self, frame: ResponseView) -> Disposition:
        """Process the response to a SaslHandshake v0: without an error, tokens follow in both directions."""
        at = frame.start + 8
        if frame.end >= at + 2 and bytes(frame.buf[at : at + 2]) == NO_ERROR:
            self.session.logins.begin_raw(RawTokens(frame.note["mechanism"]))
        return PASS

    # ---- long responses

    def stream_on(self, frame: ResponseView) -> Need | Reject | Streaming:
        """Take the request off the FIFO and let its response stream, or return the need for the rest of its header.

        Raises DecodeError.
        """
        have = frame.have - frame.start
        body = frame.body if have >= STREAM_HEAD else None
        if body is not None:
            self.release(frame)
            return Streaming(TailStream(self, frame.step, frame.correlation, frame.end - body), body)
        return Need(min(max(STREAM_HEAD, 2 * have), frame.length, MAX_RESPONSE_HEADER + 4))

    def treat_tail(self, stream: TailStream, tail: bytearray, now: float) -> Replace | Wait | Reject:
        """Rewrite the tail of a streamed response; it waits for lookups of unknown nodes."""
        context = self.session.context
        context.note, context.looked_up = None, self.looked_up
        try:
            changed = stream.rewrite_tail(memoryview(tail)[: stream.length], context)
        except DecodeError as error:
            return Reject("decode", f"response that has to be rewritten: {error}", "broker")
        if isinstance(changed, NeedsLookup):
            return Wait(changed)
        self.looked_up = None
        context.evict_nodes()
        return Replace([tail[: stream.length] if changed is None else changed], stream.length)
