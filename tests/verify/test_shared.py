"""Histories of share groups: what they are given is compared as what others read, and nothing else is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.verify.history import History, Somebody, batch, marker, thinned

A, B, C = batch(b"a"), batch(b"b", at=1), batch(b"c", at=2)
DATA = batch(b"t", producer=(7, 0, 0), transactional=True)
OTHER = Somebody(4, client_port=50004, client_id="sharer")


def delivered_again(history: History) -> None:
    """By a lock that expired, by a release, and to another member."""
    history.write(1, A, 0)
    for at in (2, 3, 4):
        history.share(at, (0, A), acquired=((0, 0),), who=OTHER)


def sent_again_and_delivered_again(history: History) -> None:
    """The first write was refused, and so is not stored."""
    history.write(1, A, 0, error=19)
    history.write(2, A, 0)
    history.share(3, (0, A), acquired=((0, 0),))
    history.share(4, (0, A), acquired=((0, 0),))


def what_lies_between_is_others(history: History) -> None:
    """Of three batches the middle one is locked by somebody else, whatever of it an answer brings."""
    for offset, data in enumerate((A, B, C)):
        history.write(1 + offset, data, offset)
    history.share(5, (0, A), (2, C), acquired=((0, 0), (2, 2)))
    history.share(6, (1, B), acquired=((1, 1),))


def from_the_end_and_back(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 1)
    history.share(3, (1, B), acquired=((1, 1),))
    history.share(4, (0, A), acquired=((0, 0),))


def aborted_data(history: History) -> None:
    """Groups read what is not committed unless they are told otherwise, and brokers leave out what is aborted."""
    history.share(1, (0, DATA), (1, marker(7, 0, commit=False)), acquired=((0, 0),))
    history.share(2, (0, DATA), (1, marker(7, 0, commit=False)))


def commits_of_what_a_share_group_was_given(history: History) -> None:
    history.read(1, 0, (0, A))
    history.share(2, (0, A), (1, B), (2, C), acquired=((0, 2),))
    history.commit(3, 3)


def cleaned_meanwhile(history: History) -> None:
    history.write(1, batch(b"a", b"b", b"c"), 0)
    history.share(2, (0, thinned(b"a", last=2)), acquired=((0, 2),))


def refused_and_unknown(history: History) -> None:
    """Of a partition that does not exist, and with acquired offsets that no log has."""
    history.share(1, acquired=((0, 1 << 40),))
    history.share(2, (0, A), acquired=((-5, -1), (9, 3)))


LAWFUL = (
    delivered_again, sent_again_and_delivered_again, what_lies_between_is_others, from_the_end_and_back, aborted_data,
    commits_of_what_a_share_group_was_given, refused_and_unknown,
)  # fmt: skip


@pytest.mark.parametrize("lived", LAWFUL, ids=lambda lived: lived.__name__)
@pytest.mark.parametrize("complete", [False, True])
def test_what_share_groups_are_given_lawfully(lived: Callable[[History], None], complete: bool) -> None:
    """Redelivery, gaps and any order are what share groups are for."""
    history = History()
    lived(history)
    assert history.findings(complete=complete) == {}


def test_a_compacted_log_of_a_share_group() -> None:
    history = History(compacted=True)
    cleaned_meanwhile(history)
    assert history.findings(complete=True) == {}


def test_what_a_share_group_is_given_counts_as_read() -> None:
    history = History()
    history.write(1, A, 0)
    history.share(2, (0, A), acquired=((0, 0),))
    assert history.verdict().counts["not read"] == 0


def test_another_batch_than_was_acknowledged_for_a_share_group() -> None:
    history = History()
    history.write(1, A, 0)
    history.share(2, (0, B), acquired=((0, 0),))
    assert history.findings() == {"inconsistent-offset": "proved"}


def test_a_batch_that_a_share_group_finds_twice() -> None:
    """Sent again since it was said to have timed out, and stored twice: redelivery has the same offset."""
    history = History()
    history.write(1, A, 0, error=7)
    history.write(2, A, 1)
    history.share(3, (0, A), (1, A), acquired=((0, 1),))
    assert history.findings() == {"duplicate": "proved"}
