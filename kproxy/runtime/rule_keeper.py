"""Tasks that wait until a rule has acted so often, without looking again and again.

A `Running` calls back when its counters grow, but only while somebody waits for it; the call compares numbers and wakes
a task when there is something to say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice
from time import monotonic, time
from typing import Any, Literal, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import ConfigRefused, DocumentError
from kproxy.rules.document.store import RuleOrigin, RuleStore, StoreChange, StoredRule
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import RuleSet, Running
from kproxy.runtime.capacity import numbers
from kproxy.runtime.io.pollers import Deadline
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_turns

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


StoreOperation = Callable[[RuleStore, float], StoreChange]
ApplyRuleSet = Callable[[RuleSet], Iterable[object] | None]
"""Puts a rule set into force for all connections; one after the other, as the iterable is gone through."""

TurnCheck = Callable[[], object]
"""Called when the turn of a change has come; raises what refuses it then, and nothing has changed."""


def do_nothing() -> None:
    """Refuse nothing: a `TurnCheck` of changes that nobody has to be allowed to make."""


DOCUMENTS = trio.CapacityLimiter(1)
"""Documents are read and checked beside the event loop, one at a time; others wait for their turn."""
LOOK_AFTER = 1.0
"""Seconds between two looks for rules in which something went wrong; each is logged once a look at most."""
MOST_LOGGED = 20
"""Mistakes of one document, warnings of one set and rules that have expired together, that are logged, a line each; the
API shows all of them."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Set of rules that was refused, and why; `at` in ISO 8601."""

    at: str
    origin: RuleOrigin
    mistakes: tuple[str, ...]


@dataclass(slots=True)
class Loads:
    """Counters of how rules have come in, by origin. `last`: what was refused last, until something from there is
    accepted."""

    loaded: dict[str, int] = field(default_factory=numbers)
    rejected: dict[str, int] = field(default_factory=numbers)
    last: Rejection | None = None


class Events(Protocol):
    """Recorder of the audit's events about rules: `record.audit.state_events`."""

    def loaded(self, now: float, origin: str, version: str, rules: int, before: str | None = None) -> None: ...

    def rejected(self, now: float, origin: str, version: str, mistakes: Iterable[str]) -> None: ...

    def changed(self, now: float, change: str, rule: str | None, version: str, rules: int) -> None: ...

    def tell(self) -> None: ...


class ToldConfig(Protocol):
    """Config that comes into force together with rules, for processes that are told of it. `packed`: all of it.
    `terms` are those on which it is in force, once it is; `has_taken` is called for each process that has it then."""

    packed: bytes

    def terms(self) -> Any: ...
    def has_taken(self, worker: Any) -> object: ...


class RuleKeeper:
    """Keeper of the rules in force. `swap` puts a rule set into force for all connections."""

    def __init__(self, store: RuleStore, swap: ApplyRuleSet, reactor: Reactor, log: FilteringBoundLogger) -> None:
        self.store, self.swap, self.reactor, self.log = store, swap, reactor, log
        self.changing = trio.Lock()
        self.loads = Loads()
        self.waiters = RuleWaiters(self.running, reactor.notify)
        self.timer: Deadline | None = None
        self.watch: Deadline | None = None
        self.logged_problems: dict[str, int] = {}  # problems of each rule that the log knows of
        self.events: Events | None = None  # is told, too, where there is an audit

    def running(self, name: str) -> Running | None:
        """Return the live rule of that name. Raises NoSuchRule."""
        return self.store[name].running

    def started(self) -> None:
        """Log and enforce the first rules of the store."""
        self.loads.loaded["file"] += 1
        self.log.info("rules", version=self.store.rule_set.id, rules=len(self.store.stored_rules), seed=self.store.seed)
        if self.events is not None:
            self.events.loaded(time(), "file", self.store.rule_set.id, len(self.store.stored_rules))
        self._tell(self.store.stored_rules.values())
        self._set_timer(monotonic())
        self._at_work()

    def load(self, origin: RuleOrigin, operation: StoreOperation) -> StoreChange:
        """Take in rules from outside, all or none. Raises what the store raises; mistakes are logged and counted."""
        before = self.store.rule_set.id
        try:
            change = operation(self.store, monotonic())
        except DocumentError as error:
            self._reject(origin, error)
            raise
        self._put_into_force(change)
        self._has_loaded(origin, before)
        return change

    def do(self, what: str, operation: StoreOperation, *, rule: str | None = None) -> StoreChange:
        """Turn something on or off, or remove it. Raises what the store raises."""
        change = operation(self.store, monotonic())
        self._put_into_force(change)
        self._has_done(what, rule)
        return change

    def reset(self, name: str | None) -> int:
        """Set the counters of one rule or of all to 0; see `RuleStore.reset`."""
        return self.store.reset(name, monotonic())

    def release(self, name: str) -> int:
        """Let go the requests that the rule holds; return how many. Raises NoSuchRule."""
        running = self.running(name)
        return 0 if running is None else running.release()

    # ---- the same wherever rules are at work: `workers.crew_keeper` has more processes than this one

    async def load_everywhere(
        self, origin: RuleOrigin, operation: StoreOperation, *, check: TurnCheck = do_nothing
    ) -> StoreChange:
        """Do `load` beside the loop, one operation at a time. Raises NotEverywhere and what `check` raises, too."""
        async with self.one_at_a_time(check):
            before = self.store.rule_set.id
            change = await self._tried(origin, operation)
            await self._put_into_force_in_turns(change)
            self._has_loaded(origin, before)
            return change

    async def load_with(
        self, operation: StoreOperation, commit: Callable[[RuleSet], object], ending: Callable[[], bool],
        told: ToldConfig | None = None, *, check: TurnCheck = do_nothing,
    ) -> None:  # fmt: skip
        """Take in rules together with another config, which `commit` puts in force beside them; it cannot fail. Raises
        DocumentError, ConfigRefused when the process is `ending` by now, what `check` raises, and, where other
        processes are `told` of the config, NotEverywhere and UnusableSetting; nothing has changed then."""
        async with self.one_at_a_time(check):
            before = self.store.rule_set.id
            change = await self._aside(operation)
            if ending():
                raise ConfigRefused("ending", "kproxy is going to end, and takes no other config")
            commit(self.store.rule_set)
            await self._put_into_force_in_turns(change)
            if self.store.rule_set.id != before:
                self._has_loaded("file", before)

    async def do_everywhere(
        self, what: str, operation: StoreOperation, *, rule: str | None = None, check: TurnCheck = do_nothing
    ) -> StoreChange:
        """Do `do` beside the loop, one operation at a time. Raises NotEverywhere and what `check` raises, too."""
        async with self.one_at_a_time(check):
            change = await self._aside(operation)
            await self._put_into_force_in_turns(change)
            self._has_done(what, rule)
            return change

    async def reset_everywhere(self, name: str | None, *, check: TurnCheck = do_nothing) -> int:
        """Do `reset` in all processes. Raises NotEverywhere and what `check` raises, too."""
        return self.reset(name)

    async def release_everywhere(self, name: str) -> int:
        """Do `release` in all processes that hold requests."""
        running = self.running(name)
        return 0 if running is None else await release_in_turns(running)

    async def count(self) -> None:
        """Bring the counters of all rules up to date."""

    # ---- inside

    @asynccontextmanager
    async def one_at_a_time(self, check: TurnCheck = do_nothing) -> AsyncIterator[None]:
        """Wait for changes that are under way. What has begun is brought to its end, though nobody waits for it. Raises
        what `check` raises."""
        async with self.changing:
            check()
            with trio.CancelScope(shield=True):
                yield

    async def _aside(self, operation: StoreOperation) -> StoreChange:
        """Do it on a copy of the store, in a thread, and take over what has come of it. Raises what it raises."""
        while True:
            trial = self.store.trial()
            change = await trio.to_thread.run_sync(operation, trial, monotonic(), limiter=DOCUMENTS)
            if self.store.adopt(trial):
                return change

    async def _tried(self, origin: RuleOrigin, operation: StoreOperation) -> StoreChange:
        try:
            return await self._aside(operation)
        except DocumentError as error:
            self._reject(origin, error)
            raise

    def _has_loaded(self, origin: RuleOrigin, before: str) -> None:
        self.loads.loaded[origin] += 1
        if self.loads.last is not None and self.loads.last.origin == origin:
            self.loads.last = None
        version = self.store.rule_set.id
        self.log.info("rules loaded", origin=origin, rules=len(self.store.stored_rules), version=version, before=before)
        if self.events is not None:
            self.events.loaded(time(), origin, version, len(self.store.stored_rules), before)

    def _has_done(self, what: str, rule: str | None) -> None:
        self.log.info("rules changed", what=what, rule=rule, version=self.store.rule_set.id)
        self._told_of(what, rule)

    def _told_of(self, what: str, rule: str | None) -> None:
        if self.events is not None:
            self.events.changed(time(), what, rule, self.store.rule_set.id, len(self.store.stored_rules))

    def _reject(self, origin: RuleOrigin, error: DocumentError) -> None:
        if self.events is not None:
            self.events.rejected(time(), origin, self.store.rule_set.id, error.mistakes)
        self.loads.rejected[origin] += 1
        self.loads.last = Rejection(datetime.now(UTC).isoformat(timespec="milliseconds"), origin, tuple(error.mistakes))
        for mistake in error.mistakes[:MOST_LOGGED]:
            self.log.error("rules rejected", origin=origin, mistake=mistake)
        self.log.error("rules rejected, those in force stay", origin=origin, mistakes=len(error.mistakes),
                       version=self.store.rule_set.id)  # fmt: skip

    def _put_into_force(self, change: StoreChange) -> None:
        for _ in self._steps_into_force(change):
            pass

    async def _put_into_force_in_turns(self, change: StoreChange) -> None:
        await in_turns(self._steps_into_force(change))

    def _steps_into_force(self, change: StoreChange) -> Iterator[None]:
        """Put the store's rules into force, in short steps."""
        if self.events is not None:
            self.events.tell()  # of those that leave now, for the last time
        for _ in self.swap(self.store.rule_set) or ():
            yield
        for running in change.left:
            yield from running.releasing("rule_gone")
            yield
        self._tell(change.new)
        self.waiters.changed()
        self._set_timer(monotonic())
        yield
        self._at_work()

    def _tell(self, new: Iterable[StoredRule]) -> None:
        warnings = (
            (stored_rule, text)
            for stored_rule in new
            if isinstance(stored_rule.rule, LiveRule)
            for text in stored_rule.rule.warnings()
        )
        for stored_rule, text in islice(warnings, MOST_LOGGED):
            self.log.warning("rule", rule=stored_rule.name, at=stored_rule.parsed.position, warning=text)
        if more := sum(1 for _ in warnings):
            self.log.warning("rules have more warnings, which the admin API shows", warnings=more)

    def _at_work(self) -> None:
        """Give live rules a clock, and look after them from now on."""
        for running in self.store.rule_set.live:
            running.effect.clock = monotonic
        if self.watch is None and self.store.rule_set.live:
            self.watch = self.reactor.call_at(monotonic() + LOOK_AFTER, self._look_after)

    def _look_after(self) -> None:
        """Log what went wrong in rules since the last look."""
        live = self.store.rule_set.live
        for running in live:
            problems = running.problems
            if problems > self.logged_problems.get(running.name, 0):
                self.log.warning("rule has problems", rule=running.name, problems=problems, problem=running.problem)
        self.logged_problems = {running.name: running.problems for running in live}
        self.watch = self.reactor.call_at(monotonic() + LOOK_AFTER, self._look_after) if live else None

    def _set_timer(self, now: float) -> None:
        if self.timer is not None:
            self.reactor.cancel(self.timer)
        due = self.store.due(now)
        self.timer = None if due is None else self.reactor.call_at(due, self._expire)

    def _expire(self) -> None:
        self.timer = None
        self.reactor.spawn(self._expire_everywhere)

    async def _expire_everywhere(self) -> None:
        async with self.one_at_a_time():
            now, before = monotonic(), list(self.store.stored_rules)
            await self._put_into_force_in_turns(self.store.expire(now))
            await self._has_expired(before, now)

    async def _has_expired(self, before: Sequence[str], now: float) -> None:
        """Log the rules that are gone; `before` are the names that there were."""
        gone = [name for name in before if name not in self.store.stored_rules]
        for name in gone[:MOST_LOGGED]:
            self.log.info("rule expired", rule=name)
        if len(gone) > MOST_LOGGED:
            self.log.info("more rules expired", rules=len(gone) - MOST_LOGGED)
        await in_turns(map(partial(self._told_of, "expired"), gone))
        for stored in self.store.documents:
            scenario, at = stored.document.scenario, stored.moment(now)
            if scenario is not None:
                stage = None if at is None else scenario.stage_name(at.stage)
                self.log.info("scenario", name=scenario.name, stage=stage, round=None if at is None else at.round + 1,
                              at=stored.document.source.file)  # fmt: skip


async def release_in_turns(running: Running) -> int:
    """Let go what a rule holds while others go on, and return how many frames that were."""
    released = count()

    def steps() -> Iterator[None]:
        for _ in running.releasing():
            next(released)
            yield

    await in_turns(steps())
    return next(released)
