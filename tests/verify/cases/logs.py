"""Histories of logs: what was written, what was read, and at which offsets."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.verify.cases.table import broken, lawful
from tests.verify.history import History, batch

A, B, C = batch(b"a", b"aa"), batch(b"b", b"bb", at=1), batch(b"c", b"cc", at=2)
OTHER = Somebody(9, client_port=50009, client_id="writer")
"""The same client on another connection, as after one that was lost."""


@broken("lost-write")
def a_write_that_readers_do_not_get(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (2, B))


@broken("lost-write")
def a_write_that_an_overlapping_response_lacks(history: History) -> None:
    """The response may be over before the write is: what follows a hole was appended later."""
    history.write(1, A, 0, took=3)
    history.read(2, 0, (2, B))


@lawful("lost-write", "watermark-behind", "inconsistent-offset", "duplicate", "order", "offset-given-twice")
def writes_that_are_read(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (0, A), (2, B))


@lawful("lost-write", compacted=True)
def a_compacted_log(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (2, B))


@broken("offset-given-twice")
def an_offset_that_is_given_twice(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 1, who=OTHER)
