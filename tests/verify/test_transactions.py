"""Checks of transactions: each with a history that breaks its guarantee, and a lawful one beside it."""

from __future__ import annotations

import pytest

from kproxy.observe.exchange import Form
from kproxy.wire.scan.sketch import Sketcher
from tests.verify.history import PRODUCER, History, Stored, batch, marker

DATA = batch(b"a", producer=(7, 0, 0), transactional=True)
COMMIT, ABORT = marker(7, 0, commit=True), marker(7, 0, commit=False)


def test_data_of_an_aborted_transaction() -> None:
    history = History()
    history.read(1, 0, (0, DATA), (1, ABORT), committed=True, aborted=((7, 0),))
    assert history.findings() == {}
    history.read(2, 0, (0, DATA), (1, ABORT), committed=False)
    assert history.findings() == {}
    history.read(3, 0, (0, DATA), (1, ABORT), committed=True)
    assert history.findings() == {"aborted-read": "proved"}


def test_data_of_a_committed_transaction() -> None:
    history = History()
    history.read(1, 0, (0, DATA), (1, COMMIT), (2, batch(b"b", producer=(7, 0, 1), transactional=True)),
                 (3, ABORT), committed=True, aborted=((7, 2),))  # fmt: skip
    assert history.findings() == {}


@pytest.mark.parametrize(("between", "found"), [(((1, batch(b"x")),), {"aborted-read": "proved"}), ((), {})])
def test_a_marker_that_another_answer_brings(between: tuple[Stored, ...], found: dict[str, str]) -> None:
    """Only if all up to the marker is known it is the next one: an earlier one may have ended the transaction."""
    history = History()
    history.read(1, 0, (0, DATA), committed=True)
    history.read(2, 1 + (not between), *between, (2, ABORT))
    assert history.findings(without={"skipped-input"}) == found


def test_data_beyond_the_last_stable_offset() -> None:
    history = History()
    history.read(1, 0, (0, DATA), committed=True, stable=1)
    assert history.findings() == {}
    history.read(2, 0, (0, DATA), committed=True, stable=0)
    assert history.findings() == {"read-beyond-stable": "suspect"}
    history.read(3, 0, committed=True, stable=0)
    assert history.findings() == {"read-beyond-stable": "proved"}


def test_two_ends_of_one_transaction() -> None:
    """Where each transaction has an epoch of its own, its markers have the next one; complete records show where."""
    for version, level in ((5, "proved"), (3, None)):
        history = History()
        history.end(1, 7, 0, commit=True, version=version)
        history.read(2, 0, (1, marker(7, 1, commit=False)))
        assert history.findings(complete=True) == ({} if level is None else {"torn-transaction": level})
        history = History()
        history.end(1, 7, 8, commit=True, version=version)
        history.read(2, 0, (1, marker(7, 10, commit=False)))
        history.read(3, 2, (5, marker(7, 10, commit=True)))
        assert history.findings(complete=True) == ({} if level is None else {"torn-transaction": level})


def test_another_end_than_the_producer_was_told() -> None:
    """Where transactions share an epoch, what ties a marker to an end is the batch before both."""
    for end, found in ((ABORT, {"torn-transaction": "suspect"}), (COMMIT, {})):
        history = History()
        history.write(1, DATA, 0)
        history.end(2, 7, 0, commit=True)
        history.read(3, 0, (0, DATA), (1, end))
        assert history.findings() == found


def test_an_end_that_the_producer_was_not_told() -> None:
    history = History()
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=False, error=7)
    history.end(2.5, 7, 0, commit=True, error=48)
    history.read(3, 0, (0, DATA), (1, ABORT))
    assert history.findings() == {}


def test_a_write_behind_a_fence() -> None:
    history = History()
    history.init(1, 7, 0)
    history.write(2, DATA, 0)
    assert history.findings() == {}
    history.init(3, 7, 1)
    history.write(4, batch(b"b", producer=(7, 0, 1), transactional=True), 1)
    assert history.findings() == {"zombie-write": "proved"}


def test_a_write_that_overlaps_a_fence() -> None:
    history = History()
    history.init(3, 7, 1)
    history.write(2.9, DATA, 0, took=1)
    history.write(4, DATA, 0, error=47)
    assert history.findings() == {}


def test_a_write_after_a_refusal() -> None:
    """A coordinator refuses before its markers are in all partitions, so this is no proof."""
    history = History()
    history.end(1, 7, 0, commit=True, error=90)
    history.write(2, DATA, 0)
    assert history.findings() == {"zombie-write": "suspect"}


def test_an_end_behind_a_fence() -> None:
    history = History()
    history.init(1, 7, 3)
    history.end(2, 7, 2, commit=True)
    assert history.findings() == {"zombie-write": "proved"}
    assert PRODUCER.client_id in {one.witness.client for one in history.verdict().findings[0].evidence}


def test_what_an_aborted_transaction_had_consumed() -> None:
    """The input of a transaction that was aborted is to be read again before the next one goes beyond it."""
    for again in (False, True):
        history = History()
        history.read(1, 0, (0, batch(b"x", b"y")))
        history.txn_commit(2, 2)
        history.end(3, 7, 0, commit=False)
        if again:
            history.read(4, 0, (0, batch(b"x", b"y")), (2, batch(b"z", at=1)))
        history.txn_commit(5, 3)
        history.end(6, 7, 0, commit=True)
        assert history.findings() == ({} if again else {"skipped-input": "suspect"})


def sketched(history: History) -> None:
    """Have the record keep a sketch of the last answer."""
    seen = history.pairs[-1].front
    assert seen is not None and seen.response is not None
    sketcher = Sketcher(seen.key, seen.version, "response")
    sketcher.feed(seen.response.data, 0, len(seen.response.data))
    seen.response.data, seen.response.form = sketcher.data(), Form.SKETCH


@pytest.mark.parametrize("version", [3, 5])
def test_markers_that_the_record_does_not_tell(version: int) -> None:
    """A sketch has headers alone, so nobody looked how transactions ended, whatever else is in the record."""
    for sketch in (False, True):
        history = History()
        history.write(1, DATA, 0)
        history.end(2, 7, 0, commit=True, version=version)
        history.read(3, 0, (0, DATA), (1, marker(7, int(version >= 5), commit=False)), committed=True)
        if not sketch:
            assert set(history.findings()) == {"aborted-read", "torn-transaction"}
            continue
        sketched(history)
        for verdict in (history.verdict(), history.verdict(complete=True), history.verdict(records=True)):
            assert verdict.findings == []
            for check in ("aborted-read", "torn-transaction"):
                assert "1 markers" in verdict.not_checked[check]
                assert check not in verdict.clean
            assert "read-beyond-stable" in verdict.clean
