"""Ages at which connections are drained, drawn when they begin, and the pace at which this is done.

Each connection that goes comes back with a handshake, here and at a broker, hence the pace. The oldest go first.
"""

from __future__ import annotations

from heapq import nsmallest
from math import inf
from operator import attrgetter
from random import uniform
from typing import TYPE_CHECKING

from .driven import ConnectionPhase

if TYPE_CHECKING:
    from collections.abc import Collection

    from kproxy.app.config.document import Config

    from .connection import Connection

MOST = 50
"""Connections that begin to drain in a second at most, in all workers together."""


class MaxAges:
    """Greatest ages of connections, by the names of their listeners, and the pace of one process."""

    def __init__(self, config: Config) -> None:
        limits = config.limits
        self.ages: dict[str, tuple[float, float]] = {}  # (seconds, jitter) of the listeners that have an age
        for listener in config.listeners:
            age, jitter = listener.max_connection_age, listener.max_connection_age_jitter
            age = limits.max_connection_age if age is None else age
            if age:
                jitter = limits.max_connection_age_jitter if jitter is None else jitter
                self.ages[listener.name] = age, jitter
        self.pace = MOST / config.workers
        self.credit = 0.0

    @property
    def shortest(self) -> float:
        """Return the shortest age that a listener has; infinite if none has any."""
        return min((age for age, _ in self.ages.values()), default=inf)

    def began(self, connection: Connection) -> None:
        """Draw the age of a connection that has just begun, if its listener has one."""
        age, jitter = self.ages.get(connection.listener.name, (0, 0))
        if age:
            connection.drain_at = connection.since + uniform(age * (1 - jitter), age * (1 + jitter))

    def take(self, connections: Collection[Connection], now: float, interval: float) -> list[Connection]:
        """Return the connections that are to drain now, the oldest that are due. `interval`: seconds between two calls
        at least; where it was longer, nothing is made up for."""
        if not self.ages:
            return []
        self.credit = min(self.credit, 1.0) + self.pace * interval
        due = [each for each in connections if each.drain_at <= now and may_drain(each)]
        oldest = nsmallest(int(self.credit), due, key=attrgetter("drain_at"))
        self.credit -= len(oldest)
        return oldest


def drain(connection: Connection, now: float) -> None:
    """Answer what is in flight, then close: the connection has reached its age."""
    connection.drain_at = inf
    connection.drain(now, "max_age", f"the connection was {now - connection.since:.1f} s old")


def may_drain(connection: Connection) -> bool:
    """Return True for one that is neither about to end nor in the middle of work that was put aside."""
    return connection.phase is ConnectionPhase.OPEN and connection.leaving is None and connection.turn is None
