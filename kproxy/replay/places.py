"""Where a recorded request has to go: to the leader of its partitions, or to a coordinator.

Recorded nodes and addresses mean nothing to the target, so each request is looked at by itself. Approximated is what a
client would have spread differently: a request goes as a whole, so one about partitions with several leaders goes to
the leader of most of them, and the others are answered with NOT_LEADER_OR_FOLLOWER; a recorded connection's fetches all
go where its first one went, for the sake of its session (KIP-227). What is about neither goes to the bootstrap server:
since KRaft (KIP-590), every broker passes on what the controller has to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kproxy.rules.entity import entities
from kproxy.wire import Message

from .recording import Exchange
from .target import GROUP, TRANSACTION, Address, Coordinator, Target

FETCHES = frozenset((1, 78, 79))
"""Fetch, ShareFetch, ShareAcknowledge: what has a session with one broker."""
LED = FETCHES | frozenset((0, 2, 21, 23, 61))
"""Produce, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""
GROUPED = frozenset((8, 9, 11, 12, 13, 14, 15, 28, 42, 47, 68, 69, 76, 77, 88, 89, 90, 91, 92))
"""What a group's coordinator answers, TxnOffsetCommit among it."""
TRANSACTED = frozenset((22, 24, 25, 26, 65))
"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request is about: partitions by topic name, or a coordinator's key, or neither."""

    partitions: tuple[tuple[str, int], ...] = ()
    coordinator: Coordinator | None = None


ANYWHERE = Wish()


def wish(request: Message | None, names: Mapping[UUID, str]) -> Wish:
    """Of a recorded request; `names` are those of recorded topic ids."""
    if request is None:
        return ANYWHERE
    key = request.api.key
    if key in LED:
        found = [(one.topic or names.get(one.topic_id or UUID(int=0)), one.partition) for one in entities(request)]
        return Wish(tuple((topic, number) for topic, number in found if topic and number is not None))
    if key in GROUPED:
        groups = [one.group for one in entities(request) if one.group]
        group = groups[0] if groups else request.body.get("group_id")
        return Wish(coordinator=(GROUP, group)) if group else ANYWHERE
    if key in TRANSACTED:
        ids = [one.transactional_id for one in entities(request) if one.transactional_id]
        return Wish(coordinator=(TRANSACTION, ids[0])) if ids else ANYWHERE
    return ANYWHERE


class Places:
    """Which broker each request goes to. `astray`: partitions that were asked of a broker which does not lead them."""

    def __init__(self, target: Target, names: Mapping[UUID, str]) -> None:
        self.target, self.names = target, names
        self.fetches: dict[int, Address] = {}
        """Number of a line → where its fetches go."""
        self.astray = 0

    def of(self, exchange: Exchange) -> Wish:
        """What it is about."""
        return wish(exchange.request, self.names)

    def unknown(self, wanted: Wish) -> set[str | Coordinator]:
        """Topics and coordinators that the target has to be asked for first."""
        known = self.target.asked
        missing: set[str | Coordinator] = {topic for topic, _ in wanted.partitions if topic not in known}
        if wanted.coordinator is not None and wanted.coordinator not in known:
            missing.add(wanted.coordinator)
        return missing

    def address(self, exchange: Exchange, wanted: Wish) -> Address:
        """Where it goes, by what is known now."""
        fetch = exchange.key in FETCHES
        if fetch and exchange.line.number in self.fetches:
            return self.fetches[exchange.line.number]
        if wanted.coordinator is not None:
            node = self.target.coordinators.get(wanted.coordinator)
            return self.target.address_of(node) or self.target.bootstrap
        leaders = (self.target.leaders.get(one, -1) for one in wanted.partitions)
        led = Counter(node for node in leaders if node in self.target.nodes)
        if not led:
            return self.target.bootstrap
        (leader, most), *_ = led.most_common(1)
        self.astray += led.total() - most
        address = self.target.nodes[leader]
        if fetch:
            self.fetches[exchange.line.number] = address
        return address
