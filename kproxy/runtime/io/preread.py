"""Preread: clients have to say something before it is known who they are or which listener they want.

Strategy. Their first bytes are looked at and stay in the kernel until all that is wanted of them is there (MSG_PEEK),
so that whoever comes next finds the connection as it was. The kernel is told to wake us when more has come
(SO_RCVLOWAT). All of it is callbacks of the reactor; a client that says nothing is refused in the end.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import InputError
from kproxy.rules.values.address import network_of
from kproxy.runtime.capacity import Capacity, ConnectionPlaces, HalfOpen
from kproxy.runtime.config.limits import Limits
from kproxy.runtime.driven import HostPort, show
from kproxy.runtime.reporting import ConnectionCounts, LogThrottle

from .reactor import IN, Reactor

if TYPE_CHECKING:
    from .deadlines import Deadline

MOST = 32768
"""Bytes looked at; whoever wants to look at more than that has a limit of its own below it."""

T = TypeVar("T")
FirstBytesParser = Callable[[bytes], "T | None"]
"""Parser of a connection's first bytes: returns None if it needs more, raises InputError if they are wrong."""


class PrereadKind(NamedTuple):
    """Kind of first bytes: the cause in counters and log if they do not come, and their name in a sentence. `limited`:
    one address may have a share of those that are awaited; a balancer, which is trusted, may have all."""

    cause: str
    name: str
    limited: bool = True


class Refusal(InputError):
    """First bytes that are a reason to refuse the client, of a cause of its own."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(why)
        self.cause = cause


class Preread:
    """Preread of all ports. `counts` and the log have the clients that are refused. `places`: those of the process."""

    def __init__(
        self, reactor: Reactor, limits: Limits, counts: ConnectionCounts, log: FilteringBoundLogger,
        places: ConnectionPlaces | None = None,
    ) -> None:  # fmt: skip
        self.places = ConnectionPlaces() if places is None else places
        self.reactor, self.limits, self.counts, self.log = reactor, limits, counts, log
        self.logs: dict[str, LogThrottle] = {}
        self.pending: set[PendingClient[Any]] = set()
        self.capacity = Capacity(0, limits.max_connections, limits.max_connections)
        self.half_open = HalfOpen(self.capacity)

    def begin(
        self, listener: str, kind: PrereadKind, sock: socket.SocketType, client: HostPort, parse: FirstBytesParser[T],
        then: Callable[[T], object],
    ) -> None:  # fmt: skip
        """Call `then` with the value that `parse` returns for the first bytes, or refuse the client.

        If all places are taken, a client or connection of the network with the most ends for another network.
        """
        why = f"{self.capacity.connections} clients have not sent their first bytes, no more are allowed"
        full = len(self.pending) >= self.capacity.connections
        if full and not self.places.make_room(network_of(client[0]), why):
            self.refuse(listener, sock, client, "max_connections", why)
        elif kind.limited and (refusal := self.half_open.refusal(client[0])) is not None:
            self.refuse(listener, sock, client, *refusal)
        else:
            PendingClient(self, listener, kind, sock, client, parse, then)

    def admit(self, capacity: Capacity) -> None:
        self.capacity = self.half_open.capacity = capacity

    def refuse(self, listener: str, sock: socket.SocketType, client: HostPort, cause: str, why: str) -> None:
        """Close the client's socket, count the cause and log it."""
        self.counts.refused[cause] += 1
        log = self.logs.get(listener) or self.logs.setdefault(listener, LogThrottle(self.log.bind(listener=listener)))
        log.warning("connection refused", key=(cause, why), cause=cause, reason=why, client=show(client))
        sock.close()

    def close(self) -> None:
        """Refuse all clients whose first bytes are awaited."""
        for client in list(self.pending):
            client.refuse("shutdown", "kproxy is shutting down")


class PendingClient(Generic[T]):
    """Connection whose first bytes are awaited."""

    idle = True

    __slots__ = (
        "active",
        "address",
        "client",
        "deadline",
        "fd",
        "kind",
        "listener",
        "parse",
        "preread",
        "seen",
        "sock",
        "then",
    )

    def __init__(
        self, preread: Preread, listener: str, kind: PrereadKind, sock: socket.SocketType, client: HostPort,
        parse: FirstBytesParser[T], then: Callable[[T], object],
    ) -> None:  # fmt: skip
        self.preread, self.listener, self.kind, self.sock, self.client = preread, listener, kind, sock, client
        self.parse, self.then, self.seen, self.fd = parse, then, 0, sock.fileno()
        self.address, self.active = network_of(client[0]), monotonic()
        preread.pending.add(self)
        preread.places.add(self)
        preread.half_open.begin(client[0])
        timeout = preread.limits.handshake_timeout
        self.deadline: Deadline = preread.reactor.call_at(monotonic() + timeout, self.expire)
        preread.reactor.add(self.fd, self.ready, IN)

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
            parsed = self.parse(data)
        except InputError as error:
            self.refuse(error.cause if isinstance(error, Refusal) else self.kind.cause, str(error))
            return
        if parsed is None:
            self.seen = len(data)
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.seen + 1)
            except OSError:  # Windows has no such thing, and would wake us without end
                self.refuse(
                    self.kind.cause, f"the {self.kind.name} came in pieces, which only Linux and macOS wait for"
                )
            return
        if self.seen:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.stop()
        self.then(parsed)

    def ended(self) -> None:
        """Refuse a client that will send no more; one that has sent nothing has only looked whether somebody is
        there."""
        if self.seen:
            self.refuse(self.kind.cause, f"the connection ended in the {self.kind.name}, after {self.seen} bytes")
        else:
            self.stop()
            self.sock.close()

    def expire(self) -> None:
        timeout = self.preread.limits.handshake_timeout
        self.refuse(self.kind.cause, f"no whole {self.kind.name} in {timeout:g} s, {self.seen} bytes have come")

    def stop(self) -> None:
        """Await no more bytes; the socket stays open."""
        self.preread.pending.discard(self)
        self.preread.places.remove(self)
        self.preread.half_open.end(self.client[0])
        self.preread.reactor.cancel(self.deadline)
        self.preread.reactor.remove(self.fd)

    def end(self, cause: str, message: str) -> None:
        self.refuse(cause, message)

    def refuse(self, cause: str, why: str) -> None:
        """Refuse the client, for this cause."""
        self.stop()
        self.preread.refuse(self.listener, self.sock, self.client, cause, why)

    def crashed(self, error: Exception) -> None:
        """Close the socket after an exception in a callback, which the reactor has logged."""
        if self in self.preread.pending:
            self.stop()
        self.sock.close()
