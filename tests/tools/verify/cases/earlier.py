"""Lawful histories that depend on what was before the recording, also if the recording is complete."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import unproved
from tests.tools.verify.history import History, batch, thinned

A, B, C = (batch(value, at=at) for at, value in enumerate((b"a", b"b", b"c")))
OTHER = Somebody(9, client_port=50009, client_id="other")


def sent(sequence: int) -> bytes:
    """Return a batch of producer 7 with one record."""
    return batch(b"v%d" % sequence, producer=(7, 0, sequence))


@unproved(assume_complete=True, compacted=False)
def an_event_that_was_sent_before_the_recording(history: History) -> None:
    """Applications give records times of their own, so the same event is an equal batch."""
    history.write(1, A, 10)
    history.read(2, 0, (5, A), (10, A))


@unproved(assume_complete=True, compacted=False)
def a_retry_of_a_batch_from_before_the_recording(history: History) -> None:
    """Another producer wrote behind the first attempt, before the recording as well."""
    history.write(1, sent(0), 5)
    history.read(2, 5, (5, sent(0)), (6, B))


@unproved(assume_complete=True, compacted=False)
def a_refused_batch_that_was_stored_before_the_recording(history: History) -> None:
    history.write(1, sent(0), -1, error=29)
    history.write(1.5, A, -1, error=29, who=OTHER)
    history.read(2, 0, (0, A), (1, sent(0)))


@unproved(assume_complete=True, compacted=False)
def a_commit_of_a_write_with_acks_1_that_a_new_leader_lacks(history: History) -> None:
    history.elect()
    history.read(1, 0, (0, A), high=1)
    history.write(2, B, 1, acks=1)
    history.commit(3, 2)
    history.write(4, C, 1)


@unproved(assume_complete=True, compacted=False)
def a_group_that_is_moved_in_a_log_that_was_read_by_a_share_group(history: History) -> None:
    history.share(1, (0, A), acquired=((0, 0),))
    history.commit(2, 50, generation=-1)


@unproved(assume_complete=True, compacted=False)
def a_group_that_is_moved_beyond_the_watermark_of_a_follower(history: History) -> None:
    history.read(1, 0, (0, A), high=1, who=Somebody(8, client_port=50008, client_id="reader", node=3))
    history.commit(2, 50, generation=-1)


@unproved(assume_complete=True, compacted=False)
def a_retry_from_before_the_recording_after_another_write(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, sent(0), 2, who=OTHER)
    history.write(3, sent(0), 2, who=OTHER)


@unproved(assume_complete=True, compacted=False)
def a_topic_that_was_compacted_before_the_recording(history: History) -> None:
    history.read(1, 0, (0, thinned(b"a", b"c", last=2)))
