"""Builder of the exchanges of one connection: callers report events, and it hands out each finished exchange.

    builder.begin(correlation, wanted, client_id, now)     a request with a known header
    builder.waited / acted / failed                        effects of rules, which are not in the bytes
    builder.finish(open exchange, outcome, now)            the response was sent, or none is due
    builder.give_up(open exchange, now)                    the response will not be seen

It contains the parts that do not depend on how frames are found: required depths, open exchanges, their responses, and
the bounds of kept bytes. `streams.py` cuts bytes into frames. `templated_lines.py` and `observer.py` match frames with
templates of earlier frames; their entries become exchanges when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from kproxy.base.cooperative import yield_now
from kproxy.protocol.pairing import Pairing
from kproxy.protocol.scan.sketch import MOST_SKETCH, Sketcher
from kproxy.protocol.table.api_keys import SASL_HANDSHAKE
from kproxy.record.exchange import Depth, ExchangeOutcome, Form, Frame, ObservedExchange, TakeExchange, Who
from kproxy.session.commands import NO_ANSWER
from kproxy.session.sasl.login import RawTokens

from .credentials import REQUEST, RESPONSE, header_end, take_out
from .observation import HEAD_KEPT, RECORDS, SIZE_BYTES, SMALL, Observation, ObservationPlan, PartialFrame
from .partition_rows import ProducedRow
from .response_errors import errors_of, has_errors_inside, is_long_list
from .summary import Summary

MOST_OPEN = 2000
"""Requests that may be open at a time; kproxy itself lets a client have `max_in_flight` (1,000) and what came with them
in one read. More in a capture are requests with missing responses."""
DIRECTIONS = (REQUEST, RESPONSE)
CUT_SECRET = "config values in a frame that is too long to be looked at as a whole"

OpenEntry = tuple[Any, ...]
"""(correlation id, OpenExchange or template of the request, time, size, records). The last two apply only to a
template, which keeps nothing else of the request."""


class OpenExchange:
    """Exchange of one connection that is under way. `seen` is None if only the number of frames is needed."""

    __slots__ = ("arriving", "asked", "correlation", "kept", "seen", "wanted")
    response_template = None
    """An open exchange has no template for its response. As a class attribute, it lets the loop treat all entries
    alike."""

    def __init__(self, correlation: int, wanted: Observation, seen: ObservedExchange | None) -> None:
        self.correlation, self.wanted, self.seen = correlation, wanted, seen
        self.arriving: PartialFrame | None = None  # the request, as long as it is not whole
        self.kept = 0  # bytes of the connection's `room` that it has
        self.asked: list[ProducedRow] | None = None  # the request's rows, if they are known already

    def materialise(self, _who: Who, _entry: OpenEntry) -> OpenExchange:
        """Return the open exchange itself, as templates return one that they make of an entry."""
        return self

    def take_request(self, now: float) -> None:
        """Put into the exchange as much as was kept of the request under way, which ends or is cut at `now`."""
        frame, self.arriving = self.arriving, None
        if frame is not None and self.seen is not None:
            self.seen.request = self.frame_of(frame, 0, now)

    def take_response(self, frame: PartialFrame, now: float) -> None:
        """Put into the exchange as much as was kept of its response, which ends or is cut at `now`."""
        if self.seen is not None:
            self.seen.response = self.frame_of(frame, 1, now)

    def frame_of(self, frame: PartialFrame, which: int, now: float) -> Frame:
        """Return the `Frame` that was kept of a request (`which` 0) or response (1); its last byte came at `now`."""
        made, wanted = Frame(frame.total, frame.first, now), self.wanted
        if wanted.depths[which] < Depth.SKETCH:
            return made
        data = bytes(memoryview(frame.data)[SIZE_BYTES:])
        sketcher, whole = frame.sketcher, frame.is_complete
        if frame.secret:
            made.data, made.form, made.withheld = data, Form.HEAD, frame.secret
        elif not whole and wanted.values[which]:
            made.data = data[: header_end(data, wanted.key, wanted.version, DIRECTIONS[which])]
            made.form, made.withheld = Form.HEAD, CUT_SECRET
        elif len(frame.data) == frame.total:
            if wanted.depth != Depth.RAW:
                data, made.withheld = take_out(data, wanted.key, wanted.version, DIRECTIONS[which])
            made.data = data
            made.form = Form.WHOLE if len(data) + SIZE_BYTES == frame.total else Form.HEAD
        elif sketcher is None:
            made.data, made.form = data, Form.HEAD
        elif data:  # the first bytes and a sketch were wanted
            made.data, made.form = data, Form.HEAD
            if whole and not sketcher.failed:
                made.sketch = sketcher.data()
        else:
            made.data = sketcher.data()
            made.form = Form.SKETCH if whole and not sketcher.failed else Form.HEAD
        if sketcher is not None and sketcher.failed and self.seen is not None:
            self.seen.unread = sketcher.failed
        return made


Interest = Callable[[int, int], Depth]
"""(api key, version) → required depth of its frames; called once for each pair, then cached."""

MOST_SILENT = 64
"""Exchanges without a response that wait for a session that looks at them later; of those before, it is not told what
rules did."""
KEPT = 16 << 20
"""Bytes that the open exchanges of a connection may keep; beyond that frames keep their first KiB. A client that waits
for five answers, as most do, to requests of 1 MB has room."""


class ExchangeBuilder:
    """Builder of the exchanges of one client connection.

    Counters: `requests`, `responses`, `unanswered`, `unread` (frames), `request_bytes`, `response_bytes`. `responses`
    are those that found their request and came to their end. `unread` are responses without a request, and lengths that
    cannot be: from such a length on, only the bytes of its direction are counted.

    `silent`: exchanges that are due no response (acks=0), each with the time when it was over, until `report_silent`:
    by then the session has looked at them, and has told what rules did. None: without a session.
    """

    silent: list[OpenEntry] | None = None
    invalid: Mapping[str, int] = MappingProxyType({})
    """Invalid frame length by direction. The direction is not read any further. Shared while empty."""

    def __init__(
        self, who: Who, interest: Interest, take: TakeExchange, *, most: int = 1 << 20, summary: Summary | None = None
    ) -> None:
        """Begin without exchanges; `take` is called with each one that is over.

        `most`: bytes of a frame that are kept at FULL depth. `summary`: also counts exchanges.
        """
        self.who, self.take, self.most, self.summary = who, take, most, summary
        self.requests = self.responses = self.unanswered = self.unread = 0
        self.request_bytes = self.response_bytes = 0
        self.awaited = 0  # requests that were in flight when watching began
        self.open = Pairing(itemgetter(0))
        self.room = max(KEPT, 2 * most)
        self.raw: RawTokens | None = None
        self.mechanism = ""  # in the SaslHandshake v0 with a pending response
        self.unanswered_is: ExchangeOutcome = "unanswered"
        self.refocus(interest)

    def refocus(self, interest: Interest) -> None:
        """Change the required depths from the next frame on, and discard all templates."""
        self.plan = ObservationPlan(interest, None if self.summary is None else self.summary.wants)

    # ---- what happens to an exchange

    def begin(self, correlation: int, wanted: Observation, client_id: str | None, now: float) -> OpenExchange:
        """Open an exchange that awaits its response, and return it."""
        seen = None
        if wanted.taken or wanted.counted:
            number = self.awaited + self.requests
            seen = ObservedExchange(self.who, number, wanted.key, wanted.version, correlation, client_id, None)
        exchange = OpenExchange(correlation, wanted, seen)
        self.open.append((correlation, exchange, now, 0, 0))
        self.shed(now)
        return exchange

    def finish(self, exchange: OpenExchange, outcome: ExchangeOutcome, now: float) -> None:
        """End an exchange: count it in the summary and hand it out, as far as required."""
        yield_now()
        self.room += exchange.kept
        exchange.kept = 0
        exchange.take_request(now)  # it may be answered before the request is whole
        seen = exchange.seen
        if seen is None:
            return
        seen.outcome = outcome
        if outcome == "no_answer_due":
            self.end_silently((exchange.correlation, exchange, now, 0, 0))
        else:
            self.hand_out(exchange, seen, now)

    def end_silently(self, entry: OpenEntry) -> None:
        """End an exchange that is due no response; its entry has the time of the end."""
        if self.silent is None:
            self.count_silent(entry)
            return
        self.silent.append(entry)
        if len(self.silent) > MOST_SILENT:
            self.report_silent(1)

    def report_silent(self, most: int = MOST_SILENT) -> None:
        """Count and hand out the oldest `most` exchanges that are due no response."""
        if self.silent:
            oldest, self.silent[:most] = self.silent[:most], ()
            for entry in oldest:
                self.count_silent(entry)

    def count_silent(self, entry: OpenEntry) -> None:
        """Count and hand out one exchange that is due no response."""
        exchange, now = entry[1], entry[2]
        if not isinstance(exchange, OpenExchange):
            if self.summary is not None:
                exchange.count_silent(self.summary, entry)
        elif exchange.seen is not None:
            exchange.seen.outcome = "no_answer_due"
            self.hand_out(exchange, exchange.seen, now)

    def hand_out(self, exchange: OpenExchange, seen: ObservedExchange, now: float) -> None:
        wanted = exchange.wanted
        if wanted.counted and self.summary is not None:
            errors = errors_of(seen) if has_errors_inside(seen.key, seen.version) else seen.known_errors
            self.summary.add(seen, errors, now, deep=wanted.depth >= Depth.ROWS, asked=exchange.asked)
        if wanted.taken:
            self.take(seen)

    def give_up(self, exchange: OpenExchange, now: float) -> None:
        self.unanswered += 1
        self.finish(exchange, self.unanswered_is, now)

    def shed(self, now: float) -> None:
        """Give up the oldest open requests as unanswered until no more than MOST_OPEN are left."""
        while len(self.open) > MOST_OPEN:
            self.give_up(self.materialise(self.open.popleft()), now)

    def materialise(self, entry: OpenEntry) -> OpenExchange:
        """Return the open exchange of `entry`; one is made if its request only matched a template."""
        exchange: OpenExchange = entry[1].materialise(self.who, entry)
        return exchange

    # ---- what bytes do not show

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Record that a frame of this exchange was held for this time.

        `older`: how many unanswered requests with the same correlation id came before it.
        """
        silent = None if response else self.find_silent(correlation_id)
        seen = silent or self.find_exchange(correlation_id, older)
        if seen is not None:
            seen.add_wait(seconds, response=response, by_rule=by_rule)

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """Note the names of rules that fired for this exchange. `answered`: kproxy answers in the broker's place."""
        silent = self.find_silent(correlation_id) if older == NO_ANSWER else None
        seen = silent or self.find_exchange(correlation_id, max(older, 0))
        if seen is not None:
            seen.rules.extend(names)
            seen.answered_by_rule |= answered

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Note error codes that rules put into the response of this exchange; see `session.observer.Observer`."""
        seen = self.find_exchange(correlation_id, 0)  # called when its response is the next, so it is the oldest
        if seen is not None:
            seen.own_errors = seen.own_errors.union(codes)

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        """Note the rule that throttled this exchange, and the mute after it; the longest mute counts."""
        silent = self.find_silent(correlation_id) if older == NO_ANSWER else None
        seen = silent or self.find_exchange(correlation_id, max(older, 0))
        if seen is not None:
            if not seen.throttler or mute > seen.mute:
                seen.throttler = rule
            seen.mute = max(seen.mute, mute)

    def find_silent(self, correlation: int) -> ObservedExchange | None:
        """Return the exchange with this id that is due no response, and was over before the session looked at it."""
        silent = self.silent or []
        at = next((at for at, entry in reversed([*enumerate(silent)]) if entry[0] == correlation), -1)
        if at < 0:
            return None
        exchange = self.materialise(silent[at])
        silent[at] = changed(silent[at], exchange)
        return exchange.seen

    def find_exchange(self, correlation: int, older: int) -> ObservedExchange | None:
        """Return the exchange with this id that has `older` ones with it before it; None if it is over, or not kept."""
        at = self.open.place(correlation, older)
        if at < 0:
            return self.find_under_way(correlation)
        exchange = self.materialise(self.open[at])
        self.open.replace(at, changed(self.open[at], exchange))
        return exchange.seen

    def find_under_way(self, _correlation: int) -> ObservedExchange | None:
        """Return the exchange with this id that is not in `open`, but has a frame in flight."""
        return None

    # ---- what is kept of a frame

    def keep(self, frame: PartialFrame, exchange: OpenExchange, which: int) -> None:
        """Process a frame with a complete header: decide how much of it is kept. `which`: 0 a request, 1 a response."""
        wanted = exchange.wanted
        depth, direction, total = wanted.depths[which], DIRECTIONS[which], frame.total
        if wanted.key == SASL_HANDSHAKE:  # read in any case: it decides if raw tokens follow
            depth = max(depth, Depth.SKETCH)
        if depth < Depth.SKETCH or (wanted.nested and is_long_list(wanted.key, total - SIZE_BYTES)):
            frame.fix_length(0)
            return
        most = SIZE_BYTES + self.most
        too_long = CUT_SECRET if wanted.values[which] and total > most else ""
        if wanted.secret[which] or too_long:
            frame.secret = wanted.secret[which] or too_long
            frame.fix_length(self.head_of(frame, wanted, which))
            return
        sketch = (wanted.key, direction) in RECORDS and total > (SMALL if depth == Depth.SKETCH else most)
        kept = 0 if sketch and depth == Depth.SKETCH else min(total, most)
        if not self.reserve(exchange, kept + (min(total, MOST_SKETCH) if sketch else 0)):
            kept, sketch = min(total, HEAD_KEPT), False
            if wanted.values[which] and kept < total:
                frame.secret = CUT_SECRET
                kept = self.head_of(frame, wanted, which)
        frame.fix_length(kept, Sketcher(wanted.key, wanted.version, direction) if sketch else None)

    def head_of(self, frame: PartialFrame, wanted: Observation, which: int) -> int:
        """Return the bytes of a frame's header, those of its length among them."""
        return SIZE_BYTES + header_end(frame.data[SIZE_BYTES:], wanted.key, wanted.version, DIRECTIONS[which])

    def reserve(self, exchange: OpenExchange, size: int) -> bool:
        """Return True if `size` more bytes may be kept for the exchange; they count as kept then."""
        if size > self.room:
            return False
        self.room -= size
        exchange.kept += size
        return True


def changed(entry: OpenEntry, exchange: OpenExchange) -> OpenEntry:
    """Return an entry with its exchange, which may have been made of a template only now, in the template's place."""
    return exchange.correlation, exchange, *entry[2:]
