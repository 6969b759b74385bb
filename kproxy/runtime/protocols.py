"""Types shared by `runtime` and the sessions that it drives, and their addresses."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kproxy.rules.exchange import Facts

if TYPE_CHECKING:
    from kproxy.session.session import Session

HostPort = tuple[str, int]
AddressPair = tuple[HostPort, HostPort]
"""(source, destination) of a client connection."""
Feed = Callable[[memoryview, int, float], int]
"""(view, n, now) → number of leading bytes of the view to forward unchanged. view[:n] was read; all of the view is
writable."""


class ConnectionPhase(IntEnum):
    """Phases of a connection, in order; see `connection`."""

    OPEN, CLOSING, LINGERING, CLOSED = range(4)


SessionFactory = Callable[[Any, Facts, int | None], "Session"]
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
