"""Lawful histories of share groups: they allow redelivery, gaps and any order."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import lawful
from tests.tools.verify.history import History, batch, marker

A, B, C = batch(b"a"), batch(b"b", at=1), batch(b"c", at=2)
DATA = batch(b"t", producer=(7, 0, 0), transactional=True)
OTHER = Somebody(4, client_port=50004, client_id="sharer")


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def delivered_again(history: History) -> None:
    """The lock expired, the group released the record, and another member gets it."""
    history.write(1, A, 0)
    for at in (2, 3, 4):
        history.share(at, (0, A), acquired=((0, 0),), who=OTHER)


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def sent_again_and_delivered_again(history: History) -> None:
    """The first write was refused, so that it is not stored."""
    history.write(1, A, 0, error=19)
    history.write(2, A, 0)
    history.share(3, (0, A), acquired=((0, 0),))
    history.share(4, (0, A), acquired=((0, 0),))


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def a_batch_in_the_middle_that_another_member_has(history: History) -> None:
    for offset, data in enumerate((A, B, C)):
        history.write(1 + offset, data, offset)
    history.share(5, (0, A), (2, C), acquired=((0, 0), (2, 2)))
    history.share(6, (1, B), acquired=((1, 1),))


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def from_the_end_and_back(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 1)
    history.share(3, (1, B), acquired=((1, 1),))
    history.share(4, (0, A), acquired=((0, 0),))


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def aborted_data(history: History) -> None:
    """Share groups read uncommitted data by default. Brokers leave out aborted data."""
    history.share(1, (0, DATA), (1, marker(7, 0, commit=False)), acquired=((0, 0),))
    history.share(2, (0, DATA), (1, marker(7, 0, commit=False)))


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def commits_of_offsets_that_a_share_group_acquired(history: History) -> None:
    history.read(1, 0, (0, A))
    history.share(2, (0, A), (1, B), (2, C), acquired=((0, 2),))
    history.commit(3, 3)


@lawful("duplicate", "inconsistent-offset", "read-disorder", assume_complete=True)
def refused_and_unknown(history: History) -> None:
    """The acquired offsets are not in the log."""
    history.share(1, acquired=((0, 1 << 40),))
    history.share(2, (0, A), acquired=((-5, -1), (9, 3)))
