"""Observer of one client connection: cuts its bytes into frames, pairs them, and hands out exchanges.

    observer = ConnectionObserver(who, interest, take)
    observer.from_client(buf, n, now)     every byte that the client sent, in order
    observer.to_client(buf, n, now)       every byte that was sent to it, in order
    observer.end(now)                     the connection is over: what is still open is handed out

Strategy. Layers, each of which takes what it can and leaves the rest to the next: frames of which only numbers are
wanted are matched with templates of frames before them (here for summaries, in `templated_lines.py` for lines), whole
frames are read or copied at once (`whole_frames.py`), and the others are gathered as they come (`streams.py`). All of
them make exchanges of `exchange_builder.py`. Nothing raises, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kproxy.protocol.framing import REQUEST_BEGINS, RESPONSE_BEGINS
from kproxy.protocol.primitives import Buffer
from kproxy.record.exchange import Depth, ObservedExchange, TakeExchange, Who

from .exchange_builder import MOST_OPEN, Interest, OpenExchange
from .observation import MOST_PLANNED, Observation, code_of
from .streams import LARGEST, FrameStream, RequestStream, ResponseStream
from .summary import FOLD_AT, Summary
from .summary_templates import (
    BATCH,
    EXACT,
    PLAIN,
    PRODUCED,
    LongResponse,
    RequestTemplate,
    RequestTemplates,
    find_response_template,
)
from .templated_lines import TemplatedBuilder
from .whole_frames import take_request, take_response

if TYPE_CHECKING:
    from kproxy.record.audit.audit_sink import RequestLines

HEADER = REQUEST_BEGINS.unpack_from
"""Size, API key << 16 | version, correlation id of a request."""
SHORT = RESPONSE_BEGINS.unpack_from
"""Size and correlation id of a response."""
SMALLEST = 10
"""Bytes of a request header with a client id that is null."""
MOST_UNDER_WAY = 20
"""Open exchanges of one connection that are reported in flight: clients have five, and the first is answered first."""
NO_TEMPLATE = RequestTemplate(Observation(-1, -1, Depth.COUNT, counted=False), -1, b"", None)
"""Template that matches no request, since requests with this code do not exist; initial value."""


# The loops `from_client` and `to_client` make up nearly all the cost of a small exchange. So they use local variables
# and one `struct` call a frame, which also returns the constant bytes. The inner loop tries only the template of the
# previous frame, and compares its slots: 0.2 µs a frame, where a lookup by the constants in a `NumberTemplate` takes
# 0.85 µs. On a mismatch the loop ends, and the other methods find another template, learn one (see
# `summary_templates.py`), or read the frame as usual. All counted fields precede the records, so the remainder of a
# long frame is skipped (`FrameStream.pass_on`).
class ConnectionObserver(TemplatedBuilder):
    """Observer of one client connection that cuts its bytes into frames and pairs them into exchanges.

    `incoming`, `outgoing`: read the frames that match no template. `began`: False until what passes is shown to it.
    """

    began = True

    def __init__(
        self, who: Who, interest: Interest, take: TakeExchange, *, most: int = 1 << 20, summary: Summary | None = None,
        request_lines: RequestLines | None = None,
    ) -> None:  # fmt: skip
        """Begin to observe a connection before its first byte. `take` is called with each finished exchange.

        `most`: bytes of a frame that are kept at FULL depth. `summary`: also counts exchanges. `request_lines`: takes
        exchanges that match templates and of which only lines are needed, in place of `take`.
        """
        super().__init__(who, interest, take, most=most, summary=summary)
        self.request_lines = request_lines
        self.incoming, self.outgoing = RequestStream(self), ResponseStream(self)

    def refocus(self, interest: Interest) -> None:
        super().refocus(interest)
        self.request_templates: dict[int, RequestTemplates] = {}
        self.template = NO_TEMPLATE

    def from_client(self, buf: Buffer, n: int, now: float) -> None:
        """Take `buf[:n]`, the next bytes that came from the client, at the time `now` in seconds."""
        self.request_bytes += n
        incoming, opened, tried = self.incoming, self.open, -1
        number = 0
        pos = 0 if incoming.ready else self.read(incoming, buf, 0, n, now)
        if self.recorded:
            pos = self.record_requests(buf, pos, n, now)
        while pos < n:
            template = self.template
            while n - pos >= template.reach:
                if template.kind:
                    size, code, correlation, same, length, magic, attributes, producer, count = template.unpack(
                        buf, pos
                    )
                    if (
                        same != template.prefix
                        or code != template.code
                        or size != length + template.overhead
                        or attributes != template.attributes
                        or producer != template.producer
                        or not template.least <= size <= template.most
                        or count <= 0
                        or magic != 2
                    ):
                        break
                else:
                    size, code, correlation, same = template.unpack(buf, pos)
                    if same != template.prefix or code != template.code or size < template.least:
                        break
                    count = 0
                end = pos + 4 + size
                if end > n:
                    if template.silent is not None or size > LARGEST:
                        break
                    incoming.pass_on(now, end - pos, n - pos)
                    end = n
                if template.silent is None:
                    opened.append((correlation, template, now, size, count))
                else:
                    self.end_silently((correlation, template, now, size, count))
                pos = end
                number += 1
            if pos >= n:
                break
            if pos != tried and self.find_request_template(buf, pos, n):
                tried = pos
            else:
                after = take_request(self, self.request_templates, buf, pos, n, now)
                pos = after if after >= 0 else self.read(incoming, buf, pos, n, now)
                if self.recorded and incoming.ready:
                    pos = self.record_requests(buf, pos, n, now)
        self.requests += number
        if len(opened) > MOST_OPEN:
            self.shed(now)

    def to_client(self, buf: Buffer, n: int, now: float) -> None:  # noqa: C901, PLR0912, PLR0915  # calls would cost more
        """Take `buf[:n]`, the next bytes that were handed to the client's socket, at the time `now` in seconds."""
        self.response_bytes += n
        outgoing, opened, summary, tried = self.outgoing, self.open, self.summary, -1
        if summary is not None and now >= summary.until:
            summary.roll(now)
        number = base = count = delta = mark = 0
        pos = 0 if outgoing.ready else self.read(outgoing, buf, 0, n, now)
        if self.recorded:
            pos = self.record_responses(buf, pos, n, now)
        while pos < n:
            while opened:
                expected, template, then, asked_size, asked_count = opened[0]
                response = template.response_template
                if response is None or n - pos < response.reach:
                    break
                kind = response.kind
                if kind == PRODUCED:
                    size, correlation, same, base, throttle = response.unpack(buf, pos)
                    if size != response.size or base < 0 or throttle:
                        break
                elif kind == BATCH:
                    size, correlation, same, mark, middle, base, length, magic, attributes, delta, count = (
                        response.unpack(buf, pos)
                    )
                    if (
                        size != length + response.overhead
                        or attributes != response.attributes
                        or middle != response.middle
                        or not response.least <= size <= response.most
                        or count <= 0
                        or mark < 0
                        or magic != 2
                    ):
                        break
                else:
                    size, correlation, same = response.unpack(buf, pos)
                    if size != response.size and (kind != PLAIN or size < response.least):
                        break
                end = pos + 4 + size
                if same != response.prefix or correlation != expected:
                    break
                if end > n:
                    if kind in (PLAIN, BATCH) and size <= LARGEST:
                        long = LongResponse(opened.popleft(), response, size, count, base + delta, mark)
                        outgoing.pass_on(now, end - pos, n - pos, long)
                        pos = n
                    break
                opened.popleft()
                pos = end
                number += 1
                if not response.counted:
                    continue
                latencies = response.latencies
                waiting = len(latencies)
                latencies.append(now - then)
                response.last = then
                response.request_sizes += asked_size
                if kind == PRODUCED:
                    response.records += asked_count
                    response.offset = base + asked_count - 1
                elif kind != EXACT:  # otherwise `response.size`
                    response.response_sizes += size
                    if kind == BATCH:
                        response.records += count
                        response.offset, response.mark = base + delta, mark
                if not waiting:
                    response.begun = then
                    self.summary.waiting.append(response)  # type: ignore[union-attr]  # else nothing is counted
                elif waiting > FOLD_AT:
                    self.summary.fold()  # type: ignore[union-attr]
            if pos >= n:
                break
            if pos != tried and self.find_response(buf, pos, n):
                tried = pos
            else:
                after = take_response(self, buf, pos, n, now)
                pos = after if after >= 0 else self.read(outgoing, buf, pos, n, now)
                if self.recorded and outgoing.ready:
                    pos = self.record_responses(buf, pos, n, now)
        self.responses += number
        if not opened:
            opened.ids = None  # its `last` entry would keep the exchange alive

    # ---- bytes that are not given, and the beginning and the end of watching

    def unseen(self, response: bool) -> int:
        """Return how many of the next bytes in that direction the observer only needs to count."""
        return (self.outgoing if response else self.incoming).unseen

    def pass_over(self, n: int, now: float, response: bool) -> None:
        """Count `n` skipped bytes, at most `unseen`; otherwise like `from_client` and `to_client`."""
        if response:
            self.response_bytes += n
            if self.summary is not None and now >= self.summary.until:
                self.summary.roll(now)
            self.outgoing.pass_over(n, now)
        else:
            self.request_bytes += n
            self.incoming.pass_over(n, now)
        self.look_ahead()

    def awaiting(self, requests: Iterable[tuple[int, int, int]]) -> None:
        """Open exchanges for the requests in flight when watching begins late: (correlation id, API key, version) each.

        Their bytes were not seen. Responses to those with a key below zero find their request, but are not handed out.
        """
        self.began, self.incoming.first = True, False
        for correlation, key, version in requests:
            self.awaited += 1
            wanted = self.plan[code_of(key, version)] if key >= 0 else NO_TEMPLATE.wanted
            self.begin(correlation, wanted, None, 0.0)
        self.look_ahead()

    def find_under_way(self, correlation: int) -> ObservedExchange | None:
        for frame in (self.outgoing.frame, self.incoming.frame):  # a request here has acks=0: others are in `open`
            owner = None if frame is None else frame.owner
            if isinstance(owner, LongResponse):
                owner = owner.exchange(self.who)
            if isinstance(owner, OpenExchange) and owner.correlation == correlation:
                return owner.seen
        return None

    def end(self, now: float, *, closed: bool = False) -> None:
        """End watching: hand out all exchanges that are still open, since the connection is over.

        `closed`: kproxy closed it, so open requests count as closed rather than unanswered. The counters stay.
        """
        self.unanswered_is = "closed" if closed else "unanswered"
        self.outgoing.cut(now)
        self.incoming.cut(now)
        while self.open:
            self.give_up(self.materialise(self.open.popleft()), now)
        self.report_silent()
        del self.incoming.builder, self.outgoing.builder, self.take  # breaks the cycles: no garbage to collect

    def abandon(self) -> None:
        """End observation before the end: open exchanges are not handed out. Do not pass further bytes to it."""
        self.open.clear()
        self.silent = None
        del self.incoming.builder, self.outgoing.builder, self.take

    def waits_since(self, when: float) -> bool:
        """Return True if the oldest exchange that is open began before `when`, as far as its beginning was seen."""
        return bool(self.open) and 0.0 < self.open[0][2] < when

    def under_way(self, before: float) -> Iterator[ObservedExchange]:
        """Yield the kept open exchanges with a request before that time."""
        for _, exchange, begun, *_ in islice(self.open, MOST_UNDER_WAY):
            if begun >= before:
                return
            if isinstance(exchange, OpenExchange) and exchange.seen is not None and exchange.wanted.taken and begun:
                yield exchange.seen

    def pending(self) -> Iterator[ObservedExchange]:
        """Yield the kept exchanges that have a complete request and no complete response."""
        current = self.outgoing.frame
        owners = [entry[1] for entry in (*(self.silent or ()), *self.open)]
        for owner in owners if current is None else (current.owner, *owners):
            if isinstance(owner, OpenExchange) and owner.seen is not None and owner.seen.request is not None:
                yield owner.seen

    # ---- frames that the template at hand does not match

    def find_request_template(self, buf: Buffer, pos: int, n: int) -> bool:
        """Return True if a template for the request at `pos` is known or can be learned; it is `template` then."""
        if n - pos < SMALLEST + 4:
            return False
        size, code, _ = HEADER(buf, pos)
        if not SMALLEST <= size <= LARGEST:
            return False
        family = self.request_templates.get(code)
        if family is None:
            if len(self.request_templates) >= MOST_PLANNED:
                return False
            family = self.request_templates[code] = RequestTemplates(code, self.plan[code])
        found = family.find_or_learn(buf, pos, size, n)
        if found is not None:
            self.template = found
        return found is not None

    def find_response(self, buf: Buffer, pos: int, n: int) -> bool:
        """Return True if a template for the response at `pos` is known or can be learned; the loop tries it first."""
        if not self.open or n - pos < 8:
            return False
        correlation, template = self.open[0][:2]
        size, found = SHORT(buf, pos)
        if found != correlation or not isinstance(template, RequestTemplate) or not 4 <= size <= LARGEST:
            return False
        response = find_response_template(template, buf, pos, size, n)
        if response is not None:
            template.response_template = response
        return response is not None

    def read(self, stream: FrameStream, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Read frames as usual until one begins that a template may match; return its position, or `n`."""
        while pos < n:
            pos = stream.receive(buf, pos, n, now)
            self.look_ahead()
            if stream.ready:
                break
        return pos

    def look_ahead(self) -> None:
        """Have both streams report whether the next byte begins a frame that a template may match."""
        self.incoming.look_ahead()
        self.outgoing.look_ahead()
