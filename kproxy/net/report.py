"""Log lines about connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from .driven import show
from .log_throttle import LogThrottle

if TYPE_CHECKING:
    from .connection import Connection

QUIET = {"client_closed", "drained", "recycled"}
"""Causes of the usual end, not worth a line in the log."""
MILD = {"client_reset", "broker_closed", "idle_timeout", "drain_timeout", "admin"}
"""Causes that are nobody's fault, unless the session blames somebody."""


def describe(connection: Connection) -> dict[str, Any]:
    """Return the fields that identify a connection in a log line or a list."""
    return {
        "listener": connection.listener.name,
        "client": show(connection.client_address),
        "node": connection.node,
        "broker": show(connection.broker_address) if connection.broker_address else None,
        "client_bytes": connection.client.got,
        "broker_bytes": connection.broker.got,
    }


def report_end(connection: Connection, now: float, log: FilteringBoundLogger, closes: LogThrottle, debug: bool) -> None:
    """Log the end of a connection; the same end from the same address once in a while only."""
    cause = connection.cause
    if cause in QUIET and not debug:
        return
    fields = {"cause": cause, "reason": connection.message, **describe(connection)}
    fields["seconds"] = round(now - connection.since, 3)
    if cause in QUIET:
        log.debug("connection closed", **fields)
    elif cause in MILD and not connection.blame:
        closes.info("connection closed", key=(cause, connection.client_address[0]), **fields)
    else:
        key = (cause, connection.client_address[0])
        closes.warning("connection closed", key=key, blame=connection.blame or None, **fields)
