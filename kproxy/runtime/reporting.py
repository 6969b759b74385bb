"""Counters of connections, as plain integers, and a logger that never writes too many lines about them.

Clients can cause lines of the log at will, and must not fill a disk. So a line is left out when there was one with the
same event and key, or when there were very many with the same event and any key, in the last seconds. What was left out
is counted in the next line of that key, or of that event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from structlog.typing import FilteringBoundLogger

PAUSE = 5.0
"""Seconds between two lines with the same event and key. Those between are counted in the next one."""
MOST = 1000
"""Keys remembered; then all are forgotten."""
BURST = 100
"""Lines of one event in `PAUSE` seconds, whatever their keys: a host with a /64 of IPv6 has any number of addresses."""


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
