"""Where a recorded request has to go: to the leader of its partitions, or to a coordinator.

Recorded nodes and addresses mean nothing to the target, so each request is looked at by itself. One about partitions
with several leaders is cut into parts, one for each. The fetches of a connection all are about the same partitions,
those of its session (KIP-227): when these have several leaders, no session is used. What is about neither partitions
nor groups goes to the bootstrap server: since KRaft (KIP-590), every broker passes on what the controller has to do.
Approximated: a ShareFetch goes as a whole to the leader of most of its partitions, since its session belongs to one
broker (KIP-932).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kproxy.core.respond import without
from kproxy.rules.entity import Entity, entities
from kproxy.wire import Message
from kproxy.wire.layout import ZERO_UUID

from .recording import Exchange
from .target import GROUP, TRANSACTION, Address, Coordinator, Target

FETCH = 1
SHARED = frozenset((78, 79))
"""ShareFetch, ShareAcknowledge."""
LED = SHARED | frozenset((0, FETCH, 2, 21, 23, 61))
"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""
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
        found = [(one.topic or names.get(one.topic_id or ZERO_UUID), one.partition) for one in entities(request)]
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
    """Which brokers each request goes to. `spread`: numbers of the lines whose fetches go to several; `astray`:
    partitions of share groups that were asked of a broker which does not lead them."""

    def __init__(self, target: Target, names: Mapping[UUID, str]) -> None:
        self.target, self.names = target, names
        self.spread: set[int] = set()
        self.fetched: dict[int, Wish] = {}
        """Number of a line → all partitions that its fetches name."""
        self.shared: dict[int, Address] = {}
        """Number of a line → where its share fetches go."""
        self.astray = 0

    def of(self, exchange: Exchange) -> Wish:
        """What it is about; a Fetch is about all that its connection fetches."""
        if exchange.key != FETCH:
            return wish(exchange.request, self.names)
        line = exchange.line
        if line.number not in self.fetched:
            found: dict[tuple[str, int], None] = {}
            for one in line.exchanges:
                if one.key == FETCH and not one.unfit:
                    found.update(dict.fromkeys(wish(one.request, self.names).partitions))
                    one.forget()
            self.fetched[line.number] = Wish(tuple(found))
        return self.fetched[line.number]

    def unknown(self, wanted: Wish) -> set[str | Coordinator]:
        """Topics and coordinators that the target has to be asked for first."""
        known = self.target.asked
        missing: set[str | Coordinator] = {topic for topic, _ in wanted.partitions if topic not in known}
        if wanted.coordinator is not None and wanted.coordinator not in known:
            missing.add(wanted.coordinator)
        return missing

    def forget(self, wanted: Wish) -> None:
        """Something of this has moved: the target is asked again."""
        self.target.asked.difference_update(topic for topic, _ in wanted.partitions)
        if wanted.coordinator is not None:
            self.target.asked.discard(wanted.coordinator)

    def addresses(self, exchange: Exchange, wanted: Wish) -> list[Address]:
        """Where its parts go, by what is known now; one at least."""
        if wanted.coordinator is not None:
            node = self.target.coordinators.get(wanted.coordinator)
            return [self.target.address_of(node) or self.target.bootstrap]
        if exchange.key in SHARED:
            return [self.majority(exchange, wanted)]
        leaders = dict.fromkeys(self.leader(one) for one in wanted.partitions)
        found = [one for one in leaders if one is not None]
        if exchange.key == FETCH and len(found) > 1:
            self.spread.add(exchange.line.number)
        return found or [self.target.bootstrap]

    def leader(self, partition: tuple[str, int]) -> Address | None:
        """None if it has none, or none that is known."""
        return self.target.address_of(self.target.leaders.get(partition))

    def parts(self, request: Message, addresses: list[Address]) -> list[tuple[Address, Message]]:
        """The request, with the target's ids, cut for these brokers; what nobody leads goes to the first of them."""
        if len(addresses) == 1:
            return [(addresses[0], request)]
        groups: dict[Address, list[Entity]] = {}
        for one in entities(request):
            topic = one.topic or self.target.names.get(one.topic_id or ZERO_UUID, "")
            led = None if one.partition is None else self.leader((topic, one.partition))
            groups.setdefault(led if led in addresses and led is not None else addresses[0], []).append(one)
        found = []
        for address, group in groups.items():
            part = without(request, [one for other in groups.values() if other is not group for one in other])
            if part is not None:
                found.append((address, part))
        return found or [(addresses[0], request)]

    def majority(self, exchange: Exchange, wanted: Wish) -> Address:
        """The leader of most of the partitions of a share group's request, and of those after it."""
        number = exchange.line.number
        if number not in self.shared:
            led = Counter(one for part in wanted.partitions if (one := self.leader(part)) is not None)
            if not led:
                return self.target.bootstrap
            ((self.shared[number], most),) = led.most_common(1)
            self.astray += led.total() - most
        return self.shared[number]
