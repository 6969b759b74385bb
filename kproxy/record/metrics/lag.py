"""The lag of groups, as far as their commits and the ends of their partitions passed here.

Strategy. A partition's end is what was heard of it last: the high watermark that a Fetch brought, or the offset behind
the last record that a Produce wrote. A group's lag in a topic is the sum, over the partitions for which it committed
offsets, of end less offset. Who commits and who reads may be on connections of different workers, so each worker tells
both, and the sums are made where all of it comes together.

So many partitions are remembered of all groups together, and as many ends; beyond that, those of which nothing was
heard for the longest time are forgotten, and counted.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable

from .table import BIRTHS, OTHER, LabelSeries

MOST_PARTITIONS = 20_000
"""Partitions of groups, and ends, that one process remembers of each: some 10 MB. Kafka clusters have 200,000 at most,
and groups commit for a few hundred."""
TOPICS = 5
"""Pairs of group and topic with lines of their own, for each group that can have a series."""

LaggedPartition = tuple[str, str, int]
"""(cluster, topic, partition), by the broker's names."""
CommitRow = tuple[str, str, str, int, int, float]
"""(group, cluster, topic, partition, offset, when)"""
EndRow = tuple[str, str, int, int, float]
"""(cluster, topic, partition, offset, when)"""


class GroupLags:
    """Committed offsets of groups and ends of partitions. `forgotten`: partitions for which there was no room, counted
    under the number `born`.

    `series`: groups that can have series.
    """

    def __init__(self, series: int, most: int = MOST_PARTITIONS) -> None:
        self.most = most
        self.use(series)
        self.commits: OrderedDict[tuple[str, LaggedPartition], tuple[int, float]] = OrderedDict()
        self.of_group: dict[str, set[LaggedPartition]] = {}
        """Partitions for which each group has an offset: hundreds of groups may go at once."""
        self.ends: OrderedDict[LaggedPartition, tuple[int, float]] = OrderedDict()
        self.forgotten, self.born = 0, next(BIRTHS)

    def use(self, series: int) -> None:
        self.most_pairs = TOPICS * series

    def commit(self, group: str, partition: LaggedPartition, offset: int, at: float) -> None:
        """Take note that a group has committed an offset at this time; what is older than what is known is passed."""
        key = group, partition
        known = self.commits.get(key)
        if known is None or known[1] <= at:
            self.commits[key] = offset, at
            self.commits.move_to_end(key)
            if known is None:
                self.of_group.setdefault(group, set()).add(partition)
            if len(self.commits) > self.most:
                (first, place), _ = self.commits.popitem(last=False)
                self.of_group[first].discard(place)
                if not self.of_group[first]:
                    del self.of_group[first]
                self.forgotten += 1

    def end(self, partition: LaggedPartition, offset: int, at: float) -> None:
        """Take note of where a partition ended at this time; what is older than what is known is passed. Of what came
        by one read, in any order, the larger offset holds."""
        known = self.ends.get(partition)
        if known is None or (known[1], known[0]) <= (at, offset):
            self.ends[partition] = offset, at
            self.ends.move_to_end(partition)
            if len(self.ends) > self.most:
                self.ends.popitem(last=False)

    def forget(self, group: LabelSeries) -> None:
        """Forget the offsets of a group, whose series was given up."""
        for partition in self.of_group.pop(group.name, ()):
            del self.commits[group.name, partition]

    def lags(self) -> dict[tuple[str, str], int]:
        """Return records between what was committed and the end, by group and topic.

        The topics of a group beyond all lines that there may be are added up as `other`.
        """
        lags: dict[tuple[str, str], int] = defaultdict(int)
        for (group, partition), (offset, _) in self.commits.items():
            end = self.ends.get(partition)
            if end is None:
                continue
            pair = group, partition[1]
            if pair not in lags and len(lags) >= self.most_pairs:
                pair = group, OTHER
            lags[pair] += max(end[0] - offset, 0)
        return lags

    def take_rows(self, commits: Iterable[CommitRow], ends: Iterable[EndRow], groups: Container[str]) -> None:
        """Take what another process remembers of these groups, as far as there is room and it is news."""
        for group, cluster, topic, number, offset, at in commits:
            key = group, (cluster, topic, number)
            if group in groups and (key in self.commits or len(self.commits) < self.most):
                self.commit(*key, offset, at)
        for cluster, topic, number, offset, at in ends:
            partition = cluster, topic, number
            if partition in self.ends or len(self.ends) < self.most:
                self.end(partition, offset, at)

    def commit_rows(self) -> list[CommitRow]:
        """Return the offsets that groups have committed, for a process that puts those of several together."""
        return [(group, *partition, offset, at) for (group, partition), (offset, at) in self.commits.items()]

    def end_rows(self) -> list[EndRow]:
        """Return the ends of partitions, for a process that puts those of several together."""
        return [(*partition, offset, at) for partition, (offset, at) in self.ends.items()]
