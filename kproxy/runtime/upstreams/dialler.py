"""Dialler of a cluster: the topology (addresses of nodes), and the connect race."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from errno import EALREADY, EINPROGRESS, EISCONN, ELOOP, ENOBUFS
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kproxy.base.sockets import CONNECT_TELLS, NONBLOCK, UNDER_WAY, UNIX
from kproxy.runtime.io.pollers import Deadline
from kproxy.runtime.io.reactor import OUT, Reactor
from kproxy.runtime.io.socket_io import come_from
from kproxy.runtime.io.tls import BrokerTls, reason
from kproxy.runtime.protocols import HostPort, show
from kproxy.session.rewrite.context import MOST_NODES

from .resolve import REASON, Endpoint, OwnPorts, Resolver

if TYPE_CHECKING:
    from kproxy.runtime.connection import Connection

    from .own_connection import Login, OwnConnection

    Caller = Connection | OwnConnection
    PendingDial: TypeAlias = "Race | Login"


class Topology:
    """Map of node id → (host, port). Ids below -1 are controllers (`session.rewrite.addresses.controller_id`).

    Beyond `most` nodes, the least recently named ones are evicted, and connections to them go to a bootstrap server.
    `number`: id of this topology among those of its cluster, in all processes. `was_used`: clients had received nodes
    of the cluster before their removal.
    """

    number = 0

    def __init__(self, most: int = MOST_NODES) -> None:
        self.most = most
        self.nodes: dict[int, HostPort] = {}
        self.was_used = False

    @property
    def is_used(self) -> bool:
        """Return True if clients have received nodes of the cluster."""
        return self.was_used or bool(self.nodes)

    def learn(self, nodes: Mapping[int, HostPort]) -> dict[int, HostPort]:
        """Store these nodes; return the new ones and those with a changed address."""
        known = self.nodes
        changed: dict[int, HostPort] = {}
        for node, (host, port) in nodes.items():
            address = host, port
            if known.pop(node, None) != address:
                changed[node] = address
            known[node] = address  # the last one, as the newest
        while len(known) > self.most:
            del known[next(iter(known))]
        return changed


STREAM = int(socket.SOCK_STREAM | NONBLOCK)
STAGGER = 0.25
"""RFC 8305 §8: the recommended time between two attempts."""

Greet = Callable[[socket.SocketType], bytes]


# Dialler: connects to one of several servers. The first success wins, and a dead server costs a quarter of a second.
#
# Strategy. It uses callbacks of the reactor, except for DNS look-ups and TLS handshakes, which are trio tasks. After a
# failed attempt the next one begins at once; after a hanging one it begins after `STAGGER` (RFC 8305, "happy eyeballs",
# for servers as well as for addresses of one server). On the same host or for a refusal, a second `connect` already
# returns the outcome, without waiting for an event.
class DialOptions(NamedTuple):
    """Options of a connect. `greet` returns the first bytes for a connected socket. `mark`: firewall mark (0: none).
    `source`: source address if it is not the machine's own. `own`: addresses where kproxy listens."""

    greet: Greet | None = None
    mark: int = 0
    source: str | None = None
    own: OwnPorts | None = None


PLAIN = DialOptions()
Won = Callable[[socket.SocketType, HostPort], None]
Lost = Callable[[dict[str, str]], None]


def connect(endpoint: Endpoint, options: DialOptions = PLAIN) -> tuple[socket.SocketType, int]:
    """Connect a non-blocking socket; return it and 0 (connected), EINPROGRESS, or the error number of the failure.

    Raises OSError if the socket cannot be created, or if kproxy would connect to itself.
    """
    family, sockaddr = endpoint
    if options.own is not None and options.own.has(sockaddr):
        raise OSError(ELOOP, REASON)
    sock = socket.SocketType(family, STREAM)  # base class of socket.socket: a third of its cost
    if not NONBLOCK:
        sock.setblocking(False)
    if family != UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.mark or options.source is not None:
        disguise(sock, family, options)
    code = sock.connect_ex(sockaddr)
    if code in UNDER_WAY:
        if not CONNECT_TELLS:
            return sock, EINPROGRESS
        code = sock.connect_ex(sockaddr)  # on the same host the outcome is known by now
        if code == EALREADY:
            return sock, EINPROGRESS
    return sock, 0 if code == EISCONN else code


def disguise(sock: socket.SocketType, family: int, options: DialOptions) -> None:
    """Set the firewall mark and another machine's address as source. Raises OSError; `sock` is closed then."""
    try:
        if options.mark:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, options.mark)
        if options.source is not None and family != UNIX:
            come_from(sock, family, options.source)
    except BaseException:
        sock.close()
        raise


def say(sock: socket.SocketType, greet: Greet) -> int:
    """Send the greeting on a new connection (its send buffer has room); return 0 or the error number."""
    try:
        data = greet(sock)
        return 0 if sock.send(data) == len(data) else ENOBUFS
    except OSError as error:
        return error.errno or ENOBUFS


class Attempt:
    """Pending connect to one endpoint."""

    __slots__ = ("endpoint", "fd", "race", "server", "sock")

    def __init__(self, race: Race, server: HostPort, endpoint: Endpoint, sock: socket.SocketType) -> None:
        self.race, self.server, self.endpoint, self.sock = race, server, endpoint, sock
        self.fd = sock.fileno()

    def ready(self, mask: int) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.race.reactor.remove(self.fd)
        self.race.attempts.remove(self)
        self.race.outcome(self, code)

    def crashed(self, error: Exception) -> None:
        self.race.cancel()


class Race:
    """Race of connects to `servers`: calls `won(socket, server)`, or `lost({server: reason})` after all have failed.

    Both can be called before `start` returns, but not after `cancel`.
    """

    __slots__ = ("attempts", "deadline", "done", "looking", "lost", "options", "reactor", "resolver", "servers",
                 "stagger", "targets", "timeout", "tls", "tried", "won")  # fmt: skip

    def __init__(
        self, reactor: Reactor, resolver: Resolver, tls: BrokerTls | None, timeout: float,
        servers: Sequence[HostPort], won: Won, lost: Lost, options: DialOptions = PLAIN,
    ) -> None:  # fmt: skip
        self.reactor, self.resolver, self.tls, self.timeout, self.servers = reactor, resolver, tls, timeout, servers
        self.won, self.lost, self.options = won, lost, options
        self.targets: deque[tuple[HostPort, Endpoint]] = deque()
        self.attempts: list[Attempt] = []
        self.tried: dict[str, str] = {}
        self.looking = 0  # pending look-ups and TLS handshakes
        self.done = False
        self.deadline: Deadline | None = None
        self.stagger: Deadline | None = None

    def start(self, begun: socket.SocketType | None = None) -> None:
        """Start the race. `begun`: socket with a pending connect to the first endpoint of the first server."""
        for server in self.servers:
            endpoints = self.resolver.known(server)
            if endpoints is None:
                self.looking += 1
                self.reactor.spawn(self.look_up, server)
            else:
                self.targets.extend((server, endpoint) for endpoint in endpoints)
        if begun is not None:
            self.await_connect(Attempt(self, *self.targets.popleft(), begun))
            self.wait()
        else:
            self.next()

    async def look_up(self, server: HostPort) -> None:
        try:
            endpoints = await self.resolver.look_up(server)
        except OSError as error:
            self.tried[show(server)] = error.strerror or str(error)
            endpoints = []
        finally:
            self.looking -= 1
        if not self.done:
            self.targets.extend((server, endpoint) for endpoint in endpoints)
            self.next()

    def next(self) -> None:
        """Begin the next attempt; continue with the following one if it fails at once."""
        self.stop_stagger()
        while self.targets and not self.done:
            server, endpoint = self.targets.popleft()
            if self.begin(server, endpoint):
                break
        if self.done:
            return
        if not self.attempts and not self.looking:
            self.finish()
            self.lost(self.tried)
        else:
            self.wait()

    def wait(self) -> None:
        """Set the deadline of the race and the timer of the next attempt."""
        now = monotonic()
        if self.deadline is None:
            self.deadline = self.reactor.call_at(now + self.timeout, self.expire)
        if self.targets:
            self.stagger = self.reactor.call_at(now + STAGGER, self.next)

    def begin(self, server: HostPort, endpoint: Endpoint) -> bool:
        """Begin an attempt; return True if it is pending or has succeeded."""
        try:
            sock, code = connect(endpoint, self.options)
        except OSError as error:  # out of descriptors
            self.tried[show(server)] = error.strerror or str(error)
            return False
        attempt = Attempt(self, server, endpoint, sock)
        return self.await_connect(attempt) if code == EINPROGRESS else self.finish_attempt(attempt, code)

    def await_connect(self, attempt: Attempt) -> bool:
        """Register a pending attempt with the reactor."""
        self.attempts.append(attempt)
        self.reactor.add(attempt.fd, attempt.ready, OUT)
        return True

    def outcome(self, attempt: Attempt, code: int) -> None:
        if not self.finish_attempt(attempt, code):
            self.next()

    def finish_attempt(self, attempt: Attempt, code: int) -> bool:
        """Greet a connected server or record the failure; return True if the socket is usable."""
        sock, server = attempt.sock, attempt.server
        if not code and self.options.greet is not None:
            code = say(sock, self.options.greet)
        if code:
            sock.close()
            self.tried[show(server)] = os.strerror(code).lower()
            return False
        if self.tls is not None:
            self.put_others_back()
            self.looking += 1
            self.reactor.spawn(self.secure, sock, server, self.tls)
        else:
            self.finish()
            self.won(sock, server)
        return True

    async def secure(self, sock: socket.SocketType, server: HostPort, tls: BrokerTls) -> None:
        """Run the TLS handshake. If it fails, the race continues with the remaining servers."""
        try:
            secured = await tls.handshake(sock, server[0])
        except (OSError, ValueError) as error:
            sock.close()
            self.tried[show(server)] = f"TLS handshake failed: {reason(error)}"
            secured = None
        except BaseException:
            sock.close()
            raise
        finally:
            self.looking -= 1
        if self.done:
            if secured is not None:
                secured.close()
        elif secured is None:
            self.next()
        else:
            self.finish()
            self.won(secured, server)

    def put_others_back(self) -> None:
        """Stop the other attempts. They are repeated if the handshake of the first one fails."""
        self.stop_stagger()
        self.targets.extendleft((attempt.server, attempt.endpoint) for attempt in reversed(self.attempts))
        self.drop_attempts()

    def drop_attempts(self) -> None:
        for attempt in self.attempts:
            self.reactor.forget(attempt.fd)
            attempt.sock.close()
        self.attempts.clear()

    def stop_stagger(self) -> None:
        if self.stagger is not None:
            self.reactor.cancel(self.stagger)
            self.stagger = None

    def expire(self) -> None:
        for attempt in self.attempts:
            self.tried[show(attempt.server)] = f"no answer in {self.timeout:g} s"
        for server, _ in self.targets:
            self.tried.setdefault(show(server), "not tried in time")
        for server in self.servers:
            self.tried.setdefault(show(server), f"not through in {self.timeout:g} s")
        self.finish()
        self.lost(self.tried)

    def finish(self) -> None:
        self.done = True
        self.stop_stagger()
        if self.deadline is not None:
            self.reactor.cancel(self.deadline)
        self.drop_attempts()

    cancel = finish
