"""Looking at the traffic of one process: begins with the first viewer, and ends a minute after the last one.

Strategy. The sink is a sampler of the fan-out, which the budget turns off and on; all work for viewers is paid from
that, rows and searches too. For a minute after the last viewer the exchanges stay and come, so that one whose line
broke goes on where it was. Then nothing is left of it, and traffic pays nothing. For tests looking begins with the
process and has no end and, in effect, no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic, thread_time, time
from typing import Protocol

from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import ObservedExchange
from kproxy.record.fanout import Fanout
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView, ViewedEvent
from kproxy.session.counters import ApiTally

from .pace import PERIOD, LookBudget
from .parts import AuditTotals, ViewTotals
from .ring import ExchangeRing, KeptExchange
from .rows import COLUMNS, encode, row_of
from .sink import Viewer, ViewSink
from .ticks import totals_of

LINGER = 60.0
"""Seconds for which exchanges are kept after the last viewer has gone."""
EVERYTHING = 1e6
"""Share of the time that looking may take where all of it is to be seen: more than there is."""
LONG = 1.0
"""Seconds after which an exchange is told although it is under way."""
SET = 0.01
"""Seconds by which two clocks differ when one was set."""
EVERY_PARTITION = 1 << 31
THROTTLE = COLUMNS.index("throttle")
LONGEST_SEARCH = 0.2
"""Seconds that one search takes at most; who wants more asks again, from where it ended."""


class ViewTimers(Protocol):
    """Reactor, as far as looking uses it."""

    def call_at(self, when: float, call: Callable[[], None]) -> object: ...
    def work_through(self, steps: Iterator[object]) -> None: ...


class WatchedTraffic(Protocol):
    """Traffic of a process, as far as what is told each second goes."""

    def tallies(self) -> Iterable[ApiTally]: ...

    def under_way(self, before: float) -> Iterator[Iterable[ObservedExchange]]:
        """Yield, a connection a step, the exchanges whose requests came before that time and are not answered."""

    def connections(self) -> int: ...
    def bytes_read(self) -> tuple[int, int]: ...
    def held_bytes(self) -> int: ...
    def audit(self) -> AuditTotals | None: ...


class ViewWatch:
    """Looking at one process. `process`: its number, with which ids of exchanges begin; `first`: the number of its
    first exchange, which no process in this place had before; `kept`: bytes of frames that are kept at most."""

    def __init__(
        self, fanout: Fanout, timers: ViewTimers, watched: WatchedTraffic, *, kept: int, process: int = 0,
        first: int = 1, clock: Callable[[], float] = monotonic, wall: Callable[[], float] = time,
    ) -> None:  # fmt: skip
        self.fanout, self.timers, self.watched = fanout, timers, watched
        self.process, self.clock, self.now_1970 = process, clock, wall
        self.ring = ExchangeRing(kept, first)
        self.sink = ViewSink(self.ring, self.whole, clock)
        self.budget = LookBudget(self.turned, clock())
        self.attached = self.always = False
        self.until = 0.0  # when looking ends, while there are no viewers
        self.scanned = 0.0
        self.base = self.missed = 0
        self.offset = wall() - clock()

    # ---- who looks

    def open(self, viewer: Viewer) -> None:
        """Look for this viewer, too: from now on it is given what fits."""
        self.sink.viewers.append(viewer)
        if not self.attached:
            self.attach()
        elif viewer.wanted.needs_records:
            self.fanout.changed()

    def close(self, viewer: Viewer) -> None:
        if viewer in self.sink.viewers:
            self.sink.viewers.remove(viewer)
            self.until = self.clock() + LINGER

    def look_always(self) -> None:
        """Keep every exchange from now on, whoever looks and whatever it costs; called before anybody looks."""
        self.always, self.budget = True, LookBudget(self.turned, self.clock(), EVERYTHING)
        self.attach()

    def keep(self, most_bytes: int) -> None:
        """Keep at most so many bytes of frames from now on; what is too much is let go some at a time."""
        self.timers.work_through(self.ring.use(most_bytes))

    def attach(self) -> None:
        now = self.clock()
        self.attached, self.scanned = True, now
        self.budget.looking = True
        self.budget.fill(now)
        self.budget.ask()
        self.fanout.add_sampler(self.sink, self.budget.spend)
        self.base = self.passed - self.sink.looked.exchanges
        self.timers.call_at(now + PERIOD, self.tick)

    def detach(self) -> None:
        self.attached = False
        self.fanout.remove(self.sink)
        self.sink.look_again()
        self.sink.early.clear()
        self.ring.clear()

    def tick(self) -> None:
        """Fill the budget, look for what is under way, and end when nobody has looked for long."""
        now = self.clock()
        if not self.sink.viewers and now >= self.until and not self.always:
            self.detach()
            return
        self.budget.fill(now)
        self.follow_clock()
        self.timers.call_at(now + PERIOD, self.tick)
        if now - self.scanned >= LONG:
            self.scanned = now
            self.count_missed()
            if self.sink.viewers:
                self.timers.work_through(self.paid(self.scan(now - LONG)))

    def turned(self, looking: bool) -> None:
        """Have nothing shown any more, or all that comes again."""
        if looking:
            self.sink.look_again()
        self.fanout.look(looking)

    def scan(self, before: float) -> Iterator[None]:
        """Tell the exchanges that are under way since then, a connection a step."""
        for some in self.watched.under_way(before):
            for seen in some:
                self.sink.under_way(seen)
            yield

    # ---- counts

    @property
    def passed(self) -> int:
        return sum(tally.requests for tally in list(self.watched.tallies()))

    def count_missed(self) -> None:
        """Count what has passed and was not looked at. What is under way has passed and cannot have been looked at; it
        is known from a second in which nothing was left out."""
        unseen = self.passed - self.sink.looked.exchanges
        if self.budget.ask():
            self.missed += max(0, unseen - self.base)
        self.base = unseen

    def totals(self) -> ViewTotals:
        """Return what is told each second, as totals since the process began."""
        watched = self.watched
        return totals_of(
            watched.tallies(), self.sink.looked, missed=self.missed, connections=watched.connections(),
            read=watched.bytes_read(), held=watched.held_bytes(), audit=watched.audit(),
        )  # fmt: skip

    # ---- what is shown

    def whole(self, seen: ObservedExchange) -> ViewedEvent:
        """Return the data of an exchange's event, with all that a filter may ask for."""
        return request_event(seen, self.wall, EVERY_PARTITION)

    def wall(self, when: float) -> float:
        """Return a time of an exchange in seconds since 1970."""
        return when + self.offset

    def follow_clock(self) -> None:
        """Follow the system's clock, if that was set; else the same exchange has the same time whenever it is told."""
        offset = self.now_1970() - self.clock()
        if abs(offset - self.offset) > SET:
            self.offset = offset

    def event(self, kept: KeptExchange) -> ViewedEvent:
        """Return the data of an exchange's event, as the audit has it."""
        data = request_event(kept.seen, self.wall)
        kept.seen.forget_bodies()
        return data

    def row(self, kept: KeptExchange) -> bytes:
        """Return the row of an exchange as JSON, made when it is first asked for."""
        row = kept.row
        if not row:
            made = row_of(kept, self.process, self.wall)
            row = encode(made)
            if kept.over:
                self.sink.looked.throttle_ms += made[THROTTLE] or 0
            self.ring.put_row(kept, row)
            kept.seen.forget_bodies()
        return row

    def search(
        self, wanted: Filter, before: int | None, most: int, into: list[KeptExchange], after: int | None = None
    ) -> Iterator[int]:
        """Put exchanges that fit into a list, the newest first; yield the number of each that was looked at. Ends when
        there are enough, or the time is over. Others may run between two. `after`: only those that have changed behind
        this place."""
        until = self.clock() + LONGEST_SEARCH
        for kept in self.ring.newest(before):
            if after is not None and kept.place <= after:
                yield kept.number
                continue
            if wanted.holds(ExchangeView(kept.seen, self.whole)):
                into.append(kept)
            kept.seen.forget_bodies()
            yield kept.number
            if len(into) >= most or self.clock() > until:
                return

    def paid(self, steps: Iterable[object]) -> Iterator[None]:
        """Go through steps of work for somebody who looks, and pay for each."""
        begun = thread_time()
        for _ in steps:
            now = thread_time()
            self.budget.spend(now - begun)
            yield
            begun = thread_time()
