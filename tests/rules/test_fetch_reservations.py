"""What fetches under way may bring."""

from __future__ import annotations

from kproxy.rules.bucket import LIFE, FetchReservations


def test_fetch_reservation_given_twice_is_replaced() -> None:
    """Settling it removes it; settling one that does not exist has no effect."""
    reservations = FetchReservations()
    reservations.give(1, 100, 0.0)
    reservations.give(2, 30, 0.0)
    reservations.give(1, 50, 0.5)
    assert reservations.total == 80

    reservations.end(1)
    reservations.end(1)
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
