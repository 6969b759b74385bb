"""Capacity of a process: the limit of open files, and the resulting limits of connections and handshakes.

The soft limit is often 1024, enough for 400 connections, so kproxy raises it up to the hard limit. Some descriptors are
reserved for node ports, the admin address, DNS look-ups and files, so these keep working when the connection limit is
reached.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.system import UNLIMITED, lift_open_files, open_files
from kproxy.rules.values.address import network_of
from kproxy.runtime.config.network import Limits

EACH = 2
"""Descriptors of a connection: one to the client, one to the broker."""
OTHERS = 1100
"""Descriptors reserved for node ports (at most 1,000 by default) and the process itself."""
SHARE = 4
"""Divisor of the open-file limit: a process with a low limit reserves this share for OTHERS (16 of 64)."""
FEWEST = 4
"""Minimum of the connection limit."""
HALF_OPEN_SHARE = 4
"""Divisor of the connection limit: one address may have this share in TLS handshakes."""
FEWEST_HALF_OPEN = 16
"""Minimum of the handshake limit of one address."""
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
        """Return True if the capacity is below limits.max_connections."""
        return self.connections < self.wanted

    @property
    def reason(self) -> str:
        """Return the reason for refusing connections at the limit."""
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
    """Log a capacity below the configured limit. With the default limit, this is logged when the limit is reached."""
    if capacity.lacking and "max_connections" in limits.model_fields_set:
        needed = capacity.wanted * EACH + OTHERS
        log.warning("fewer files may be open than max_connections needs", limit=capacity.files, needed=needed,
                    connections=capacity.connections)  # fmt: skip


class HalfOpen:
    """Counter of pending handshakes by address. Each occupies a connection for at most `handshake_timeout`."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.by_address: Counter[str] = Counter()
        self.total = 0

    def refusal(self, host: str) -> tuple[str, str] | None:
        """Return (cause, reason) if `host` has reached its handshake limit, otherwise None."""
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
"""Seconds between two lines with the same event and key. Lines in between are counted in the next one."""
MOST = 1000  # pairs of event and key
BURST = 100
"""Lines of one event in `PAUSE` seconds, whatever their keys: a host with a /64 of IPv6 has any number of addresses."""


# Connection counters, and a rate-limited logger.
#
# Clients can trigger log lines at will, and must not fill a disk. A line is suppressed if the same event and key was
# logged in the last seconds, or if the event reached its burst limit for any key. Suppressed lines are counted in the
# next line of that key or event.
class LogThrottle:
    """Rate-limited logger. `key` separates lines with the same event."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.log = log
        self.last: BoundedMap[Hashable, tuple[float, int]] = BoundedMap(MOST)
        self.bursts: dict[str, tuple[float, int, int]] = {}  # start, lines, suppressed lines

    def warning(self, event: str, key: Hashable = None, **fields: Any) -> None:
        """Log one line, or count it as suppressed."""
        self._say(self.log.warning, event, key, fields)

    def info(self, event: str, key: Hashable = None, **fields: Any) -> None:
        """Log one line at info level, or count it as suppressed."""
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
    """Client connections that got no session, by cause: `max_connections`, `not_allowed`, `tls` and so on."""
    unreachable: dict[str, int] = field(default_factory=numbers)
    """Failures to reach any broker, by cluster."""
    logins: dict[str, int] = field(default_factory=numbers)
    """kproxy's own logins at brokers, by cluster."""
    logins_refused: dict[str, int] = field(default_factory=numbers)
    """Failed logins of kproxy's own, for any reason, by cluster."""
    client_bytes: int = 0
    broker_bytes: int = 0
