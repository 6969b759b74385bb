"""Resolver of names to addresses: numbers at once, names from a cache or by a look-up in a thread."""

from __future__ import annotations

import socket
from collections.abc import Callable
from errno import EINVAL
from time import monotonic
from typing import Any

import trio

from kproxy.net.driven import HostPort

FRESH = 30.0
"""Seconds that an answer is used without asking again; as long as Java keeps one (networkaddress.cache.ttl)."""

MOST = 10_000
"""Addresses remembered; then all are forgotten. Clusters have hundreds, but diverted clients may go anywhere."""
AT_ONCE = 8
"""Names of one cluster that are looked up at a time. A name server that does not answer holds a thread for half a
minute, and what other clusters and the rest of kproxy do in threads must not wait for it."""

Endpoint = tuple[int, Any]
"""(address family, address for `socket.connect`)."""


def numeric(server: HostPort) -> list[Endpoint] | None:
    """Return the endpoint of an IP address, or of a Unix socket, whose "host" is its path; None for a name."""
    if server[0].startswith("/"):
        return [(int(socket.AF_UNIX), server[0])]
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
    except ValueError:  # brokers may name any bytes: labels too long, no UTF-8
        raise OSError(EINVAL, "no name of a host") from None
    return list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in answers))


class Resolver:
    """Cache of endpoints. `known` never blocks; where it has no answer, `look_up` gets one."""

    def __init__(self, ask: Callable[[HostPort], list[Endpoint]] = ask) -> None:
        self.ask = ask
        self.numbers: dict[HostPort, list[Endpoint]] = {}
        self.names: dict[HostPort, tuple[float, list[Endpoint]]] = {}
        self.threads = trio.CapacityLimiter(AT_ONCE)
        self.asking: dict[HostPort, LookUp] = {}
        """Names that are being looked up: each by one task, for which the others wait."""

    def known(self, server: HostPort) -> list[Endpoint] | None:
        endpoints = self.numbers.get(server)
        if endpoints is not None:
            return endpoints
        when, endpoints = self.names.get(server, (0.0, None))
        if endpoints is not None:
            return endpoints if monotonic() - when < FRESH else None
        endpoints = numeric(server)
        if endpoints is not None:
            if len(self.numbers) >= MOST:
                self.numbers.clear()
            self.numbers[server] = endpoints
        return endpoints

    async def look_up(self, server: HostPort) -> list[Endpoint]:
        """Ask the system; if it fails, the last good answer is used on. Raises OSError when there was none."""
        question = self.asking.get(server)
        if question is None:
            question = self.asking[server] = LookUp()
            try:
                await question.run(self.ask, server, self.threads)
            finally:
                del self.asking[server]
            if question.endpoints is not None:
                if len(self.names) >= MOST:
                    self.names.clear()
                self.names[server] = monotonic(), question.endpoints
        else:
            await question.done.wait()
        if question.endpoints is not None:
            return question.endpoints
        if server not in self.names:
            raise question.error
        return self.names[server][1]


class LookUp:
    """Question to the system, for all tasks that want to know the same at the same time."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.endpoints: list[Endpoint] | None = None
        self.error = OSError("the look-up was given up")

    async def run(
        self, ask: Callable[[HostPort], list[Endpoint]], server: HostPort, threads: trio.CapacityLimiter
    ) -> None:
        """Ask; the outcome stands in `endpoints` or `error`."""
        try:
            self.endpoints = await trio.to_thread.run_sync(ask, server, abandon_on_cancel=True, limiter=threads)
        except OSError as error:
            self.error = error
        finally:
            self.done.set()
