"""Types shared by `runtime` and the sessions that it drives, and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import MatchingRules
from kproxy.session.commands import Command, Observer
from kproxy.session.plan import Plan
from kproxy.session.sasl.identity import Identity
from kproxy.session.sasl.login import Credentials, LoggedIn

HostPort = tuple[str, int]
AddressPair = tuple[HostPort, HostPort]
"""(source, destination) of a client connection."""
Feed = Callable[[memoryview, int, float], int]
"""(view, n, now) → number of leading bytes of the view to forward unchanged. view[:n] was read; all of the view is
writable."""


class ConnectionPhase(IntEnum):
    """Phases of a connection, in order; see `connection`."""

    OPEN, CLOSING, LINGERING, CLOSED = range(4)


class LaneState(Protocol):
    """Direction of a session. The next `skip` bytes pass unread, unless earlier bytes are `kept`."""

    @property
    def skip(self) -> int: ...
    @property
    def kept(self) -> object: ...


class DrivenLogins(Protocol):
    """Part of `session.logins.Logins` that a driver uses."""

    def computed(self, result: Any, now: float) -> None: ...
    def versions_known(self, answer: bytes, now: float) -> None: ...
    def logged_in(self, credentials: Credentials, login: LoggedIn, now: float) -> None: ...
    def refused_by_broker(self, message: str, now: float) -> None: ...


class DrivenSession(Protocol):
    """Part of `session.session.Session` that a driver uses; see there for the calls.

    `commands` is always the same list object: the sides keep a reference. The driver sets `owner` and `observer`.
    """

    commands: list[Command]
    owner: Any
    number: int
    plan: Plan
    observer: Observer | None

    @property
    def waiting_since(self) -> float | None: ...
    def holding_since(self) -> tuple[int, float] | None: ...
    @property
    def cut_off(self) -> bool: ...
    @property
    def from_client(self) -> Feed: ...
    @property
    def from_broker(self) -> Feed: ...
    @property
    def requests(self) -> LaneState: ...
    @property
    def responses(self) -> LaneState: ...
    @property
    def idle(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    @property
    def between_frames(self) -> bool: ...
    @property
    def tokens_may_come(self) -> bool: ...
    @property
    def awaited_requests(self) -> list[tuple[int, int, int]]: ...
    @property
    def awaited(self) -> int: ...
    @property
    def awaited_since(self) -> float | None: ...
    def nodes_ready(self, nodes: Mapping[int, HostPort | None], now: float) -> None: ...
    def sent(self, token: int, now: float) -> None: ...
    def granted(self, now: float) -> None: ...
    @property
    def rules(self) -> MatchingRules: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def logins(self) -> DrivenLogins: ...
    @property
    def has_beginning(self) -> object: ...
    def begin(self, now: float) -> None: ...
    def use(self, plan: Plan, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def step_aside(self) -> Sequence[Any]: ...
    def released(self, now: float) -> None: ...
    def drain(self, now: float) -> None: ...
    def eof(self, side: int, now: float) -> None: ...
    def end(self, now: float) -> None: ...


class MemoryWaiter(Protocol):
    """Session that waits for memory."""

    owner: Any

    def granted(self, now: float) -> None: ...


SessionFactory = Callable[[Any, Facts, int | None], DrivenSession]
"""(listener, facts, node id or None for the bootstrap port) → the session of a new connection."""


def host_port(sockaddr: Any) -> HostPort:
    """Convert an address of the socket module: IPv6 without scope and flow, IPv4-mapped IPv6 as plain IPv4."""
    host: str = sockaddr[0]
    if ":" in host:
        host = host.partition("%")[0].removeprefix("::ffff:") if "." in host else host.partition("%")[0]
    return host, sockaddr[1]


def show(address: HostPort) -> str:
    """Format an address for logs: `host:port`, with brackets around IPv6; Unix sockets as `unix:/path`."""
    host, port = address
    if host.startswith("/"):
        return f"unix:{host}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
