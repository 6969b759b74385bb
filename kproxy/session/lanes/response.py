"""Stages of a response that is not passed unread: it is classified, rewritten, evaluated, and leaves the FIFO.

    classify   responses and requests made by kproxy, the client's identity, new sessions
    rewrite    brokers' addresses become the proxy's, their names the client's; unknown ones are looked up
    evaluate   the live rules for this response decide (`response_rules.py`)
    leave      the request leaves the FIFO, and its time is counted
    forward    the response is sent, changed or not, or streams (`tail_stream.py`)

A frame that waits or is incomplete is given to `handle` again.
"""

from __future__ import annotations

from kproxy.base.cooperative import yield_now, yield_point
from kproxy.base.errors import DecodeError
from kproxy.protocol.framing import MAX_RESPONSE_HEADER
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.session.frame import ANSWER, OWN, PASS, Disposition, Need, Reject, Replace, ResponseView, Streaming, Wait
from kproxy.session.plan import LIVE, STREAM
from kproxy.session.rewrite.context import NeedsLookup
from kproxy.session.rewrite.names import DISGUISED, OPENS, learn_session
from kproxy.session.rewrite.versions import MAX_VERSIONS_RESPONSE
from kproxy.session.sasl.login import MAX_TOKEN, RawTokens

from .lane import too_long
from .response_rules import ResponseRules
from .response_scan import ResponseScan
from .tail_stream import TailStream

STREAM_HEAD = 16
"""Enough of a streamed response for its header: size, correlation id, an empty tag buffer, and some."""
NO_ERROR = b"\x00\x00"
MAX_RESPONSES = {SASL_HANDSHAKE: MAX_TOKEN, SASL_AUTHENTICATE: MAX_TOKEN, API_VERSIONS: MAX_VERSIONS_RESPONSE}
"""Bytes without the size; responses of these APIs are decoded completely or cached."""


class ResponseLane(ResponseScan):
    """Response lane of one connection."""

    rules: ResponseRules | None = None  # made when live rules look at a frame

    def handle(self, frame: ResponseView) -> Disposition:
        """Take a response through its stages; the scan takes one that passes off the FIFO.

        A response that cannot be decoded as far as a stage needs it closes the connection.
        """
        try:
            return self.dispose(frame)
        except DecodeError as error:
            return Reject("decode", f"{frame.step.api} response that has to be read: {error}", "broker")

    def dispose(self, frame: ResponseView) -> Disposition:
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
