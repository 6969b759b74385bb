"""Views of a connection for log lines, lists and the record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from kproxy.record.audit.state_events import Ended
from kproxy.record.exchange import SessionWho
from kproxy.session.sasl.principal import LoginOutcome

from .capacity import LogThrottle
from .protocols import HostPort, host_port, show

if TYPE_CHECKING:
    from kproxy.record.fanout import ClusterMetadata
    from kproxy.rules.names.composed import NameMap
    from kproxy.rules.rule_set import MatchingRules

    from .connection import Connection

QUIET = {"client_closed", "drained", "max_age", "recycled"}
"""Causes of normal closes, logged at debug level only."""
MILD = {"client_reset", "broker_closed", "idle_timeout", "drain_timeout", "admin"}
"""Causes logged at info level, unless the session blames a side."""


class EndedConnection:
    """Snapshot of an ended connection for exchanges that are still stored: a few hundred bytes, without sockets."""

    __slots__ = ("broker_address", "client_address", "facts", "listener", "node", "session")

    def __init__(self, connection: Connection) -> None:
        session = connection.session
        self.facts, self.listener, self.node = connection.facts, connection.listener, connection.node
        self.client_address, self.broker_address = connection.client_address, connection.broker_address
        known = session.identity
        identity = SimpleNamespace(principal=known.principal, outcome=known.outcome, software=known.software,
                                   is_anyone=known.is_anyone)  # fmt: skip
        self.session = SimpleNamespace(number=session.number, facts=self.facts, identity=identity, plan=session.plan)


MOST_ENDS = 100
"""Connection ends kept by a process."""


class ConnectionEnd:
    """End of a connection for lists: the connection, the cause, and the side to blame."""

    __slots__ = (
        "blame",
        "broker",
        "cause",
        "client",
        "client_id",
        "ended",
        "listener",
        "message",
        "node",
        "number",
        "read",
        "since",
    )

    def __init__(self, connection: Connection, now: float) -> None:
        self.number, self.listener = connection.session.number, connection.listener.name
        self.client, self.broker, self.node = connection.client_address, connection.broker_address, connection.node
        self.client_id = connection.session.identity.client_id
        self.since, self.ended = connection.since, now
        self.read = connection.client.got, connection.broker.got
        self.cause, self.message, self.blame = connection.ending


NO_INVALID: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})


class ConnectionInfo(SessionWho):
    """Connection of this process. Values are read on access; `keep_snapshot` replaces them by a snapshot."""

    __slots__ = ("connection", "end", "invalid", "picture", "server", "stood")

    def __init__(self, connection: Connection, picture: ClusterMetadata) -> None:
        super().__init__(connection.session)
        self.connection, self.picture = connection, picture
        self.end: Ended | None = None
        self.invalid = NO_INVALID  # set at the end of the connection, see `Tap.invalid`
        self.stood: tuple[object, ...] = ()
        sock = connection.client.sock
        self.server: HostPort = ("0.0.0.0", 0) if sock is None else host_port(sock.getsockname())
        """Local address of the client's socket."""

    def keep_snapshot(self) -> None:
        """Replace the ended connection by a snapshot, because exchanges may be stored for a long time."""
        self.connection = EndedConnection(self.connection)  # type: ignore[assignment] # has all attributes used here
        self.session = self.connection.session

    @property
    def tls(self) -> bool:
        return self.connection.listener.tls is not None

    @property
    def sni(self) -> str | None:
        return self.connection.facts.sni

    @property
    def bound(self) -> MatchingRules:
        return self.connection.session.rules

    @property
    def outcome(self) -> LoginOutcome | None:
        """Return the outcome of the last authentication. None: no authentication."""
        return self.connection.session.identity.outcome

    @property
    def standing(self) -> object:
        """Return an object whose identity changes if any value here, or the depth of an API, may have changed."""
        connection = self.connection
        session, stood = connection.session, self.stood
        plan, identity = session.plan, session.identity
        now = (
            len(plan), self.picture.version, identity.principal, identity.software, connection.node,
            connection.broker_address, identity.outcome,
        )  # fmt: skip
        if not stood or stood[0] is not plan or stood[1] != now:
            stood = self.stood = plan, now
        return stood

    @property
    def client_port(self) -> int:
        return self.connection.client_address[1]

    @property
    def node(self) -> int | None:
        return self.connection.node

    @property
    def broker(self) -> str | None:
        address = self.connection.broker_address
        return None if address is None else show(address)

    def broker_topic(self, topic: str) -> str | None:
        """Return the topic's name at the broker. None: the same name, or an unreachable one."""
        names = self.connection.session.plan.bound.names
        return None if names is None else other(names.topics, topic)

    def broker_group(self, group: str) -> str | None:
        """Return the group's name at the broker. None: the same name, or an unreachable one."""
        names = self.connection.session.plan.bound.names
        return None if names is None else other(names.groups, group)

    def topic_of(self, topic_id: str) -> str | None:
        """Return the client's name of a topic by its id. None: no response has contained the id."""
        name = self.picture.by_id.get(topic_id)
        names = self.connection.session.plan.bound.names
        if name is None or names is None or names.topics is None:
            return name
        client = names.topics.to_client(name.encode("utf-8", "surrogateescape"))
        return None if client is None else client.decode("utf-8", "surrogateescape")


def other(names: NameMap | None, name: str) -> str | None:
    """Return the broker-side name if it differs and is not escaped, otherwise None."""
    if names is None:
        return None
    before = name.encode("utf-8", "surrogateescape")
    after = names.to_broker(before)
    return None if after == before or names.is_escaped(after) else after.decode("utf-8", "surrogateescape")


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


def report_end(connection: Connection, now: float, log: FilteringBoundLogger, closes: LogThrottle) -> None:
    """Log the end of a connection, rate-limited by cause and address."""
    cause = connection.cause
    if cause in QUIET and not log.is_enabled_for(logging.DEBUG):
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
