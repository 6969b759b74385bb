"""Findings of a task, summed as they are found: a group for each rule, client, API and set of topics, and samples."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from functools import cache
from typing import Any

from kproxy.wire import schema

from .packed_exchange import PackedExchange, RecordedClient
from .rehearsal import RehearsalFinding
from .topics import TopicNames, topics_of

SAMPLES = 5
"""Samples that are kept of each rule."""
MOST_GROUPS = 20_000
"""Groups in a task's memory, some 20 MB; more are given out in several parts, which the answers add up."""

FindingRow = dict[str, Any]
GroupKey = tuple[str, str | None, str, int, tuple[str, ...]]
SampleOrder = tuple[float, str, int, int]


class FindingGroup:
    """Sums of findings that have rule, client, API and topics in common."""

    __slots__ = ("answers", "changes", "closes", "delay", "first", "last", "longest", "losses", "requests")

    def __init__(self, when: float) -> None:
        self.requests = self.changes = self.answers = self.closes = self.losses = 0
        self.delay = self.longest = 0.0
        self.first = self.last = when

    def add(self, finding: RehearsalFinding, when: float) -> None:
        self.requests += 1
        self.changes += finding.request_changed or finding.response_changed
        self.answers += finding.answered
        self.closes += bool(finding.closed)
        self.losses += finding.lost
        if finding.delay:
            self.delay += finding.delay
            self.longest = max(self.longest, finding.delay)
        if when < self.first:
            self.first = when
        elif when > self.last:
            self.last = when

    def row(self, key: GroupKey) -> FindingRow:
        rule, client_id, address, api, topics = key
        return {
            "what": "group", "rule": rule, "client_id": client_id, "client_address": address, "api": api_name(api),
            "topics": topics, "time": micros(self.first), "last": micros(self.last), "requests": self.requests,
            "changes": self.changes, "answers": self.answers, "closes": self.closes, "losses": self.losses,
            "delay_ms": self.delay * 1000, "delay_ms_max": self.longest * 1000,
        }  # fmt: skip


class FindingSums:
    """Sums of one task's findings.

    `add` takes findings; `groups` gives rows of `tables.FINDINGS` as it goes, and `samples` the last ones at the end.
    """

    def __init__(self) -> None:
        self.by_key: dict[GroupKey, FindingGroup] = {}
        self.first: dict[str, list[tuple[SampleOrder, RehearsalFinding, RecordedClient, tuple[str, ...]]]] = {}

    def add(
        self,
        rule: str,
        finding: RehearsalFinding,
        capture: str,
        connection: int,
        caller: RecordedClient,
        topics: TopicNames,
    ) -> None:
        """Add a finding of this rule; of all rules (""), one of each live rule that fired."""
        recorded = finding.recorded
        when, address = recorded.request_time, caller.facts.client_address
        names = topics_of(recorded, topics)
        order = when, capture, connection, recorded.number
        for name in (rule,) if rule else finding.rules:
            key = name, recorded.client_id, address, recorded.api_key, names
            group = self.by_key.get(key)
            if group is None:
                group = self.by_key[key] = FindingGroup(when)
            group.add(finding, when)
            kept = self.first.setdefault(name, [])
            if len(kept) < SAMPLES or order < kept[-1][0]:
                insort(kept, (order, finding, caller, names), key=lambda one: one[0])
                del kept[SAMPLES:]

    @property
    def full(self) -> bool:
        return len(self.by_key) >= MOST_GROUPS

    def groups(self) -> Iterator[FindingRow]:
        """Yield the rows of the groups that there are, and forget these."""
        groups, self.by_key = self.by_key, {}
        for key, group in groups.items():
            yield group.row(key)

    def samples(self) -> Iterator[FindingRow]:
        """Yield the rows of the first findings of each rule."""
        for rule, kept in self.first.items():
            for (_, capture, connection, _), finding, caller, names in kept:
                yield sample(rule, finding, capture, connection, caller, names)


def sample(
    rule: str, finding: RehearsalFinding, capture: str, connection: int, caller: RecordedClient, names: tuple[str, ...]
) -> FindingRow:
    recorded: PackedExchange = finding.recorded
    return {
        "what": "sample", "rule": rule, "capture": capture, "connection": connection, "number": recorded.number,
        "time": micros(recorded.request_time), "client_id": recorded.client_id,
        "client_address": caller.facts.client_address, "api": api_name(recorded.api_key), "version": recorded.version,
        "topics": names, "request_changed": finding.request_changed, "response_changed": finding.response_changed,
        "answered": finding.answered, "closed": finding.closed or None, "lost": finding.lost,
        "delay_ms": finding.delay * 1000,
    }  # fmt: skip


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


@cache
def api_name(key: int) -> str:
    return schema.load(key).name if key in schema.paths() else f"unknown({key})"
