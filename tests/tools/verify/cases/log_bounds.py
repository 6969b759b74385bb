"""Histories of the bounds of a log: its start, its high watermark and its end."""

from __future__ import annotations

from uuid import UUID

from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.table import broken, lawful, unproved
from tests.tools.verify.history import History, batch

A, B, C = batch(b"a", b"aa"), batch(b"b", b"bb", at=1), batch(b"c", b"cc", at=2)
ELSEWHERE = Somebody(8, client_port=50008, client_id="reader", node=2)
"""Reader at another node."""


@broken("log-goes-back", terms={"assume_complete": True})
def a_high_watermark_that_goes_back_in_a_leader_epoch(history: History) -> None:
    history.metadata(0.5, epoch=3)
    history.read(1, 2, high=4, epoch=3)
    history.read(2, 2, high=3, epoch=3)


@unproved(ended=True, assume_complete=True)
def a_high_watermark_that_a_new_leader_lowers_at_a_follower(history: History) -> None:
    history.metadata(0.5, epoch=3)
    history.read(1, 2, high=4, epoch=3, who=ELSEWHERE)
    history.read(2, 2, high=3, epoch=3, who=ELSEWHERE)


@broken("log-goes-back", level="suspect")
def a_high_watermark_that_goes_back_at_a_node(history: History) -> None:
    history.read(1, 2, high=4)
    history.read(2, 2, high=3)


@broken("log-goes-back", terms={"assume_complete": True})
def an_end_that_goes_back_in_list_offsets(history: History) -> None:
    history.bound(1, 10)
    history.bound(2, 5)


@broken("log-goes-back", level="suspect")
def an_end_that_goes_back_at_another_node(history: History) -> None:
    history.bound(1, 10)
    history.bound(2, 5, who=ELSEWHERE)


@broken("log-goes-back", level="suspect")
def a_log_start_that_goes_back(history: History) -> None:
    history.read(1, 5, high=9, start=5)
    history.read(2, 5, high=9, start=3)


@broken("log-goes-back", level="suspect")
def a_log_start_below_deleted_records(history: History) -> None:
    history.delete_records(1, 5)
    history.read(2, 5, high=9, start=4)


@broken("log-goes-back")
def a_write_below_a_high_watermark(history: History) -> None:
    history.read(1, 10, high=10)
    history.write(2, A, 4)


@lawful("log-goes-back")
def bounds_that_rise(history: History) -> None:
    history.bound(1, 0, time=-2)
    history.read(2, 0, (0, A), high=2, epoch=3)
    history.delete_records(3, 2)
    history.read(4, 2, (2, B), high=4, start=2, epoch=3)
    history.bound(5, 4)
    history.write(6, C, 4)


@lawful("log-goes-back")
def bounds_of_a_lagging_follower(history: History) -> None:
    """Each replica deletes old records by itself, and learns the high watermark later than its leader."""
    history.read(1, 10, high=10, start=5, epoch=3)
    history.read(2, 4, high=6, start=3, epoch=3, who=ELSEWHERE)


@lawful("log-goes-back")
def a_last_stable_offset_below_the_high_watermark(history: History) -> None:
    history.bound(1, 10)
    history.bound(2, 5, committed=True)
    history.bound(3, 7, time=1_795_262_400_000)


@lawful("log-goes-back")
def a_response_that_overtakes_another(history: History) -> None:
    history.read(1, 2, high=5, took=2)
    history.read(1.5, 2, high=4, who=Somebody(7, client_port=50007))


@lawful("log-goes-back")
def a_retry_below_the_high_watermark(history: History) -> None:
    """An idempotent producer receives the offset of its first attempt."""
    data = batch(b"a", producer=(7, 0, 0))
    history.write(1, data, None)
    history.read(2, 10, high=10)
    history.write(3, data, 4, who=Somebody(9, client_port=50009))


@lawful("log-goes-back", "out-of-range", "deleted-read", "realtime-order")
def bounds_of_a_topic_that_was_created_again(history: History) -> None:
    history.write(1, A, 10)
    history.delete_records(1.5, 12)
    history.read(2, 12, high=12, start=12, epoch=0)
    history.metadata(3, UUID(int=5))
    history.refused_read(4, 12)
    history.write(5, B, 0)
    history.read(6, 0, (0, B), high=2, start=0, epoch=0)


@broken("out-of-range")
def a_refused_read_of_an_acknowledged_record(history: History) -> None:
    history.write(1, A, 0)
    history.refused_read(2, 1, epoch=0)
    history.read(3, 0, (0, A))


@broken("out-of-range")
def a_refused_read_at_the_end_of_acknowledged_records(history: History) -> None:
    history.write(1, A, 0)
    history.refused_read(2, 2, epoch=0)
    history.bound(3, 0, time=-2)


@broken("out-of-range", level="suspect")
def a_refused_read_at_another_node(history: History) -> None:
    history.write(1, A, 0)
    history.refused_read(2, 1, who=ELSEWHERE)
    history.read(3, 0, (0, A), who=ELSEWHERE)


@lawful("out-of-range")
def a_refused_read_of_deleted_records(history: History) -> None:
    history.write(1, A, 0)
    history.write(1.5, B, 2)
    history.refused_read(2, 1)
    history.bound(3, 2, time=-2)


@lawful("out-of-range")
def a_refused_read_beyond_the_end(history: History) -> None:
    history.write(1, A, 0)
    history.refused_read(2, 3)
    history.read(3, 0, (0, A))


@lawful("out-of-range")
def a_refused_read_before_the_acknowledgement(history: History) -> None:
    history.write(1, A, 0, took=2)
    history.refused_read(2, 1)
    history.read(4, 0, (0, A))


@lawful("out-of-range")
def a_refused_read_of_a_record_of_the_leader_only(history: History) -> None:
    history.write(1, A, 0, acks=1)
    history.refused_read(2, 1)
    history.read(4, 0)


@broken("deleted-read")
def deleted_records_that_are_read(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.delete_records(2, 2)
    history.read(3, 0, (0, A), (2, B), start=2)


@broken("deleted-read", level="suspect")
def deleted_records_that_another_node_has(history: History) -> None:
    history.delete_records(2, 4)
    history.read(3, 2, (2, B), (4, C), who=ELSEWHERE)


@lawful("deleted-read")
def a_batch_around_the_first_record_that_is_left(history: History) -> None:
    history.delete_records(2, 1)
    history.read(3, 1, (0, A), (2, B), start=1)


@lawful("deleted-read")
def records_that_are_read_before_they_are_deleted(history: History) -> None:
    history.read(1, 0, (0, A), (2, B))
    history.read(2, 0, (0, A), (2, B), took=2)
    history.delete_records(2.5, 2, who=ELSEWHERE)


@lawful("deleted-read")
def records_that_were_not_deleted(history: History) -> None:
    history.delete_records(1, 2, error=44)
    history.read(2, 0, (0, A), (2, B))
