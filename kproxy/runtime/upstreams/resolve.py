"""DNS resolver with a cache and look-ups in threads, and kproxy's own listen addresses, so that it never connects to
itself."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from errno import EINVAL
from time import monotonic
from typing import Any

import trio

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.sockets import UNIX
from kproxy.runtime.io.socket_io import is_own
from kproxy.runtime.protocols import HostPort, host_port

FRESH = 30.0
"""Seconds that a DNS answer is cached, as in Java (networkaddress.cache.ttl)."""

MOST = 10_000
"""Maximum number of cached addresses; the least recently used one is evicted. Clusters have hundreds, but diverted
clients may go anywhere."""
AT_ONCE = 8
"""Concurrent look-ups of one cluster. A dead name server blocks a thread for half a minute, and must not delay the
threads of other clusters and the rest of kproxy."""

Endpoint = tuple[int, Any]
"""(address family, address for `socket.connect`)."""


def numeric(server: HostPort) -> list[Endpoint] | None:
    """Return the endpoint of an IP address or of a Unix socket (its "host" is the path). None: a name."""
    if server[0].startswith("/"):
        return [(UNIX, server[0])]
    try:
        answers = socket.getaddrinfo(
            *server, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except (OSError, ValueError):
        return None
    return [(family, sockaddr) for family, _, _, _, sockaddr in answers]


def ask(server: HostPort) -> list[Endpoint]:
    """Return all endpoints of a name, in the system's order of preference (RFC 6724). Blocks; raises OSError."""
    try:
        answers = socket.getaddrinfo(*server, type=socket.SOCK_STREAM)
    except ValueError:  # brokers may send any bytes: long labels, invalid UTF-8
        raise OSError(EINVAL, "no name of a host") from None
    return list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in answers))


class Resolver:
    """Cache of endpoints. `known` never blocks. On a miss, `look_up` resolves the name."""

    def __init__(self, ask: Callable[[HostPort], list[Endpoint]] = ask) -> None:
        self.ask = ask
        self.numbers: BoundedMap[HostPort, list[Endpoint]] = BoundedMap(MOST)
        self.names: BoundedMap[HostPort, tuple[float, list[Endpoint]]] = BoundedMap(MOST)
        self.threads = trio.CapacityLimiter(AT_ONCE)
        self.asking: dict[HostPort, Lookup] = {}
        """Pending look-ups by name. One task resolves a name, and other tasks wait for it."""

    def known(self, server: HostPort) -> list[Endpoint] | None:
        endpoints = self.numbers.get(server)
        if endpoints is not None:
            return endpoints
        when, endpoints = self.names.get(server, (0.0, None))
        if endpoints is not None:
            return endpoints if monotonic() - when < FRESH else None
        endpoints = numeric(server)
        if endpoints is not None:
            self.numbers[server] = endpoints
        return endpoints

    async def look_up(self, server: HostPort) -> list[Endpoint]:
        """Resolve a name with the system's resolver. If that fails, return the last good answer. Raises OSError if no
        answer is cached."""
        question = self.asking.get(server)
        if question is None:
            question = self.asking[server] = Lookup()
            try:
                await question.run(self.ask, server, self.threads)
            finally:
                del self.asking[server]
            if question.endpoints is not None:
                self.names[server] = monotonic(), question.endpoints
        else:
            await question.done.wait()
        if question.endpoints is not None:
            return question.endpoints
        if server not in self.names:
            raise question.error
        return self.names[server][1]


class Lookup:
    """Pending look-up, shared by all tasks that need the same name."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.endpoints: list[Endpoint] | None = None
        self.error = OSError("the look-up was given up")

    async def run(
        self, ask: Callable[[HostPort], list[Endpoint]], server: HostPort, threads: trio.CapacityLimiter
    ) -> None:
        """Resolve the name, and store the outcome in `endpoints` or `error`."""
        try:
            self.endpoints = await trio.to_thread.run_sync(ask, server, abandon_on_cancel=True, limiter=threads)
        except OSError as error:
            self.error = error
        finally:
            self.done.set()


REASON = "expected a broker, got kproxy itself: connections would loop"


class OwnPorts:
    """Addresses where kproxy listens, by port. With workers, the supervisor listens and notifies workers through
    `changed`."""

    def __init__(self, addresses: Iterable[HostPort] = ()) -> None:
        self.by_port: dict[int, set[str]] = {}
        self.changed: Callable[[HostPort, bool], object] = lambda address, added: None
        for address in addresses:
            self.add(address)

    def add(self, address: HostPort) -> None:
        self.by_port.setdefault(address[1], set()).add(address[0])
        self.changed(address, True)

    def discard(self, address: HostPort) -> None:
        """Remove an address where kproxy no longer listens."""
        hosts = self.by_port.get(address[1], set())
        hosts.discard(address[0])
        if not hosts:
            self.by_port.pop(address[1], None)
        self.changed(address, False)

    def addresses(self) -> list[HostPort]:
        return [(host, port) for port, hosts in self.by_port.items() for host in hosts]

    def has(self, sockaddr: Any) -> bool:
        """Return True if a connection to this address (of the socket module) would reach this kproxy."""
        if isinstance(sockaddr, str) or sockaddr[1] not in self.by_port:
            return False
        host, port = host_port(sockaddr)
        hosts = self.by_port[port]
        target = ipaddress.ip_address(host)
        if target.is_unspecified:  # the kernel takes it for loopback
            target = ipaddress.ip_address("127.0.0.1" if target.version == 4 else "::1")
        if str(target) in hosts or host in hosts:
            return True
        return ("::" in hosts or (target.version == 4 and "0.0.0.0" in hosts)) and is_own(str(target))
