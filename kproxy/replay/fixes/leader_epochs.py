"""Fix of leader epochs: requests name none.

A client says which leader epoch it believes in, and a broker refuses it if that is not its own (KIP-320). The epochs of
two clusters have nothing to do with each other; -1 asks the broker not to compare. What OffsetForLeaderEpoch asks for,
and what commits carry along, is data and stays.
"""

from __future__ import annotations

from kproxy.wire import Message
from kproxy.wire.table.api_keys import (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
)

from ..structs import layout_of, structs
from . import OutgoingRequest

NAMES = ("current_leader_epoch", "last_fetched_epoch")
UNKNOWN = -1


class LeaderEpochFix:
    """Fix of the leader epochs in requests; see the module."""

    requests = frozenset((FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH))
    """Fetch, ListOffsets, OffsetForLeaderEpoch."""
    answers: frozenset[int] = frozenset()

    def request(self, request: OutgoingRequest) -> None:
        for _, value in structs(layout_of(request.message), request.message.body):
            for name in NAMES:
                if name in value:
                    value[name] = UNKNOWN

    def answer(self, request: OutgoingRequest, recorded: Message | None, now: Message) -> None:
        """Do nothing: requests take no epoch from responses."""
