"""Rules over several workers: all take over what the supervisor's store says, or none does."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.app.workers.messages import HandedRule, RulesState, WorkerCalls
from kproxy.app.workers.rule_messages import PoolRuleKeeper, RuleNewsSender, packed
from kproxy.app.workers.shared_table import SharedTable
from kproxy.app.workers.worker_rules import WorkerRules
from kproxy.base.errors import ConfigRefused, InternalError, NoSuchRule, NotEverywhere
from kproxy.rules.document.store import RuleStore
from kproxy.rules.rule_set import ActiveRule, RuleSet
from kproxy.rules.values.source import Source
from kproxy.runtime.io.channel import Channel
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.rule_keeper import RuleKeeper, TurnCheck
from tests.support.holding import LetGo

pytestmark = pytest.mark.trio


class Worker:
    """A worker's rules, in the loop of the test; `channel` is the supervisor's end."""

    def __init__(self, index: int, pool: WorkerPool) -> None:
        self.index, self.ready = index, True
        here, there = socket.socketpair()
        self.channel: Channel | None = Channel(here, pool.reactor, pool.log, self.lost)
        self.its_end = Channel(there, pool.reactor, pool.log, lambda reason: None)
        self.pool = pool
        self.swapped: list[RuleSet] = []
        self.rules = WorkerRules(SharedTable.open(pool.table.fd), index, self.swap)
        pool.keeper.worker_begins(self)
        self.begun = self.rules.begin(pool.keeper.state())
        self.its_end.serve(self.rules)

    def swap(self, rule_set: RuleSet) -> None:
        self.swapped.append(rule_set)
        self.pool.happened.set()

    def lost(self, reason: str) -> None:
        """Its process is found to have ended later."""
        self.ready = False

    def end(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.its_end.close()

    @property
    def version(self) -> str:
        return (self.swapped[-1] if self.swapped else self.begun).id

    def running(self, name: str) -> ActiveRule:
        return next(one for one in self.rules.running.values() if one.name == name)


class WorkerPool:
    """The supervisor's side of two workers."""

    def __init__(self, reactor: Reactor, log: Any) -> None:
        self.reactor, self.log, self.table = reactor, log, SharedTable.create(groups=8)
        self.workers: list[Worker] = []
        self.restarted: list[int] = []
        self.happened = trio.Event()
        store = RuleStore(7)
        store.replace_files([Source("a.yaml", "rules:\n  - {name: base, kind: delay, delay: 1ms}\n")], monotonic())
        self.keeper = PoolRuleKeeper(store, self, lambda rule_set: None, reactor, log, self.table)
        self.keeper.started()
        self.workers += [Worker(0, self), Worker(1, self)]

    def restart(self, worker: Any, reason: str) -> None:
        self.restarted.append(worker.index)

    async def put(self, text: str, ttl: float | None = None) -> None:
        await self.keeper.load_everywhere(
            "api", lambda store, now: store.put(Source("<api>", text), "api", now, ttl=ttl)
        )

    async def until(self, done: Callable[[], bool]) -> None:
        """Looks again whenever something has happened."""
        with trio.fail_after(60):
            while not done():
                self.happened = trio.Event()
                await self.happened.wait()

    @property
    def versions(self) -> set[str]:
        return {self.keeper.store.rule_set.id, *(one.version for one in self.workers)}

    def fire(self, worker: int, name: str, times: int = 1) -> int:
        """So many requests that the rule is about; on how many of them it acted."""
        running = self.workers[worker].running(name)
        fired = 0
        for _ in range(times):
            fires = running.trigger.fires(monotonic(), 1, "c")
            running.count(fired=fires)
            fired += fires
        return fired


@asynccontextmanager
async def crew_of_two(log: Any) -> AsyncIterator[WorkerPool]:
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        pool = WorkerPool(reactor, log)
        try:
            yield pool
        finally:
            for one in pool.workers:
                one.end()
        nursery.cancel_scope.cancel()
    reactor.close()


NTH = "rules: [{name: third, kind: delay, delay: 1ms, when: {nth: 3}}]"


async def test_new_rules_are_in_force_everywhere(quiet_log: Any) -> None:
    """The same set in all of them, with the places where its rules stand."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)

        assert len(pool.versions) == 1
        assert [len(one.swapped) for one in pool.workers] == [1, 1]
        assert pool.workers[1].swapped[0].origins == ("a.yaml:2:5", "<api>:1:9")


async def test_a_worker_that_cannot_take_them_in_leaves_all_as_it_was(quiet_log: Any) -> None:
    """No worker has swapped, the store is as before, and the message says which worker it was and why."""
    async with crew_of_two(quiet_log) as pool:
        before = pool.versions

        async def refuse(*arguments: Any) -> None:
            raise InternalError("no memory left")

        pool.workers[1].its_end.on(WorkerRules.prepare, refuse)
        with pytest.raises(NotEverywhere, match=r"nothing was changed: worker 1: no memory left"):
            await pool.put(NTH)

        assert pool.versions == before
        assert [one.swapped for one in pool.workers] == [[], []]
        with pytest.raises(NoSuchRule):
            pool.keeper.store["third"]
        assert pool.keeper.loads.rejected["api"] == 1


async def test_leaving_rules_free_numbers_in_one_pass_off_loop(quiet_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rules leave at once. A pass over the table for each would block the supervisor for seconds."""
    passes: list[tuple[int, bool]] = []
    async with crew_of_two(quiet_log) as pool:
        forget, loop = pool.table.forget, threading.current_thread()

        def counted(owners: Any) -> None:
            passes.append((len(owners), threading.current_thread() is loop))
            forget(owners)

        rules = ", ".join(f"{{name: r{number}, kind: delay, delay: 1ms, when: {{nth: 3}}}}" for number in range(50))
        await pool.put(f"rules: [{rules}]")
        pool.fire(0, "r7")
        assert pool.table.used() == 1
        monkeypatch.setattr(pool.table, "forget", counted)
        await pool.keeper.do_everywhere("cleared", lambda store, now: store.clear("api", now))
        assert pool.table.used() == 0
    assert passes == [(50, False)]


async def test_mistakes_reach_no_worker(quiet_log: Any) -> None:
    """The supervisor's store finds them."""
    async with crew_of_two(quiet_log) as pool:
        with pytest.raises(Exception, match=r"<api>:1:\d+: unknown kind"):
            await pool.put("rules: [{name: x, kind: delya}]")

        assert len(pool.versions) == 1
        assert not pool.workers[0].swapped


async def test_a_worker_that_breaks_its_word_is_started_again(quiet_log: Any) -> None:
    """All others go on with the new rules."""
    async with crew_of_two(quiet_log) as pool:

        def fail(*arguments: Any) -> None:
            raise InternalError("something broke")

        pool.workers[0].its_end.on(WorkerRules.commit, fail)
        await pool.put(NTH)

        assert pool.restarted == [0]
        assert pool.workers[1].version == pool.keeper.store.rule_set.id


async def test_a_worker_that_ends_meanwhile_has_no_say(quiet_log: Any) -> None:
    """The others take the rules over; the next in its place begins with them."""
    async with crew_of_two(quiet_log) as pool:
        pool.workers[0].its_end.on(WorkerRules.prepare, lambda *arguments: pool.workers[0].end())
        await pool.put(NTH)
        pool.workers[0] = Worker(0, pool)

        assert len(pool.versions) == 1
        assert not pool.restarted


async def test_a_worker_that_began_before_a_change_is_brought_up_to_it(quiet_log: Any) -> None:
    """It began with the rules of then; before it takes connections it has those of now."""
    async with crew_of_two(quiet_log) as pool:
        late = pool.workers[1]
        late.ready = False
        await pool.put(NTH)
        assert not late.swapped
        late.ready = True
        await pool.keeper.admit(late)

        assert len(pool.versions) == 1


async def test_they_count_together(quiet_log: Any) -> None:
    """`nth: 3` fires for the third request of all, and the counters shown are sums."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)
        fired = [pool.fire(0, "third"), pool.fire(1, "third"), pool.fire(0, "third"), pool.fire(1, "third", 5)]
        await pool.keeper.count()
        shown = pool.keeper.running("third")

        assert fired == [0, 0, 1, 0]
        assert shown is not None
        assert (shown.matched, shown.fired) == (8, 1)


async def test_counters_go_on_when_a_worker_ends(quiet_log: Any) -> None:
    """What it had said is still in the sums, and `nth` has not forgotten its requests."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)
        pool.fire(1, "third", 2)
        await pool.keeper.count()
        pool.workers[1].end()
        pool.workers[1] = Worker(1, pool)
        fired = pool.fire(1, "third")
        await pool.keeper.count()
        shown = pool.keeper.running("third")

        assert fired == 1
        assert shown is not None
        assert (shown.matched, shown.fired) == (3, 1)


async def test_an_unchanged_rule_goes_on_and_a_changed_one_begins_anew(quiet_log: Any) -> None:
    """As in one process."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)
        pool.fire(0, "third", 2)
        await pool.put("rules: [{name: other, kind: delay, delay: 1ms}]")
        assert pool.fire(1, "third") == 1
        await pool.put("rules: [{name: third, kind: delay, delay: 1ms, when: {nth: 1}}]")
        await pool.keeper.count()
        shown = pool.keeper.running("third")

        assert shown is not None
        assert shown.matched == 0
        assert [pool.fire(1, "third"), pool.fire(0, "third")] == [1, 0]


async def test_reset_begins_anew_everywhere(quiet_log: Any) -> None:
    """Counters are 0, and the third request is counted from now on; what the rule had in the table is free."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)
        pool.fire(0, "third", 4)
        await pool.keeper.count()
        used = pool.table.used()
        assert await pool.keeper.reset_everywhere("third") == 1
        shown = pool.keeper.running("third")

        assert shown is not None
        assert (shown.matched, shown.fired) == (0, 0)
        assert pool.table.used() == used - 1
        assert [pool.fire(1, "third"), pool.fire(0, "third"), pool.fire(1, "third")] == [0, 0, 1]
        await pool.keeper.count()
        assert (shown.matched, shown.fired) == (3, 1)


async def test_off_and_on_keeps_the_counts(quiet_log: Any) -> None:
    """Of a rule that is disabled, and of one that `kproxy faults disable` stops."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH)
        pool.fire(0, "third", 2)
        await pool.keeper.do_everywhere("disabled", lambda store, now: store.disable("third", now), rule="third")
        assert [len(one.swapped[-1]) for one in pool.workers] == [1, 1]
        await pool.keeper.do_everywhere("faults disabled", lambda store, now: store.disable_faults(True, now))
        assert [len(one.swapped[-1]) for one in pool.workers] == [0, 0]
        await pool.keeper.do_everywhere("enabled", lambda store, now: store.enable("third", now), rule="third")
        await pool.keeper.do_everywhere("faults enabled", lambda store, now: store.disable_faults(False, now))

        assert len(pool.versions) == 1
        assert pool.fire(1, "third") == 1


async def test_a_rule_goes_everywhere_when_its_time_is_over(quiet_log: Any) -> None:
    """TTLs are the supervisor's to watch."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(NTH, ttl=0.05)
        await pool.until(lambda: "third" not in pool.keeper.store.stored_rules and len(pool.versions) == 1)

        assert pool.workers[1].swapped[-1].id == pool.workers[1].begun.id


async def test_stages_change_everywhere(quiet_log: Any) -> None:
    """And each round of a stage counts anew."""
    text = """
scenario:
  repeat: true
  stages:
    - {for: 0.1s, rules: [{name: once, kind: delay, delay: 1ms, when: {once: true}}]}
    - {for: 0.1s, rules: []}
"""
    async with crew_of_two(quiet_log) as pool:
        await pool.put(text)
        first = [pool.fire(0, "once"), pool.fire(1, "once")]
        lives = pool.workers[0].running("once").lives
        await pool.until(lambda: all(one.running("once").lives > lives for one in pool.workers))

        assert sum(first) == 1
        assert pool.fire(1, "once") + pool.fire(0, "once") == 1


async def test_what_is_held_anywhere_can_be_released(quiet_log: Any) -> None:
    """The number of held requests is of all workers, and all are let go."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put("rules: [{name: gate, kind: delay, delay: 0, when: {hold: true}}]")
        gone: list[int] = []
        for number in range(2):
            pool.workers[number].running("gate").held.append(LetGo(gone, number))
        await pool.keeper.count()
        shown = pool.keeper.running("gate")
        assert shown is not None
        held = len(shown.held)
        released = await pool.keeper.resume_everywhere("gate")

        assert (held, released, len(shown.held)) == (2, 2, 0)
        assert sorted(gone) == [0, 1]


async def test_a_rule_that_leaves_lets_go_what_it_holds(quiet_log: Any) -> None:
    async with crew_of_two(quiet_log) as pool:
        await pool.put("rules: [{name: gate, kind: delay, delay: 0, when: {hold: true}}]")
        gone: list[bool] = []
        pool.workers[1].running("gate").held.append(LetGo(gone, True))
        await pool.keeper.do_everywhere("removed", lambda store, now: store.remove("gate", now), rule="gate")

        assert gone == [True]


async def test_waiting_for_a_number_that_all_reach_together(quiet_log: Any) -> None:
    """It ends when the sum is there, soon after."""
    async with crew_of_two(quiet_log) as pool:
        await pool.put("rules: [{name: all, kind: delay, delay: 1ms}]")
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with trio.fail_after(60):
                    await pool.keeper.waiters.wait("all", 5, "fired")

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            pool.fire(0, "all", 2)
            pool.fire(1, "all", 3)


async def test_news_of_rules_are_recorded_by_one_worker(quiet_log: Any) -> None:
    """The first that is there: an event is not to be written as often as there are workers."""
    async with crew_of_two(quiet_log) as pool:
        told: list[tuple[int, str]] = []
        for one in pool.workers:
            one.its_end.on(
                WorkerCalls.record,
                lambda method, given, index=one.index: (told.append((index, method)), pool.happened.set()),
            )
        pool.keeper.events = RuleNewsSender(pool)
        await pool.put(NTH)
        pool.workers[0].ready = False
        await pool.keeper.do_everywhere("removed", lambda store, now: store.remove("third", now), rule="third")
        await pool.until(lambda: len(told) == 2)

        assert told == [(0, "loaded"), (1, "changed")]


async def test_what_cannot_be_told_changes_nothing(quiet_log: Any) -> None:
    """A number of more than 64 bits has no place in a message."""
    async with crew_of_two(quiet_log) as pool:
        before = pool.versions
        when = f"{{nth: {1 << 70}}}"
        with pytest.raises(NotEverywhere, match="cannot be sent to workers"):
            await pool.put(f"rules: [{{name: big, kind: delay, delay: 1ms, when: {when}}}]")

        assert pool.versions == before


async def test_nothing_begins_with_rules_that_cannot_be_told() -> None:
    """The start ends with one line that says so."""
    rule = HandedRule(b"", {"nth": 1 << 70}, "r.yaml:2:5", "file", True, 1, 0, 0, 0.0)
    with pytest.raises(InternalError, match="rules cannot be sent to workers: can't serialize ints"):
        packed(RulesState(0, 1, [rule]))


async def test_who_asks_during_a_change_is_answered_after_it(quiet_log: Any) -> None:
    """The list of rules says nothing that is not so in every worker."""
    async with crew_of_two(quiet_log) as pool:
        go_on = trio.Event()
        prepare = pool.workers[1].rules.prepare

        async def slowly(*arguments: Any) -> None:
            pool.happened.set()
            await go_on.wait()
            await prepare(*arguments)

        pool.workers[1].its_end.on(WorkerRules.prepare, slowly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.put, NTH)
            await pool.until(lambda: "third" in pool.keeper.store.stored_rules)
            go_on.set()
            await pool.keeper.count()
            assert len(pool.versions) == 1


CHANGES: dict[str, Callable[[RuleKeeper, TurnCheck], Awaitable[object]]] = {
    "load": lambda keeper, check: keeper.load_everywhere(
        "api", lambda store, now: store.put(Source("<api>", NTH), "api", now), check=check
    ),
    "load with a config": lambda keeper, check: keeper.load_with(
        lambda store, now: store.put(Source("<api>", NTH), "api", now), lambda rules: None, lambda: False, check=check
    ),
    "do": lambda keeper, check: keeper.do_everywhere(
        "faults disabled", lambda store, now: store.disable_faults(True, now), check=check
    ),
    "reset": lambda keeper, check: keeper.reset_everywhere("base", check=check),
}


@pytest.mark.parametrize("workers", [1, 2])
async def test_keeper_refused_change_keeps_the_store(quiet_log: Any, workers: int) -> None:
    """A config that comes while the process ends, and each change that its check refuses: in one process or several."""

    def refuse() -> None:
        assert keeper.changing.locked(), "the check runs when the change has its turn"
        raise InternalError("not any more")

    async with crew_of_two(quiet_log) as pool:
        keeper: RuleKeeper = pool.keeper
        if workers == 1:
            keeper = RuleKeeper(pool.keeper.store, lambda rule_set: None, pool.reactor, pool.log)
        before, versions = keeper.store.saved(), pool.versions
        with pytest.raises(ConfigRefused, match="kproxy is going to end"):
            await keeper.load_with(
                lambda store, now: store.put(Source("<api>", NTH), "api", now), lambda rules: None, lambda: True
            )
        for change in CHANGES.values():
            with pytest.raises(InternalError, match="not any more"):
                await change(keeper, refuse)
        assert keeper.store.saved() == before
        assert (pool.versions, pool.keeper.attempts) == (versions, workers - 1)
