"""How many connections a worker has, as far as the supervisor can know."""

from __future__ import annotations

from kproxy.app.workers.pool_worker import Ledger


def test_what_is_on_its_way_counts_as_open() -> None:
    """Until the worker says that it has taken it; from then on what it says of open ones counts."""
    ledger = Ledger()
    for _ in range(3):
        ledger.hand("a", 1.0)
    assert (ledger.connections, ledger.late_since) == (3, 1.0)

    ledger.report(taken=2, still_open=1, addresses={}, now=2.0)
    assert (ledger.connections, ledger.late_since) == (2, 2.0)
    ledger.report(taken=3, still_open=0, addresses={}, now=3.0)
    assert (ledger.connections, ledger.late_since) == (0, None)


def test_addresses_are_counted_on_their_way_and_there() -> None:
    """What a worker says of an address replaces what it said before."""
    ledger = Ledger(by_address=True)
    for host in ("a", "b", "a"):
        ledger.hand(host, 1.0)
    assert (ledger.of("a"), ledger.of("b"), ledger.of("c")) == (2, 1, 0)

    ledger.report(taken=2, still_open=2, addresses={"a": 1, "b": 1}, now=2.0)
    assert (ledger.of("a"), ledger.of("b")) == (2, 1)
    ledger.report(taken=3, still_open=2, addresses={"a": 2, "b": 0}, now=2.0)
    assert (ledger.of("a"), ledger.of("b")) == (2, 0)


def test_what_is_taken_back_was_not_there() -> None:
    """The newest is taken back first; a worker stays late until it says something."""
    ledger = Ledger(by_address=True)
    ledger.hand("a", 1.0)
    ledger.hand("b", 2.0)
    ledger.take_back()

    assert (ledger.connections, ledger.of("a"), ledger.of("b"), ledger.late_since) == (1, 1, 0, 1.0)
    ledger.report(taken=1, still_open=1, addresses={"a": 1}, now=3.0)
    assert (ledger.connections, ledger.of("a"), ledger.late_since) == (1, 1, None)


def test_an_end_says_what_was_lost() -> None:
    """And leaves nothing."""
    ledger = Ledger(by_address=True)
    ledger.hand("a", 1.0)
    ledger.report(taken=1, still_open=1, addresses={"a": 1}, now=2.0)

    assert ledger.end() == 1
    assert (ledger.connections, ledger.of("a"), ledger.late_since) == (0, 0, None)
