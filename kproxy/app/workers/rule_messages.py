"""Messages from a supervisor to its workers: rules and rule events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import ConfigRefused, InternalError, KproxyError, NotEverywhere, UnusableSetting
from kproxy.rules.content.edits import RecordCounts
from kproxy.rules.document.store import RuleStore, Saved, StoredRule
from kproxy.rules.rule_set import ActiveRule, HowGone
from kproxy.runtime.io.channel import Unanswered
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.rule_keeper import (
    CHECK_EVERY,
    ApplyRuleSet,
    CounterName,
    RuleKeeper,
    RuleWaiters,
    do_nothing,
)

from .messages import HandedRule, RuleCount, RulesState, WorkerCalls
from .pool_worker import PoolWorker
from .shared_table import SharedTable
from .worker_pool import LatestAnswers, WorkerPool, call_all, call_each
from .worker_rules import WorkerRules, owner

if TYPE_CHECKING:
    from .pool_network import PoolChange


def packed(state: RulesState) -> bytes:
    """Encode a state for workers. Raises InternalError for values that a message cannot hold: numbers of more than 64
    bits."""
    try:
        return msgspec.msgpack.encode(state)
    except (OverflowError, TypeError) as error:
        raise InternalError(f"rules cannot be sent to workers: {error}") from None


def handed(store: RuleStore) -> list[HandedRule]:
    """Return all rules of a store, in the form sent to workers."""
    return [handed_rule(stored_rule) for stored_rule in store.stored_rules.values()]


def handed_rule(stored_rule: StoredRule) -> HandedRule:
    running = stored_rule.running
    return HandedRule(
        content=digest(stored_rule),
        raw=stored_rule.parsed.raw,
        position=stored_rule.parsed.position,
        origin=stored_rule.origin,
        active=stored_rule.active,
        born=0 if running is None else running.born,
        lives=0 if running is None else running.lives,
        resets=0 if running is None else running.resets,
        began=0.0 if running is None else running.trigger.began,
    )


def digest(stored_rule: StoredRule) -> bytes:
    return blake2b(stored_rule.content.encode(), digest_size=16).digest()


class RuleNewsSender:
    """Stand-in for the audit's `RuleEvents`, which are in the workers: one of them records the events sent here."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool

    def loaded(self, now: float, origin: str, version: str, rules: int, before: str | None = None) -> None:
        self._record("loaded", now, origin, version, rules, before)

    def rejected(self, now: float, origin: str, version: str, mistakes: Iterable[str]) -> None:
        self._record("rejected", now, origin, version, list(mistakes))

    def changed(self, now: float, change: str, rule: str | None, version: str, rules: int) -> None:
        self._record("changed", now, change, rule, version, rules)

    def report(self) -> None:
        """Do nothing: workers report counts themselves."""

    def _record(self, method: str, *given: Any) -> None:
        for worker in self.pool.workers:
            if worker.ready and worker.channel is not None:
                worker.channel.send(WorkerCalls.record, method, list(given))
                return


POLL_EVERY = 0.02
"""Seconds between two polls of counters while a request waits for one."""


# Rules at work in several processes: the supervisor's store defines them, workers apply them.
#
# Strategy. An operation is done in the store; then all workers are asked to prepare the result. If one cannot, the
# store is rolled back and nothing has changed; if all can, all are asked to commit. A worker that ends during this has
# no vote: its replacement begins with the state in force by then. A worker that fails to commit after it has prepared
# is restarted.
#
# A config goes the same way, together with its rules (`load_with`). For a config, all workers that take connections
# have to report ready, including one that ends during this: the config may have killed it.
#
# The live rules of this store see no traffic. They represent those of the workers: their counters are the sums of the
# workers' reports, polled each second, and more often while a request waits for a number. The last report of a worker
# that has ended stays in the sums.
class PoolRuleKeeper(RuleKeeper):
    """Keeper of rules in several processes. `swap` receives each new rule set here. `worker_begins` and `admit` are for
    the pool to call."""

    waiters: PolledRuleWaiters

    def __init__(
        self, store: RuleStore, pool: WorkerPool, swap: ApplyRuleSet, reactor: Reactor,
        log: FilteringBoundLogger, table: SharedTable,
    ) -> None:  # fmt: skip
        super().__init__(store, swap, reactor, log)
        self.pool, self.table = pool, table
        self.waiters = PolledRuleWaiters(self)
        self.in_force = RulesState(0, store.seed, handed(store))
        self.packed = packed(self.in_force)
        self.latest = LatestAnswers[list[RuleCount]]()
        self.lost: dict[int, RuleCount] = {}  # of workers that have ended, added up by rule
        self.numbers: dict[int, int] = {}  # by worker: its current state
        self.attempts = 0  # number of states so far, which numbers the next one
        self.told: PoolChange | None = None  # the config in force, if it differs from the one at the start
        self.told_since = 0  # the state that it started with
        self.owners = self._owners()

    # ---- for the pool

    def state(self) -> bytes:
        """Return the rules in force, packed, for a new worker."""
        return self.packed

    def worker_begins(self, worker: PoolWorker) -> None:
        """Note that a worker's process was replaced; the new one has received the state now in force."""
        self.numbers[worker.index] = self.in_force.number
        for count in self.latest.by_worker.pop(worker.index, []):
            self.lost[count.born] = added(self.lost.get(count.born), count, ended=True)

    async def admit(self, worker: PoolWorker) -> None:
        """Bring a worker up to date when its rules are made, if they have changed since. Raises Unanswered."""
        async with self.one_at_a_time():
            number, channel = self.in_force.number, worker.channel
            if self.numbers[worker.index] == number or channel is None:
                return
            told = self.told if self.numbers[worker.index] < self.told_since else None
            await channel.call(WorkerRules.prepare, number, self.packed, b"" if told is None else told.packed)
            await channel.call(WorkerRules.commit, number, None if told is None else told.terms())
            self.numbers[worker.index] = number

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Add up the workers' counts, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(CHECK_EVERY)
            await self.count()

    # ---- operations

    async def resume_everywhere(self, name: str) -> int:
        running = self.running(name)
        if running is None:
            return 0
        released = await call_all(self.pool, WorkerRules.resume, running.born)
        await self.count()
        return sum(number for _, number in released if isinstance(number, int))

    async def count(self) -> None:
        """Ask all workers, and add up. The store's state is in force everywhere when this returns: it waits for a
        change in progress."""
        await self.latest.ask(self.pool, WorkerRules.count)
        async with self.one_at_a_time():
            self._add_up()

    # ---- inside

    async def _commit(
        self, saved: Saved, told: PoolChange | None = None, decide: Callable[[], object] = do_nothing
    ) -> None:
        """Commit in all workers. `told`: a config to send with the rules. Raises NotEverywhere, UnusableSetting and the
        exceptions of `decide`."""
        self.attempts += 1
        number = self.attempts
        try:
            state, message = await trio.to_thread.run_sync(self._as_told, number)
            prepared = await self._prepared(number, message, b"" if told is None else told.packed)
            decide()
        except KproxyError as error:
            for worker in self.pool.workers:
                if worker.channel is not None:
                    worker.channel.send(WorkerRules.forget, number)
            self.store.restore(saved, monotonic())
            if isinstance(error, NotEverywhere | UnusableSetting | ConfigRefused):
                raise
            raise NotEverywhere(f"nothing was changed: {error}") from None
        self.in_force, self.packed = state, message
        if told is not None:
            self.told, self.told_since = told, number

        def returned(worker: PoolWorker, answer: Unanswered | None) -> None:
            if answer is None:
                self.numbers[worker.index] = number
                if told is not None:
                    told.has_committed(worker)
            elif id(worker.channel) in prepared:
                self.log.error("a worker has not taken over what it was ready for", worker=worker.index,
                               error=str(answer))  # fmt: skip
                self.pool.restart(worker, "it has not taken over what it was ready for")

        network = None if told is None else told.terms()
        await call_each(self.pool, returned, WorkerRules.commit, number, network)
        await self._forget()
        self._add_up()

    async def _prepared(self, number: int, state: bytes, config: bytes) -> set[int]:
        """Have all workers prepare, and return the ids of the channels of those that are ready. Raises NotEverywhere
        and UnusableSetting."""
        asked = {worker.index for worker in self.pool.workers if worker.ready and worker.channel is not None}
        answers = await call_all(self.pool, WorkerRules.prepare, number, state, config)
        failed = {worker.index: answer for worker, answer in answers if answer is not None}
        refused = {index: str(error) for index, error in failed.items() if "where" not in error.details}
        if config:
            refused |= dict.fromkeys(asked - {worker.index for worker, _ in answers}, "it has ended")
            if not asked:
                raise NotEverywhere("nothing was changed: no worker is running")
        if refused:
            reasons = {**refused, **{index: str(error) for index, error in failed.items()}}
            each = "; ".join(f"worker {index}: {reasons[index]}" for index in sorted(reasons))
            raise NotEverywhere(f"nothing was changed: {each}")
        for index, error in failed.items():
            alone = "" if len(failed) == len(asked) else f"worker {index}: "
            raise UnusableSetting(tuple(error.details["where"]), f"{alone}{error}")
        return {id(worker.channel) for worker, _ in answers}

    def _as_told(self, number: int) -> tuple[RulesState, bytes]:
        """Return the store's state, and its encoding for workers. Raises InternalError."""
        state = RulesState(number, self.store.seed, handed(self.store))
        return state, packed(state)

    def _owners(self) -> dict[bytes, None]:
        return dict.fromkeys(owner(one.born, one.lives) for one in self.in_force.rules if one.born)

    async def _forget(self) -> None:
        """Free the shared numbers of removed rules, and drop the counts of ended workers for them."""
        before, self.owners = self.owners, self._owners()
        if gone := before.keys() - self.owners.keys():
            await trio.to_thread.run_sync(self.table.forget, gone)
        here = {one.born for one in self.in_force.rules}
        self.lost = {born: count for born, count in self.lost.items() if born in here}

    def _add_up(self) -> None:
        """Add up the counts of rules, in all current and former processes."""
        latest = [{one.born: one for one in counts} for counts in self.latest.by_worker.values()]
        for stored_rule in self.store.stored_rules.values():
            running = stored_rule.running
            if running is None:
                continue
            total = self.lost.get(running.born)
            if total is not None and total.resets != running.resets:
                total = None
            for counts in latest:
                count = counts.get(running.born)
                if count is not None and count.resets == running.resets:
                    total = added(total, count)
            running.held = [HELD_ELSEWHERE] * (0 if total is None else total.held)
            if total is not None:
                show(running, total)


class PolledRuleWaiters(RuleWaiters):
    """Waiting tasks with counters in other processes, which are polled."""

    def __init__(self, keeper: PoolRuleKeeper) -> None:
        super().__init__(keeper.running, keeper.reactor.notify)
        self.keeper = keeper
        self.waiting = 0

    async def wait(self, name: str, hits: int, count: CounterName) -> None:
        self.waiting += 1
        if self.waiting == 1:
            self.keeper.reactor.spawn(self._poll)
        try:
            await super().wait(name, hits, count)
        finally:
            self.waiting -= 1

    async def _poll(self) -> None:
        while self.waiting:
            await self.keeper.count()
            await trio.sleep(POLL_EVERY)


def added(total: RuleCount | None, count: RuleCount, *, ended: bool = False) -> RuleCount:
    """Add up two counts of a rule. A worker that has ended holds nothing."""
    held = 0 if ended else count.held
    if total is not None and total.resets > count.resets:
        return total
    if total is None or total.resets != count.resets:
        return msgspec.structs.replace(count, held=held)
    records = tuple(map(sum, zip(total.records, count.records, strict=True)))
    return RuleCount(
        count.born, count.resets, total.matched + count.matched, total.fired + count.fired,
        total.applied + count.applied, total.held + held, total.problems + count.problems,
        count.problem or total.problem, total.throttles + count.throttles,
        total.throttle_seconds + count.throttle_seconds, records,
    )  # fmt: skip


def show(running: ActiveRule, total: RuleCount) -> None:
    """Set the counters of the rule here to the sums of the workers'."""
    grown = (total.matched, total.fired, total.applied) != (running.matched, running.fired, running.applied)
    running.matched, running.fired, running.applied = total.matched, total.fired, total.applied
    running.raised, running.said = total.problems, total.problem
    running.throttles, running.throttle_seconds = total.throttles, total.throttle_seconds
    running.records = RecordCounts(*total.records)
    if grown and running.on_count is not None:
        running.on_count()


class PeerHeldFrames:
    """Frame that a rule holds in another process."""

    def let_go(self, how: HowGone = "resumed", who: str = "") -> None:
        """Do nothing: the process that holds the frame receives a message."""


HELD_ELSEWHERE = PeerHeldFrames()
