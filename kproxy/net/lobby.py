"""Preread: clients have to say something before it is known who they are or which listener they want.

Strategy. Their first bytes are looked at and stay in the kernel until all of what is wanted is there (MSG_PEEK), so
that whoever comes next finds the connection as it was. The kernel is told to wake us when more has come (SO_RCVLOWAT).
All of it is callbacks of the reactor; a client that says nothing is refused in the end.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from kproxy.errors import TheyDidWrong
from kproxy.limits import Limits

from .counts import Counts
from .descriptors import Room
from .driven import HostPort, show
from .half_open import HalfOpen
from .reactor import IN, Reactor
from .throttle import Throttle

if TYPE_CHECKING:
    from .deadlines import Deadline

MOST = 32768
"""Bytes looked at; whoever wants to hear more than that has a limit of its own below it."""

T = TypeVar("T")
Hear = Callable[[bytes], "T | None"]
"""What the first bytes mean; None: more are needed. Raises TheyDidWrong."""


class Wanted(NamedTuple):
    """Kind of first bytes: the cause in counters and log if they do not come, and their name in a sentence. `limited`:
    one address may have a share of those that are awaited; a balancer, which is trusted, may have all."""

    cause: str
    name: str
    limited: bool = True


class Refusal(TheyDidWrong):
    """First bytes that are a reason to refuse the client, of a cause of its own."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(why)
        self.cause = cause


class Lobby:
    """Preread of all ports. `counts` and the log have the clients that are refused."""

    def __init__(self, reactor: Reactor, limits: Limits, counts: Counts, log: FilteringBoundLogger) -> None:
        self.reactor, self.limits, self.counts, self.log = reactor, limits, counts, log
        self.logs: dict[str, Throttle] = {}
        self.guests: set[Guest[Any]] = set()
        self.room = Room(0, limits.max_connections, limits.max_connections)
        self.half_open = HalfOpen(self.room)

    def listen(
        self, listener: str, wanted: Wanted, sock: socket.SocketType, client: HostPort, hear: Hear[T],
        then: Callable[[T], object],
    ) -> None:  # fmt: skip
        """Call `then` with what `hear` makes of the first bytes, or refuse the client."""
        if len(self.guests) >= self.room.connections:
            why = f"{self.room.connections} connections have not said yet who they are, no more are allowed"
            self.refuse(listener, sock, client, "max_connections", why)
        elif wanted.limited and (refusal := self.half_open.refusal(client[0])) is not None:
            self.refuse(listener, sock, client, *refusal)
        else:
            Guest(self, listener, wanted, sock, client, hear, then)

    def admit(self, room: Room) -> None:
        """Set the number of connections that there is room for."""
        self.room = self.half_open.room = room

    def refuse(self, listener: str, sock: socket.SocketType, client: HostPort, cause: str, why: str) -> None:
        """Close the client's socket, count the cause and log it."""
        self.counts.refused[cause] += 1
        log = self.logs.get(listener) or self.logs.setdefault(listener, Throttle(self.log.bind(listener=listener)))
        log.warning("connection refused", key=(cause, why), cause=cause, reason=why, client=show(client))
        sock.close()

    def close(self) -> None:
        """Refuse all clients whose first bytes are awaited."""
        for guest in list(self.guests):
            guest.leave("shutdown", "kproxy is shutting down")


class Guest(Generic[T]):
    """Connection whose first bytes are awaited."""

    __slots__ = ("client", "deadline", "fd", "hear", "listener", "lobby", "seen", "sock", "then", "wanted")

    def __init__(
        self, lobby: Lobby, listener: str, wanted: Wanted, sock: socket.SocketType, client: HostPort, hear: Hear[T],
        then: Callable[[T], object],
    ) -> None:  # fmt: skip
        self.lobby, self.listener, self.wanted, self.sock, self.client = lobby, listener, wanted, sock, client
        self.hear, self.then, self.seen, self.fd = hear, then, 0, sock.fileno()
        lobby.guests.add(self)
        lobby.half_open.begin(client[0])
        timeout = lobby.limits.handshake_timeout
        self.deadline: Deadline = lobby.reactor.call_at(monotonic() + timeout, self.expire)
        lobby.reactor.add(self.fd, self.ready, IN)

    def ready(self, mask: int) -> None:
        """Look at the bytes that have come so far, or at the end."""
        try:
            data = self.sock.recv(MOST, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) <= self.seen:
            self.ended()
            return
        try:
            heard = self.hear(data)
        except TheyDidWrong as error:
            self.leave(error.cause if isinstance(error, Refusal) else self.wanted.cause, str(error))
            return
        if heard is None:
            self.seen = len(data)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.seen + 1)
            return
        if self.seen:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.go()
        self.then(heard)

    def ended(self) -> None:
        """Refuse a client that will send no more; one that has sent nothing has only looked whether somebody is
        there."""
        if self.seen:
            self.leave(self.wanted.cause, f"the connection ended in the {self.wanted.name}, after {self.seen} bytes")
        else:
            self.go()
            self.sock.close()

    def expire(self) -> None:
        timeout = self.lobby.limits.handshake_timeout
        self.leave(self.wanted.cause, f"no whole {self.wanted.name} in {timeout:g} s, {self.seen} bytes have come")

    def go(self) -> None:
        """Await no more bytes; the socket stays open."""
        self.lobby.guests.discard(self)
        self.lobby.half_open.end(self.client[0])
        self.lobby.reactor.cancel(self.deadline)
        self.lobby.reactor.remove(self.fd)

    def leave(self, cause: str, why: str) -> None:
        """Refuse the client, for this cause."""
        self.go()
        self.lobby.refuse(self.listener, self.sock, self.client, cause, why)

    def crashed(self, error: Exception) -> None:
        """Close the socket after an exception in a callback, which the reactor has logged."""
        if self in self.lobby.guests:
            self.go()
        self.sock.close()
