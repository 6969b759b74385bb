"""The queue between the loop's thread and an outlet's."""

from __future__ import annotations

from kproxy.record.audit.event_sink import OutletCounters
from kproxy.record.audit.recorder import BATCH_BYTES, OVERSHOOT, LineQueue


def queue(when_full: str = "drop", events: int = 10, size: int = 1 << 30) -> tuple[LineQueue[bytes], list[str]]:
    told: list[str] = []
    return LineQueue(OutletCounters(), when_full, events, size, lambda: told.append("unblocked")), told


def fill(own: LineQueue[bytes], first: int, last: int) -> None:
    for number in range(first, last + 1):
        own.add(number, "2026-11-21", b"x", 1)


def test_batches_end_at_gaps_and_days() -> None:
    """The numbers of a batch follow each other, and all are of one day."""
    own, _ = queue(events=100)
    fill(own, 1, 3)
    own.missing(4, "unencodable")
    fill(own, 5, 6)
    own.add(7, "2026-11-22", b"x", 1)

    assert [(b.day[-2:], b.first_id, b.last_id) for b in own.take()] == [("21", 1, 3), ("21", 5, 6), ("22", 7, 7)]
    assert own.take() == []
    assert own.counters.queued == 6


def test_a_full_batch_wakes_the_thread() -> None:
    """Before that nobody is woken: it looks by itself on its beat."""
    own, _ = queue(events=100)
    own.add(1, "d", b"x", BATCH_BYTES - 1)
    woken = own.wake.is_set()
    own.add(2, "d", b"x", 1)

    assert (woken, own.wake.is_set()) == (False, True)


def test_drop_counts_what_there_is_no_room_for() -> None:
    """Until lines are durable they take room, also when the thread has taken them."""
    own, _ = queue()
    fill(own, 1, 12)
    own.take()
    fill(own, 13, 13)
    own.mark_done(10, 10)
    fill(own, 14, 14)
    gap = own.take_gap()

    assert gap is not None
    assert (gap.dropped, gap.first_id, gap.last_id, gap.reasons) == (3, 11, 13, {"queue_full": 3})
    assert own.counters.dropped == {"queue_full": 3}
    assert (own.take_gap(), own.blocked, own.counters.queued) == (None, False, 1)


def test_bytes_are_bounded_too() -> None:
    """The larger event of two does not fit."""
    own, _ = queue(size=100)
    own.add(1, "d", b"", 60)
    own.add(2, "d", b"", 41)
    own.add(3, "d", b"", 40)

    assert [(b.first_id, b.last_id) for b in own.take()] == [(1, 1), (3, 3)]


def test_the_reason_of_a_drop_is_the_disk_s() -> None:
    """While the outlet refuses lines, a full queue is its fault."""
    own, _ = queue()
    own.refuse("disk_full")
    fill(own, 1, 11)

    assert own.counters.dropped == {"disk_full": 1}


def test_block_drops_nothing_of_what_is_under_way() -> None:
    """Blocked when it is full, it takes what exchanges under way still make, and unblocks when it is half empty."""
    own, told = queue("block")
    fill(own, 1, 9)
    before = own.blocked
    fill(own, 10, 15)
    full = own.blocked
    own.mark_done(9, 9)
    still = own.blocked
    own.mark_done(1, 1)

    assert (before, full, still, own.blocked, told) == (False, True, True, False, ["unblocked"])
    assert own.counters.dropped == {}


def test_block_has_an_end() -> None:
    """Memory is bounded even if nobody heeds `blocked`; what is lost then is counted."""
    own, _ = queue("block")
    fill(own, 1, 10 + OVERSHOOT + 2)

    assert own.counters.dropped == {"queue_full": 2}


def test_block_while_the_disk_refuses() -> None:
    """Blocked at once, however empty it is, until lines are taken again."""
    own, told = queue("block")
    own.refuse("read_only")
    refused = own.blocked
    own.mark_done(0, 0)
    still = own.blocked
    own.refuse("")

    assert (refused, still, own.blocked, told) == (True, True, False, ["unblocked"])


def test_reports_are_taken_beyond_the_bounds() -> None:
    """Even when the queue is closed: what was lost has to be told."""
    own, _ = queue()
    fill(own, 1, 10)
    own.close()
    own.add(11, "d", b"report", 6, must=True)
    own.add(12, "d", b"x", 1)

    assert own.take()[-1].items == [b"report"]
    assert own.counters.dropped == {"closed": 1}
