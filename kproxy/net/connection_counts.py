"""Counters of connections, as plain integers; the metrics sink reads them at scrape time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


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
