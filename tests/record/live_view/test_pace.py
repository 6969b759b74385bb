"""What looking costs: a budget of seconds, rows by the second, and counts that add up, with a clock of the test's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from kproxy.record.exchange import ObservedExchange
from kproxy.record.fanout import Fanout
from kproxy.record.filters import Filter
from kproxy.record.live_view.config import (
    LONGEST_CHARGE,
    MOST_LEFT,
    PERIOD,
    SHARE,
    WAKE_UP,
    LookBudget,
    RowBucket,
    charged,
)
from kproxy.record.live_view.rows import COLUMNS, MOST_KEPT, frames_size
from kproxy.record.live_view.sink import Viewer
from kproxy.record.live_view.watch import LINGER, ViewWatch
from kproxy.runtime.io.scheduler import work_through
from kproxy.session.counters import ApiTally
from tests.record.live_view.stream_reader import produced
from tests.support.exchange_factory import exchange, orders

RATE = 100_000
COST = 30e-6
"""Seconds that it takes to look at one exchange."""


class Clock:
    """Time of the test, and what is to be called at which."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        self.due.append((when, call))

    def soon(self, call: Callable[[], None]) -> None:
        self.call_at(self.now, call)

    def work_through(self, steps: Iterator[object]) -> None:
        work_through(self, steps)

    def go(self, seconds: float) -> None:
        """Let time pass, and call what is due."""
        self.now += seconds
        while self.due and min(self.due, key=lambda one: one[0])[0] <= self.now:
            first = min(self.due, key=lambda one: one[0])
            self.due.remove(first)
            first[1]()


class Traffic:
    """What a process counts of its traffic."""

    def __init__(self) -> None:
        self.tally = ApiTally("Heartbeat", "4", "none")
        self.slow: list[ObservedExchange] = []

    def tallies(self) -> Iterable[ApiTally]:
        return (self.tally,)

    def under_way(self, before: float) -> Iterator[Iterable[ObservedExchange]]:
        yield [seen for seen in self.slow if seen.request is not None and seen.request.first < before]

    def connections(self) -> int:
        return 1

    def bytes_read(self) -> tuple[int, int]:
        return 0, 0

    def held_bytes(self) -> int:
        return 0

    def audit(self) -> None:
        return None


class Process:
    """A process with a view, whose exchanges are those that the test lets pass."""

    def __init__(self, kept: int = 64 << 20) -> None:
        self.clock, self.traffic = Clock(), Traffic()
        self.fanout = Fanout(structlog.get_logger())
        self.watch = ViewWatch(self.fanout, self.clock, self.traffic, kept=kept, clock=self.clock)
        self.spent = 0.0
        self.kept = exchange("Heartbeat", 4, {"group_id": "g"}, {})

    def viewer(self, text: str = "", rows: int = 400) -> Viewer:
        viewer = Viewer(Filter(text), rows, self.clock(), lambda: None)
        self.watch.open(viewer)
        return viewer

    def passes(self, seen: ObservedExchange | None = None, cost: float = COST) -> None:
        """One exchange passes, which an observer looks at if there is time."""
        self.traffic.tally.requests += 1
        if self.fanout.sinks:
            self.fanout.take(seen or self.kept)
            self.spent += cost
            self.fanout.spend(cost)


def test_the_budget_is_used_up_and_filled_again() -> None:
    """It holds what is for a second; whoever takes long is charged for a slice, since others ran meanwhile."""
    turned: list[bool] = []
    budget = LookBudget(turned.append, 0.0)
    budget.spend(MOST_LEFT / 2)
    assert (turned, budget.ask()) == ([], False)
    for _ in range(20):
        budget.spend(99.0)
    assert turned == [False]
    assert budget.left > -20 * LONGEST_CHARGE
    assert (budget.ask(), budget.ask()) == (True, True)

    budget.fill(0.1)
    assert turned == [False]
    budget.fill(100.0)
    assert (turned, budget.left) == ([False, True], pytest.approx(MOST_LEFT))
    assert (budget.ask(), budget.ask()) == (True, False)


@pytest.mark.trio
async def test_charged_task_pays_for_its_steps_and_wake_ups() -> None:
    """The clock also runs while the task sleeps. That time is not charged. A step that raises is charged."""
    now, spent = 0.0, []

    def takes(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def others() -> None:
        takes(100.0)

    async def work() -> str:
        takes(1.0)
        await trio.testing.wait_all_tasks_blocked()
        takes(2.0)
        with pytest.raises(trio.TooSlowError), trio.fail_after(0):
            await trio.sleep_forever()
        takes(3.0)
        return "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await charged(work(), spent.append, lambda: now) == "done"

    assert sum(spent) == pytest.approx(6.0 + len(spent) * WAKE_UP)
    assert len(spent) >= 3


@pytest.mark.trio
async def test_charged_task_that_is_cancelled_ends() -> None:
    """Cancellation is raised inside the task. The cleanup is charged."""
    spent: list[float] = []
    ends: list[str] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append("cleaned up")

    with trio.move_on_after(0) as scope:
        await charged(work(), spent.append, lambda: 0.0)

    assert (scope.cancelled_caught, ends, spent) == (True, ["cleaned up"], [WAKE_UP, WAKE_UP])


def test_budget_at_full_load_covers_taps_and_stream() -> None:
    """Five seconds at 20,000 exchanges/s, with a part for the page ten times a second. Reads with an awake tap get what
    the stream leaves of the share. Counted by reads, with the test's clock."""
    rate, seconds, part = 20_000, 5, 0.002
    process = Process()
    process.viewer()
    awake = parts = 0
    for number in range(rate * seconds):
        awake += bool(process.fanout.sinks)
        process.passes()
        if number % (rate // 10) == 0:
            process.watch.budget.spend(part)
            parts += 1
        process.clock.go(1 / rate)

    allowed = SHARE * seconds + MOST_LEFT - parts * part
    assert 0.8 * allowed <= awake * COST <= allowed + LONGEST_CHARGE
    assert awake / (rate * seconds) <= 0.05


def test_rows_are_kept_back_for_what_matters() -> None:
    """A quarter of a second's rows is for errors and what rules did; a second fills them all."""
    bucket = RowBucket(400, 0.0)
    assert sum(bucket.take(0.0, important=False) for _ in range(1000)) == 300
    assert sum(bucket.take(0.0, important=True) for _ in range(1000)) == 100
    assert sum(bucket.take(0.5, important=True) for _ in range(1000)) == 200
    assert sum(bucket.take(9.0, important=True) for _ in range(1000)) == 400


def test_at_full_load_all_that_passed_is_accounted_for() -> None:
    """100,000 exchanges/s for three seconds: looked at, or counted as not; shown, or counted by reason. A process
    spends its share and no more."""
    process = Process()
    viewer = process.viewer()
    told = 0
    for _ in range(3 * RATE):
        process.passes()
        process.clock.go(1 / RATE)
        if len(viewer.waiting) > 40:  # a page that reads
            told += len(viewer.waiting)
            viewer.waiting.clear()
    process.clock.go(PERIOD)
    process.clock.go(1.0)

    totals = process.watch.totals()
    assert totals.passed == 3 * RATE
    assert totals.looked_at + totals.missed == totals.passed
    assert viewer.matched == totals.looked_at == process.watch.ring.place
    assert viewer.matched == told + len(viewer.waiting) + viewer.too_many + viewer.too_slow
    assert told + len(viewer.waiting) <= 400 * 4 + 400
    assert process.spent <= SHARE * 3 + MOST_LEFT + COST * 20
    assert process.spent >= SHARE * 3 * 0.8


def test_when_there_is_time_everything_is_looked_at() -> None:
    """Nothing is told to be missing, though some is always under way."""
    process = Process()
    viewer = process.viewer(rows=2000)
    process.traffic.tally.requests += 7
    for _ in range(3000):
        process.passes()
        process.clock.go(0.001)

    assert process.watch.totals().missed == 0
    assert (viewer.matched, viewer.too_many) == (3000, 0)


def test_a_viewer_that_does_not_come_costs_a_bounded_number() -> None:
    """What it misses is counted; others go on."""
    process = Process()
    slow, quick = process.viewer(), process.viewer()
    for _ in range(5000):
        process.passes(cost=0.0)
        process.clock.go(0.005)
        quick.waiting.clear()

    assert len(slow.waiting) == slow.most == 800
    assert (slow.too_slow, slow.too_many) == (5000 - 800, 0)
    assert (quick.too_slow, quick.matched) == (0, 5000)


def test_the_ring_is_bounded_whatever_passes() -> None:
    """By number and by bytes."""
    process = Process(kept=1 << 20)
    process.viewer()
    for _ in range(3000):
        process.passes(cost=0.0)
    assert process.watch.ring.bytes <= 1 << 20

    process = Process()
    process.viewer()
    for _ in range(MOST_KEPT + 500):
        process.passes(cost=0.0)
    assert len(process.watch.ring) == MOST_KEPT


def test_a_minute_after_the_last_viewer_nothing_is_left() -> None:
    """Until then exchanges are kept for who comes back; numbers go on."""
    process = Process()
    viewer = process.viewer()
    process.passes()
    process.watch.close(viewer)
    process.clock.go(LINGER - 1)
    process.passes()
    assert (len(process.watch.ring), process.fanout.wanted) == (2, True)

    for _ in range(8):
        process.clock.go(PERIOD)
    process.passes()
    assert (len(process.watch.ring), process.fanout.wanted, process.clock.due) == (0, False, [])

    process.viewer()
    process.passes()
    assert [kept.number for kept in process.watch.ring.newest()] == [3]
    assert process.watch.totals().missed == 0


def test_what_is_under_way_for_a_second_is_told_before_its_end() -> None:
    """Once, and again when it is over, with the same number."""
    process = Process()
    viewer = process.viewer()
    slow: Any = exchange("Heartbeat", 4, {"group_id": "slow"}, None, at=process.clock.now)
    process.traffic.slow.append(slow)
    for _ in range(12):
        process.clock.go(PERIOD)
    (kept,) = viewer.waiting
    assert (kept.over, json.loads(process.watch.row(kept))[COLUMNS.index("outcome")]) == (False, None)
    assert (viewer.matched, process.watch.totals().looked_at) == (0, 0)

    process.traffic.slow.clear()
    process.passes(slow)
    assert ([one.number for one in viewer.waiting], kept.over) == ([kept.number] * 2, True)
    assert (viewer.matched, process.watch.totals().looked_at) == (1, 1)


def test_what_waits_for_a_viewer_that_does_not_read_has_a_size() -> None:
    """In bytes, too: it stays when the ring has let go of it."""
    process = Process(kept=1 << 20)
    viewer = process.viewer(rows=2000)
    records = orders(1000)
    for number in range(1, 600):
        process.passes(produced("orders", number, records), cost=0.0)
        process.clock.go(0.01)
    waiting = sum(frames_size(kept.seen) for kept in viewer.waiting)

    assert waiting < viewer.most_bytes == 8 << 20
    assert viewer.too_slow + len(viewer.waiting) == viewer.matched == 599
    for _ in range(len(viewer.waiting)):
        viewer.take()
    assert viewer.bytes == 0


def test_apis_that_there_are_not_have_one_name() -> None:
    """A client may send any of 65,536, and what is told each second has a line for each name."""
    process = Process()
    process.viewer()
    for key in range(5000, 5300):
        seen = exchange("Heartbeat", 4, {"group_id": "g"}, None)
        seen.key = key
        process.passes(seen, cost=0.0)

    assert set(process.watch.sink.looked.apis) == {"unknown"}
    assert process.watch.totals().apis["unknown"][2] > 0
