"""A quota at work: what is charged to which bucket, and what comes of it.

The charge is the frame's length as its header says it. Where only some of a frame's topics are meant, or each has a
bucket of its own, a topic is charged with its part of the frame: that of its records among all record bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import inf
from typing import Any, NamedTuple, Protocol

from kproxy.rules.bodies import record_shares
from kproxy.rules.decision import Close, Decision, Delay, Edit, Throttle
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange
from kproxy.rules.kinds.base.live import Effect
from kproxy.wire.codec.message import Message
from kproxy.wire.table import layout, schema
from kproxy.wire.table.api_keys import (
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

from .bucket import LONGEST_DEBT, Bucket, Buckets, FetchBucket, SharedBucket, SharedFetchBucket
from .limits import AT_CONNECT, LimitedResource, Override, QuotaKey, QuotaWord, connection_key, key_of

FETCHES = frozenset((FETCH, SHARE_FETCH))
EXEMPT = frozenset((
    LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE,
))  # fmt: skip
"""Not counted as requests: what brokers say to each other to keep the cluster up, as in Kafka; and the last three,
which Kafka answers before it knows whose quota they would be."""
LATE = "late"
"""In the memory of a connection, by quota: its requests wait before they go on."""
TOLD = "told"
"""In the memory of a connection, by quota: until when it is not read, once it has been told."""
SHORTEST = 0.001
"""Seconds; the unit of throttle_time_ms. A smaller debt is left to the next frame."""

Charge = tuple[QuotaKey, float]


class ChargeTerms(NamedTuple):
    """Terms on which requests that begin alike are charged: the key of their buckets, the memory of their connection,
    and whether they are charged as a request, and by their length."""

    key: QuotaKey
    memory: dict[Any, Any]
    counts: bool
    weighs: bool


class QuotaTerms(Protocol):
    """Terms of a quota, as its rule has them."""

    @property
    def per(self) -> Sequence[QuotaWord]: ...
    @property
    def by_topic(self) -> bool: ...
    @property
    def burst(self) -> float: ...
    @property
    def max_throttle(self) -> float: ...
    @property
    def overrides(self) -> Sequence[Override]: ...

    def limits(self, resource: LimitedResource) -> bool:
        """Return True if there is a limit of this resource, for all or for some."""


class QuotaEffect(Effect):
    """Effect of a quota: buckets by resource and key."""

    def __init__(self, rule: QuotaTerms) -> None:
        self.rule, self.per = rule, tuple(rule.per)
        self.at_connect: tuple[QuotaWord, ...] = tuple(word for word in rule.per if word in AT_CONNECT)
        self.by_topic, self.longest = rule.by_topic, rule.max_throttle
        self.produce, self.fetch = self.buckets("produce"), self.buckets("fetch")
        self.requests, self.connections = self.buckets("requests"), self.buckets("connections")
        self.late, self.told = (LATE, self), (TOLD, self)

    def buckets(self, resource: LimitedResource) -> Buckets[QuotaKey] | None:
        """Return the buckets of a resource; None: it is limited for nobody."""
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
        """Let the connection wait for its turn; one whose turn would come after `max_throttle` is closed and not
        counted, so that no more than rate × max_throttle wait."""
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
        """Charge a request as one, Produce by its length, too; a Fetch is let ask for no more than there may be."""
        key, edited = exchange.api.key, False
        charged: list[tuple[Buckets[QuotaKey], Sequence[Charge]]] = []
        if self.requests is not None and key not in EXEMPT:
            charged.append((self.requests, self.counted(exchange, entities)))
        if self.produce is not None and key == PRODUCE:
            charged.append((self.produce, self.measured(exchange, entities, exchange.request_size, "request")))
        if self.fetch is not None and key in FETCHES:
            charged.append((self.fetch, [(one, 0.0) for one, _ in self.counted(exchange, entities)]))
        first = self.turn(exchange.connection, charged, now)
        if first == inf:
            return (Close(),)
        wait = max((charge(buckets, charges, now) for buckets, charges in charged[: self.of_requests(key)]), default=0)
        if self.fetch is not None and key in FETCHES and has_max_bytes(key, exchange.version):
            edited = self.clamp(self.fetch, exchange, entities, now)
        if wait >= SHORTEST:
            exchange.connection.memory[self.told] = now + min(wait, self.longest)
        throttle = (*((Delay(first),) if first else ()), *self.throttle(wait - first))
        return (Edit(), *throttle) if edited else throttle

    def terms(self, exchange: Exchange) -> ChargeTerms | None:
        """Return what all requests that begin so are charged by, unless more of them has to be seen for that."""
        key = exchange.api.key
        if self.by_topic or (self.fetch is not None and key in FETCHES):
            return None
        counts, weighs = self.requests is not None and key not in EXEMPT, self.produce is not None and key == PRODUCE
        return ChargeTerms(key_of(self.per, exchange, None), exchange.connection.memory, counts, weighs)

    def passes(self, terms: ChargeTerms, size: int, now: float) -> bool:
        """Charge a request that leaves no debt, on a connection that owes nothing, as `on_request` does."""
        key, memory, counts, weighs = terms
        if memory.get(self.late) is not False or now < memory.get(self.told, 0.0):
            return False
        one = self.requests.of(key, now) if counts and self.requests is not None else None
        if one is not None and not one.covers(1.0, now, SHORTEST):
            return False
        sent = self.produce.of(key, now) if weighs and self.produce is not None else None
        if sent is not None and not sent.covers(size, now, SHORTEST):
            if one is not None:
                one.give_back(1.0, now)
            return False
        return True

    def of_requests(self, key: int) -> int:
        """Return how many of the limits that a request of this API meets are charged by the request."""
        requests = self.requests is not None and key not in EXEMPT
        return requests + (self.produce is not None and key == PRODUCE)

    def turn(
        self, connection: ConnectionView, charged: Sequence[tuple[Buckets[QuotaKey], Sequence[Charge]]], now: float
    ) -> float:
        """Return the seconds that a request waits before it goes on: until the debt is paid that others have left, if
        its connection began with such a debt. Else who reconnects for each request would never wait. Infinite: it is
        not served now, for its connection has just begun, and the debt is longer than `max_throttle`.

        One that has come behind another that has to wait waits for the debt beyond `max_throttle`, too, for which
        nobody is muted: else who sends a thousand at once would be served a thousand each time. If the debt is longer
        than any that is kept, it is not served either."""
        late = connection.memory.get(self.late)
        behind = now < connection.memory.get(self.told, 0.0)
        if (late is False and not behind) or not charged:
            return 0.0
        debt = max(charge(buckets, [(key, 0.0) for key, _ in charges], now) for buckets, charges in charged)
        if behind and debt > LONGEST_DEBT - 1.0:
            return inf
        if late is False:
            return max(debt - self.longest, 0.0)
        if debt < SHORTEST:
            debt = 0.0
        connection.memory[self.late] = debt > 0
        if late is None:
            return debt if debt <= self.longest else inf
        return debt if behind else min(debt, self.longest)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Sequence[Decision]:
        """Charge fetched bytes when their number is known; the data goes on at once."""
        if self.fetch is None or exchange.api.key not in FETCHES:
            return ()
        if has_max_bytes(exchange.api.key, exchange.version):
            self.settle(self.fetch, exchange, entities, now)
        charges = self.measured(exchange, entities, exchange.response_size, "response")
        return self.throttle(charge(self.fetch, charges, now))

    def throttle(self, wait: float) -> tuple[Decision, ...]:
        return (Throttle(min(wait, self.longest)),) if wait >= SHORTEST else ()

    def counted(self, exchange: Exchange, entities: Sequence[Entity]) -> Sequence[Charge]:
        """Return a charge of one request, for each of its topics where these are told apart."""
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
        """Lower `max_bytes` to what is in the bucket and not promised to others, at most a burst.

        So no response makes a debt of many seconds, and many that come at once do not either. Brokers do the like with
        their own quotas. `min_bytes` above it would make the broker wait for more than it may send.
        """
        keys = (key for key, _ in self.counted(exchange, entities))
        fetch_buckets = [bucket for key in keys if isinstance(bucket := buckets.of(key, now), FetchBucket)]
        if not fetch_buckets:
            return False
        body, connection = exchange.request.body, exchange.connection
        most = min(body["max_bytes"], *(bucket.allowed(connection.number, now) for bucket in fetch_buckets))
        brought: float = connection.memory.get(self, most)  # by the fetch before; one that brings nothing holds nothing
        for bucket in fetch_buckets:
            bucket.promise(connection.number, min(most, 2 * brought), now)
        if body["max_bytes"] <= most:
            return False
        body["max_bytes"] = most
        body["min_bytes"] = min(body["min_bytes"], most)
        return True

    def settle(self, buckets: Buckets[QuotaKey], exchange: Exchange, entities: Sequence[Entity], now: float) -> None:
        """Note what the response has brought, and end what was promised to it."""
        exchange.connection.memory[self] = exchange.response_size
        for key, _ in self.counted(exchange, entities):
            if isinstance(bucket := buckets.of(key, now), FetchBucket):
                bucket.settle(exchange.connection.number, now)


def charge(buckets: Buckets[QuotaKey], charges: Iterable[Charge], now: float) -> float:
    """Charge all of them. Return the longest time until one of their debts is paid."""
    wait = 0.0
    for key, amount in charges:
        bucket = buckets.of(key, now)
        if bucket is not None:
            wait = max(wait, bucket.charge(amount, now))
    return wait


@cache
def has_max_bytes(key: int, version: int) -> bool:
    """Return True if requests of this version say how much they want at most."""
    if version not in schema.load(key).versions:
        return False
    return any(slot.name == "max_bytes" for slot in layout.body(key, version, "request").slots)
