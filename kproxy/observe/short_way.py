"""The loops that match frames with templates; see `hot.py` for what templates are.

Strategy. For a small exchange these two loops, `from_client` and `to_client`, are nearly all that watching costs. So
they keep to local variables and to one `struct` call a frame, which also gives the bytes that have to be the same. A
frame is tried with the template of the frame before it only; where that does not match, the inner loop ends, and the
other methods look for another template, learn one, or read the frame as usual. All that is counted stands in front of
the records, so the rest of a long frame is passed over as it comes (`skip_in`, `skip_out`).
"""

from __future__ import annotations

from kproxy.wire.primitives import Buffer
from kproxy.wire.scan.frames import REQUEST_BEGINS, RESPONSE_BEGINS

from .coming import Coming
from .exchanges import MOST_OPEN, Entry, Exchanges, Open
from .hot import BATCH, FOLD_AT, PLAIN, PRODUCED, Answer, Ask
from .incoming import LARGEST, RequestStream
from .journal import Journal, RequestTemplates, record_requests, record_responses
from .learn import Asks
from .learn_answers import find_answer
from .middle_way import take_request, take_response
from .outgoing import ResponseStream
from .seen import Depth, Outcome
from .summary import Summary
from .wanted import MOST_PLANNED, Plan, Wanted

HEADER = REQUEST_BEGINS.unpack_from
"""Size, API key << 16 | version, correlation id of a request."""
SHORT = RESPONSE_BEGINS.unpack_from
"""Size and correlation id of a response."""
SMALLEST = 10
"""Bytes of a request header with a client id that is null."""
LONGEST = 1 << 30
"""Bytes of a response at most; a larger size is taken for a sign that these bytes are no response."""
NOTHING_ASKED = Ask(Wanted(-1, -1, Depth.COUNT, counted=False), -1, b"", None)
"""Template that matches no request, since no request has this code: stands where nothing was learnt yet."""


class ShortWay:
    """Part of one connection's `Watcher` that takes the bytes and matches frames with templates."""

    ask: Ask
    asks: dict[int, Asks]
    awaited: int
    incoming: RequestStream
    journal: Journal | None
    learnt: int
    most: int
    open: Exchanges
    outgoing: ResponseStream
    plain_in: bool
    plain_out: bool
    plan: Plan
    recorded: dict[int, RequestTemplates]
    request_bytes: int
    requests: int
    response_bytes: int
    responses: int
    room: int
    summary: Summary | None
    # Most connections never have other values, so these cost nothing to set up for each.
    skip_in = 0  # bytes still to come of the request under way, which need not be looked at
    skip_out = 0  # the same of the response
    coming: Coming | None = None

    def from_client(self, buf: Buffer, n: int, now: float) -> None:
        """Take `buf[:n]`, the next bytes that came from the client, at the time `now` in seconds."""
        self.request_bytes += n
        opened, tried = self.open, -1
        number = 0
        pos = 0 if self.plain_in else self._read_requests(buf, 0, n, now)
        if self.recorded:
            pos = record_requests(self, buf, pos, n, now)
        while pos < n:
            ask = self.ask
            while n - pos >= ask.reach:
                if ask.kind:
                    size, code, correlation, same, length, magic, attributes, producer, count = ask.unpack(buf, pos)
                    if (
                        same != ask.prefix
                        or code != ask.code
                        or size != length + ask.overhead
                        or attributes != ask.attributes
                        or producer != ask.producer
                        or not ask.least <= size <= ask.most
                        or count <= 0
                        or magic != 2
                    ):
                        break
                else:
                    size, code, correlation, same = ask.unpack(buf, pos)
                    if same != ask.prefix or code != ask.code or size < ask.least:
                        break
                    count = 0
                end = pos + 4 + size
                if end > n:
                    if ask.silent is not None or size > LARGEST:
                        break
                    self.skip_in, self.plain_in, end = end - n, False, n
                if ask.silent is None:
                    opened.append((correlation, ask, now, size, count))
                else:
                    self._count_silent(ask.silent, size, count, now)
                pos = end
                number += 1
            if pos >= n:
                break
            if pos != tried and self._find_ask(buf, pos, n):
                tried = pos
            else:
                after = take_request(self, buf, pos, n, now)
                pos = after if after >= 0 else self._read_requests(buf, pos, n, now)
                if self.recorded and self.plain_in:
                    pos = record_requests(self, buf, pos, n, now)
        self.requests += number
        if len(opened) > MOST_OPEN:
            self.shed(now)

    def to_client(self, buf: Buffer, n: int, now: float) -> None:  # noqa: C901, PLR0912, PLR0915  # calls would cost more
        """Take `buf[:n]`, the next bytes that were handed to the client's socket, at the time `now` in seconds."""
        self.response_bytes += n
        opened, summary, tried = self.open, self.summary, -1
        if summary is not None and now >= summary.until:
            summary.roll(now)
        number = base = count = delta = mark = 0
        pos = 0 if self.plain_out else self._read_responses(buf, 0, n, now)
        if self.recorded:
            pos = record_responses(self, buf, pos, n, now)
        while pos < n:
            while opened:
                expected, ask, then, asked_size, asked_count = opened[0]
                answer = ask.answer
                if answer is None or n - pos < answer.reach:
                    break
                kind = answer.kind
                if kind == PRODUCED:
                    size, correlation, same, base = answer.unpack(buf, pos)
                    if size != answer.size or base < 0:
                        break
                elif kind == BATCH:
                    size, correlation, same, mark, middle, base, length, magic, attributes, delta, count = (
                        answer.unpack(buf, pos)
                    )
                    if (
                        size != length + answer.overhead
                        or attributes != answer.attributes
                        or middle != answer.middle
                        or not answer.least <= size <= answer.most
                        or count <= 0
                        or mark < 0
                        or magic != 2
                    ):
                        break
                else:
                    size, correlation, same = answer.unpack(buf, pos)
                    if size != answer.size and (kind != PLAIN or size < answer.least):
                        break
                end = pos + 4 + size
                if same != answer.prefix or correlation != expected:
                    break
                if end > n:
                    if kind in (PLAIN, BATCH) and size <= LONGEST:
                        self.coming = Coming(opened.popleft(), answer, size, count, base + delta, mark)
                        self.skip_out, self.plain_out, pos = end - n, False, n
                    break
                opened.popleft()
                pos = end
                number += 1
                if not answer.counted:
                    continue
                latencies = answer.latencies
                waiting = len(latencies)
                latencies.append(now - then)
                answer.last = then
                answer.request_sizes += asked_size
                if kind == PRODUCED:
                    answer.records += asked_count
                    answer.offset = base + asked_count - 1
                else:
                    answer.sizes += size
                    if kind == BATCH:
                        answer.records += count
                        answer.offset, answer.mark = base + delta, mark
                if not waiting:
                    answer.begun = then
                    summary.waiting.append(answer)  # type: ignore[union-attr]  # else nothing is counted
                elif waiting > FOLD_AT:
                    summary.fold()  # type: ignore[union-attr]
            if pos >= n:
                break
            if pos != tried and self._find_answer(buf, pos, n):
                tried = pos
            else:
                after = take_response(self, buf, pos, n, now)
                pos = after if after >= 0 else self._read_responses(buf, pos, n, now)
                if self.recorded and self.plain_out:
                    pos = record_responses(self, buf, pos, n, now)
        self.responses += number

    # ---- frames that the template at hand does not match

    def _find_ask(self, buf: Buffer, pos: int, n: int) -> bool:
        """Return True if a template for the request at `pos` is known or can be learnt; `ask` is that one then."""
        if n - pos < SMALLEST + 4:
            return False
        size, code, _ = HEADER(buf, pos)
        if not SMALLEST <= size <= LARGEST:
            return False
        asks = self.asks.get(code)
        if asks is None:
            if len(self.asks) >= MOST_PLANNED:
                return False
            asks = self.asks[code] = Asks(code, self.plan[code])
        found = asks.find(buf, pos, size, n)
        if found is not None:
            self.ask = found
        return found is not None

    def _read_requests(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Read requests as usual until one begins that a template may match; return its position, or `n`."""
        while pos < n:
            if self.skip_in:
                skipped = min(self.skip_in, n - pos)
                self.skip_in -= skipped
                pos += skipped
            else:
                pos = self.incoming.receive(buf, pos, n, now)
            self.look_ahead()
            if self.plain_in:
                break
        return pos

    def _find_answer(self, buf: Buffer, pos: int, n: int) -> bool:
        """Return True if a template for the response at `pos` is known or can be learnt; the Ask has it as its next."""
        if not self.open or n - pos < 8:
            return False
        correlation, ask = self.open[0][:2]
        size, found = SHORT(buf, pos)
        if found != correlation or not isinstance(ask, Ask) or not 4 <= size <= LONGEST:
            return False
        answer = find_answer(ask, buf, pos, size, n)
        if answer is not None:
            ask.answer = answer
        return answer is not None

    def _read_responses(self, buf: Buffer, pos: int, n: int, now: float) -> int:
        """Read responses as usual until one begins that a template may match; return its position, or `n`."""
        while pos < n:
            if self.skip_out:
                skipped = min(self.skip_out, n - pos)
                self.skip_out -= skipped
                pos += skipped
                self.arrived(now)
            else:
                pos = self.outgoing.receive(buf, pos, n, now)
            self.look_ahead()
            if self.plain_out:
                break
        return pos

    def arrived(self, now: float) -> None:
        """Count the exchange whose long response matched a template, once all of that response is here."""
        coming = self.coming
        if coming is None or self.skip_out:
            return
        self.coming = None
        self.responses += 1
        if self.summary is not None:
            coming.count(self.summary, now)

    def _count_silent(self, silent: Answer, size: int, count: int, now: float) -> None:
        """Count a Produce request of `size` bytes and `count` records with acks=0, which is due no response."""
        summary = self.summary
        if summary is None or not silent.counted:
            return
        if now >= summary.until:
            summary.roll(now)
        if not silent.count:
            silent.begun = now
            summary.waiting.append(silent)
        silent.count += 1
        silent.last = now
        silent.request_sizes += size
        silent.records += count

    def slowly(self, entry: Entry) -> Open:
        """Return the open exchange of `entry`; one is made if its request only matched a template."""
        raise NotImplementedError

    def begin(self, correlation: int, wanted: Wanted, client_id: str | None, now: float) -> Open:
        """Open an exchange whose response is to come, and return it."""
        raise NotImplementedError

    def reserve(self, found: Open, size: int) -> bool:
        """Return True if `size` more bytes may be kept for the exchange; they count as kept then."""
        raise NotImplementedError

    def over(self, found: Open, outcome: Outcome, now: float) -> None:
        """End an exchange: count it in the summary and hand it out, as far as somebody wants that."""
        raise NotImplementedError

    def look_ahead(self) -> None:
        """Set `plain_in` and `plain_out`: True if the next byte begins a frame that a template may match."""
        raise NotImplementedError

    def shed(self, now: float) -> None:
        """Give up the oldest open requests as unanswered until no more than MOST_OPEN are left."""
        raise NotImplementedError
