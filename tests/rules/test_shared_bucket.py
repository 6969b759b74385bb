"""Buckets that several processes charge together are as one bucket."""

from __future__ import annotations

from random import Random

from kproxy.rules.bucket import LIFE, Bucket, FetchBucket, SharedBucket, SharedFetchBucket

from .shared_table import Numbers


def test_who_charges_does_not_matter() -> None:
    """Debts and looks ahead are those of one bucket."""
    alone, cells, random = Bucket(100, 200, 0.0), Numbers(), Random(3)
    together = [SharedBucket(100, 200, 0.0, cells) for _ in range(3)]

    for number in range(200):
        now, amount = number * 0.1, random.random() * 20
        assert random.choice(together).ahead(amount, now) == alone.ahead(amount, now)
        assert random.choice(together).charge(amount, now) == alone.charge(amount, now)
        assert random.choice(together).admit(amount, now) == alone.admit(amount, now)
        assert random.choice(together).covers(amount, now, 0.5) == alone.covers(amount, now, 0.5)
        random.choice(together).give_back(1.0, now)
        alone.give_back(1.0, now)


def test_fetches_are_allowed_what_others_have_not_been_promised() -> None:
    """By whichever process; a promise ends when its response is here."""
    alone, cells = FetchBucket(1e6, 1e6, 0.0), Numbers()
    one, two = (SharedFetchBucket(1e6, 1e6, 0.0, cells) for _ in range(2))

    for bucket in (one, alone):
        bucket.promise(1, 4e5, 0.0)
    assert two.allowed(0.0) == alone.allowed(0.0) == 600_000
    for bucket in (two, alone):
        bucket.promise(2, 5e5, 0.0)
    assert one.allowed(0.0) == alone.allowed(0.0) == 100_000
    for bucket in (one, alone):
        bucket.end_fetch(1, 0.1)
        bucket.charge(2e5, 0.1)
    assert two.allowed(0.1) == alone.allowed(0.1) == 300_000


def test_promises_of_a_process_that_has_ended_do_not_last() -> None:
    """They count for one and a half of their life at most."""
    cells = Numbers()
    ended, other = (SharedFetchBucket(1e6, 1e6, 0.0, cells) for _ in range(2))
    ended.promise(1, 9e5, 0.0)

    assert other.allowed(0.9 * LIFE) == 100_000
    assert other.allowed(1.5 * LIFE) == 1_000_000


def test_old_promises_are_forgotten_by_who_gave_them() -> None:
    """Connections that have ended with a fetch under way leave nothing behind."""
    bucket = SharedFetchBucket(1e6, 1e6, 0.0, Numbers())
    for number in range(50):
        bucket.promise(number, 1.0, number * LIFE)

    assert len(bucket.given) <= 3
