"""Exchanges as live rules see them: one request with its response, its connection, and its cluster. Names are the
client's.

Messages are decoded on first access. `session` makes these objects, only for requests that some rule is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.schema import Api
from kproxy.rules.decision import Turn
from kproxy.rules.entity import Entity


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one connection. `client_address` is an IP without port, `sni` the name that a TLS client asked for,
    `certificate` the subject of its certificate (`subject_name`) or what the listener's rules of principals make of it,
    `node` the broker that it connects to (a bootstrap connection: none); None where there is none."""

    listener: str
    cluster: str
    client_address: str
    sni: str | None = None
    certificate: str | None = None
    node: int | None = None


_SHORT = {
    "commonName": "CN", "organizationalUnitName": "OU", "organizationName": "O", "localityName": "L",
    "stateOrProvinceName": "ST", "countryName": "C", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_SPECIAL = re.compile(r'([,+"\\<>;]|^[# ]| $)')


def subject_name(peer_certificate: Mapping[str, Any] | None) -> str | None:
    """Return `CN=etl,OU=data,O=Example`, as Kafka's own principals have it (RFC 4514: most specific first), from what
    `ssl.SSLObject.getpeercert()` gives; None without a certificate."""
    if not peer_certificate:
        return None
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(peer_certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", value)


class ClusterView(Protocol):
    """Cluster as its answers have shown it."""

    def topic_of(self, topic_id: UUID) -> str | None:
        """Return the client-side name of the topic with this id; None when no Metadata answer has shown it."""
        ...

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return ids of the brokers that this connection was told of, ascending."""
        ...


class IdentityView(Protocol):
    """Identity of a client, as far as it has been said."""

    @property
    def principal(self) -> str | None: ...
    @property
    def software(self) -> str | None: ...
    @property
    def is_anyone(self) -> bool: ...


class ConnectionView:
    """Client connection as rules see it.

    `memory` is for effects: it lives as long as the connection does. Effects that charge the request at hand add their
    turn to `turns`.
    """

    __slots__ = ("cluster", "facts", "identity", "memory", "number", "turns")

    def __init__(self, facts: Facts, number: int, cluster: ClusterView, identity: IdentityView | None = None) -> None:
        self.facts, self.number, self.cluster, self.identity = facts, number, cluster, identity
        self.memory: dict[Any, Any] = {}
        self.turns: list[Turn] = []

    @property
    def principal(self) -> str | None:
        """Return the name that the broker has authenticated, else the subject of the client's certificate; None:
        nobody."""
        return self.facts.certificate if self.identity is None else self.identity.principal

    @property
    def software(self) -> str | None:
        """Return `name/version` of the client's library; None when it has not said."""
        return None if self.identity is None else self.identity.software

    @property
    def is_anyone(self) -> bool:
        """Return True if the client has logged in, and may be any of those whom the broker knows."""
        return self.identity is not None and self.identity.is_anyone


class Exchange:
    """Request, and its response once it is there.

    Attributes: connection; api, version; correlation_id; client_id (None: null); request_size, response_size (lengths
    of the frames without their size field; 0 as long as there is no response); came (when the request's header was
    read, monotonic seconds); acks (of a Produce request, else None); identity (of this
    exchange and of its trials, while it lives); entities (what the request is about; a Fetch in a
    session: all that the session is about).
    """

    __slots__ = (
        "_entities", "_request", "_response", "acks", "api", "came", "client_id", "connection",
        "correlation_id", "find", "identity", "read_request", "read_response", "request_size", "response_size",
        "version",
    )  # fmt: skip

    def __init__(
        self, connection: ConnectionView, api: Api, version: int, correlation_id: int, client_id: str | None,
        request_size: int, came: float,
    ) -> None:  # fmt: skip
        self.connection, self.api, self.version = connection, api, version
        self.correlation_id, self.client_id = correlation_id, client_id
        self.request_size, self.response_size, self.came = request_size, 0, came
        self.identity = id(self)
        self.acks: int | None = None
        self.read_request: Callable[[], Message] | None = None
        self.read_response: Callable[[], Message] | None = None
        self._request: Message | None = None
        self._response: Message | None = None
        self.find: Callable[[], tuple[Entity, ...]] | None = None
        self._entities: tuple[Entity, ...] | None = None

    @property
    def principal(self) -> str | None:
        """Return the name that the broker has authenticated, None before that."""
        return self.connection.principal

    @property
    def is_anyone(self) -> bool:
        """Return True if the client has logged in, and may be any of those whom the broker knows."""
        return self.connection.is_anyone

    @property
    def client_software(self) -> str | None:
        """Return `name/version` of the client's library, None when it has not said."""
        return self.connection.software

    @property
    def request(self) -> Message:
        """Return the request, decoded; change its body only together with an `Edit`. Raises DecodeError."""
        if self._request is None:
            assert self.read_request is not None, "a rule that acts on headers reads no body"
            self._request = self.read_request()
        return self._request

    @property
    def response(self) -> Message:
        """Return the response, decoded; change its body only together with an `Edit`. Raises DecodeError."""
        if self._response is None:
            assert self.read_response is not None, "there is no response yet"
            self._response = self.read_response()
        return self._response

    def trial(self) -> Exchange:
        """Return an exchange for a dry run, with messages of its own, which an effect may change."""
        one = copy(self)
        one._request = one._response = None
        one.read_request = lambda: self.request.copy()  # noqa: PLW0108  # it is decoded only when it is asked for
        one.read_response = lambda: self.response.copy()  # noqa: PLW0108
        return one

    def lists_others(self, visible: Callable[[Entity], bool]) -> bool:
        """Return True if the response lists an entity that is not `visible` and was not asked for by name."""
        raise NotImplementedError

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities that the request is about, in its order. Raises DecodeError."""
        if self._entities is None:
            assert self.find is not None, "a rule that acts on headers has no entities"
            self._entities = self.find()
        return self._entities
