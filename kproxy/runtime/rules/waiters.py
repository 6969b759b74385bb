"""Tasks that wait until a rule has acted so often, without looking again and again.

A `Running` calls back when its counters grow, but only while somebody waits for it; the call compares numbers and wakes
a task when there is something to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from kproxy.rules.rule_set import Running

CounterName = Literal["matched", "fired", "applied"]
FindRunning = Callable[[str], Running | None]
"""A rule by name; None when it has not been in force yet. Raises NoSuchRule."""


@dataclass(eq=False, slots=True)
class Waiter:
    """Task that waits until a counter has reached `hits`."""

    count: CounterName
    hits: int
    event: trio.Event


class RuleWaiters:
    """Waiting tasks by rule. `notify` sets an event in a way that the task which waits for it is run."""

    def __init__(self, find: FindRunning, notify: Callable[[trio.Event], None]) -> None:
        self.find, self.notify = find, notify
        self.waiters: dict[str, list[Waiter]] = {}

    async def wait(self, name: str, hits: int, count: CounterName) -> None:
        """Return once the rule's counter has reached `hits`; at once if it has already.

        A rule that is changed while somebody waits counts from 0. Raises NoSuchRule, also when it is removed.
        """
        while True:
            running = self.find(name)
            if running is not None and getattr(running, count) >= hits:
                return
            await self._next(name, Waiter(count, hits, trio.Event()), running)

    async def _next(self, name: str, waiter: Waiter, running: Running | None) -> None:
        waiters = self.waiters.setdefault(name, [])
        waiters.append(waiter)
        if running is not None:
            running.on_count = partial(self._counted, name, running)
        try:
            await waiter.event.wait()
        finally:
            waiters.remove(waiter)
            if not waiters:
                self.waiters.pop(name, None)
                if running is not None:
                    running.on_count = None

    def _counted(self, name: str, running: Running) -> None:
        for waiter in self.waiters.get(name, ()):
            if getattr(running, waiter.count) >= waiter.hits:
                self.notify(waiter.event)

    def changed(self) -> None:
        """Have all tasks look again which rule it is that they wait for: there is another rule set."""
        for waiters in self.waiters.values():
            for waiter in waiters:
                self.notify(waiter.event)
