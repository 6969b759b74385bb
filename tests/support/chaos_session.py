"""A session between a random client and a random broker, with time, ends, swaps of rules and releases at any moment.

    story = Turmoil(random, driver, traffic, broker)
    story.run()

All chances come from one `random.Random`, so that a seed says all. The broker has another, so that what it answers does
not depend on when.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kproxy.session.commands import BROKER, CLIENT, Command, EnsureNodes, Send
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.random_peers import Asked, Broker


class Driver(Dialogue):
    """A dialogue in which the kernel takes bytes when it likes, and nodes get their ports when it is their turn."""

    def __init__(self, *args: Any, lazy: bool = False, **more: Any) -> None:
        self.tokens: deque[int] = deque()
        self.wanted: deque[EnsureNodes] = deque()
        self.lazy = lazy
        super().__init__(*args, **more)
        self.nodes = port_of

    def obey(self) -> None:
        if not self.lazy:
            super().obey()
            return
        commands = self.session.commands
        kept: list[Command] = []
        while commands:
            kept.extend(commands)
            commands.clear()
        for command in kept:
            if isinstance(command, Send) and command.token:
                assert self.closed is None, f"{command} after {self.closed}"
                self.tokens.append(command.token)
                self.out[command.side] += command.data
            elif isinstance(command, EnsureNodes):
                self.wanted.append(command)
            else:
                commands.append(command)
                super().obey()

    def settle(self) -> None:
        """Let the kernel take all bytes, and open all ports."""
        while self.tokens:
            self.session.sent(self.tokens.popleft(), self.now)
            self.obey()
        while self.wanted:
            nodes = self.wanted.popleft().nodes
            self.session.nodes_ready({node: port_of(node) for node in nodes}, self.now)
            self.obey()
        if self.tokens:
            self.settle()


def port_of(node: int) -> tuple[str, int] | None:
    """Return the address at which clients reach this node; None for nodes that have no port."""
    return ("proxy", 30000 + abs(node) % 1000) if node % 7 else None


@dataclass
class Turmoil:
    """A session of random events, from the beginning of its connection to the end. `plans` are those that `use` may put
    into force."""

    random: Random
    talk: Driver
    traffic: list[Asked]
    broker: Broker
    plans: list[Any] = field(default_factory=list)
    chunk: int = 0
    calm: bool = False  # time stands still, and no side ends the connection
    at: list[int] = field(default_factory=lambda: [0, 0])  # bytes of each side that have been taken

    def __post_init__(self) -> None:
        self.stream = b"".join(one.frame for one in self.traffic)
        self.sent = 0
        self.over = False
        self.ended: set[int] = set()

    def open(self) -> bool:
        """Return True as long as the session has not asked to be closed."""
        return self.talk.closed is None

    def run(self) -> None:
        """Let all events happen in random order, then the rest of the traffic in order."""
        for _ in range(0 if self.calm else 6 * len(self.traffic) + 20):
            if not self.open():
                break
            self.random.choice(STEPS)(self)
            self.flow()
        for _ in range(12 * len(self.traffic) + 60):
            if not self.open() or self.quiet():
                break
            self.talk.settle()
            self.client_sends_all()
            while self.broker.answers and self.open() and self.talk.read[BROKER] and BROKER not in self.ended:
                self.answer()
                self.client_sends_all()
            if not self.calm:
                self.release()
                self.talk.later(1e7)
            self.flow()
        self.talk.settle()

    def quiet(self) -> bool:
        """Return True if all traffic has passed, and no timer or answer is left."""
        return (
            self.sent == len(self.stream) and self.talk.session.idle and not self.broker.answers
            and not self.talk.wakes and not self.talk.tokens and not self.talk.wanted
        )  # fmt: skip

    def flow(self) -> None:
        """Give the broker the bytes that the session has let through."""
        self.broker.take(bytes(self.talk.out[BROKER][self.at[BROKER] :]))
        self.at[BROKER] = len(self.talk.out[BROKER])

    def client_sends_all(self) -> None:
        """Send as much of the traffic as the session reads now."""
        sent = -1
        while self.sent > sent and self.open():
            sent = self.sent
            self.client_sends(len(self.stream))
        self.flow()

    # ---- what may happen

    def client_sends(self, most: int = 0) -> None:
        if not self.talk.read[CLIENT] or CLIENT in self.ended:
            return
        if self.calm:
            size = len(self.stream) - self.sent if not self.chunk else self.chunk
        else:
            size = most or self.random.choice((1, 4, 17, 100, 1000, 5000))
        data = self.stream[self.sent : self.sent + size]
        if data:
            self.sent += len(data)
            self.talk.client(data)

    def answer(self) -> None:
        if not self.broker.answers or not self.talk.read[BROKER] or BROKER in self.ended:
            return
        count = 1 if self.calm else self.random.choice((1, 1, 2, 5))
        data = b"".join(self.broker.answers.popleft() for _ in range(min(count, len(self.broker.answers))))
        cut = self.chunk if self.calm else self.random.choice((0, 0, 1, 7, 100))
        if cut == 1 and len(data) > 2000:
            cut = 100
        for start in range(0, len(data), cut or len(data) or 1):
            if not self.open():
                return
            self.talk.broker(data[start : start + (cut or len(data))])

    def time(self) -> None:
        self.talk.later(self.random.choice((0.001, 0.01, 0.05, 1.0)))

    def kernel(self) -> None:
        self.talk.settle()

    def use(self) -> None:
        if self.plans and self.random.random() < 0.2:
            self.talk.session.use(self.random.choice(self.plans), self.talk.now)
            self.talk.obey()

    def release(self) -> None:
        for plan in self.plans or [self.talk.session.plan]:
            for running in plan.live:
                if running.resume():
                    self.talk.session.released(self.talk.now)
                    self.talk.obey()

    def end(self) -> None:
        if self.random.random() < self.broker.manners.ends and self.open():
            side = self.random.choice((CLIENT, BROKER))
            self.ended.add(side)
            self.talk.session.eof(side, self.talk.now)
            self.talk.obey()

    def drain(self) -> None:
        if self.random.random() < self.broker.manners.ends / 4:
            self.talk.session.drain(self.talk.now)
            self.talk.obey()


STEPS = (
    Turmoil.client_sends, Turmoil.client_sends, Turmoil.client_sends, Turmoil.answer, Turmoil.answer, Turmoil.time,
    Turmoil.kernel, Turmoil.use, Turmoil.release, Turmoil.end, Turmoil.drain,
)  # fmt: skip
