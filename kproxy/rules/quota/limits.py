"""Limits of quotas: what one is counted for (`per`), and the limits that hold there (`overrides`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange
from kproxy.rules.select.match import Networks, Texts, address_test, text_test
from kproxy.rules.select.selected import ApiNames, api_keys
from kproxy.rules.values.address import network_of
from kproxy.rules.values.model import Model, Wrong, unknown
from kproxy.rules.values.quantities import ByteRate, CountRate, Ranges, Unlimited

QuotaWord = Literal[
    "client_id", "principal", "client_address", "client_network", "topic", "api", "node", "listener", "connection"
]  # fmt: skip
"""Word of `per`. `client_network`: an IPv4 address, or the /64 of an IPv6 address."""
LimitedResource = Literal["produce", "fetch", "requests", "connections"]
RESOURCES: tuple[LimitedResource, ...] = ("produce", "fetch", "requests", "connections")
AT_CONNECT: frozenset[QuotaWord] = frozenset(("client_address", "client_network", "node", "listener"))
"""Words of `per` that are known when a connection is made."""

LONGEST_TEXT = 255
"""Characters of a client id or topic by which a limit is kept: clients choose them, and 10,000 limits are kept."""

Value = str | int | None
QuotaKey = tuple[Value, ...]


class Override(Model):
    """Other limits for some: selectors, of which all must hold, and limits, which take the place of the rule's own."""

    client_id: Texts | None = Field(default=None, description="the client id in the request's header")
    principal: Texts | None = Field(default=None, description="whom the broker has authenticated")
    client_address: Networks | None = Field(default=None, description="the client's IP address, or networks")
    topic: Texts | None = Field(default=None, description="topic")
    api: ApiNames | None = Field(default=None, description="API by name, glob or number")
    node: Ranges | None = Field(default=None, description="id of the broker that the connection is for")
    listener: Texts | None = Field(default=None, description="name of the listener that the client connected to")
    produce: ByteRate | Unlimited | None = Field(default=None, description="bytes of Produce requests")
    fetch: ByteRate | Unlimited | None = Field(default=None, description="bytes of Fetch and ShareFetch responses")
    requests: CountRate | Unlimited | None = Field(default=None, description="requests of all APIs")
    connections: CountRate | Unlimited | None = Field(default=None, description="connections being opened")

    _tests: dict[str, list[Callable[[Any], bool]]] = PrivateAttr(default_factory=dict)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield a mistake for an override without a selector, and for one without a limit."""
        if not selectors(raw):
            yield (), f"an override selects whom it is for, by one of {', '.join(SELECTORS)}"
        if not any(raw.get(one) is not None for one in RESOURCES):
            yield (), f"an override has another limit than the rule, one of {', '.join(RESOURCES)}"

    @classmethod
    def unknown_key(cls, name: object) -> str:
        """Return the message for a key that an override does not have."""
        if name == "connection":
            return '"connection" cannot be selected, connections have no names'
        if name == "client_network":
            return '"client_network" cannot be selected: write client_address, here and in "per"'
        return unknown("key", name, cls.keys())

    def model_post_init(self, context: Any, /) -> None:
        for name in ("client_id", "principal", "topic", "listener"):
            if (texts := getattr(self, name)) is not None:
                self._tests[name] = [text_test(text) for text in texts]
        if self.client_address is not None:
            self._tests["client_address"] = [address_test(self.client_address)]
        if self.api is not None:
            self._tests["api"] = [api_keys(self.api).__contains__]
        if self.node is not None:
            self._tests["node"] = [one.__contains__ for one in self.node]

    def holds(self, values: Mapping[QuotaWord, Value]) -> bool:
        """Return True if it is for what these values stand for; what is not among them does not match."""
        return all(
            (value := values.get(name)) is not None and any(test(value) for test in tests)  # type: ignore[call-overload]
            for name, tests in self._tests.items()
        )


SELECTORS = tuple(name for name in Override.model_fields if name not in RESOURCES)


def selectors(raw: Mapping[Any, Any]) -> list[str]:
    """Return the selectors that an override has as it is written."""
    return [name for name in SELECTORS if raw.get(name) is not None]


def key_of(words: Iterable[QuotaWord], exchange: Exchange, entity: Entity | None) -> QuotaKey:
    """Return the values that tell this exchange, or the part of it that is about this entity, from others."""
    return tuple(short(_value(word, exchange, entity)) for word in words)


def short(value: Value) -> Value:
    """Return a value as it is kept: of text longer than names are, its beginning and a digest of all of it."""
    if not isinstance(value, str) or len(value) <= LONGEST_TEXT:
        return value
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:LONGEST_TEXT]}…{digest}"


def connection_key(words: Iterable[QuotaWord], connection: ConnectionView) -> QuotaKey:
    """Return the key of a connection that is being made, of which only `AT_CONNECT` is known."""
    return tuple(_of_connection(word, connection) for word in words)


def _value(word: QuotaWord, exchange: Exchange, entity: Entity | None) -> Value:
    if word == "client_id":
        return exchange.client_id or ""  # null and empty are the same client for Kafka, too
    if word == "principal":
        return exchange.principal
    if word == "api":
        return exchange.api.key
    if word == "topic":
        return None if entity is None else entity.topic or str(entity.topic_id)
    return _of_connection(word, exchange.connection)


def _of_connection(word: QuotaWord, connection: ConnectionView) -> Value:
    facts = connection.facts
    if word == "client_address":
        return facts.client_address
    if word == "client_network":
        return network_of(facts.client_address)
    if word == "node":
        return facts.node
    return facts.listener if word == "listener" else connection.number
