"""The view of one process: starts with the first viewer, and stops a minute after the last one.

The sink is a sampler of the fan-out, which the budget pauses and resumes. All work for viewers, including rows and
searches, is charged to it. For a minute after the last viewer, exchanges are kept and added. So a viewer with a broken
connection continues without a gap.

A process reports totals since its start; the stream subtracts those of the previous second. A late viewer misses
nothing, and the totals of processes add up. `ViewPart` and `ViewTotals` are the messages between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic, thread_time, time
from typing import TYPE_CHECKING, Any

import msgspec

from kproxy.protocol.table.errors import error_name
from kproxy.record.audit.request_event import whole_event
from kproxy.record.exchange import ObservedExchange
from kproxy.record.fanout import Fanout
from kproxy.record.filters import ExchangeView, Filter, ViewedEvent
from kproxy.session.counters import ApiTally

from .config import PERIOD, LookBudget
from .rows import COLUMNS, ExchangeRing, KeptExchange, encode, row_of
from .sink import Looked, MaskExchange, Viewer, ViewSink

if TYPE_CHECKING:
    from kproxy.app.live_view import ProxyTraffic
    from kproxy.runtime.io.reactor import Reactor

UNKNOWN = -1
"""An unknown number of missing exchanges."""


class LatencyTotals(msgspec.Struct, frozen=True):
    """Latencies of answered exchanges, as their clients see them: counts by bucket (`record.observer.summary_rows`),
    and
    the sums
    of their parts."""

    buckets: dict[int, int] = {}
    kproxy_ms: float = 0.0
    rule_ms: float = 0.0
    broker_ms: float = 0.0


ApiTotals = tuple[int, int, int, int, LatencyTotals]
"""Totals of one API: requests that passed, and of those looked at errors, bytes from clients, bytes to clients, and
latencies."""

AuditTotals = tuple[int, int, int, int, int]
"""Events written, waiting and lost, outlets that fail now, and processes that do not read clients because of that."""


class ViewTotals(msgspec.Struct, frozen=True):
    """Totals of one process, or of several, since it began. `read`: bytes from clients and from brokers. `missed`:
    exchanges that were not sampled although a viewer was connected."""

    passed: int = 0
    looked_at: int = 0
    missed: int = 0
    connections: int = 0
    read: tuple[int, int] = (0, 0)
    throttle_ms: int = 0
    apis: Mapping[str, ApiTotals] = {}
    errors: Mapping[str, int] = {}
    held_bytes: int = 0
    audit: AuditTotals | None = None


class ViewPart(msgspec.Struct, frozen=True):
    """Part of a stream to a viewer. `rows`: a list in JSON, or empty. `place`: everything of this process up to here
    has been sent. The others are totals: `matched` the filter, and were left out, for too many or since the viewer was
    too slow; could not be judged, for the reason `why`. `missing`: exchanges that were evicted before this part,
    reported once; UNKNOWN: unknown number."""

    place: int
    rows: bytes = b""
    matched: int = 0
    too_many: int = 0
    too_slow: int = 0
    unknown: int = 0
    why: str = ""
    missing: int = 0


NOTHING: ApiTotals = (0, 0, 0, 0, LatencyTotals())


def totals_of(
    tallies: Iterable[ApiTally], looked: Looked, *, missed: int, connections: int, read: tuple[int, int],
    held: int = 0, audit: AuditTotals | None = None,
) -> ViewTotals:  # fmt: skip
    """Return the totals of a process. `tallies`: the frame counts of its metrics."""
    apis: dict[str, ApiTotals] = {}
    passed = 0
    for tally in list(tallies):
        passed += tally.requests
        apis[tally.api] = apis.get(tally.api, NOTHING)[0] + tally.requests, *NOTHING[1:]
    for api, counts in looked.apis.items():
        times = (
            round(seconds * 1000, 3) for seconds in (counts.kproxy_seconds, counts.rule_seconds, counts.broker_seconds)
        )
        latency = LatencyTotals(dict(counts.buckets), *times)
        apis[api] = apis.get(api, NOTHING)[0], counts.errors, counts.request_bytes, counts.response_bytes, latency
    errors = {error_name(code): count for code, count in looked.errors.items()}
    return ViewTotals(
        passed, looked.exchanges, missed, connections, read, looked.throttle_ms, apis, errors, held, audit
    )


def together(totals: Iterable[ViewTotals]) -> ViewTotals:
    """Return the totals of several processes, added up."""
    total = ViewTotals()
    for one in totals:
        apis = dict(total.apis)
        for api, counts in one.apis.items():
            apis[api] = plus(apis.get(api, NOTHING), counts)
        errors = dict(total.errors)
        for name, count in one.errors.items():
            errors[name] = errors.get(name, 0) + count
        total = ViewTotals(
            total.passed + one.passed, total.looked_at + one.looked_at, total.missed + one.missed,
            total.connections + one.connections,
            (total.read[0] + one.read[0], total.read[1] + one.read[1]),
            total.throttle_ms + one.throttle_ms, apis, errors,
            total.held_bytes + one.held_bytes, added(total.audit, one.audit),
        )  # fmt: skip
    return total


def added(one: AuditTotals | None, other: AuditTotals | None) -> AuditTotals | None:
    """Return the counts of two audits, added up."""
    if one is None or other is None:
        return one or other
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4]


def plus(one: ApiTotals, other: ApiTotals, sign: int = 1) -> ApiTotals:
    """Return the sum of two totals, or with `sign` -1 their difference."""
    a, b = one[4], other[4]
    buckets = dict(a.buckets)
    for bucket, count in b.buckets.items():
        buckets[bucket] = buckets.get(bucket, 0) + sign * count
    latency = LatencyTotals(
        buckets, a.kproxy_ms + sign * b.kproxy_ms, a.rule_ms + sign * b.rule_ms, a.broker_ms + sign * b.broker_ms
    )
    return (
        one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2], one[3] + sign * other[3], latency
    )  # fmt: skip


def latency_shown(latency: LatencyTotals) -> dict[str, Any]:
    """Return latencies as JSON has them: buckets as [number, count], none that is empty."""
    return {
        "buckets": sorted([bucket, count] for bucket, count in latency.buckets.items() if count > 0),
        "kproxy_ms": max(0.0, round(latency.kproxy_ms, 3)),
        "rule_ms": max(0.0, round(latency.rule_ms, 3)),
        "broker_ms": max(0.0, round(latency.broker_ms, 3)),
    }


def tick_of(now: ViewTotals, before: ViewTotals, seconds: float) -> dict[str, Any]:
    """Return the differences between two totals for viewers. Totals that are smaller than the previous ones are of a
    restarted process: that second is not reported."""
    apis = {}
    for api, totals in now.apis.items():
        more = plus(totals, before.apis.get(api, NOTHING), -1)
        if any(more[:4]) or any(more[4].buckets.values()):
            apis[api] = [*(max(0, count) for count in more[:4]), latency_shown(more[4])]
    errors = {name: count - before.errors.get(name, 0) for name, count in now.errors.items()}
    return {
        "seconds": round(seconds, 3),
        "passed": max(0, now.passed - before.passed),
        "looked_at": max(0, now.looked_at - before.looked_at),
        "connections": now.connections,
        "bytes": [max(0, a - b) for a, b in zip(now.read, before.read, strict=True)],
        "apis": apis,
        "errors": {name: count for name, count in errors.items() if count > 0},
        "held_bytes": now.held_bytes,
        "throttle_ms": max(0, now.throttle_ms - before.throttle_ms),
    }


LINGER = 60.0
"""Seconds for which exchanges are kept after the last viewer has disconnected."""
EVERYTHING = 1e6
"""Share of the time that looking may take where all of it is to be seen: more than there is."""
LONG = 1.0
"""Seconds after which an exchange in flight is reported."""
SET = 0.01
"""Seconds by which two clocks differ after one was set."""
THROTTLE = COLUMNS.index("throttle")
LONGEST_SEARCH = 0.2
"""Seconds that one search takes at most; who wants more asks again, from where it ended."""


class ViewWatch:
    """Looking at one process. `process`: its number, the prefix of exchange ids. `first`: the number of its first
    exchange, unused by earlier processes in this place. `kept`: most bytes of kept frames."""

    def __init__(
        self, fanout: Fanout, timers: Reactor, watched: ProxyTraffic, *, kept: int, process: int = 0,
        first: int = 1, clock: Callable[[], float] = monotonic, wall: Callable[[], float] = time,
    ) -> None:  # fmt: skip
        self.fanout, self.timers, self.watched = fanout, timers, watched
        self.process, self.clock, self.now_1970 = process, clock, wall
        self.ring = ExchangeRing(kept, first)
        self.sink = ViewSink(self.ring, self.event_data, clock)
        self.budget = LookBudget(self.turned, clock())
        self.attached = self.always = False
        self.until = 0.0  # end of sampling, without viewers
        self.scanned = 0.0
        self.base = self.missed = 0
        self.offset = wall() - clock()

    # ---- who looks

    def open(self, viewer: Viewer) -> None:
        """Attach this viewer: it receives matching exchanges from this call on."""
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
        """Keep every exchange, independent of viewers and cost; call it before the first viewer."""
        self.always, self.budget = True, LookBudget(self.turned, self.clock(), EVERYTHING)
        self.attach()

    def keep(self, most_bytes: int) -> None:
        """Keep at most this many bytes of frames; the excess is evicted in steps."""
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
        self.sink.forget_unmatched()
        self.sink.early.clear()
        self.ring.clear()

    def tick(self) -> None:
        """Fill the budget, report exchanges in flight, and detach after a minute without viewers."""
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
            self.sink.forget_unmatched()
        self.fanout.set_sampling(looking)

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
        """Count what has passed and was not looked at. Exchanges in flight were not observed. Their number is known
        from a second without omissions."""
        unseen = self.passed - self.sink.looked.exchanges
        if self.budget.ask():
            self.missed += max(0, unseen - self.base)
        self.base = unseen

    def totals(self) -> ViewTotals:
        """Return the totals for each second, since the process started."""
        watched = self.watched
        return totals_of(
            watched.tallies(), self.sink.looked, missed=self.missed, connections=watched.connections(),
            read=watched.bytes_read(), held=watched.held_bytes(), audit=watched.audit(),
        )  # fmt: skip

    # ---- what is shown

    def event_data(self, seen: ObservedExchange) -> ViewedEvent:
        """Return the data of an exchange's event, with all that a filter may ask for."""
        return whole_event(seen, self.wall)

    def wall(self, when: float) -> float:
        """Return a time of an exchange in seconds since 1970."""
        return when + self.offset

    def follow_clock(self) -> None:
        """Follow the system's clock after it was set; otherwise an exchange keeps its reported time."""
        offset = self.now_1970() - self.clock()
        if abs(offset - self.offset) > SET:
            self.offset = offset

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

    def use_masks(self, mask: MaskExchange) -> None:
        """From now on, filters about records read masked exchanges."""
        self.sink.mask = mask

    def fits(self, wanted: Filter, seen: ObservedExchange) -> bool:
        """Return True if a viewer's filter holds for an exchange."""
        shown = self.sink.mask(seen) if wanted.needs_records else seen
        return wanted.holds(ExchangeView(shown, self.event_data))

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
            if self.fits(wanted, kept.seen):
                into.append(kept)
            kept.seen.forget_bodies()
            yield kept.number
            if len(into) >= most or self.clock() > until:
                return

    def paid(self, steps: Iterable[object]) -> Iterator[None]:
        """Run steps of work for a viewer, and pay for each."""
        begun = thread_time()
        for _ in steps:
            now = thread_time()
            self.budget.spend(now - begun)
            yield
            begun = thread_time()
