"""Random steps of a supervisor and three workers: configs and rules come, workers refuse, end, hang, begin and break
their word. After each step all that take clients have one config with one set of rules, the supervisor's."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from kproxy.app.workers.worker_rules import WorkerRules
from kproxy.base.errors import InternalError, KproxyError, UnusableSetting
from tests.app.workers.test_config_everywhere import Configs, Process, at_once
from tests.app.workers.test_rules_everywhere import Worker, WorkerPool, crew_of_two

pytestmark = pytest.mark.trio
STEPS = 12
LONG = 60.0
"""Seconds: nobody is late but who is meant to be."""
FAULTS = ("refuses", "cannot use it", "dies while it prepares", "is silent while it prepares")
BROKEN = ("fails to commit", "dies at commit", "is silent at commit")


class Machine:
    """The supervisor and its workers. `wanted`: the config and the version of the rules that are in force."""

    def __init__(self, pool: WorkerPool, seed: int) -> None:
        self.pool, self.random = pool, random.Random(seed)
        pool.workers.append(Worker(2, pool))
        self.configs = Configs(pool)
        self.count, self.story = 0, list[str]()
        self.wanted = self.configs.own, pool.keeper.store.rule_set.id

    # ---- steps

    async def apply(self, spoiler: int | None = None, way: str = "") -> None:
        """Another config with other rules. `spoiler`: the worker that does something else in this `way`."""
        self.count += 1
        config = f"config {self.count}".encode()
        decided = way in BROKEN or spoiler is None or not self.pool.workers[spoiler].ready
        able = any(one.ready for one in self.pool.workers) and not self.configs.ending
        WorkerRules.prepare.__dict__["patience"] = 0.5 if way == "is silent while it prepares" else LONG
        WorkerRules.commit.__dict__["patience"] = 0.5 if way == "is silent at commit" else LONG
        if spoiler is not None:
            self.spoil(self.pool.workers[spoiler], self.configs.processes[spoiler], way)
        try:
            await self.configs.apply(config, f"rules: [{{name: r{self.count}, kind: delay, delay: 1ms}}]")
        except KproxyError:
            assert not (decided and able)
            await self.settle()
            return
        assert decided and able
        self.wanted = config, self.pool.keeper.store.rule_set.id
        await self.settle()

    async def put(self) -> None:
        """A rule over the API, without a config."""
        self.count += 1
        await self.pool.put(f"rules: [{{name: api{self.count % 3}, kind: delay, delay: {self.count}ms}}]")
        self.wanted = self.wanted[0], self.pool.keeper.store.rule_set.id

    async def kill(self) -> None:
        """A worker ends, and the next in its place begins, which takes no clients yet."""
        self.begin(self.random.randrange(3))

    async def admit(self) -> None:
        """A worker that has begun, maybe some configs ago, gets its first clients."""
        for worker in self.pool.workers:
            if not worker.ready:
                await self.pool.keeper.admit(worker)
                worker.ready = True
                return

    async def step(self) -> None:
        name = self.random.choice(["apply", "apply", "spoilt", "spoilt", "broken", "put", "kill", "admit", "admit"])
        if name in ("spoilt", "broken"):
            way, spoiler = self.random.choice(FAULTS if name == "spoilt" else BROKEN), self.random.randrange(3)
            self.story.append(f"apply, worker {spoiler} {way}")
            await self.apply(spoiler, way)
            return
        self.story.append(name)
        await getattr(self, name)()

    # ---- workers

    def begin(self, index: int) -> None:
        """Let another process be in this worker's place, which has been told what is in force now."""
        self.pool.workers[index].end()
        worker = self.pool.workers[index] = Worker(index, self.pool)
        worker.ready = False
        process = self.configs.processes[index] = Process(worker)
        process.config = self.configs.own

    def spoil(self, worker: Worker, process: Process, way: str) -> None:
        async def hinder(config: bytes) -> None:
            if way == "refuses":
                raise InternalError("no memory left")
            if way == "cannot use it":
                raise UnusableSetting(("listeners", 0), "no such file")
            if way.startswith("dies"):
                worker.its_end.close()
            await trio.sleep_forever()

        async def fail(*arguments: Any) -> None:
            if way.startswith("fails"):
                raise InternalError("something broke")
            if way.startswith("dies"):
                worker.its_end.close()
            await trio.sleep_forever()

        if way in BROKEN:
            worker.its_end.on(WorkerRules.commit, fail)
        else:
            process.on_ready = hinder

    async def settle(self) -> None:
        """What has died, or is to be started again, begins anew; the others do nothing else any more."""
        for index, worker in enumerate(self.pool.workers):
            gone = worker.channel is None or worker.channel.closed or worker.its_end.closed
            if gone or index in self.pool.restarted:
                self.begin(index)
            worker = self.pool.workers[index]
            worker.its_end.on(WorkerRules.commit, worker.rules.commit)
            self.configs.processes[index].on_ready = at_once
        self.pool.restarted.clear()

    def check(self) -> None:
        """Compare all that take clients, and the supervisor, with what is wanted; and a fresh start with them."""
        keeper, (config, version) = self.pool.keeper, self.wanted
        assert (self.configs.own, keeper.store.rule_set.id) == (config, version)
        for worker, process in zip(self.pool.workers, self.configs.processes, strict=True):
            if worker.ready:
                assert (process.config, worker.version) == (config, version)
        probe = Worker(9, self.pool)
        assert probe.begun.id == version
        probe.end()
        del keeper.numbers[9]


@pytest.mark.parametrize("seed", range(12))
async def test_all_that_take_clients_have_what_is_in_force(
    seed: int, quiet_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused configs leave no trace, and those that are decided reach everybody; at the end all can be admitted."""
    monkeypatch.setitem(WorkerRules.prepare.__dict__, "patience", LONG)
    monkeypatch.setitem(WorkerRules.commit.__dict__, "patience", LONG)
    async with crew_of_two(quiet_log) as pool:
        machine = Machine(pool, seed)
        try:
            for _ in range(STEPS):
                await machine.step()
                machine.check()
            for _ in range(3):
                await machine.admit()
            assert all(one.ready for one in pool.workers)
            await machine.apply()
            machine.check()
        except BaseException as error:
            error.add_note("; ".join(machine.story))
            raise


async def test_a_config_is_taken_right_after_one_that_no_worker_could_be_asked_about(
    quiet_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as a worker is there again, nothing of the one before stands in the way."""
    monkeypatch.setitem(WorkerRules.prepare.__dict__, "patience", LONG)
    monkeypatch.setitem(WorkerRules.commit.__dict__, "patience", LONG)
    async with crew_of_two(quiet_log) as pool:
        machine = Machine(pool, 0)
        for index in range(3):
            machine.begin(index)
        await machine.apply()
        machine.check()
        assert machine.configs.own == b"start"
        await machine.admit()
        await machine.apply()
        machine.check()
        assert machine.configs.own == b"config 2"
        await machine.admit()
        await machine.admit()
        machine.check()
