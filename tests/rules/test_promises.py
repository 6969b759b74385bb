"""What fetches under way may bring."""

from __future__ import annotations

from kproxy.rules.promises import LIFE, Promises


def test_a_connection_has_one_promise() -> None:
    """A new one takes the place of the old one, and its end takes it away; an end without one is nothing."""
    promises = Promises()
    promises.give(1, 100, 0.0)
    promises.give(2, 30, 0.0)
    promises.give(1, 50, 0.5)
    assert promises.total == 80

    promises.settle(1)
    promises.settle(1)
    assert promises.total == 30


def test_old_promises_are_forgotten() -> None:
    """Connections may have ended without a word; one that was renewed is young."""
    promises = Promises()
    promises.give(1, 100, 0.0)
    promises.give(2, 30, 0.0)
    promises.give(1, 50, 0.5)

    promises.expire(LIFE)
    assert promises.total == 50
    promises.expire(LIFE + 0.5)
    assert promises.total == 0
