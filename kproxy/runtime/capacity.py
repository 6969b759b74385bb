"""Capacity of a process: the limit of open files, the number of connections that it allows, and of handshakes.

The soft limit is often 1024, which is 400 connections; it is lifted as far as the hard one allows. What connections may
not have is for ports of nodes, the admin address, look-ups of names and files, so that these go on working when there
are as many connections as there can be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.base.system import UNLIMITED, lift_open_files, open_files
from kproxy.rules.values.address import network_of
from kproxy.runtime.config.network import Limits

EACH = 2
"""Descriptors of a connection: one to the client, one to the broker."""
OTHERS = 1100
"""Ports of nodes (a thousand at most by default), and what the process has open itself."""
SHARE = 4
"""Divisor of the limit on open files: a process that may open few keeps that part for OTHERS, 16 of 64."""
FEWEST = 4
"""Connections that are tried in any case."""
HALF_OPEN_SHARE = 4
"""One address may have one in so many of all connections that there is room for in the middle of their handshakes."""
FEWEST_HALF_OPEN = 16
"""Handshakes that one address may have under way in any case."""
CANDIDATES = 16  # oldest connections of a network that are compared when one has to make room


class PlacedConnection(Protocol):
    """Connection or handshake of a client network (`address`), with the time of its last traffic. `idle`: no request is
    in flight."""

    active: float

    @property
    def address(self) -> str: ...
    @property
    def idle(self) -> bool: ...
    def end(self, cause: str, message: str) -> None: ...


@dataclass(frozen=True)
class Capacity:
    """Capacity of a process: `files` may be open, `connections` are taken, `wanted` is limits.max_connections."""

    files: int
    connections: int
    wanted: int

    @property
    def lacking(self) -> bool:
        """Return True if there is room for fewer connections than the config wants."""
        return self.connections < self.wanted

    @property
    def reason(self) -> str:
        """Return the reason why no more connections are taken, once there are so many."""
        if self.lacking:
            return f"there are {self.connections} connections, as many as a limit of {self.files} open files allows"
        return f"there are {self.wanted} connections, no more are allowed"

    def times(self, processes: int) -> Capacity:
        return Capacity(self.files, min(self.wanted, self.connections * processes), self.wanted)


def find_capacity(limits: Limits) -> Capacity:
    """Lift the soft limit as far as `max_connections` need and the hard limit allows; return the capacity."""
    wanted = limits.max_connections
    needed = wanted * EACH + OTHERS
    soft = lift_open_files(needed)
    if soft == UNLIMITED or soft >= needed:
        return Capacity(soft, wanted, wanted)
    left = soft - open_files() - min(OTHERS, soft // SHARE)
    return Capacity(soft, max(FEWEST, min(wanted, left // EACH)), wanted)


def log_capacity(capacity: Capacity, limits: Limits, log: FilteringBoundLogger) -> None:
    """Log that there is less capacity than the config asks for. With the default limit it is logged once it is
    reached."""
    if capacity.lacking and "max_connections" in limits.model_fields_set:
        needed = capacity.wanted * EACH + OTHERS
        log.warning("fewer files may be open than max_connections needs", limit=capacity.files, needed=needed,
                    connections=capacity.connections)  # fmt: skip


class HalfOpen:
    """Counter of handshakes under way, by address. Each takes a connection's place for as long as
    `handshake_timeout`."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.by_address: Counter[str] = Counter()
        self.total = 0

    def refusal(self, host: str) -> tuple[str, str] | None:
        """Return (cause, reason) if no more handshakes may begin from `host` now, else None."""
        most = max(FEWEST_HALF_OPEN, self.capacity.connections // HALF_OPEN_SHARE)
        if self.by_address.get(network_of(host), 0) < most:
            return None
        return "handshakes", f"{network_of(host)} has {most} handshakes under way, no more are allowed"

    def begin(self, host: str) -> None:
        self.by_address[network_of(host)] += 1
        self.total += 1

    def end(self, host: str) -> None:
        self.total -= 1
        network = network_of(host)
        self.by_address[network] -= 1
        if not self.by_address[network]:
            del self.by_address[network]


class ConnectionPlaces:
    """Connections and handshakes by client network, for a limit that is reached: the network with the most gives way.

    `by_count` has the networks by the number of their connections, so the largest is found without a search.
    """

    def __init__(self) -> None:
        self.by_network: dict[str, dict[PlacedConnection, None]] = {}
        self.by_count: dict[int, dict[str, None]] = {}
        self.most = 0

    def add(self, connection: PlacedConnection) -> None:
        network = connection.address
        found = self.by_network.setdefault(network, {})
        found[connection] = None
        self.count(network, len(found) - 1, len(found))

    def remove(self, connection: PlacedConnection) -> None:
        network = connection.address
        found = self.by_network[network]
        del found[connection]
        self.count(network, len(found) + 1, len(found))
        if not found:
            del self.by_network[network]

    def count(self, network: str, before: int, after: int) -> None:
        if before:
            same = self.by_count[before]
            del same[network]
            if not same:
                del self.by_count[before]
        if after:
            self.by_count.setdefault(after, {})[network] = None
        if after > self.most or (before == self.most and before not in self.by_count):
            self.most = after

    def to_end(self, network: str) -> PlacedConnection | None:
        """Return the connection that makes room for one of `network`.

        None: no network has at least two more. The candidates are the oldest connections of the largest network: idle
        ones first, then those without traffic for the longest time.
        """
        if self.most < len(self.by_network.get(network, ())) + 2:
            return None
        largest = next(iter(self.by_count[self.most]))
        return min(islice(self.by_network[largest], CANDIDATES), key=lambda one: (not one.idle, one.active))

    def make_room(self, network: str, reason: str) -> bool:
        """End a connection or handshake of the network with the most; return False if this network has as many."""
        crowded = self.to_end(network)
        if crowded is not None:
            crowded.end("displaced", f"{reason}: {crowded.address} has the most, and gives one up for {network}")
        return crowded is not None


PAUSE = 5.0
"""Seconds between two lines with the same event and key. Those between are counted in the next one."""
MOST = 1000
"""Keys remembered; then all are forgotten."""
BURST = 100
"""Lines of one event in `PAUSE` seconds, whatever their keys: a host with a /64 of IPv6 has any number of addresses."""


# Counters of connections, as plain integers, and a logger that never writes too many lines about them.
#
# Clients can cause lines of the log at will, and must not fill a disk. So a line is left out when there was one with
# the same event and key, or when there were very many with the same event and any key, in the last seconds. What was
# left out is counted in the next line of that key, or of that event.
class LogThrottle:
    """Logger with a limit; `key` tells apart lines with the same event."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.log = log
        self.last: dict[Hashable, tuple[float, int]] = {}
        self.bursts: dict[str, tuple[float, int, int]] = {}  # since when, lines, those left out for being too many

    def warning(self, event: str, key: Hashable = None, **fields: Any) -> None:
        """Log one line, or count one more that is left out."""
        self._say(self.log.warning, event, key, fields)

    def info(self, event: str, key: Hashable = None, **fields: Any) -> None:
        """Log one line about what is nobody's fault, or count it."""
        self._say(self.log.info, event, key, fields)

    def _say(self, say: Callable[..., Any], event: str, key: Hashable, fields: dict[str, Any]) -> None:
        now = monotonic()
        when, left_out = self.last.get((event, key), (-PAUSE, 0))
        if now - when < PAUSE:
            self.last[event, key] = when, left_out + 1
            return
        since, lines, too_many = self.bursts.get(event, (now, 0, 0))
        if now - since >= PAUSE:
            since, lines, left_out, too_many = now, 0, left_out + too_many, 0
        if lines >= BURST:
            self.bursts[event] = since, lines, too_many + 1 + left_out
            self.last.pop((event, key), None)
            return
        self.bursts[event] = since, lines + 1, too_many
        if len(self.last) >= MOST:
            self.last.clear()
        self.last[event, key] = now, 0
        if left_out:
            fields["left_out"] = left_out
        say(event, **fields)


def numbers() -> dict[str, int]:
    return defaultdict(int)


@dataclass(slots=True)
class ConnectionCounts:
    """Counters of the process. Bytes of open connections are not in them; `Server.bytes` adds these."""

    opened: dict[str, int] = field(default_factory=numbers)
    """Client connections that got a session, by listener."""
    closed: dict[str, int] = field(default_factory=numbers)
    """Their ends, by cause."""
    refused: dict[str, int] = field(default_factory=numbers)
    """Client connections that got none, by cause: `max_connections`, `not_allowed`, `tls` and so on."""
    unreachable: dict[str, int] = field(default_factory=numbers)
    """Times that no broker could be reached, by cluster."""
    logins: dict[str, int] = field(default_factory=numbers)
    """kproxy's own logins at brokers, by cluster."""
    logins_refused: dict[str, int] = field(default_factory=numbers)
    """Logins of kproxy's own that failed for any reason, by cluster."""
    client_bytes: int = 0
    broker_bytes: int = 0
