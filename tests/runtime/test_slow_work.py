"""What takes long is done beside the traffic, and who causes most of it waits longest."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
import trio

from kproxy.runtime.io.reactor import BURST, SlowWork
from kproxy.session.commands import Compute
from tests.support.passing_session import PassingSession

pytestmark = [pytest.mark.trio, pytest.mark.filterwarnings("error")]


class JobOwner:
    """Notes when it was its turn."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.name, self.turns, self.closed, self.error = name, turns, False, ""

    def computed(self, result: object) -> None:
        self.turns.append(f"{self.name} {result}")

    def crashed(self, error: Exception) -> None:
        self.error = repr(error)


async def test_addresses_take_turns(net: Any, driver: str) -> None:
    """Two that have asked once are served before the second piece of one that asked for five before them; who is
    closed by then is left out."""
    turns: list[str] = []
    gate = threading.Event()
    async with net.serving(net.config(9), driver=driver) as running:
        line = running.server.slow_work
        greedy = [JobOwner(f"greedy{number}", turns) for number in range(4)]
        line.add("10.0.0.1", JobOwner("first", turns), lambda: gate.wait(60))
        for one in greedy:
            line.add("10.0.0.1", one, lambda: 1)
        for address in ("10.0.0.2", "10.0.0.3"):
            line.add(address, JobOwner(address, turns), lambda: 2)
        greedy[1].closed = True
        await trio.sleep(0.01)
        assert turns == []
        gate.set()
        await running.until(lambda: not line.busy)
        assert turns == ["first True", "10.0.0.2 2", "10.0.0.3 2", "greedy0 1", "greedy2 1", "greedy3 1"]
        assert not line.queue


async def test_those_who_have_gone_take_no_memory(net: Any) -> None:
    """However fast somebody comes and goes: the next turn of its address forgets all of them."""
    turns: list[str] = []
    gates = [threading.Event(), threading.Event()]
    async with net.serving(net.config(9)) as running:
        line: SlowWork = running.server.slow_work
        for gate in gates:
            line.add("10.0.0.2", JobOwner("slow", turns), lambda gate=gate: gate.wait(60))
        for number in range(1000):
            gone = JobOwner(f"gone{number}", turns)
            line.add("10.0.0.1", gone, lambda: 1)
            gone.closed = True
        gates[0].set()
        await running.until(lambda: turns)
        await running.until(lambda: "10.0.0.1" not in line.queue.lines)
        gates[1].set()
        await running.until(lambda: not line.busy)
        assert turns == ["slow True"] * 2


@pytest.mark.parametrize("where", ["work", "computed"])
async def test_work_that_raises(net: Any, driver: str, where: str) -> None:
    """Its connection ends, the log says why, and the others' work is done."""
    turns: list[str] = []

    def fails(*_: object) -> None:
        raise RuntimeError("oh")

    async with net.serving(net.config(9), driver=driver) as running:
        line, bad = running.server.slow_work, JobOwner("bad", turns)
        if where == "computed":
            bad.computed = fails
        line.add("10.0.0.1", bad, fails if where == "work" else lambda: 1)
        line.add("10.0.0.1", JobOwner("good", turns), lambda: 1)
        await running.until(lambda: not line.busy)
        assert (turns, bad.error) == (["good 1"], "RuntimeError('oh')")
        assert [entry["event"] for entry in running.log if entry["log_level"] == "error"] == ["work in a thread raised"]


async def test_a_share_is_kept() -> None:
    """After what was saved up, work pauses until its share has grown to what it used; pauses count, idle time only up
    to a bound."""
    line = SlowWork(cast("Any", None), share=0.25)
    now, worked = line.saved_at + 1000, 0.0
    began = now
    for number in range(100):
        used = 0.4 if number % 2 else 0.01
        worked += used
        now += used
        now += line.pause(used, now)
    assert worked <= BURST + 0.25 * (now - began) + 1e-6
    assert worked > 0.9 * 0.25 * (now - began)


async def test_work_with_a_share_pauses(net: Any, driver: str) -> None:
    """What has used up more than was saved is done, and the next piece is not begun at once."""
    turns: list[str] = []
    async with net.serving(net.config(9), driver=driver) as running:
        line = SlowWork(running.server.reactor, share=0.001)
        line.saved = 0.0
        line.add("10.0.0.1", JobOwner("first", turns), lambda: sum(range(300_000)))
        line.add("10.0.0.1", JobOwner("second", turns), lambda: 2)
        await running.until(lambda: turns)
        await trio.sleep(0.05)
        assert turns == ["first 44999850000"]
        assert line.busy


async def test_others_are_served_meanwhile(net: Any, driver: str) -> None:
    """While one connection's work takes as long as it likes, another one's frames pass; then it is that one's turn."""
    gate, results = threading.Event(), []

    class Thoughtful(PassingSession):
        def __init__(self) -> None:
            super().__init__()
            self.logins = self

        def from_client(self, view: memoryview, n: int, now: float) -> int:
            if not self.dialled and bytes(view[8:12]) == b"\0\0\0\1":
                self.commands.append(Compute(lambda: gate.wait(60)))
            return super().from_client(view, n, now)

        def computed(self, result: Any, now: float) -> None:
            results.append(result)

    broker = await net.open_broker()
    async with (
        trio.open_nursery() as nursery,
        net.serving(net.config(broker.port), lambda *args: Thoughtful(), driver) as running,
    ):
        nursery.start_soon(broker.obey)
        slow, quick = await running.client(), await running.client()
        await slow.send_all(net.request(1))
        for number in range(2, 20):
            await quick.send_all(net.request(number))
            assert await net.answer(quick) == number
        assert results == []
        gate.set()
        await running.until(lambda: results)
        assert results == [True]
        nursery.cancel_scope.cancel()
