"""A session's test is a dialogue: bytes go in on one side, what comes out on both sides is compared.

The buffer that is fed is scribbled over after each call, so a session that keeps a view of it is found out. Every other
one ends with the bytes that were read, so that looking beyond them is found out, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproxy.core.commands import BROKER, CLIENT, Close, Command, Dial, EnsureNodes, Pause, Resume, Send, Wake
from kproxy.core.plan import Bound, Plan
from kproxy.core.session import Session, Shared
from kproxy.wire import Message, encode, layout, schema


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def defaults(key: int, version: int, direction: str, **values: Any) -> dict[str, Any]:
    struct = layout.body(key, version, direction)
    return {slot.name: slot.default() for slot in (*struct.slots, *struct.tagged)} | values


def request(key: int, version: int, correlation: int, client_id: str = "tester", **values: Any) -> bytes:
    """A request frame with its size; fields not given have their defaults."""
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation,
        "client_id": client_id,
    }
    return sized(encode(Message(schema.load(key), version, header, defaults(key, version, "request", **values))))


def response(key: int, version: int, correlation: int, **values: Any) -> bytes:
    """A response frame with its size."""
    body = defaults(key, version, "response", **values)
    return sized(encode(Message(schema.load(key), version, {"correlation_id": correlation}, body)))


class Dialogue:
    """Drives a session as a driver would, and collects what comes out: `to_client`, `to_broker`, `log` of commands."""

    def __init__(self, bound: Bound | None = None, shared: Shared | None = None, plan: Plan | None = None) -> None:
        self.shared = shared or Shared()
        self.session = Session(plan or Plan(bound or Bound()), self.shared)
        self.out = {CLIENT: bytearray(), BROKER: bytearray()}
        self.log: list[Command] = []
        self.read = {CLIENT: True, BROKER: True}
        self.closed: Close | None = None
        self.nodes: Callable[[int], tuple[str, int] | None] | None = lambda node: ("proxy", 30000 + node)
        self.now = 0.0

    @property
    def to_client(self) -> bytes:
        return bytes(self.out[CLIENT])

    @property
    def to_broker(self) -> bytes:
        return bytes(self.out[BROKER])

    def client(self, data: bytes, chunk: int = 0) -> Dialogue:
        """The client sends `data`, all at once or in chunks."""
        return self.feed(CLIENT, data, chunk or len(data))

    def broker(self, data: bytes, chunk: int = 0) -> Dialogue:
        return self.feed(BROKER, data, chunk or len(data))

    def feed(self, side: int, data: bytes, chunk: int) -> Dialogue:
        take = self.session.from_client if side == CLIENT else self.session.from_broker
        for number, start in enumerate(range(0, len(data), chunk or 1)):
            buf = bytearray(data[start : start + chunk])
            n = len(buf)
            buf += b"beyond" * (number % 2)
            with memoryview(buf) as view:
                go = take(view, n, self.now)
                assert 0 <= go <= n
                self.out[1 - side] += view[:go]
            buf[:] = b"\xee" * len(buf)
            self.obey()
        return self

    def obey(self) -> None:
        commands = self.session.commands
        while commands:
            command = commands.pop(0)
            assert self.closed is None or isinstance(command, Wake), f"{command} after {self.closed}"
            self.log.append(command)
            match command:
                case Send(side, data, token):
                    self.out[side] += data
                    if token:
                        self.session.sent(token, self.now)
                case Pause(side):
                    self.read[side] = False
                case Resume(side):
                    self.read[side] = True
                case EnsureNodes(nodes):
                    if self.nodes is not None:
                        self.session.nodes_ready({node: self.nodes(node) for node in nodes}, self.now)
                case Close():
                    self.closed = command
                case Dial() | Wake():
                    pass


@pytest.fixture(scope="session")
def dialogue() -> type[Dialogue]:
    return Dialogue


class Frames:
    """The frame builders, as a fixture, since test files do not import each other."""

    request = staticmethod(request)
    response = staticmethod(response)
    defaults = staticmethod(defaults)
    sized = staticmethod(sized)


@pytest.fixture(scope="session")
def frames() -> type[Frames]:
    return Frames
