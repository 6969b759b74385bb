"""What goes wrong, and when: a schedule drawn from a seed, and the deeds.

Strategy: two lanes side by side, one for brokers and the line to them, one for kproxy and its clients. In each lane one
thing happens after the other, so that no two brokers are down at once; both lanes together make the combinations.
The schedule is the same for the same seed and length; how the processes take it is not in anybody's hands.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kproxy.testing.process import children_of
from tests.lab.soak.faults import FAULTS
from tests.lab.soak.relay import Relay
from tests.lab.soak.scene import Scene
from tests.support.wait import until

LONG = 300.0
"""Seconds: how long anything may take to come back before that is a finding. It takes seconds on a quiet machine."""


@dataclass(frozen=True)
class Step:
    """`what` begins at `at` seconds, or when the one before it is over."""

    at: float
    what: str
    with_: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:6.1f} s {self.what} {' '.join(map(str, self.with_))}".rstrip()


def broker_step(random: Random, at: float, node: int) -> Step:
    """One of a broker's troubles; every third time it dies."""
    seconds = round(random.uniform(1, 7), 1)
    kinds: list[tuple[str, tuple[Any, ...]]] = [
        ("kill_broker", (node, round(seconds / 2, 1))),
        ("kill_broker", (node, seconds)),
        ("stop_broker", (node,)),
        ("stall", (node, seconds)),
        ("silence", (node, seconds)),
        ("lose", (node, round(random.uniform(0.02, 0.3), 2), seconds)),
        ("slow", (node, round(random.uniform(0.01, 0.3), 2), seconds)),
        ("reset", (node,)),
        ("cut", (node,)),
    ]
    return Step(at, *random.choice(kinds))


def kproxy_step(random: Random, at: float) -> Step:
    """One of kproxy's or its clients' troubles."""
    seconds = round(random.uniform(1, 8), 1)
    kinds: list[tuple[str, tuple[Any, ...]]] = [
        ("kill_worker", (random.randrange(2),)),
        ("kill_worker", (1,)),
        ("stop_worker", (random.randrange(2), seconds)),
        ("fault", (random.randrange(len(FAULTS)), seconds)),
        ("fault", (random.randrange(len(FAULTS)), seconds)),
        ("reload", (random.randrange(3, 12),)),
        ("recycle", ()),
        ("fill_disk", (seconds,)),
        ("jump", (random.choice([-3600, -5, 5, 3600, 86400]), seconds)),
        ("kill_member", (random.randrange(3),)),
        ("restart_member", (random.randrange(3),)),
        ("kill_transformer", (random.randrange(2),)),
    ]
    return Step(at, *random.choice(kinds))


def schedule(seed: int, seconds: float, nodes: list[int]) -> tuple[list[Step], list[Step]]:
    """Both lanes. In the second half worker 0 is not killed, so that its memory has a long line."""
    random = Random(seed)
    brokers, kproxy = [], []
    at = 5.0
    while at < seconds - 10:
        brokers.append(broker_step(random, at, random.choice(nodes)))
        at = round(at + random.uniform(5, 15), 1)
    at = 8.0
    while at < seconds - 10:
        step = kproxy_step(random, at)
        if step.what == "kill_worker" and at > seconds / 3:
            step = Step(at, "kill_worker", (1,))
        kproxy.append(step)
        at = round(at + random.uniform(3, 10), 1)
    return brokers, kproxy


@dataclass
class Chaos:
    """Does the steps to a scene. `start_member` and `start_transformer` bring a client back."""

    scene: Scene
    start_member: Callable[[int], None]
    start_transformer: Callable[[int], None]
    done: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    killed_workers: int = 0

    def run(self, *lanes: list[Step], say: Callable[[str], object]) -> None:
        """All lanes, until they are through. Raises what a deed raised."""
        begun, failed = time.monotonic(), list[BaseException]()

        def walk(lane: list[Step]) -> None:
            for step in lane:
                time.sleep(max(0.0, begun + step.at - time.monotonic()))
                if failed:
                    return
                say(f"{time.monotonic() - begun:6.1f} s {step.what} {' '.join(map(str, step.with_))}")
                try:
                    outcome = getattr(self, step.what)(*step.with_)
                except BaseException as wrong:  # noqa: BLE001 -- told by whoever waits
                    wrong.add_note(f"in the step {step}")
                    failed.append(wrong)
                    return
                (self.left_out if outcome is False else self.done)[step.what] += 1

        threads = [threading.Thread(target=walk, args=[lane], daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    # ---- brokers, and the line to them

    def kill_broker(self, node: int, seconds: float) -> None:
        """SIGKILL; nobody listens for so long; then it comes back and catches up."""
        self._end_broker(node, seconds, kill=True)

    def stop_broker(self, node: int) -> None:
        """In order, and back at once."""
        self._end_broker(node, 0.0, kill=False)

    def _end_broker(self, node: int, seconds: float, *, kill: bool) -> None:
        scene, port = self.scene, self._port(node)
        scene.wait_whole(LONG)
        scene.relays.do(port, Relay.refuse)
        scene.kafka.stop_broker(node, kill=kill)
        time.sleep(seconds)
        scene.kafka.start_broker(node)
        scene.relays.do(port, Relay.listen)
        scene.wait_whole(LONG)

    def stall(self, node: int, seconds: float) -> None:
        """The line passes nothing."""
        self._meanwhile(node, Relay.stall, True, seconds, False)

    def silence(self, node: int, seconds: float) -> None:
        """Every packet to the relay is lost."""
        self._meanwhile(node, Relay.lose, 1.0, seconds, 0.0)

    def lose(self, node: int, share: float, seconds: float) -> None:
        """Some packets are lost."""
        self._meanwhile(node, Relay.lose, share, seconds, 0.0)

    def slow(self, node: int, delay: float, seconds: float) -> None:
        """Each piece is late."""
        self._meanwhile(node, Relay.slow, delay, seconds, 0.0)

    def _meanwhile(self, node: int, deed: Any, on: Any, seconds: float, off: Any) -> None:
        self.scene.relays.do(self._port(node), deed, on)
        time.sleep(seconds)
        self.scene.relays.do(self._port(node), deed, off)

    def reset(self, node: int) -> None:
        """All connections to it are reset."""
        self.scene.relays.do(self._port(node), Relay.end, "reset")

    def cut(self, node: int) -> None:
        """All connections to it end, wherever a frame is."""
        self.scene.relays.do(self._port(node), Relay.end, "cut")

    def _port(self, node: int) -> int:
        return self.scene.kafka.brokers[node].ports["DIRECT"]

    # ---- kproxy

    def kill_worker(self, index: int) -> None:
        """SIGKILL, and wait until another one is in its place."""
        proxy = self.scene.proxy
        until(lambda: len(children_of(proxy.pid)) == 2, LONG)
        ended = len(proxy.said("worker ended, another one is started"))
        os.kill(self._worker(index), signal.SIGKILL)
        self.killed_workers += 1
        until(lambda: len(proxy.said("worker ended, another one is started")) > ended or time.sleep(0.1), LONG)
        until(lambda: proxy.is_ready() or time.sleep(0.1), LONG)

    def stop_worker(self, index: int, seconds: float) -> None:
        """SIGSTOP, later SIGCONT."""
        pid = self._worker(index)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def _worker(self, index: int) -> int:
        """Its process id, by the name that it gives itself."""
        for pid in children_of(self.scene.proxy.pid):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if f"index={index}".encode() in file.read():
                    return pid
        raise AssertionError(f"there is no worker {index}")

    def fault(self, number: int, seconds: float) -> None:
        """One of FAULTS, by the rule file."""
        self.scene.write_rules([FAULTS[number]])
        self._reread()
        time.sleep(seconds)
        self.scene.write_rules([])
        self._reread()

    def reload(self, times: int) -> None:
        """The rule file changes again and again."""
        for number in range(times):
            self.scene.write_rules([{"name": f"rule {number}", "kind": "delay", "match": {"topic": f"none-{number}"},
                                     "delay": "1s"}])  # fmt: skip
            self._reread()
        self.scene.write_rules([])
        self._reread()

    def _reread(self) -> None:
        assert self.scene.proxy.child is not None
        self.scene.proxy.child.signal(signal.SIGHUP)
        time.sleep(0.2)

    def recycle(self) -> None:
        """All connections, after the answers that are due."""
        self.scene.proxy.post("/api/connections/recycle?which=all", None)

    def fill_disk(self, seconds: float) -> bool:
        """Nothing is left for the audit; false where there is no small disk to fill."""
        if not self.scene.small_disk:
            return False
        ballast = self.scene.audit.parent / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                for size in (1 << 20, 4096):
                    self._fill(file, size)
            time.sleep(seconds)
        finally:
            ballast.unlink()
        return True

    def _fill(self, file: Any, size: int) -> None:
        try:
            while file.write(bytes(size)):
                pass
        except OSError:  # full
            return

    def jump(self, by: float, seconds: float) -> bool:
        """kproxy's wall clock, and back; false where it cannot."""
        if not self.scene.clock.works:
            return False
        self.scene.clock.jump(by)
        time.sleep(seconds)
        self.scene.clock.jump(0)
        return True

    # ---- clients

    def kill_member(self, index: int) -> None:
        """A member of the group dies, and another one joins."""
        self.scene.clients.kill(f"member{index}")
        self.start_member(index)

    def restart_member(self, index: int) -> None:
        """A member leaves in order, and joins again."""
        self.scene.clients.stop(f"member{index}", LONG)
        self.start_member(index)

    def kill_transformer(self, index: int) -> None:
        """Dies within a transaction, as like as not; the next one has its transactional id."""
        self.scene.clients.kill(f"transformer{index}")
        self.start_transformer(index)
