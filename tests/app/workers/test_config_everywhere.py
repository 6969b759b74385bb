"""A config over several workers: all are ready before anything changes, and those that are not leave all as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kproxy.app.workers.messages import NetworkSettings
from kproxy.app.workers.worker_rules import WorkerRules
from kproxy.base.errors import ConfigRefused, InternalError, NotEverywhere, UnusableSetting
from kproxy.rules.document.store import RuleStore, StoreChange
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.values.source import Source
from tests.app.workers.test_rules_everywhere import Worker, WorkerPool, crew_of_two

pytestmark = pytest.mark.trio


async def at_once(config: bytes) -> None:
    """Nothing stands in the way of a config."""


async def never() -> None:
    await trio.sleep_forever()


class Process:
    """A worker's process, whose config is a text; `on_ready` is awaited before one is ready."""

    def __init__(self, worker: Worker) -> None:
        self.config, self.worker = b"start", worker
        self.on_ready: Callable[[bytes], Awaitable[None]] = at_once
        self.rules: RuleSet | None = None
        worker.rules.process = self

    async def prepare_config(self, config: bytes) -> bytes:
        await self.on_ready(config)
        return config

    def commit_config(self, change: bytes, rules: RuleSet, terms: NetworkSettings) -> None:
        self.config, self.rules = change, rules


class Told:
    """A config that workers are told of; `taken` are those that have it."""

    def __init__(self, packed: bytes) -> None:
        self.packed, self.taken = packed, list[int]()

    def terms(self) -> NetworkSettings:
        return NetworkSettings(1, {}, {})

    def has_committed(self, worker: Any) -> None:
        self.taken.append(worker.index)


class Configs:
    """Two workers and the supervisor, and the config of each."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool, self.own = pool, b"start"
        self.processes = [Process(worker) for worker in pool.workers]
        self.ending = False

    async def apply(self, config: bytes, rules: str | None = None) -> Told:
        told = Told(config)

        def commit(rule_set: RuleSet) -> None:
            self.own = config

        def operation(store: RuleStore, now: float) -> StoreChange:
            return store.use({}, [] if rules is None else [Source("b.yaml", rules)], now)

        await self.pool.keeper.load_with(operation, commit, lambda: self.ending, told)
        return told

    @property
    def all(self) -> list[bytes]:
        return [self.own, *(one.config for one in self.processes)]

    async def is_refused(self, error: type[Exception], match: str) -> None:
        """Nothing has changed then, and the next config is taken as if nothing had been."""
        before, versions, listeners = self.all, self.pool.versions, self.pool.keeper.store.listeners
        with pytest.raises(error, match=match):
            await self.apply(b"refused", "rules: [{name: new, kind: delay, delay: 1ms}]")
        assert (self.all, self.pool.versions, self.pool.keeper.store.listeners) == (before, versions, listeners)


NEW = "rules: [{name: new, kind: delay, delay: 1ms}]"


async def test_all_have_the_config_and_its_rules_together(quiet_log: Any) -> None:
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        told = await configs.apply(b"new", NEW)
        assert configs.all == [b"new"] * 3
        assert sorted(told.taken) == [0, 1]
        assert len(pool.versions) == 1
        assert [one.rules and one.rules.id for one in configs.processes] == [pool.keeper.store.rule_set.id] * 2


@pytest.mark.parametrize("way", ["refuses", "cannot use it", "dies", "is silent"])
async def test_one_that_is_not_ready_leaves_all_as_it_was(
    way: str, quiet_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the other has made ready is forgotten."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        go_on = trio.Event()

        async def hinder(config: bytes) -> None:
            if way == "refuses":
                raise InternalError("no memory left")
            if way == "cannot use it":
                raise UnusableSetting(("listeners", 1, "tls"), "no such file")
            if way == "dies":
                pool.workers[1].its_end.close()
            await go_on.wait()

        configs.processes[1].on_ready = hinder
        if way == "is silent":
            monkeypatch.setitem(WorkerRules.prepare.__dict__, "patience", 0.5)
        error: type[Exception] = UnusableSetting if way == "cannot use it" else NotEverywhere
        reason = {
            "refuses": "nothing was changed: worker 1: no memory left",
            "cannot use it": "worker 1: no such file",
            "dies": "nothing was changed: worker 1: it has ended",
            "is silent": "nothing was changed: worker 1: no answer to prepare within 0.5 s",
        }[way]
        await configs.is_refused(error, reason)
        assert not pool.restarted
        with trio.fail_after(60):
            while pool.workers[0].rules.prepared is not None:
                await trio.lowlevel.checkpoint()
        go_on.set()
        if way == "dies":
            pool.workers[1].end()
            pool.workers[1] = Worker(1, pool)
            configs.processes[1] = Process(pool.workers[1])
        configs.processes[1].on_ready = at_once
        monkeypatch.undo()
        await configs.apply(b"next", NEW)
        assert configs.all == [b"next"] * 3


async def test_what_all_refuse_is_a_mistake_of_the_config(quiet_log: Any) -> None:
    """At its place; not of one worker."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)

        async def hinder(config: bytes) -> None:
            raise UnusableSetting(("listeners", 1, "tls"), "no such file")

        for one in configs.processes:
            one.on_ready = hinder
        with pytest.raises(UnusableSetting, match=r"^no such file$") as caught:
            await configs.apply(b"bad")
        assert caught.value.where == ("listeners", 1, "tls")


async def test_an_answer_that_comes_late_is_to_nothing(quiet_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker makes the first config ready only after it was asked for the second one: that one it takes."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        slow, done, made = trio.Event(), trio.Event(), list[bytes]()

        async def hinder(config: bytes) -> None:
            if config == b"refused":
                await slow.wait()
                made.append(config)
                done.set()
            else:
                slow.set()
                await done.wait()
                made.append(config)

        configs.processes[1].on_ready = hinder
        monkeypatch.setitem(WorkerRules.prepare.__dict__, "patience", 0.05)
        await configs.is_refused(NotEverywhere, "no answer to prepare")
        monkeypatch.undo()
        await configs.apply(b"second", NEW)
        assert made == [b"refused", b"second"]
        assert configs.all == [b"second"] * 3


async def test_an_answer_that_comes_twice_counts_once(quiet_log: Any) -> None:
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        end = pool.workers[1].its_end
        answer = end._return

        def twice(serial: int, kind: str, given: object) -> None:
            answer(serial, kind, given)
            answer(serial, kind, given)

        end._return = twice
        told = await configs.apply(b"new", NEW)
        assert configs.all == [b"new"] * 3
        assert sorted(told.taken) == [0, 1]
        await configs.apply(b"newer")
        assert configs.all == [b"newer"] * 3


@pytest.mark.parametrize("way", ["fails", "dies", "is silent"])
async def test_one_that_breaks_its_word_begins_anew_with_the_config(
    way: str, quiet_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided is in force; it gets no clients before it has that."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        worker = pool.workers[1]

        def fail(*arguments: Any) -> Any:
            if way == "fails":
                raise InternalError("something broke")
            if way == "dies":
                worker.its_end.close()
            return never()

        worker.its_end.on(WorkerRules.commit, fail)
        monkeypatch.setitem(WorkerRules.commit.__dict__, "patience", 0.5)
        told = await configs.apply(b"new", NEW)
        assert configs.all == [b"new", b"new", b"start"]
        assert told.taken == [0]
        assert pool.restarted == ([] if way == "dies" else [1])


async def test_one_that_began_before_is_brought_up_to_the_config(quiet_log: Any) -> None:
    """Before it gets its first client, also when rules have changed behind that."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        late = pool.workers[1]
        late.ready = False
        await configs.apply(b"new", NEW)
        await pool.put("rules: [{name: more, kind: delay, delay: 1ms}]")
        assert configs.all == [b"new", b"new", b"start"]
        late.ready = True
        await pool.keeper.admit(late)
        assert configs.all == [b"new"] * 3
        assert len(pool.versions) == 1
        configs.processes[1].config = b"as it was"
        await pool.put("rules: [{name: last, kind: delay, delay: 1ms}]")
        await pool.keeper.admit(late)
        assert configs.processes[1].config == b"as it was"


async def test_without_a_worker_nothing_is_decided(quiet_log: Any) -> None:
    """Nobody could say whether the config can be used; and a process that ends takes none."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        configs.ending = True
        await configs.is_refused(ConfigRefused, "kproxy is going to end")
        for one in pool.workers:
            one.ready = False
        await configs.is_refused(NotEverywhere, "no worker is running")


async def test_a_worker_takes_only_what_it_was_asked_for(quiet_log: Any) -> None:
    """A number that was not prepared, or terms for a state that has no config, change nothing."""
    async with crew_of_two(quiet_log) as pool:
        configs = Configs(pool)
        rules: WorkerRules = pool.workers[0].rules
        with pytest.raises(InternalError, match="rules 7 are to be put into force, none are prepared"):
            rules.commit(7, NetworkSettings(1, {}, {}))
        await rules.prepare(0, pool.keeper.state(), b"")
        with pytest.raises(InternalError, match="with another config than was prepared"):
            rules.commit(0, NetworkSettings(1, {}, {}))
        assert configs.all == [b"start"] * 3
