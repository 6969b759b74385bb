"""Events about a connection: that it was opened, that its client was authenticated or refused, that it closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kproxy.core.sasl.principal import LoginOutcome
from kproxy.observe.exchange import Who
from kproxy.wire.table.errors import error_name

from .lines import plain


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a connection and totals of what passed on it. `connect`: seconds until the broker's connection stood."""

    cause: str
    message: str
    seconds: float
    connect: float | None
    requests: int
    responses: int
    unanswered: int
    request_bytes: int
    response_bytes: int
    unread: int


class LiveWho(Who, Protocol):
    """Connection of this process, as events see it. `end`: None as long as it is open."""

    end: Ended | None

    @property
    def tls(self) -> bool: ...
    @property
    def sni(self) -> str | None: ...
    @property
    def outcome(self) -> LoginOutcome | None: ...
    @property
    def standing(self) -> object:
        """Return an object that is another one when anything here, or the depth of an API, may have changed."""
        ...


def connection_columns(who: Who) -> dict[str, Any]:
    """Return the columns of `events.schema.CONNECTION` for a connection, absent ones left out."""
    columns = {
        "connection": who.number,
        "cluster": who.cluster,
        "listener": who.listener,
        "client_address": who.client_address,
        "client_port": who.client_port,
        "node": who.node,
        "broker": who.broker,
        "principal": plain(who.principal),
        "software_name": who.software_name,
        "software_version": who.software_version,
    }
    return {name: value for name, value in columns.items() if value is not None}


def opened(who: LiveWho) -> dict[str, Any]:
    """Return the data of the event that a client has connected."""
    data = {"what": "open", **connection_columns(who), "tls": who.tls}
    return data if who.sni is None else data | {"sni": plain(who.sni)}


def authenticated(who: LiveWho, outcome: LoginOutcome) -> dict[str, Any]:
    """Return the data of the event that the broker has accepted or refused the client."""
    data = {"what": "authentication", **connection_columns(who), "mechanism": outcome.mechanism}
    return data | {"error": error_name(outcome.error)} if outcome.error else data


def closed(who: LiveWho, client_id: str | None) -> dict[str, Any]:
    """Return the data of the event that the connection has closed."""
    end = who.end
    assert end is not None, "it is open"
    data: dict[str, Any] = {"what": "close", **connection_columns(who), "tls": who.tls}
    optional = {
        "client_id": plain(client_id),
        "sni": plain(who.sni),
        "mechanism": None if who.outcome is None else who.outcome.mechanism,
        "connect_ms": None if end.connect is None else round(end.connect * 1000, 3),
        "unread_frames": end.unread or None,
    }
    data |= {name: value for name, value in optional.items() if value is not None}
    return data | {
        "cause": end.cause,
        "message": plain(end.message) or "",
        "seconds": round(end.seconds, 6),
        "requests": end.requests,
        "responses": end.responses,
        "unanswered": end.unanswered,
        "request_bytes": end.request_bytes,
        "response_bytes": end.response_bytes,
    }
