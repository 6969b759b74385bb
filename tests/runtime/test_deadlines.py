"""The heap of things to call at given times."""

from __future__ import annotations

from kproxy.runtime.io.pollers import FEW, Deadlines


def names(deadlines: Deadlines, now: float) -> list[object]:
    return [call() for call in deadlines.take(now)]


def test_calls_come_in_order_of_time_and_equal_times_in_order_of_setting() -> None:
    """What is due is taken out, earliest first, and nothing else."""
    deadlines = Deadlines()
    for when, name in ((3.0, "c"), (1.0, "a"), (3.0, "d"), (2.0, "b"), (9.0, "late")):
        deadlines.add(when, lambda name=name: name)

    assert names(deadlines, 3.0) == ["a", "b", "c", "d"]
    assert deadlines.next() == 9.0


def test_a_cancelled_call_is_not_made_and_does_not_count_as_next() -> None:
    """Cancelling twice, or after the call, is harmless."""
    deadlines = Deadlines()
    first = deadlines.add(1.0, lambda: None)
    second = deadlines.add(2.0, lambda: None)
    deadlines.cancel(first)
    deadlines.cancel(first)

    assert deadlines.next() == 2.0
    assert len(deadlines.take(5.0)) == 1
    deadlines.cancel(second)
    assert deadlines.next() is None


def test_cancelled_calls_do_not_pile_up() -> None:
    """A connect time-out is set and cancelled for each connection: the heap stays as long as what is open."""
    deadlines = Deadlines()
    for number in range(100 * FEW):
        deadlines.cancel(deadlines.add(float(number), lambda: None))

    assert len(deadlines._heap) <= 2 * FEW + 1


def test_what_a_call_sets_waits_for_the_next_look() -> None:
    """A call that sets itself again at once does not hold everybody up."""
    deadlines = Deadlines()

    def again() -> None:
        deadlines.add(0.0, again)

    again()
    for call in deadlines.take(1.0):
        call()

    assert len(deadlines.take(1.0)) == 1
