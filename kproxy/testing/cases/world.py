"""The rules, connections and time of one case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kproxy.core.shared import Shared
from kproxy.rules.document.read import Document
from kproxy.rules.running import Running
from kproxy.rules.store import RuleStore

from .connection import CaseConnection
from .model import ClientConnection

MOMENT = 1e-6
"""Seconds by which times of a case may be off: they are sums of floating-point numbers."""


class World:
    """The rules, connections and time of one case; each case has one of its own, so that none sees traces of another.
    Time begins at 0 seconds."""

    def __init__(
        self,
        documents: Iterable[Document],
        seed: int,
        connections: Mapping[str, ClientConnection],
        topics: Mapping[str, UUID],
    ) -> None:
        self.store = RuleStore(seed)
        self.store.replace_files(documents, 0.0)
        self.specs, self.topics = connections, topics
        self.shared: dict[str, Shared] = {}
        self.connections: dict[str, CaseConnection] = {}
        self.now = 0.0

    def connection(self, name: str) -> CaseConnection:
        """Return the connection of this name, which is opened the first time."""
        if name not in self.connections:
            spec = self.specs.get(name) or self.specs[""]
            shared = self.shared.setdefault(spec.cluster, Shared())
            number = len(self.connections) + 1
            self.connections[name] = CaseConnection(spec, self.store.rule_set, shared, number, self.topics, self.now)
        return self.connections[name]

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass: deadlines of connections and of rules are met in their order."""
        end = self.now + seconds
        while (due := self.next_event()) is not None and due <= end:
            self.go_to(due)
        self.go_to(end)

    def next_event(self) -> float | None:
        """Return the time of the next event that comes by itself; None if there is none."""
        times = [when for connection in self.connections.values() for when in connection.talk.wakes]
        if (due := self.store.due(self.now)) is not None:
            times.append(due)
        return min(times, default=None)

    def go_to(self, when: float) -> None:
        """Set the time, and let rules end and connections wake that are due by then."""
        due = self.store.due(self.now)
        self.now = max(self.now, when)
        if due is not None and due <= self.now:
            self.store.expire(self.now)
            for connection in self.connections.values():
                connection.talk.now = max(connection.talk.now, self.now)
                connection.use(self.store.rule_set)
        for connection in self.connections.values():
            connection.later(max(0.0, self.now - connection.talk.now))

    def release(self, rule: str) -> None:
        """Let the rule of this name let go the requests that it holds."""
        running = self.running(rule)
        if running is not None:
            running.release()
        for connection in self.connections.values():
            connection.released()

    def running(self, rule: str) -> Running | None:
        """Return a live rule at work; None for one whose stage has not come yet. Raises NoSuchRule."""
        return self.store[rule].running

    @property
    def held(self) -> int:
        """Return how many requests wait to be released."""
        return sum(len(kept.running.held) for kept in self.store.stored_rules.values() if kept.running is not None)

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each rule in which something went wrong, such as an exception in a Python function."""
        every = [kept.running for kept in self.store.stored_rules.values() if kept.running is not None]
        return [f'the rule "{one.name}" went wrong: {one.problem}' for one in every if one.problems]
