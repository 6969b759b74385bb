"""A session between a random client and a random broker, with time, ends, swaps of rules and releases at any moment.

    story = Turmoil(random, dialogue, traffic, manners)
    story.run()

All chances come from one `random.Random`, so that a seed says all. What a client would send and what a broker would
say is random, too (`asked.py`); `Manners` tell how bad the broker is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kproxy.core.commands import BROKER, CLIENT, Command, EnsureNodes, Send
from kproxy.errors import DecodeError
from kproxy.testing.asked import answered, random_request
from kproxy.testing.dialogue import Dialogue, sized
from kproxy.wire import Message, decode_request, encode, schema
from kproxy.wire.records import Record, encode_batch

CLIENT_IDS = ("tester", "etl-1", "größe", None)
PRODUCE = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the client sends, with its size; whether an answer is due."""

    frame: bytes
    key: int
    version: int
    correlation: int
    due: bool


def random_traffic(random: Random, apis: list[str], count: int) -> list[Asked]:
    """Requests with correlation ids from 1 on."""
    return [asked(random, schema.load(schema.names()[random.choice(apis)]), number + 1) for number in range(count)]


def asked(random: Random, api: schema.Api, correlation: int) -> Asked:
    versions = list(api.versions)
    version = random.choice((versions[0], versions[-1], versions[-1], random.choice(versions)))
    message = random_request(api, version, random, full=random.random() < 0.7)
    message.header["correlation_id"] = correlation
    if api.header_version("request", version):
        message.header["client_id"] = random.choice(CLIENT_IDS)
    plausible(message.body, random)
    if api.key == PRODUCE:
        message.body["acks"] = random.choice((-1, -1, 1, 0))
    frame = encode(message) + random.choice((b"",) * 9 + (b"behind",))
    return Asked(sized(frame), api.key, version, correlation, api.key != PRODUCE or message.body["acks"] != 0)


def plausible(body: Any, random: Random) -> None:
    """Mostly whole batches under `records`, and fetch sessions that begin or are not wanted."""
    for name, value in body.items() if isinstance(body, dict) else ():
        if name == "records" and random.random() < 0.8:
            made = [
                Record(number, number, b"k", b"v" * random.randrange(20)) for number in range(random.choice((1, 3)))
            ]
            body[name] = encode_batch(made, codec=random.choice((0, 0, 3)))
        elif name in ("session_epoch", "share_session_epoch") and random.random() < 0.8:
            body[name] = random.choice((0, -1))
        elif isinstance(value, list):
            for one in value:
                plausible(one, random)


@dataclass(slots=True)
class Manners:
    """Chances of what a broker does to one answer, or instead of it."""

    error: float = 0.1
    trailing: float = 0.05
    junk: float = 0.0
    swap: float = 0.0
    silent: float = 0.0
    ends: float = 0.0


class Broker:
    """Takes bytes, answers whole requests in order when it is asked to."""

    def __init__(self, random: Random, manners: Manners) -> None:
        self.random, self.manners = random, manners
        self.data = bytearray()
        self.answers: deque[bytes] = deque()
        self.said: list[bytes] = []
        self.lost = False  # what came is no frame

    def take(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and not self.lost:
            size = int.from_bytes(self.data[:4], "big", signed=True)
            if not 8 <= size < 1 << 24:
                self.lost = True
            elif len(self.data) < size + 4:
                return
            else:
                frame = bytes(self.data[4 : 4 + size])
                del self.data[: 4 + size]
                self.request(frame)

    def request(self, frame: bytes) -> None:
        random, manners = self.random, self.manners
        try:
            message = decode_request(frame, trailing=True)
        except DecodeError:
            self.lost = True
            return
        if message.api.key == PRODUCE and message.body["acks"] == 0:
            return
        if random.random() < manners.silent:
            return
        said = encode(self.answer(message))
        if random.random() < manners.junk:
            said = said[:4] + bytes(random.randrange(256) for _ in range(random.randrange(40)))
        if random.random() < manners.trailing:
            said += b"xyz"
        self.said.append(said)
        self.answers.append(sized(said))
        if random.random() < manners.swap and len(self.answers) > 1:
            self.answers[-1], self.answers[-2] = self.answers[-2], self.answers[-1]

    def answer(self, message: Message) -> Message:
        said = answered(message, self.random)
        plausible(said.body, self.random)
        if self.random.random() < self.manners.error:
            spoil(said.body, self.random)
        if message.api.key in (17, 18, 36):  # the session reads these
            said.body["error_code"] = 0
        return said


def spoil(value: Any, random: Random) -> None:
    """Errors at random places of a response."""
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        if name == "error_code" and random.random() < 0.7:
            value[name] = random.choice((3, 6, 27, -1, 999))
        elif isinstance(inner, list):
            for one in inner:
                spoil(one, random)


class Driver(Dialogue):
    """As a dialogue, but the kernel takes what it likes, and nodes get their ports when it is their turn."""

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
        """The kernel has taken everything, and all ports are open."""
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
    """Where clients reach this node."""
    return ("proxy", 30000 + abs(node) % 1000) if node % 7 else None


@dataclass
class Turmoil:
    """One connection from its beginning to its end. `plans` are what `use` may put into force."""

    random: Random
    talk: Driver
    traffic: list[Asked]
    broker: Broker
    plans: list[Any] = field(default_factory=list)
    chunk: int = 0
    calm: bool = False  # time stands still, and nobody ends anything
    at: list[int] = field(default_factory=lambda: [0, 0])  # how much of each side's bytes has been taken

    def __post_init__(self) -> None:
        self.stream = b"".join(one.frame for one in self.traffic)
        self.sent = 0
        self.over = False
        self.ended: set[int] = set()

    def open(self) -> bool:
        """Whether the session does not want to be closed."""
        return self.talk.closed is None

    def run(self) -> None:
        """Everything happens, in random order; then the rest in order."""
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
        """Nothing more will happen."""
        return (
            self.sent == len(self.stream) and self.talk.session.idle and not self.broker.answers
            and not self.talk.wakes and not self.talk.tokens and not self.talk.wanted
        )  # fmt: skip

    def flow(self) -> None:
        """What the session has let through reaches the broker."""
        self.broker.take(bytes(self.talk.out[BROKER][self.at[BROKER] :]))
        self.at[BROKER] = len(self.talk.out[BROKER])

    def client_sends_all(self) -> None:
        """As much as is read of it now."""
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
                if running.release():
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
