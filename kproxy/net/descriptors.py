"""How many files a process may have open: the soft limit is often 1024, which is 500 connections."""

from __future__ import annotations

import resource

from structlog.typing import FilteringBoundLogger

EACH = 2
"""Descriptors of a connection: one to the client, one to the broker."""
OTHERS = 1100
"""Ports of nodes (a thousand at most by default), and what the process has open itself."""


def raise_descriptor_limit(connections: int, log: FilteringBoundLogger) -> int:
    """Lifts the soft limit as far as `connections` need and the hard limit allows; returns what it is then.

    Says so when that is not enough: connections then wait in the backlog once it is reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections * EACH + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return soft
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < needed:
        log.info("fewer files may be open than max_connections needs", limit=limit, needed=needed)
    return limit
