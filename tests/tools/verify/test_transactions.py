"""Checks of transactions: each with a history that breaks its guarantee, and a lawful one beside it."""

from __future__ import annotations

import pytest

from kproxy.protocol.scan.sketch import Sketcher
from kproxy.record.exchange import Form
from tests.tools.verify.history import PRODUCER, History, Stored, batch, marker

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


def test_two_ends_of_one_transaction() -> None:
    """Where each transaction has an epoch of its own, its markers have the next one; complete records show where."""
    for version, level in ((5, "proved"), (3, None)):
        history = History()
        history.end(1, 7, 0, commit=True, version=version)
        history.read(2, 0, (1, marker(7, 1, commit=False)))
        assert history.findings(assume_complete=True) == ({} if level is None else {"torn-transaction": level})
        history = History()
        history.end(1, 7, 8, commit=True, version=version)
        history.read(2, 0, (1, marker(7, 10, commit=False)))
        history.read(3, 2, (5, marker(7, 10, commit=True)))
        assert history.findings(assume_complete=True) == ({} if level is None else {"torn-transaction": level})


def test_another_end_than_the_producer_was_told() -> None:
    """Where transactions share an epoch, what ties a marker to an end is the batch before both."""
    for end, found in ((ABORT, {"torn-transaction": "suspect"}), (COMMIT, {})):
        history = History()
        history.write(1, DATA, 0)
        history.end(2, 7, 0, commit=True)
        history.read(3, 0, (0, DATA), (1, end))
        assert history.findings() == found


def test_an_end_behind_a_fence() -> None:
    history = History()
    history.init(1, 7, 3)
    history.end(2, 7, 2, commit=True)
    assert history.findings() == {"zombie-write": "proved"}
    assert PRODUCER.client_id in {one.witness.client for one in history.verdict().findings[0].evidence}


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
        for verdict in (history.verdict(), history.verdict(assume_complete=True), history.verdict(records=True)):
            assert verdict.findings == []
            for check in ("aborted-read", "torn-transaction"):
                assert "the end of 1 transaction" in verdict.not_checked[check]
                assert check not in verdict.clean
            assert "read-beyond-stable" in verdict.clean
