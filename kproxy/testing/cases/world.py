"""The rules, connections and time of one case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kproxy.core.session_state import Shared
from kproxy.rules.document.read import Document
from kproxy.rules.running import Running
from kproxy.rules.store import RuleStore

from .connection import Line
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
        self.connections, self.topics = connections, topics
        self.shared: dict[str, Shared] = {}
        self.lines: dict[str, Line] = {}
        self.now = 0.0

    def line(self, name: str) -> Line:
        """Return the connection of this name, which is opened the first time."""
        if name not in self.lines:
            spec = self.connections.get(name) or self.connections[""]
            shared = self.shared.setdefault(spec.cluster, Shared())
            number = len(self.lines) + 1
            self.lines[name] = Line(spec, self.store.rule_set, shared, number, self.topics, self.now)
        return self.lines[name]

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass: deadlines of connections and of rules are met in their order."""
        end = self.now + seconds
        while (due := self.next_event()) is not None and due <= end:
            self.go_to(due)
        self.go_to(end)

    def next_event(self) -> float | None:
        """Return the time of the next event that comes by itself; None if there is none."""
        times = [when for line in self.lines.values() for when in line.talk.wakes]
        if (due := self.store.due(self.now)) is not None:
            times.append(due)
        return min(times, default=None)

    def go_to(self, when: float) -> None:
        """Set the time, and let rules end and connections wake that are due by then."""
        due = self.store.due(self.now)
        self.now = max(self.now, when)
        if due is not None and due <= self.now:
            self.store.expire(self.now)
            for line in self.lines.values():
                line.talk.now = max(line.talk.now, self.now)
                line.use(self.store.rule_set)
        for line in self.lines.values():
            line.later(max(0.0, self.now - line.talk.now))

    def release(self, rule: str) -> None:
        """Let the rule of this name let go the requests that it holds."""
        running = self.running(rule)
        if running is not None:
            running.release()
        for line in self.lines.values():
            line.released()

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
