"""The ring of kept exchanges: what goes first, and what who comes back is told."""

from __future__ import annotations

from typing import Any

from kproxy.record.exchange import Frame
from kproxy.record.live_view.rows import SMALLEST, ExchangeRing
from tests.support.exchange_factory import exchange


def heartbeat(size: int = 0) -> Any:
    seen = exchange("Heartbeat", 4, {"group_id": "g"}, {})
    seen.request = Frame(size, 0.0, 0.0, bytes(size))
    seen.response = None
    return seen


def numbers(ring: ExchangeRing) -> list[int]:
    return [kept.number for kept in ring.newest()]


def test_the_oldest_goes_first() -> None:
    """By number; what is gone is told apart from what was never there."""
    ring = ExchangeRing(1 << 20, first=100, most=3)
    for _ in range(5):
        ring.add(heartbeat())

    assert numbers(ring) == [104, 103, 102]
    assert [ring.had(number) for number in (99, 100, 101, 102, 105)] == [False, True, True, False, False]
    assert (ring.get(101), len(ring), ring.bytes) == (None, 3, 3 * SMALLEST)


def test_bytes_are_bounded() -> None:
    """Those of frames, of the broker's too, and of rows; one that is larger than all room is kept alone."""
    ring = ExchangeRing(10 * SMALLEST)
    first = ring.add(heartbeat(2 * SMALLEST))
    second = ring.add(heartbeat(2 * SMALLEST))
    assert (ring.bytes, numbers(ring)) == (6 * SMALLEST, [2, 1])

    ring.put_behind(second, heartbeat(3 * SMALLEST))
    ring.put_row(second, bytes(SMALLEST))
    assert (ring.bytes, numbers(ring)) == (10 * SMALLEST, [2, 1])
    ring.put_row(second, bytes(SMALLEST + 1))
    assert (ring.bytes, numbers(ring)) == (7 * SMALLEST + 1, [2])

    ring.put_row(first, b"it is gone")
    ring.put_behind(first, heartbeat())
    assert (ring.bytes, ring.get(1)) == (7 * SMALLEST + 1, None)
    ring.add(heartbeat(99 * SMALLEST))
    assert (numbers(ring), ring.bytes) == ([3], 100 * SMALLEST)
    ring.clear()
    assert (len(ring), ring.bytes, ring.next) == (0, 0, 4)


def test_who_comes_back_is_told_what_came_and_what_changed() -> None:
    """In the order in which it did: an exchange that was under way comes again when it is over."""
    ring = ExchangeRing(1 << 20)
    early = ring.add(heartbeat(), over=False)
    place = ring.place
    later = ring.add(heartbeat())
    ring.end(early)

    found, gone = ring.behind_place(place)
    assert (found, gone) == ([later, early], 0)
    assert (early.number, early.over, ring.behind_place(ring.place)) == (1, True, ([], 0))


def test_who_was_away_for_too_long_is_told_how_much_is_gone() -> None:
    """What is left comes all the same."""
    ring = ExchangeRing(1 << 20, most=2)
    for _ in range(6):
        ring.add(heartbeat())

    found, gone = ring.behind_place(1)
    assert ([kept.number for kept in found], gone) == ([5, 6], 3)


def test_lists_go_on_while_others_come_and_go() -> None:
    """The newest first, from before any number; none twice."""
    ring = ExchangeRing(1 << 20, most=4)
    for _ in range(4):
        ring.add(heartbeat())
    listed = ring.newest(4)

    assert next(listed).number == 3
    ring.add(heartbeat())
    ring.add(heartbeat())
    assert [kept.number for kept in listed] == []
    assert numbers(ring) == [6, 5, 4, 3]
    assert [kept.number for kept in ring.newest(5)] == [4, 3]
    assert list(ring.newest(0)) == []
