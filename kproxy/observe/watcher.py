"""Watches one client connection: cuts what passes into frames, pairs them, and hands out exchanges.

    watcher = Watcher(who, interest, take)
    watcher.from_client(buf, n, now)     every byte that the client sent, in order
    watcher.to_client(buf, n, now)       every byte that was sent to it, in order
    watcher.end(now)                     the connection is over: what is still open is handed out

Strategy. `incoming.py` and `outgoing.py` know what the frames of their direction are; here is what they share: what is
wanted, what is open, and what becomes of an exchange that is over. Frames of which only numbers are wanted are matched
with templates of frames before them (`hot.py`, `short_way.py`). Nothing raises, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproxy.core.sasl import RawTokens
from kproxy.wire.breath import rest

from .error_places import errors_of, has_errors_inside
from .exchanges import MOST_OPEN, Entry, Exchanges, Open, add_wait
from .frames import SIZE_BYTES
from .incoming import RequestStream
from .journal import Journal, OpenRequest, RequestTemplate, RequestTemplates
from .learn import Asks
from .outgoing import ResponseStream
from .seen import Depth, Form, Frame, Outcome, Seen, Who
from .short_way import NOTHING_ASKED, ShortWay
from .summary import Summary
from .wanted import Plan, Wanted, code_of

Take = Callable[[Seen], None]
Interest = Callable[[int, int], Depth]
"""(api key, version) → how much of its frames is wanted; asked once for each pair, then remembered."""

KEPT = 16 << 20
"""Bytes that the open exchanges of a connection may keep; beyond that frames keep their first KiB. A client that waits
for five answers, as most do, to requests of 1 MB has room."""


class Watcher(ShortWay):
    """Observer of one client connection that cuts its bytes into frames and pairs them into exchanges.

    Counters: `requests`, `responses`, `unanswered`, `unread` (frames), `request_bytes`, `response_bytes`. `responses`
    are those that found their request and came to their end. `unread` are responses without a request, and lengths that
    cannot be: from such a length on, only the bytes of its direction are counted.
    """

    def __init__(
        self, who: Who, interest: Interest, take: Take, *, most: int = 1 << 20, summary: Summary | None = None,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        """Begin to watch a connection on which no bytes have passed; `take` is called with each exchange that is over.

        `most`: bytes of a frame that are kept at FULL depth. `summary`: counts exchanges beside `take`. `journal`:
        takes, in place of `take`, exchanges that match templates and of which only lines are wanted.
        """
        self.who, self.take, self.most, self.summary, self.journal = who, take, most, summary, journal
        self.requests = self.responses = self.unanswered = self.unread = 0
        self.request_bytes = self.response_bytes = 0
        self.awaited = 0  # exchanges that were opened by `awaiting`
        self.open = Exchanges()
        self.room = max(KEPT, 2 * most)
        self.raw: RawTokens | None = None
        self.unanswered_is: Outcome = "unanswered"
        self.mechanism = ""  # in the SaslHandshake v0 whose response is awaited
        self.refocus(interest)
        self.incoming, self.outgoing = RequestStream(self), ResponseStream(self)
        self.plain_in = self.plain_out = False  # see `look_ahead`

    # ---- what passes: see `ShortWay`

    def look_ahead(self) -> None:
        ahead, back = self.incoming, self.outgoing
        self.plain_in = (
            ahead.frame is None and not self.skip_in and self.raw is None and not ahead.lost and not ahead.first
        )
        self.plain_out = back.frame is None and not self.skip_out and self.raw is None and not back.lost

    def unseen(self, response: bool) -> int:
        """Return how many of the next bytes in that direction the watcher need only be told the number of."""
        return (self.skip_out or self.outgoing.unseen) if response else (self.skip_in or self.incoming.unseen)

    def pass_over(self, n: int, now: float, response: bool) -> None:
        """Count `n` bytes that passed and were not given, at most `unseen`; else as `from_client` and `to_client`."""
        if response:
            self.response_bytes += n
            if self.summary is not None and now >= self.summary.until:
                self.summary.roll(now)
            if self.skip_out:
                self.skip_out -= n
                self.arrived(now)
            else:
                self.outgoing.pass_over(n, now)
        else:
            self.request_bytes += n
            if self.skip_in:
                self.skip_in -= n
            else:
                self.incoming.pass_over(n, now)
        self.look_ahead()

    def shed(self, now: float) -> None:
        while len(self.open) > MOST_OPEN:
            self.lost(self.slowly(self.open.popleft()), now)

    def awaiting(self, requests: Iterable[tuple[int, int, int]]) -> None:
        """Open exchanges for the requests in flight when watching begins late: (correlation id, API key, version) each.

        Their bytes were not seen. Responses to those with a key below zero find their request, but are not handed out.
        """
        self.incoming.first = False
        for correlation, key, version in requests:
            self.awaited += 1
            wanted = self.plan[code_of(key, version)] if key >= 0 else NOTHING_ASKED.wanted
            self.begin(correlation, wanted, None, 0.0)
        self.look_ahead()

    # ---- what kproxy did

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Note that a frame of this exchange was held for so long.

        `older`: how many unanswered requests with the same correlation id came before it.
        """
        seen = self._seen(correlation_id, older)
        if seen is not None:
            add_wait(seen, seconds, response=response, by_rule=by_rule)

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """Note the names of rules that fired for this exchange. `answered`: kproxy answers in the broker's place."""
        seen = self._seen(correlation_id, older)
        if seen is not None:
            seen.rules.extend(names)
            seen.answered_by_rule |= answered

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Note error codes that rules put into the response of this exchange; see `core.observer.Observer`."""
        seen = self._seen(correlation_id, 0)  # called when its response is the next, so it is the oldest
        if seen is not None:
            seen.own_errors = seen.own_errors.union(codes)

    def _seen(self, correlation: int, older: int) -> Seen | None:
        """Return the exchange with this id that has `older` ones with it before it; None if it is over, or not kept."""
        at = self.open.place(correlation, older)
        if at >= 0:
            found = self.slowly(self.open[at])
            self.open[at] = (correlation, found, *self.open[at][2:])
            return found.seen
        coming = self.coming
        if coming is not None and coming.entry[0] == correlation:
            coming.open = coming.open or self.slowly(coming.entry)
            return coming.open.seen
        for frame in (self.outgoing.frame, self.incoming.frame):  # a request here has acks=0: others are in `open`
            if frame is not None and isinstance(frame.owner, Open) and frame.owner.correlation == correlation:
                return frame.owner.seen
        return None

    # ---- what is wanted, and the end

    def refocus(self, interest: Interest) -> None:
        """Change what is wanted from the next frame on, and forget all templates."""
        self.plan = Plan(interest, None if self.summary is None else self.summary.wants)
        self.asks: dict[int, Asks] = {}
        self.recorded: dict[int, RequestTemplates] = {}
        self.learnt = 0  # lines that `recorded` holds
        self.ask = NOTHING_ASKED

    def end(self, now: float, *, closed: bool = False) -> None:
        """End watching: hand out all exchanges that are still open, since the connection is over.

        `closed`: kproxy closed it, so open requests count as closed rather than unanswered. The counters stay.
        """
        self.unanswered_is = "closed" if closed else "unanswered"
        self.outgoing.cut(now)
        self.incoming.cut(now)
        if self.coming is not None:
            self.lost(self.coming.open or self.slowly(self.coming.entry), now)
        while self.open:
            self.lost(self.slowly(self.open.popleft()), now)
        del self.incoming.watcher, self.outgoing.watcher, self.take  # breaks the cycles: no garbage to collect

    # ---- calls of the streams

    def begin(self, correlation: int, wanted: Wanted, client_id: str | None, now: float) -> Open:
        seen = None
        if wanted.taken or wanted.counted:
            number = self.awaited + self.requests
            seen = Seen(self.who, number, wanted.key, wanted.version, correlation, client_id, None)
        found = Open(correlation, wanted, seen)
        self.open.append((correlation, found, now, 0, 0))
        self.shed(now)
        return found

    def slowly(self, entry: Entry) -> Open:
        found = entry[1]
        if isinstance(found, Open):
            return found
        correlation, ask, then, size, count = entry
        if isinstance(ask, RequestTemplate):
            return self.reopen(ask, then, size + SIZE_BYTES, count)
        seen = None
        if ask.wanted.counted:
            request, wanted = Frame(size + SIZE_BYTES, then, then), ask.wanted
            seen = Seen(self.who, 0, wanted.key, wanted.version, correlation, ask.client_id, request, acks=ask.acks)
        made = Open(correlation, ask.wanted, seen)
        made.asked = ask.asked(size, count)
        return made

    def reopen(self, template: RequestTemplate, then: float, size: int, request: OpenRequest) -> Open:
        """Return an exchange whose request matched a template, as if it had been read."""
        data, numbers, number = request
        wanted, correlation = template.wanted, numbers[1]
        frame = Frame(size, then, then, bytes(data), Form.WHOLE)
        seen = Seen(self.who, number, wanted.key, wanted.version, correlation, template.client_id, frame)
        seen.acks = template.acks
        made = Open(correlation, wanted, seen)
        made.kept = size
        return made

    def reserve(self, found: Open, size: int) -> bool:
        if size > self.room:
            return False
        self.room -= size
        found.kept += size
        return True

    def lost(self, found: Open, now: float) -> None:
        """End an exchange of which no response will be seen."""
        self.unanswered += 1
        self.over(found, self.unanswered_is, now)

    def over(self, found: Open, outcome: Outcome, now: float) -> None:
        rest()
        self.room += found.kept
        found.kept = 0
        if found.arriving is not None:  # answered before the request was whole
            self.incoming.leave(found.arriving, now)
        seen = found.seen
        if seen is None:
            return
        seen.outcome = outcome
        if found.wanted.counted and self.summary is not None:
            errors = errors_of(seen) if has_errors_inside(seen.key, seen.version) else seen.known_errors
            self.summary.add(seen, errors, now, deep=found.wanted.depth >= Depth.ROWS, asked=found.asked)
        if found.wanted.taken:
            self.take(seen)
