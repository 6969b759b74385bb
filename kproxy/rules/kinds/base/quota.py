"""Quotas: keys of limits (`per`), overrides, and the effect that charges buckets.

A frame is charged by the length in its header. If its bytes do not arrive, the request lane returns their charge. If a
rule selects topics, or topics have own buckets, a topic is charged with its part of the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, PrivateAttr

from kproxy.protocol.codec.message import Message
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import (
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    FETCH,
    LEADER_AND_ISR,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kproxy.rules.bodies import record_shares
from kproxy.rules.bucket import SHORTEST, Bucket, Buckets, FetchBucket, QuotaTurn, SharedBucket, SharedFetchBucket
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Await, Close, ConnectionView, Decision, Delay, Edit, Exchange, Throttle
from kproxy.rules.kinds.base.rule import Effect
from kproxy.rules.select.match import Networks, Texts, text_test
from kproxy.rules.select.selected import ApiNames, api_keys
from kproxy.rules.values.address import address_test, network_of
from kproxy.rules.values.model import Model, Wrong, unknown
from kproxy.rules.values.quantities import ByteRate, CountRate, Ranges, Unlimited

if TYPE_CHECKING:
    from kproxy.rules.kinds.quota import Quota

QuotaWord = Literal[
    "client_id", "principal", "client_address", "client_network", "topic", "api", "node", "listener", "connection"
]  # fmt: skip
"""Word of `per`. `client_network`: an IPv4 address, or the /64 of an IPv6 address."""
LimitedResource = Literal["produce", "fetch", "requests", "connections"]
RESOURCES: tuple[LimitedResource, ...] = ("produce", "fetch", "requests", "connections")
AT_CONNECT: frozenset[QuotaWord] = frozenset(("client_address", "client_network", "node", "listener"))
"""Words of `per` that are known when a connection is made."""

LONGEST_TEXT = 255
"""Characters of a client id or topic in a key: clients choose them, and 10,000 limits are kept."""

Value = str | int | None
QuotaKey = tuple[Value, ...]


class Override(Model):
    """Limits that replace the rule's own limits if all selectors match."""

    client_id: Texts | None = Field(default=None, description="the client id in the request's header")
    principal: Texts | None = Field(default=None, description="principal that the broker or kproxy has authenticated")
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
        """Return True if all selectors match these values. A missing value does not match."""
        return all(
            (value := values.get(name)) is not None and any(test(value) for test in tests)  # type: ignore[call-overload]
            for name, tests in self._tests.items()
        )


SELECTORS = tuple(name for name in Override.model_fields if name not in RESOURCES)


def selectors(raw: Mapping[Any, Any]) -> list[str]:
    """Return the selectors that an override has as it is written."""
    return [name for name in SELECTORS if raw.get(name) is not None]


def key_of(words: Iterable[QuotaWord], exchange: Exchange, entity: Entity | None) -> QuotaKey:
    """Return the values that identify the bucket of this exchange, or of its part for this entity."""
    return tuple(short(_value(word, exchange, entity)) for word in words)


def short(value: Value) -> Value:
    """Return a value as it is kept: of text longer than names are, its beginning and a digest of all of it."""
    if not isinstance(value, str) or len(value) <= LONGEST_TEXT:
        return value
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:LONGEST_TEXT]}…{digest}"


def connection_key(words: Iterable[QuotaWord], connection: ConnectionView) -> QuotaKey:
    """Return the key of a connection that is being opened. Only `AT_CONNECT` is known."""
    return tuple(_of_connection(word, connection) for word in words)


def _value(word: QuotaWord, exchange: Exchange, entity: Entity | None) -> Value:
    if word == "client_id":
        return exchange.client_id or ""  # Kafka treats null and empty as the same client
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


FETCHES = frozenset((FETCH, SHARE_FETCH))
EXEMPT = frozenset((
    LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE,
))  # fmt: skip
"""Requests that are not counted: requests between brokers, as in Kafka, and the last three, which Kafka handles before
it knows the client's quota."""
Charge = tuple[QuotaKey, float]


class ChargeTerms(NamedTuple):
    """Terms for requests that begin alike: the key of their buckets, and whether `requests` and `produce` apply."""

    key: QuotaKey
    counts: bool
    weighs: bool


class QuotaEffect(Effect):
    """Effect of a quota: buckets by resource and key."""

    def __init__(self, rule: Quota) -> None:
        self.rule, self.per = rule, tuple(rule.per)
        self.at_connect: tuple[QuotaWord, ...] = tuple(word for word in rule.per if word in AT_CONNECT)
        self.by_topic, self.longest = rule.by_topic, rule.max_throttle
        self.produce, self.fetch = self.buckets("produce"), self.buckets("fetch")
        self.requests, self.connections = self.buckets("requests"), self.buckets("connections")

    def buckets(self, resource: LimitedResource) -> Buckets[QuotaKey] | None:
        """Return the buckets of a resource; None: unlimited."""
        if not self.rule.limits(resource):
            return None
        words = self.at_connect if resource == "connections" else self.per

        def make(key: QuotaKey, now: float) -> Bucket | None:
            rate = self.rate(resource, words, key)
            if rate is None:
                return None
            counted = resource in ("requests", "connections")  # one of these must always be possible
            size = max(rate * self.rule.burst, 1.0 if counted else 0.0)
            if self.common is None or "connection" in words:  # a connection is in one process
                return (FetchBucket if resource == "fetch" else Bucket)(rate, size, now)
            cells = self.common.cells(f"{resource} {key!r}")
            return (SharedFetchBucket if resource == "fetch" else SharedBucket)(rate, size, now, cells)

        return Buckets(make)

    def rate(self, resource: LimitedResource, words: Sequence[QuotaWord], key: QuotaKey) -> float | None:
        """Return the limit for this key: that of the first override for it with this resource, or the rule's."""
        values = dict(zip(words, key, strict=True))
        for override in self.rule.overrides:
            rate: float | str | None = getattr(override, resource)
            if rate is not None and override.holds(values):
                return None if isinstance(rate, str) else rate
        own: float | None = getattr(self.rule, resource)
        return own

    # ---- connections

    def on_connect(self, connection: ConnectionView, now: float) -> Sequence[Decision]:
        """Delay a connection until its turn. If its turn would come after `max_throttle`, close and do not count it, so
        that at most rate × max_throttle connections wait."""
        if self.connections is None:
            return ()
        bucket = self.connections.of(connection_key(self.at_connect, connection), now)
        if bucket is None:
            return ()
        if bucket.ahead(1, now) > self.longest:
            return (Close(),)
        wait = bucket.charge(1, now)
        return (Delay(wait),) if wait >= SHORTEST else ()

    # ---- exchanges

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Sequence[Decision]:
        """Charge a request as one, and Produce also by its length. A Fetch asks for no more than its bucket allows, and
        waits while that bucket owes. While a limit owes, the request waits for its turn."""
        charges, edited = self.charges(exchange, entities, now)
        turn = QuotaTurn(tuple(charges.items()))
        before = () if turn.pay(now) else (Await(),)
        exchange.connection.turns.append(turn)
        return (*((Edit(),) if edited else ()), *before, *self.throttle(turn.expected()))

    def charges(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> tuple[dict[Bucket, float], bool]:
        """Return the charges of a request by bucket, and True if `max_bytes` of a Fetch was lowered."""
        key, edited = exchange.api.key, False
        charges: dict[Bucket, float] = {}
        if self.requests is not None and key not in EXEMPT:
            add(charges, self.requests, self.counted(exchange, entities), now)
        if self.produce is not None and key == PRODUCE:
            add(charges, self.produce, self.measured(exchange, entities, exchange.request_size, "request"), now)
        if self.fetch is not None and key in FETCHES:
            add(charges, self.fetch, [(one, 0.0) for one, _ in self.counted(exchange, entities)], now)
            if has_max_bytes(key, exchange.version):
                edited = self.clamp(self.fetch, exchange, entities, now)
        return charges, edited

    def would_act(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> bool:
        """Charge a request at once. It never waits, so its bucket has the debt of all requests that would wait now."""
        if exchange.response_size:
            return super().would_act(exchange, entities, now)
        charges, edited = self.charges(exchange.trial(), entities, now)
        debt = max((bucket.charge(amount, now) for bucket, amount in charges.items()), default=0.0)
        return edited or debt >= SHORTEST

    def terms(self, exchange: Exchange) -> ChargeTerms | None:
        """Return the terms of all requests that begin alike; None if their bodies or responses decide the charge."""
        key = exchange.api.key
        if self.by_topic or (self.fetch is not None and key in FETCHES):
            return None
        counts, weighs = self.requests is not None and key not in EXEMPT, self.produce is not None and key == PRODUCE
        return ChargeTerms(key_of(self.per, exchange, None), counts, weighs)

    def passes(self, terms: ChargeTerms, size: int, now: float) -> bool:
        """Charge a request that leaves no debt and finds no waiting turns, as `on_request` does."""
        key, counts, weighs = terms
        one = self.requests.of(key, now) if counts and self.requests is not None else None
        if one is not None and (one.line or not one.covers(1.0, now, SHORTEST)):
            return False
        sent = self.produce.of(key, now) if weighs and self.produce is not None else None
        if sent is not None and (sent.line or not sent.covers(size, now, SHORTEST)):
            if one is not None:
                one.give_back(1.0, now)
            return False
        return True

    def turn(self, terms: ChargeTerms, size: int, now: float) -> QuotaTurn:
        """Return the turn of a request that has passed by `passes`."""
        key, counts, weighs = terms
        charges: dict[Bucket, float] = {}
        for buckets, amount in ((self.requests, float(counts)), (self.produce, float(size * weighs))):
            if buckets is not None and amount:
                add(charges, buckets, ((key, amount),), now)
        turn = QuotaTurn(tuple(charges.items()))
        turn.paid = len(turn.charges)
        return turn

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Sequence[Decision]:
        """Charge the fetched bytes, now that their number is known; the response is not held."""
        if self.fetch is None or exchange.api.key not in FETCHES:
            return ()
        if has_max_bytes(exchange.api.key, exchange.version):
            self.end_fetch(self.fetch, exchange, entities, now)
        charges: dict[Bucket, float] = {}
        add(charges, self.fetch, self.measured(exchange, entities, exchange.response_size, "response"), now)
        return self.throttle(max((bucket.charge(amount, now) for bucket, amount in charges.items()), default=0.0))

    def throttle(self, debt: float) -> tuple[Decision, ...]:
        """Mute the channel for all of the debt (seconds). `max_throttle` limits only what is reported to the client."""
        return (Throttle(min(debt, self.longest), debt),) if debt >= SHORTEST else ()

    def counted(self, exchange: Exchange, entities: Sequence[Entity]) -> Sequence[Charge]:
        """Return a charge of one request, per topic if topics have own buckets."""
        if not self.by_topic:
            return ((key_of(self.per, exchange, None), 1.0),)
        keys = dict.fromkeys(key_of(self.per, exchange, entity) for entity in self.about(exchange, entities))
        return [(key, 1.0) for key in keys]

    def measured(self, exchange: Exchange, entities: Sequence[Entity], size: int, direction: str) -> Sequence[Charge]:
        """Return a charge of the frame's length, or of the parts that its topics have in it."""
        if not self.by_topic:
            return ((key_of(self.per, exchange, None), float(size)),)
        message: Message = exchange.request if direction == "request" else exchange.response
        return [
            (key_of(self.per, exchange, entity), size * share)
            for entity, share in record_shares(message, self.about(exchange, entities))
        ]

    def about(self, exchange: Exchange, entities: Sequence[Entity]) -> Sequence[Entity]:
        """Return the entities that matched; all, where no selector is about them."""
        return [entity for entity in entities or exchange.entities if entity.topic or entity.topic_id]

    def clamp(self, buckets: Buckets[QuotaKey], exchange: Exchange, entities: Sequence[Entity], now: float) -> bool:
        """Lower `max_bytes` to the bytes in the bucket that are not reserved, at most a burst; return True if changed.

        So neither one response nor many at once make a debt of many seconds. Brokers do the same with their own quotas.
        `min_bytes` is lowered as well: above `max_bytes` it would make the broker wait for more than it may send.
        """
        keys = (key for key, _ in self.counted(exchange, entities))
        fetch_buckets = [bucket for key in keys if isinstance(bucket := buckets.of(key, now), FetchBucket)]
        if not fetch_buckets:
            return False
        body, memory = exchange.request.body, exchange.connection.memory
        # A negative max_bytes must not become a negative reservation, which would allow other Fetches more.
        most = min(max(body["max_bytes"], 0), *(bucket.allowed(now) for bucket in fetch_buckets))
        # After an empty response the reservation is small. While a Fetch is unanswered, the next one on the
        # same connection reserves all that it may bring: clients can pipeline any number of them.
        expected: float = min(most, 2 * memory.get(self, most))
        memory[self] = float(most)
        for bucket in fetch_buckets:
            bucket.promise(exchange.identity, expected, now)
        if body["max_bytes"] <= most:
            return False
        body["max_bytes"] = most
        body["min_bytes"] = min(body["min_bytes"], most)
        return True

    def end_fetch(self, buckets: Buckets[QuotaKey], exchange: Exchange, entities: Sequence[Entity], now: float) -> None:
        """End the reservation of a Fetch, and note the size of its response."""
        exchange.connection.memory[self] = exchange.response_size
        for key, _ in self.counted(exchange, entities):
            if isinstance(bucket := buckets.of(key, now), FetchBucket):
                bucket.end_fetch(exchange.identity, now)


def add(charges: dict[Bucket, float], buckets: Buckets[QuotaKey], amounts: Iterable[Charge], now: float) -> None:
    """Add the amounts to the charges of their buckets. A frame may have several for one bucket, such as partitions."""
    for key, amount in amounts:
        bucket = buckets.of(key, now)
        if bucket is not None:
            charges[bucket] = charges.get(bucket, 0.0) + amount


@cache
def has_max_bytes(key: int, version: int) -> bool:
    """Return True if requests of this version have `max_bytes`."""
    if version not in schema.load(key).versions:
        return False
    return any(slot.name == "max_bytes" for slot in layout.body(key, version, "request").slots)
