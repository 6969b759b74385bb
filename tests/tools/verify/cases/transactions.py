"""Histories of transactions and of their producers."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import PRODUCER, History, batch, marker

DATA, NEXT = (batch(value, producer=(7, 0, at), transactional=True) for at, value in enumerate((b"a", b"b")))
OTHER = Somebody(9, client_port=50009, client_id="writer")
COMMIT, ABORT = marker(7, 0, commit=True), marker(7, 0, commit=False)


# ---- aborted-read


@broken("aborted-read")
def a_batch_of_an_aborted_transaction(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, ABORT), committed=True)


@broken("aborted-read")
def a_batch_of_an_aborted_transaction_whose_marker_is_read_later(history: History) -> None:
    history.read(1, 0, (0, DATA), committed=True)
    history.read(2, 1, (1, batch(b"x")), (2, ABORT))


@lawful("aborted-read", "read-beyond-stable", "torn-transaction")
def a_batch_that_is_listed_as_aborted(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, ABORT), committed=True, aborted=((7, 0),))


@lawful("aborted-read")
def an_aborted_batch_for_a_reader_of_uncommitted_data(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, ABORT), committed=True, aborted=((7, 0),))
    history.read(2, 0, (0, DATA), (1, ABORT), committed=False)


@lawful("aborted-read", "torn-transaction", "zombie-write", "order")
def a_committed_transaction_and_an_aborted_one(history: History) -> None:
    history.write(0.2, DATA, 0)
    history.end(0.3, 7, 0, commit=True)
    history.write(0.4, NEXT, 2)
    history.end(0.5, 7, 0, commit=False)
    history.read(1, 0, (0, DATA), (1, COMMIT), (2, NEXT), (3, ABORT), committed=True, aborted=((7, 2),))


# ---- read-beyond-stable


@broken("read-beyond-stable", level="suspect")
def a_batch_beyond_a_stable_offset_that_stays(history: History) -> None:
    """The second response excludes a race: the last stable offset is still below the batch."""
    history.read(1, 0, (0, DATA), committed=True, stable=0)
    history.read(2, 0, committed=True, stable=0)


@broken("read-beyond-stable", level="suspect")
def a_batch_beyond_the_stable_offset(history: History) -> None:
    history.read(1, 0, (0, DATA), (1, NEXT), committed=True, stable=1)


@lawful("read-beyond-stable")
def a_batch_below_the_stable_offset(history: History) -> None:
    history.read(1, 0, (0, DATA), committed=True, stable=1)


@lawful("read-beyond-stable")
def a_batch_beyond_the_stable_offset_for_a_reader_of_uncommitted_data(history: History) -> None:
    history.read(1, 0, (0, DATA), committed=True, stable=1)
    history.read(2, 0, (0, DATA), (1, NEXT), committed=False, stable=1)


# ---- torn-transaction


@broken("torn-transaction", terms={"assume_complete": True})
def an_abort_marker_after_a_commit(history: History) -> None:
    """Each transaction has its own epoch, and its markers have the next one."""
    history.end(1, 7, 0, commit=True, version=5)
    history.read(2, 0, (1, marker(7, 1, commit=False)))


@broken("torn-transaction", level="suspect")
def an_abort_marker_after_a_commit_in_one_epoch(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=True)
    history.read(3, 0, (0, DATA), (1, ABORT))


@broken("torn-transaction", terms={"assume_complete": True})
def two_markers_of_one_epoch(history: History) -> None:
    history.end(1, 7, 8, commit=True, version=5)
    history.read(2, 0, (1, marker(7, 10, commit=False)))
    history.read(3, 2, (5, marker(7, 10, commit=True)))


@lawful("torn-transaction")
def an_abort_that_the_producer_is_not_told(history: History) -> None:
    history.write(1, DATA, 0)
    history.end(2, 7, 0, commit=False, error=7)
    history.end(2.5, 7, 0, commit=True, error=48)
    history.read(3, 0, (0, DATA), (1, ABORT))


# ---- zombie-write


@broken("zombie-write")
def a_write_of_a_fenced_epoch(history: History) -> None:
    history.init(1, 7, 0)
    history.write(2, DATA, 0)
    history.init(3, 7, 1)
    history.write(4, NEXT, 1)


@broken("zombie-write")
def an_end_of_a_fenced_epoch(history: History) -> None:
    history.init(1, 7, 3)
    history.end(2, 7, 2, commit=True)


@broken("zombie-write", level="suspect")
def a_write_of_an_epoch_that_the_coordinator_refused(history: History) -> None:
    """The coordinator refuses before its markers are in all partitions."""
    history.end(1, 7, 0, commit=True, error=90)
    history.write(2, DATA, 0)


@lawful("zombie-write")
def a_write_that_overlaps_a_fence(history: History) -> None:
    history.write(2.9, DATA, 0, took=1, who=OTHER)
    history.init(3, 7, 1)
    history.write(4.5, NEXT, 0, error=47)


@lawful("zombie-write", "duplicate-sequence")
def a_fence_before_the_next_epoch_writes(history: History) -> None:
    history.init(1, 7, 0)
    history.write(2, DATA, 0)
    history.init(3, 7, 1)
    history.write(4, batch(b"c", producer=(7, 1, 0), transactional=True), 1, who=PRODUCER)
