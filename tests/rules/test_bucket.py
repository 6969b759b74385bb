"""Token buckets: what is charged is paid off by time."""

from __future__ import annotations

import pytest

from kproxy.rules.bucket import Bucket, Buckets


def test_a_full_bucket_gives_its_size_at_once_and_then_makes_wait() -> None:
    """A charge is never refused; who made the debt waits for as long as it takes to pay it."""
    bucket = Bucket(100, 200, now=0)

    assert bucket.charge(200, 0) == 0
    assert bucket.charge(50, 0) == 0.5
    assert bucket.charge(100, 0.5) == 1.0


def test_it_fills_up_to_its_size_and_no_further() -> None:
    """A long pause is worth one burst."""
    bucket = Bucket(100, 200, now=0)
    bucket.charge(200, 0)

    assert bucket.ahead(200, 1000) == 0
    assert bucket.ahead(250, 1000) == 0.5


def test_looking_ahead_takes_nothing() -> None:
    """It says what a charge would do, any number of times."""
    bucket = Bucket(1, 1, now=0)

    assert [bucket.ahead(3, 0), bucket.ahead(3, 0)] == [2, 2]


def test_a_clock_that_goes_back_brings_nothing() -> None:
    bucket = Bucket(1, 10, now=100)
    bucket.charge(10, 100)

    assert bucket.charge(0, 50) == 0
    assert bucket.charge(1, 100) == 1


def test_bucket_admit_while_owing_charges_nothing() -> None:
    """A frame of any size is admitted once the debt is paid, and leaves a debt of its own."""
    bucket = Bucket(100, 100, now=0)

    assert bucket.admit(1e9 + 100, 0) == (True, 1e7)
    assert bucket.admit(1, 0) == (False, 1e7)
    assert bucket.admit(1, 1e7 - 0.0005) == (True, pytest.approx(0.0105))


@pytest.mark.parametrize("clients", [1, 20])
def test_whoever_waits_as_told_keeps_to_the_rate(clients: int) -> None:
    """In the long run, for one and for many that share it, whatever the sizes are; what is not paid yet aside."""
    bucket = Bucket(1000, 1000, now=0)
    ready = dict.fromkeys(range(clients), 0.0)
    sent, number = 0, 0
    while True:
        client = min(ready, key=lambda one: ready[one])
        now = ready[client]
        if now > 60:
            break
        number += 1
        size = 100 + 37 * number % 400
        sent += size
        ready[client] = now + max(bucket.charge(size, now), 0.001)

    assert sent + min(bucket.level, 0) == pytest.approx(61 * 1000, rel=0.02)


def test_the_bucket_that_was_quiet_for_the_longest_goes_first() -> None:
    """There are never more than so many; the keys are clients' to choose."""
    made: list[str] = []

    def make(key: str, now: float) -> Bucket:
        made.append(key)
        return Bucket(1, 1, now)

    buckets = Buckets(make, most=2)
    for key in "abaca":
        buckets.of(key, 0)

    assert made == ["a", "b", "c"]
    assert list(buckets.buckets) == ["c", "a"]


def test_a_debt_is_not_forgotten_for_others() -> None:
    """Who names many things has the full buckets go, and of many debts the smallest, whichever was quiet longest."""
    buckets = Buckets(lambda key, now: Bucket(1, 1, now), most=100)
    mine, small = buckets.of("mine", 0), buckets.of("small", 0)
    assert mine is not None and small is not None
    mine.charge(500, 0)
    small.charge(50, 0)
    for number in range(1000):
        other = buckets.of(str(number), 0)
        assert other is not None
        other.charge(number % 7, 0)

    assert len(buckets.buckets) == 100
    assert buckets.of("mine", 0) is mine and buckets.of("small", 0) is small


def test_what_is_not_limited_has_no_bucket() -> None:
    """And is not asked about again."""
    asked: list[str] = []
    buckets = Buckets(lambda key, now: asked.append(key))

    assert [buckets.of("a", 0), buckets.of("a", 0)] == [None, None]
    assert asked == ["a"]
