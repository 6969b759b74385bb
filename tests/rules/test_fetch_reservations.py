"""What fetches under way may bring."""

from __future__ import annotations

from kproxy.rules.quota.bucket import LIFE, FetchReservations


def test_a_connection_has_one_promise() -> None:
    """A new one takes the place of the old one, and its end takes it away; an end without one is nothing."""
    reservations = FetchReservations()
    reservations.give(1, 100, 0.0)
    reservations.give(2, 30, 0.0)
    reservations.give(1, 50, 0.5)
    assert reservations.total == 80

    reservations.settle(1)
    reservations.settle(1)
    assert reservations.total == 30


def test_old_reservations_are_forgotten() -> None:
    """Connections may have ended without a word; one that was renewed is young."""
    reservations = FetchReservations()
    reservations.give(1, 100, 0.0)
    reservations.give(2, 30, 0.0)
    reservations.give(1, 50, 0.5)

    reservations.expire(LIFE)
    assert reservations.total == 50
    reservations.expire(LIFE + 0.5)
    assert reservations.total == 0
