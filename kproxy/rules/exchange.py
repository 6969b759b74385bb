"""Exchanges as live rules see them, and the decisions that rules return about frames and connections.

An exchange is one request with its response, connection and cluster, with the client's names. Messages are decoded on
first access. `session` creates exchanges only for requests that a rule matches, and turns decisions into bytes and
commands.

For an entity, the first of Fail, Answer, Drop and Close wins. Delays add. If several throttles apply, the longest wins.
Changes of bodies and frames apply in file order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NewType, Protocol
from uuid import UUID

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table.schema import Api
from kproxy.rules.entity import Entity

if TYPE_CHECKING:
    from kproxy.rules.bucket import QuotaTurn
    from kproxy.rules.content.edits import MessageEdits
    from kproxy.rules.filter.record_fields import Decoder

How = Literal["fin", "rst", "half"]
"""fin: close after queued bytes are written. rst: reset at once. half: kproxy sends nothing more to the client, but
still reads from it."""
AfterDrop = Literal["stall", "close", "continue"]
"""Fate of a connection after a dropped frame: no more bytes are sent, it is closed, or it continues."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Decision to encode the body of `exchange.request` (or `.response`, when given for a response), which was changed
    in place. `counted`: False for a preparation of the request, which does not count as an action of the rule."""

    counted: bool = True


@dataclass(frozen=True, slots=True)
class Fail:
    """Decision to answer with this error code. On a request: in the broker's place; on a response: after its work.

    `entities` None: those that matched. `whole`: at the response's top level, for the whole request. `records`: index
    in the batch and reason for each record that caused the error, in versions with a field for them.
    """

    code: int
    message: str | None = None
    entities: tuple[Entity, ...] | None = None
    whole: bool = False
    records: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Decision to leave out of the response what the request did not name, unless it is `visible`. Needs depth BODY."""

    visible: Callable[[Entity], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """Decision to answer the request with this body; the broker never sees it. Only for requests."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delay:
    """Decision to let the frame, and with it all that follows on its connection, go on this many seconds after it
    came."""

    seconds: float


HeldError = NewType("HeldError", int)
"""Error code that a held frame is answered with when its time is over."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Decision to hold the frame until it is resumed, for at most `seconds`. Needs depth BODY.

    then: after that time, the frame passes, its connection is closed, or this error is the response. most:
    frames that the rule holds at a time in one process; further frames pass and are counted.
    """

    seconds: float
    then: Literal["pass", "close"] | HeldError = "pass"
    most: int = 20


@dataclass(frozen=True, slots=True)
class Drop:
    """Decision to let the frame go nowhere."""

    then: AfterDrop = "stall"


@dataclass(frozen=True, slots=True)
class Close:
    """Decision to close the connection in this frame's place."""

    how: How = "fin"


@dataclass(frozen=True, slots=True)
class Await:
    """Decision to hold the request, and all that follow on its connection, until its `ConnectionView.turns` are paid.
    Only for requests."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Decision to throttle the client as in KIP-219.

    throttle_time: seconds in `throttle_time_ms` of this exchange's response. mute: seconds without reads of the
    client's channel after the response. A request without a response mutes at once.
    """

    throttle_time: float = 0.0
    mute: float = 0.0


@dataclass(frozen=True, slots=True)
class Reframe:
    """Decision to replace the frame: `change` receives all its bytes, including the size field, and returns the
    replacement. Needs depth BODY.

    then: how the connection is closed afterwards; None: it stays open.
    """

    change: Callable[[bytes], bytes]
    then: How | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Decision to send the response `times` times more. Needs depth BODY."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Swap:
    """Decision to send the response after the next one, if one is due. Needs depth BODY."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """Decision to take all that comes on this connection and send it nowhere. For `on_connect` and requests."""


Decision = (
    Edit | Fail | LeaveOut | Answer | Delay | Await | Hold | Drop | Close | Throttle | Reframe | Repeat | Swap | Swallow
)


class FrameDepth(IntEnum):
    """Parts of a frame that a rule reads. NOTHING: the rule does not act. HEADER: api, version, client id and length;
    the frame streams. BODY: the complete frame is buffered, within the budget of buffered frames."""

    NOTHING, HEADER, BODY = range(3)


ShapedDirection = Literal["to_client", "to_broker"]


@dataclass(frozen=True, slots=True)
class TrafficShape:
    """Limits on the bytes of a connection, in the directions `ways`.

    rate: bytes per second, None: unlimited. piece: bytes per write, with `pause` seconds between writes. max_bytes:
    bytes in both directions until the connection is closed, as in `close_with`. age: seconds until it is closed.
    """

    ways: frozenset[ShapedDirection] = frozenset(("to_client", "to_broker"))
    rate: float | None = None
    piece: int | None = None
    pause: float = 0.0
    max_bytes: int | None = None
    age: float | None = None
    close_with: Literal["fin", "rst"] = "fin"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one connection; None if unknown. client_address: IP without port. sni: server name of TLS.
    certificate: subject (`subject_name`) or the name by the listener's principal rules. node: broker that the client
    connects to, None for a bootstrap connection."""

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
    """Return `CN=etl,OU=data,O=Example` like Kafka's principals (RFC 4514: most specific first) from
    `ssl.SSLObject.getpeercert()`. None without a certificate."""
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
        """Return ids of the brokers in responses to this connection, ascending."""
        ...


class IdentityView(Protocol):
    """Identity of a client, as far as known."""

    @property
    def principal(self) -> str | None: ...
    @property
    def software(self) -> str | None: ...
    @property
    def is_anyone(self) -> bool: ...


@dataclass(slots=True)
class ContentLimits:
    """Limits of rules about record content (`limits.content`), changed in place at a reload. `max_decompressed_bytes`:
    of one frame. `max_fetch_bytes`: `max_bytes` of Fetch requests."""

    max_decompressed_bytes: int = 64 << 20
    max_fetch_bytes: int = 8 << 20


class ConnectionView:
    """Client connection as rules see it.

    `memory` is for effects: it lives as long as the connection does. Effects that charge the request at hand add their
    turn to `turns`. `unix_time` converts monotonic seconds to Unix time in seconds. `decoder` reads keys and values
    with schemas, for record conditions. `trace_sample`: fraction of new traces that are sampled.
    """

    __slots__ = (
        "cluster", "content", "decoder", "facts", "identity", "memory", "number", "trace_sample", "turns", "unix_time",
    )  # fmt: skip

    def __init__(self, facts: Facts, number: int, cluster: ClusterView, identity: IdentityView | None = None) -> None:
        self.facts, self.number, self.cluster, self.identity = facts, number, cluster, identity
        self.memory: dict[Any, Any] = {}
        self.turns: list[QuotaTurn] = []
        self.unix_time: Callable[[float], float] = float
        self.trace_sample = 1.0
        self.content = ContentLimits()
        self.decoder: Decoder | None = None

    @property
    def principal(self) -> str | None:
        """Return the name that the broker authenticated, or the subject of the client's certificate. None: unknown."""
        return self.facts.certificate if self.identity is None else self.identity.principal

    @property
    def software(self) -> str | None:
        """Return `name/version` of the client's library, or None."""
        return None if self.identity is None else self.identity.software

    @property
    def is_anyone(self) -> bool:
        """Return True if the client has authenticated with an unknown principal."""
        return self.identity is not None and self.identity.is_anyone


class Exchange:
    """Request with its response.

    api, version, correlation_id. client_id: None for null. request_size, response_size: frame lengths without the size
    field; 0 until the response arrives. came: monotonic seconds when the request's header was read. acks: of a Produce
    request, or None. identity: shared by the exchange and its trials. entities: of the request, or of the fetch session
    that it belongs to. edits: changes of records; `request` and `response` write them before they return the message.
    max_bytes: of the client's Fetch request, if a rule may lower it.
    """

    __slots__ = (
        "_entities", "_request", "_response", "acks", "api", "came", "client_id", "connection",
        "correlation_id", "edits", "find", "identity", "max_bytes", "read_request", "read_response", "request_size",
        "response_size", "version",
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
        self.edits: MessageEdits | None = None
        self.max_bytes: int | None = None

    @property
    def principal(self) -> str | None:
        """Return the name that the broker has authenticated, None before that."""
        return self.connection.principal

    @property
    def is_anyone(self) -> bool:
        return self.connection.is_anyone

    @property
    def client_software(self) -> str | None:
        return self.connection.software

    @property
    def request(self) -> Message:
        """Return the request, decoded; change its body only together with an `Edit`. Raises DecodeError."""
        if self.edits is not None:
            self.edits.flush()
        if self._request is None:
            assert self.read_request is not None, "a rule that acts on headers reads no body"
            self._request = self.read_request()
        return self._request

    @property
    def response(self) -> Message:
        """Return the response, decoded; change its body only together with an `Edit`. Raises DecodeError."""
        if self.edits is not None:
            self.edits.flush()
        if self._response is None:
            assert self.read_response is not None, "the response has not arrived"
            self._response = self.read_response()
        return self._response

    def pending_edits(self, direction: Literal["request", "response"]) -> MessageEdits | None:
        """Return the changes of this message's records that are not written yet; None: no rule has read its records."""
        message = self._request if direction == "request" else self._response
        return self.edits if self.edits is not None and self.edits.message is message else None

    def trial(self) -> Exchange:
        """Return an exchange for a dry run, with messages of its own, which an effect may change."""
        one = copy(self)
        one._request = one._response = one.edits = None
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
