"""Rules in force and their changes, and tasks that wait for a rule's counters without polling.

A `ActiveRule` calls back when its counters grow, but only while a task waits for it. The callback compares numbers and
wakes tasks that have reached their count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice
from time import monotonic, time
from typing import TYPE_CHECKING, Literal

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import ConfigRefused, DocumentError, KproxyError, NotEverywhere
from kproxy.rules.document.store import RuleOrigin, RuleStore, Saved, StoreChange, StoredRule
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import ActiveRule, RuleSet
from kproxy.runtime.capacity import numbers
from kproxy.runtime.io.pollers import Deadline
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_turns

if TYPE_CHECKING:
    from kproxy.app.workers.pool_network import PoolChange
    from kproxy.app.workers.rule_messages import RuleNewsSender
    from kproxy.record.audit.state_events import RuleEvents

CounterName = Literal["matched", "fired", "applied"]
FindRunning = Callable[[str], ActiveRule | None]
"""Returns a rule by name. None: it has not been in force yet. Raises NoSuchRule."""


@dataclass(eq=False, slots=True)
class Waiter:
    """Task that waits until a counter has reached `hits`."""

    count: CounterName
    hits: int
    event: trio.Event


class RuleWaiters:
    """Waiting tasks by rule. `notify` sets an event and wakes its task."""

    def __init__(self, find: FindRunning, notify: Callable[[trio.Event], None]) -> None:
        self.find, self.notify = find, notify
        self.waiters: dict[str, list[Waiter]] = {}

    async def wait(self, name: str, hits: int, count: CounterName) -> None:
        """Return once the rule's counter has reached `hits`; at once if it has already.

        A rule that changes during the wait counts from 0. Raises NoSuchRule, also if the rule is removed during the
        wait.
        """
        while True:
            running = self.find(name)
            if running is not None and getattr(running, count) >= hits:
                return
            await self._next(name, Waiter(count, hits, trio.Event()), running)

    async def _next(self, name: str, waiter: Waiter, running: ActiveRule | None) -> None:
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

    def _counted(self, name: str, running: ActiveRule) -> None:
        for waiter in self.waiters.get(name, ()):
            if getattr(running, waiter.count) >= waiter.hits:
                self.notify(waiter.event)

    def changed(self) -> None:
        """Make all waiting tasks look up their rule again after a change of the rule set."""
        for waiters in self.waiters.values():
            for waiter in waiters:
                self.notify(waiter.event)


StoreOperation = Callable[[RuleStore, float], StoreChange]
ApplyRuleSet = Callable[[RuleSet], Iterable[object] | None]
"""Puts a rule set into force for all connections, one connection per step of the iterable."""

TurnCheck = Callable[[], object]
"""Called when a change acquires the lock. Raises an exception to reject the change."""


def do_nothing() -> None:
    """Accept: the `TurnCheck` of changes without an access check."""


DOCUMENTS = trio.CapacityLimiter(1)
"""Documents are read and checked in a thread, one at a time; others are queued."""
CHECK_EVERY = 1.0
"""Seconds between two checks for problems of rules. Each rule is logged at most once per check."""
MOST_LOGGED = 20
"""Maximum log lines for mistakes of one document, warnings of one set, or rules that expired together. The API shows
all of them."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejected rule set with its mistakes. `at` is in ISO 8601."""

    at: str
    origin: RuleOrigin
    mistakes: tuple[str, ...]


@dataclass(slots=True)
class Loads:
    """Counters of rule loads by origin. `last`: the last rejection, until a load from the same origin succeeds."""

    loaded: dict[str, int] = field(default_factory=numbers)
    rejected: dict[str, int] = field(default_factory=numbers)
    last: Rejection | None = None


class RuleKeeper:
    """Keeper of the rules in force. `swap` puts a rule set into force for all connections."""

    def __init__(self, store: RuleStore, swap: ApplyRuleSet, reactor: Reactor, log: FilteringBoundLogger) -> None:
        self.store, self.swap, self.reactor, self.log = store, swap, reactor, log
        self.changing = trio.Lock()
        self.loads = Loads()
        self.waiters = RuleWaiters(self.running, reactor.notify)
        self.timer: Deadline | None = None
        self.watch: Deadline | None = None
        self.logged_problems: dict[str, int] = {}  # logged problems by rule
        self.events: RuleEvents | RuleNewsSender | None = None  # set if auditing is on

    def running(self, name: str) -> ActiveRule | None:
        """Return the live rule of that name. Raises NoSuchRule."""
        return self.store[name].running

    def started(self) -> None:
        """Log and enforce the first rules of the store."""
        self.loads.loaded["file"] += 1
        self.log.info("rules", version=self.store.rule_set.id, rules=len(self.store.stored_rules), seed=self.store.seed)
        if self.events is not None:
            self.events.loaded(time(), "file", self.store.rule_set.id, len(self.store.stored_rules))
        self._log_warnings(self.store.stored_rules.values())
        self._set_timer(monotonic())
        self._at_work()

    def load(self, origin: RuleOrigin, operation: StoreOperation) -> StoreChange:
        """Load rules, all or none. Propagates the store's exceptions; mistakes are logged and counted."""
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
        """Enable, disable or remove rules. Propagates the store's exceptions."""
        change = operation(self.store, monotonic())
        self._put_into_force(change)
        self._has_done(what, rule)
        return change

    # ---- for requests of operators, in all processes

    async def load_everywhere(
        self, origin: RuleOrigin, operation: StoreOperation, *, check: TurnCheck = do_nothing
    ) -> StoreChange:
        """Load rules from outside, all or none. The operation runs in a thread, one at a time. Propagates the
        exceptions of the store and of `check`. Raises NotEverywhere if another process cannot prepare the rules."""
        async with self.one_at_a_time(check):
            before, saved = self.store.rule_set.id, self.store.saved()
            change = await self._tried(origin, operation)
            try:
                await self._commit(saved)
            except NotEverywhere as error:
                self.loads.rejected[origin] += 1
                self.log.error("rules rejected, those in force stay", origin=origin, error=str(error), version=before)
                raise
            await self._put_into_force_in_turns(change)
            self._has_loaded(origin, before)
            return change

    async def load_with(
        self, operation: StoreOperation, commit: Callable[[RuleSet], object], ending: Callable[[], bool],
        told: PoolChange | None = None, *, check: TurnCheck = do_nothing,
    ) -> None:  # fmt: skip
        """Load rules together with a new config. `commit` puts the config in force and cannot fail. Raises
        DocumentError, ConfigRefused if the process is `ending`, and the exceptions of `check`. If other processes
        receive the config (`told`), also raises NotEverywhere and UnusableSetting. Nothing has changed after an
        exception."""

        def decide() -> None:
            if ending():
                raise ConfigRefused("ending", "kproxy is going to end, and takes no other config")
            commit(self.store.rule_set)

        async with self.one_at_a_time(check):
            before, saved = self.store.rule_set.id, self.store.saved()
            change = await self._aside(operation)
            await self._commit(saved, told, decide)
            await self._put_into_force_in_turns(change)
            if self.store.rule_set.id != before:
                self._has_loaded("file", before)

    async def do_everywhere(
        self, what: str, operation: StoreOperation, *, rule: str | None = None, check: TurnCheck = do_nothing
    ) -> StoreChange:
        """Enable, disable or remove rules like `load_everywhere`."""
        async with self.one_at_a_time(check):
            saved = self.store.saved()
            change = await self._aside(operation)
            await self._commit(saved)
            await self._put_into_force_in_turns(change)
            self._has_done(what, rule)
            return change

    async def reset_everywhere(self, name: str | None, *, check: TurnCheck = do_nothing) -> int:
        """Set the counters of one rule or of all to 0; see `RuleStore.reset`."""
        async with self.one_at_a_time(check):
            number = self.store.reset(name, monotonic())
            await self._commit(self.store.saved())
            return number

    async def resume_everywhere(self, name: str) -> int:
        """Resume all requests that this rule holds now; return their number. Raises NoSuchRule."""
        running = self.running(name)
        return 0 if running is None else await resume_in_turns(running)

    async def count(self) -> None:
        """Update the counters of all rules."""

    # ---- inside

    async def _commit(
        self, saved: Saved, told: PoolChange | None = None, decide: Callable[[], object] = do_nothing
    ) -> None:
        """Have all processes prepare the store's state, call `decide`, which may refuse, and commit. Restore `saved`
        and raise if the change is refused. One process has prepared everything already."""
        try:
            decide()
        except KproxyError:
            self.store.restore(saved, monotonic())
            raise

    @asynccontextmanager
    async def one_at_a_time(self, check: TurnCheck = do_nothing) -> AsyncIterator[None]:
        """Wait for pending changes. A change that has begun is completed even if its caller is cancelled. Propagates
        the exceptions of `check`."""
        async with self.changing:
            check()
            with trio.CancelScope(shield=True):
                yield

    async def _aside(self, operation: StoreOperation) -> StoreChange:
        """Run the operation on a copy of the store, in a thread, and adopt the result. Propagates its exceptions."""
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
            self.events.report()  # last event of rules that are removed now
        for _ in self.swap(self.store.rule_set) or ():
            yield
        for running in change.left:
            yield from running.resuming("rule_gone")
            yield
        self._log_warnings(change.new)
        self.waiters.changed()
        self._set_timer(monotonic())
        yield
        self._at_work()

    def _log_warnings(self, new: Iterable[StoredRule]) -> None:
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
        """Set the clock of live rules, and start the periodic check for problems."""
        for running in self.store.rule_set.live:
            running.effect.clock = monotonic
        if self.watch is None and self.store.rule_set.live:
            self.watch = self.reactor.call_at(monotonic() + CHECK_EVERY, self._log_problems)

    def _log_problems(self) -> None:
        """Log problems of rules since the last check."""
        live = self.store.rule_set.live
        for running in live:
            problems = running.problems
            if problems > self.logged_problems.get(running.name, 0):
                self.log.warning("rule has problems", rule=running.name, problems=problems, problem=running.problem)
        self.logged_problems = {running.name: running.problems for running in live}
        self.watch = self.reactor.call_at(monotonic() + CHECK_EVERY, self._log_problems) if live else None

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
            now, before, saved = monotonic(), list(self.store.stored_rules), self.store.saved()
            change = self.store.expire(now)
            try:
                await self._commit(saved)
            except NotEverywhere as error:  # no new model was needed: a worker hangs
                self.log.error("rules cannot change now, kproxy tries again", error=str(error))
                self.timer = self.reactor.call_at(monotonic() + CHECK_EVERY, self._expire)
                return
            await self._put_into_force_in_turns(change)
            await self._has_expired(before, now)

    async def _has_expired(self, before: Sequence[str], now: float) -> None:
        """Log expired rules. `before`: the names before the expiry."""
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


async def resume_in_turns(running: ActiveRule) -> int:
    """Resume the frames that a rule holds, yielding to other tasks; return their number."""
    released = count()

    def steps() -> Iterator[None]:
        for _ in running.resuming():
            next(released)
            yield

    await in_turns(steps())
    return next(released)
