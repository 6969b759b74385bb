"""Observer of one client connection: cuts what passes into frames, pairs them, and hands out exchanges.

    observer = ConnectionObserver(who, interest, take)
    observer.from_client(buf, n, now)     every byte that the client sent, in order
    observer.to_client(buf, n, now)       every byte that was sent to it, in order
    observer.end(now)                     the connection is over: what is still open is handed out

Strategy. Layers, each of which takes what it can and leaves the rest to the one below: frames of which only numbers are
wanted are matched with templates of frames before them (`template_matcher.py` for summaries, `journal.py` for lines),
whole frames are read or copied at once (`whole_frames.py`), and the others are gathered as they come (`streams.py`).
What all of them make is an exchange of `exchange_builder.py`. Nothing raises, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable

from .exchange import ObservedExchange, TakeExchange, Who
from .exchange_builder import Interest
from .journal import Journal
from .observation import code_of
from .open_exchanges import OpenExchange
from .summary import Summary
from .summary_templates import LongResponse
from .template_matcher import NO_TEMPLATE, TemplateMatcher


class ConnectionObserver(TemplateMatcher):
    """Observer of one client connection that cuts its bytes into frames and pairs them into exchanges."""

    def __init__(
        self, who: Who, interest: Interest, take: TakeExchange, *, most: int = 1 << 20, summary: Summary | None = None,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        """Begin to watch a connection on which no bytes have passed; `take` is called with each exchange that is over.

        `most`: bytes of a frame that are kept at FULL depth. `summary`: counts exchanges beside `take`. `journal`:
        takes, in place of `take`, exchanges that match templates and of which only lines are wanted.
        """
        super().__init__(who, interest, take, most=most, summary=summary, journal=journal)

    def unseen(self, response: bool) -> int:
        """Return how many of the next bytes in that direction the observer need only be told the number of."""
        return (self.outgoing if response else self.incoming).unseen

    def pass_over(self, n: int, now: float, response: bool) -> None:
        """Count `n` bytes that passed and were not given, at most `unseen`; else as `from_client` and `to_client`."""
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
        self.incoming.first = False
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
        self.let_go()
        del self.incoming.builder, self.outgoing.builder, self.take  # breaks the cycles: no garbage to collect
