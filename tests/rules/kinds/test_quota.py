"""quota: what is charged to whom, and what comes of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.rules.exchange import Await, Close, Delay, Edit, FrameDepth, Throttle
from tests.rules.shared_table import commons
from tests.support.frames import fetch_body, fetched_body, produce_body

PRODUCE, FETCH, METADATA, HEARTBEAT, API_VERSIONS, SHARE_FETCH = 0, 1, 3, 12, 18, 78


def records(size: int) -> bytes:
    return encode_batch([Record(0, 0, None, b"x" * size)])


def produce(
    hand: Any, version: int = 9, client_id: str | None = "tester", connection: Any = None, **topics: int
) -> Any:
    """A Produce request with so many bytes for partition 0 of each topic."""
    body = produce_body(*((name, 0, records(size)) for name, size in topics.items()))
    return hand.exchange(PRODUCE, version, body, {}, connection, client_id)


def fetch(hand: Any, version: int = 12, max_bytes: int = 50 << 20, min_bytes: int = 1, **topics: int) -> Any:
    """A Fetch of partition 0 of each topic, and the response with so many bytes of each."""
    limits = {"max_bytes": max_bytes, "min_bytes": min_bytes} if version >= 3 else {}
    found = fetched_body(*((name, 0, records(size)) for name, size in topics.items()))
    return hand.exchange(FETCH, version, fetch_body(*topics, **limits), found)


def waits(decisions: Any) -> bool:
    """Return True if the request has to wait for its turn."""
    return any(isinstance(one, Await) for one in decisions)


def seconds(decisions: Any) -> float:
    """Return the seconds of the mute, which are also reported to the client."""
    found = [one for one in decisions if isinstance(one, Throttle)]
    assert all(one.throttle_time == one.mute for one in found)
    return found[0].mute if found else 0.0


def paid(exchange: Any, decisions: Any, now: float) -> float | None:
    """Return when the newest turn of the connection is paid, asking as often as necessary; None: nothing waits."""
    if not waits(decisions):
        return None
    while wait := exchange.connection.turns[-1].ask(now):
        now += wait
    return now


def test_a_produce_request_is_charged_by_its_length(hand: Any) -> None:
    """A burst passes, and the debt of the frame mutes its client; the next frame waits until the debt is paid."""
    effect = hand.effect(hand.rule("kind: quota, produce: 10kB/s, burst: 1s"))
    exchange = produce(hand, orders=19_000)
    size = exchange.request_size

    assert seconds(effect.on_request(exchange, (), 0.0)) == pytest.approx((size - 10_000) / 10_000)
    second = effect.on_request(exchange, (), 0.0)
    assert seconds(second) == pytest.approx(size / 10_000)
    assert paid(exchange, second, 0.0) == pytest.approx((size - 10_000) / 10_000)
    assert effect.on_response(exchange, (), 0.0) == ()


def test_debts_below_a_millisecond_are_left_to_the_next_frame(hand: Any) -> None:
    """throttle_time_ms could not say them."""
    effect = hand.effect(hand.rule("kind: quota, requests: 10000/s, burst: 100us".replace("100us", "0.1ms")))
    exchange = hand.exchange(METADATA, 9)

    made = [effect.on_request(exchange, (), 0.0) for _ in range(13)]

    assert [seconds(one) for one in made[:10]] == [0] * 10
    assert seconds(made[10]) == pytest.approx(0.001)
    assert [waits(one) for one in made] == [False] * 11 + [True] * 2


@pytest.mark.parametrize("limits", ["produce: 1800B/s", "requests: 2.8/s", "produce: 1800B/s, requests: 2.8/s"])
def test_requests_that_pass_on_terms_are_charged_as_all_others(hand: Any, limits: str) -> None:
    """Those that do not are charged nothing by that, and as all others when they are evaluated."""
    rule, random = hand.rule(f"kind: quota, {limits}"), Random(5)
    one, other = hand.effect(rule), hand.effect(rule)
    mine, others = hand.connection(1), hand.connection(2)
    now, passed, owed = 0.0, 0, 0
    for _ in range(300):
        now += random.choice((0.1, 0.4, 0.7))  # bursts, and pauses that pay for them
        size = random.randrange(900)
        here, there = (produce(hand, connection=at, orders=size) for at in (mine, others))
        expected = one.on_request(here, (), now)
        if other.passes(other.terms(there), there.request_size, now):
            assert expected == ()
            passed += 1
        else:
            made = other.on_request(there, (), now)
            assert (waits(made), seconds(made)) == (waits(expected), seconds(expected))
            assert paid(there, made, now) == paid(here, expected, now)
            owed += bool(expected)
    assert passed > 20 and owed > 20


def test_what_has_to_be_seen_whole_has_no_terms(hand: Any) -> None:
    """A part of the frame is charged, or its answer is."""
    for rule in ("kind: quota, produce: 1kB/s, per: [topic]", "kind: quota, requests: 1/s, match: {topic: orders}"):
        assert hand.effect(hand.rule(rule)).terms(produce(hand, orders=1)) is None
    assert hand.effect(hand.rule("kind: quota, fetch: 1kB/s, requests: 9/s")).terms(fetch(hand, orders=1)) is None


def test_a_fetch_response_is_charged_by_its_length(hand: Any) -> None:
    effect = hand.effect(hand.rule("kind: quota, fetch: 10kB/s"))
    exchange = fetch(hand, orders=30_000)

    effect.on_request(exchange, (), 0.0)

    assert seconds(effect.on_response(exchange, (), 0.0)) == pytest.approx(exchange.response_size / 10_000 - 1)


def test_a_fetch_asks_for_no_more_than_a_burst(hand: Any) -> None:
    """So that no response makes a debt of many seconds; `min_bytes` cannot be more than that."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 10kB/s, burst: 2s"))
    exchange = fetch(hand, max_bytes=50 << 20, min_bytes=100_000, orders=1)

    assert effect.on_request(exchange, (), 0.0) == (Edit(),)
    assert exchange.request.body["max_bytes"] == exchange.request.body["min_bytes"] == 20_000


def asked(hand: Any, effect: Any, number: int, now: float) -> int:
    """How much a large Fetch on this connection may bring."""
    exchange = hand.exchange(FETCH, 12, {"max_bytes": 50 << 20, "topics": []}, {}, hand.connection(number))
    effect.on_request(exchange, (), now)
    found: int = exchange.request.body["max_bytes"]
    return found


def test_fetches_that_start_together_do_not_all_get_a_burst(hand: Any) -> None:
    """What one may bring is not promised to the next; a tenth of a burst is for everybody."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))

    assert [asked(hand, effect, number, 0.0) for number in (1, 2, 3)] == [2_000_000, 200_000, 200_000]


@pytest.mark.parametrize("workers", [1, 2])
def test_fetch_with_negative_max_bytes_reserves_nothing(hand: Any, workers: int) -> None:
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))
    (effect.common, *_) = commons(workers) if workers > 1 else (None,)
    here = hand.connection(1)
    for _ in range(3):
        exchange = hand.exchange(FETCH, 12, {"max_bytes": -(1 << 31), "topics": []}, {}, here)
        assert effect.on_request(exchange, (), 1.0) == ()

    assert asked(hand, effect, 1, 1.0) == 2_000_000


def test_fetch_reservation_ends_by_response_or_time(hand: Any) -> None:
    """Fetch requests that a client pipelines on one connection reserve together."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))
    assert [asked(hand, effect, 1, now) for now in (0.0, 0.1)] == [2_000_000, 200_000]
    assert asked(hand, effect, 2, 1.2) == 2_000_000

    exchange = hand.exchange(FETCH, 12, {"max_bytes": 50 << 20, "topics": []}, {}, hand.connection(2))
    effect.on_request(exchange, (), 3.0)
    effect.on_response(exchange, (), 3.1)
    assert asked(hand, effect, 3, 3.1) == 2_000_000 - exchange.response_size


def test_fetch_pipelined_behind_small_ones_reserves_all(hand: Any) -> None:
    """The size of the last response does not limit several Fetch requests in flight."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))
    here = hand.connection(1)

    def ask(now: float) -> Any:
        exchange = hand.exchange(FETCH, 12, {"max_bytes": 50 << 20, "topics": []}, {}, here)
        effect.on_request(exchange, (), now)
        return exchange

    effect.on_response(ask(0.0), (), 0.1)
    pipelined = [ask(4.0).request.body["max_bytes"] for _ in range(100)]

    assert pipelined[0] == 2_000_000
    assert pipelined[2:] == [200_000] * 98


def test_a_connection_that_fetches_nothing_is_promised_nothing(hand: Any) -> None:
    """An idle consumer, waiting at the broker, leaves the bucket to others."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))
    idle = hand.connection(1)
    exchange = hand.exchange(FETCH, 12, {"max_bytes": 50 << 20, "topics": []}, {}, idle)
    effect.on_request(exchange, (), 0.0)
    effect.on_response(exchange, (), 0.5)
    again = hand.exchange(FETCH, 12, {"max_bytes": 50 << 20, "topics": []}, {}, idle)
    effect.on_request(again, (), 2.0)

    assert again.request.body["max_bytes"] == 2_000_000
    assert asked(hand, effect, 2, 2.0) == 2_000_000 - 2 * exchange.response_size


def test_after_a_debt_a_fetch_asks_for_little(hand: Any) -> None:
    """As much as has come into the bucket since, at least a tenth of a burst."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1MB/s, burst: 2s"))
    exchange = fetch(hand, orders=3_000_000)
    effect.on_response(exchange, (), 0.0)

    assert asked(hand, effect, 1, 0.5) == 200_000
    assert asked(hand, effect, 1, 1.9) == pytest.approx(2_000_000 + 1_900_000 - exchange.response_size, abs=1)


def test_a_small_fetch_is_not_made_smaller(hand: Any) -> None:
    """Most of it would be a batch that is cut off."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 100kB/s"))

    assert [asked(hand, effect, number, 0.0) for number in (1, 2)] == [100_000, 65_536]


def test_a_fetch_that_asks_for_little_stays_as_it_is(hand: Any) -> None:
    """And old ones, which cannot say how much they want."""
    rule = hand.rule("kind: quota, fetch: 10kB/s")
    effect = hand.effect(rule)

    assert effect.on_request(fetch(hand, max_bytes=10_000, orders=1), (), 0.0) == ()
    assert effect.on_request(fetch(hand, version=2, orders=1), (), 0.0) == ()
    assert rule.depth("request", FETCH, 2) == FrameDepth.HEADER
    assert rule.depth("request", FETCH, 3) == FrameDepth.BODY


def test_a_tiny_rate_lets_a_client_go_on(hand: Any) -> None:
    """It asks for one byte, for which brokers send a whole batch (KIP-74)."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 0.001kB/s, burst: 100ms"))
    exchange = fetch(hand, orders=1)

    effect.on_request(exchange, (), 0.0)

    assert exchange.request.body["max_bytes"] == 1


def test_requests_are_counted_but_not_those_that_kafka_exempts(hand: Any) -> None:
    """Logging in and finding out versions comes before anybody is known."""
    rule = hand.rule("kind: quota, requests: 1/s")
    effect = hand.effect(rule)

    made = [effect.on_request(hand.exchange(HEARTBEAT, 4), (), 0.0) for _ in range(3)]
    assert [waits(one) for one in made] == [False, False, True]
    assert [seconds(one) for one in made] == [0, 1, 1]
    assert effect.on_request(hand.exchange(API_VERSIONS, 3), (), 0.0) == ()
    assert rule.depth("request", API_VERSIONS, 3) == FrameDepth.NOTHING
    assert rule.depth("request", HEARTBEAT, 4) == FrameDepth.HEADER


def test_the_longer_of_two_debts_counts(hand: Any) -> None:
    """A Produce request is also a request."""
    effect = hand.effect(hand.rule("kind: quota, requests: 1/s, produce: 1kB/s"))
    exchange = produce(hand, orders=10_000)

    assert seconds(effect.on_request(exchange, (), 0.0)) == pytest.approx(exchange.request_size / 1000 - 1)


def test_quota_throttle_beyond_max_throttle_mutes_for_all(hand: Any) -> None:
    """`max_throttle` limits what is reported; the mute covers the debt."""
    effect = hand.effect(hand.rule("kind: quota, produce: 1kB/s, max_throttle: 3s"))
    exchange = produce(hand, orders=20_000)
    debt = exchange.request_size / 1000 - 1

    assert effect.on_request(exchange, (), 0.0) == (Throttle(3, pytest.approx(debt)),)
    assert paid(exchange, effect.on_request(exchange, (), 10.0), 10.0) == pytest.approx(debt)


@pytest.mark.parametrize(
    ("per", "first", "other"),
    [
        ("client_id", {"client_id": "a"}, {"client_id": "b"}),
        ("principal", {"connection": ("1", "x")}, {"connection": ("1", "y")}),
        ("client_address", {"connection": ("10.0.0.1", None)}, {"connection": ("10.0.0.2", None)}),
        ("connection", {"connection": (1,)}, {"connection": (2,)}),
        ("api", {"key": METADATA}, {"key": HEARTBEAT}),
    ],
)
def test_each_has_a_limit_of_its_own(hand: Any, per: str, first: Any, other: Any) -> None:
    """`per` says who; all else shares."""

    def make(key: int = METADATA, client_id: str = "c", connection: Any = (1,)) -> Any:
        number = connection[0] if isinstance(connection[0], int) else 1
        address = connection[0] if isinstance(connection[0], str) and "." in connection[0] else "10.0.0.1"
        principal = connection[1] if len(connection) > 1 else None
        view = hand.connection(number, address, principal)
        return hand.exchange(key, 4, {}, {}, view, client_id)

    alone = hand.effect(hand.rule(f"kind: quota, requests: 1/s, per: [{per}]"))
    shared = hand.effect(hand.rule("kind: quota, requests: 1/s"))

    assert [seconds(alone.on_request(make(**one), (), 0.0)) for one in (first, other, first)] == [0, 0, 1]
    exchanges = [make(**one) for one in (first, other, first)]
    made = [shared.on_request(one, (), 0.0) for one in exchanges]
    assert [seconds(one) for one in made] == [0, 1, 1]
    assert [paid(one, decisions, 0.0) for one, decisions in zip(exchanges, made, strict=True)] == [None, None, 1]


@pytest.mark.parametrize("limit", ["requests", "connections"])
def test_quota_per_network_ignores_the_host_of_ipv6(hand: Any, limit: str) -> None:
    """A client with a /64 gets no fresh tokens with another address of it. IPv4 addresses are networks of their own."""
    addresses = ["2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1", "10.0.0.1", "10.0.0.2"]
    for per, waiting in (("client_network", [0, 1, 0, 0, 0]), ("client_address", [0] * 5)):
        effect = hand.effect(hand.rule(f"kind: quota, {limit}: 1/s, per: [{per}]"))
        views = [hand.connection(number, address, None) for number, address in enumerate(addresses)]
        if limit == "requests":
            asked = [effect.on_request(hand.exchange(METADATA, 9, connection=one), (), 0.0) for one in views]
            assert [seconds(one) for one in asked] == waiting
        else:
            assert [len(effect.on_connect(one, 0.0)) for one in views] == waiting


def test_words_of_per_are_combined(hand: Any) -> None:
    """A client id on each broker, which is Kafka's own meaning of a quota."""
    effect = hand.effect(hand.rule("kind: quota, requests: 1/s, per: [client_id, node, listener]"))
    asked = [hand.exchange(METADATA, 9, client_id=name) for name in ("a", "b", "a", None)]

    assert [seconds(effect.on_request(one, (), 0.0)) for one in asked] == [0, 0, 1, 0]


def test_a_request_is_charged_to_its_topics_by_their_records(hand: Any) -> None:
    """The frame's length is divided as its record bytes are; nothing is lost in between."""
    effect = hand.effect(hand.rule("kind: quota, produce: 1kB/s, per: [topic]"))
    exchange = produce(hand, big=9000, small=900)

    wait = seconds(effect.on_request(exchange, (), 0.0))
    levels = {key[0]: 1000 - bucket.level for key, bucket in effect.produce.buckets.items()}

    assert set(levels) == {"big", "small"}
    assert sum(levels.values()) == pytest.approx(exchange.request_size)
    assert levels["big"] / levels["small"] == pytest.approx(len(records(9000)) / len(records(900)))
    assert wait == pytest.approx(levels["big"] / 1000 - 1)


def test_quota_by_topic_charges_all_partitions_at_once(hand: Any) -> None:
    """Several partitions of a topic are one charge: none of them waits for the others."""
    effect = hand.effect(hand.rule("kind: quota, produce: 1kB/s, per: [topic]"))
    body = produce_body(*(("orders", number, records(3000)) for number in range(4)))
    exchange = hand.exchange(PRODUCE, 9, body, {}, None, "tester")

    decisions = effect.on_request(exchange, (), 0.0)

    assert not waits(decisions)
    assert seconds(decisions) == pytest.approx(exchange.request_size / 1000 - 1)


def test_only_topics_that_match_are_charged(hand: Any) -> None:
    """A rule about one topic does not count what a request has for others."""
    rule = hand.rule("kind: quota, produce: 1kB/s, match: {topic: small}")
    effect = hand.effect(rule)
    exchange = produce(hand, big=9000, small=900)
    matched = [entity for entity in exchange.entities if entity.topic == "small"]

    assert seconds(effect.on_request(exchange, matched, 0.0)) == pytest.approx(0, abs=0.2)
    assert rule.depth("request", PRODUCE, 9) == FrameDepth.BODY


def test_fetched_bytes_are_charged_to_their_topics(hand: Any) -> None:
    """For that a response has to be seen whole, which the rule says when it loads."""
    rule = hand.rule("kind: quota, fetch: 1kB/s, per: [topic]")
    effect = hand.effect(rule)
    exchange = fetch(hand, a=3000, b=1000)

    effect.on_response(exchange, exchange.entities, 0.0)

    levels = {key[0]: 1000 - bucket.level for key, bucket in effect.fetch.buckets.items()}
    assert sum(levels.values()) == pytest.approx(exchange.response_size)
    assert levels["a"] / levels["b"] == pytest.approx(len(records(3000)) / len(records(1000)))
    assert rule.depth("response", FETCH, 12) == FrameDepth.BODY
    assert any("held in memory" in line for line in rule.warnings())


def test_requests_per_topic_count_once_for_each_topic(hand: Any) -> None:
    """Whatever number of partitions; APIs that name no topic are not counted at all."""
    rule = hand.rule("kind: quota, requests: 1/s, per: [topic]")
    effect = hand.effect(rule)
    both, one = produce(hand, a=1, b=1), produce(hand, a=1)

    made = [effect.on_request(each, (), 0.0) for each in (both, one, both)]
    assert [seconds(each) for each in made] == [0, 1, 1]
    assert [waits(each) for each in made] == [False, False, True]
    assert rule.depth("request", HEARTBEAT, 4) == FrameDepth.NOTHING
    assert rule.depth("request", PRODUCE, 9) == FrameDepth.BODY


def test_an_empty_response_is_charged_to_no_topic(hand: Any) -> None:
    """There is nothing to divide."""
    effect = hand.effect(hand.rule("kind: quota, fetch: 1kB/s, per: [topic]"))

    assert effect.on_response(fetch(hand), (), 0.0) == ()


def test_the_first_override_that_holds_gives_the_limit(hand: Any) -> None:
    """For what it names; all else is the rule's own."""
    rule = hand.rule(
        "kind: quota, per: [client_id], requests: 1/s, produce: 1kB/s, overrides: ["
        "{client_id: free, requests: unlimited}, {client_id: 'f*', requests: 2/s}, {client_id: slow, produce: 1B/s}]"
    )
    effect = hand.effect(rule)

    def wait(client_id: str) -> float:
        return [seconds(effect.on_request(hand.exchange(METADATA, 9, client_id=client_id), (), 0.0)) for _ in "1234"][3]

    assert [wait("free"), wait("fast"), wait("slow"), wait("other")] == [0, 0.5, 1, 1]


def test_connections_wait_for_their_turn_and_those_too_late_are_closed(hand: Any) -> None:
    """At most rate × max_throttle wait; one that is closed does not push the others back."""
    effect = hand.effect(hand.rule("kind: quota, connections: 2/s, burst: 1s, max_throttle: 1s"))

    decisions = [effect.on_connect(hand.connection(), 0.0) for _ in range(6)]

    assert decisions == [(), (), (Delay(0.5),), (Delay(1.0),), (Close(),), (Close(),)]
    assert effect.on_connect(hand.connection(), 1.0) == (Delay(0.5),)


def test_one_connection_is_always_possible(hand: Any) -> None:
    """A rate below one in a burst is still a rate."""
    effect = hand.effect(hand.rule("kind: quota, connections: 6/min, per: [client_address, client_id]"))

    assert effect.on_connect(hand.connection(), 0.0) == ()
    assert effect.on_connect(hand.connection(address="10.0.0.2"), 0.0) == ()
    assert effect.on_connect(hand.connection(), 0.0) == (Delay(10.0),)


def test_a_rule_about_connections_acts_when_they_open(hand: Any) -> None:
    """Others do not, and say so."""
    rule = hand.rule("kind: quota, connections: 5/s, per: [client_id]")

    assert rule.connects
    assert any("not per client_id" in line for line in rule.warnings())
    assert not hand.rule("kind: quota, requests: 5/s").connects
    assert hand.effect(hand.rule("kind: quota, requests: 5/s")).on_connect(hand.connection(), 0.0) == ()


def test_only_what_is_limited_is_looked_at(hand: Any) -> None:
    """All other frames stay opaque."""
    rule = hand.rule("kind: quota, fetch: 5kB/s")

    assert rule.depth("request", PRODUCE, 9) == rule.depth("response", PRODUCE, 9) == FrameDepth.NOTHING
    assert rule.depth("response", FETCH, 12) == FrameDepth.HEADER
    assert rule.depth("response", SHARE_FETCH, 1) == FrameDepth.HEADER
    assert rule.depth("request", METADATA, 9) == FrameDepth.NOTHING


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("per: [client_id]", "a quota limits something: produce, fetch, requests, connections"),
        (
            "requests: 1/s, per: [client]",
            "expected one of client_id, principal, client_address, client_network, topic, api, node, listener,",
        ),
        ("requests: 1/s, per: [api, api]", '"api" is there already'),
        ("requests: 1/s, burst: 0s", "expected more than 0"),
        ("requests: 0/s", "expected more than 0 per second, got 0/s"),
        ("produce: 0MB/s", "expected more than 0 per second, got 0MB/s"),
        ("requests: 1/s, overrides: [{requests: 2/s}]", "an override selects whom it is for, by one of client_id,"),
        ("requests: 1/s, per: [api], overrides: [{api: Fetch}]", "an override has another limit than the rule, one of"),
        (
            "requests: 1/s, overrides: [{client_id: x, requests: 2/s}]",
            '"client_id" is not in per, so that these have no limit of their own',
        ),
        (
            "connections: 1/s, per: [client_id], overrides: [{client_id: x, connections: 2/s}]",
            '"client_id" is not known when a connection opens',
        ),
        (
            "connections: 1/s, match: {client_id: x}",
            '"connections" are counted when they open, and "client_id" is not known then; write a rule of its own',
        ),
        (
            "requests: 1/s, per: [connection], overrides: [{connection: 1, requests: 2/s}]",
            '"connection" cannot be selected, connections have no names',
        ),
        (
            "requests: 1/s, per: [client_network], overrides: [{client_network: 10.0.0.1, requests: 2/s}]",
            '"client_network" cannot be selected: write client_address, here and in "per"',
        ),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, mistake: str, mistakes_of: Any) -> None:
    """With the reason."""
    assert any(line.startswith(mistake) for line in mistakes_of(f"kind: quota, {text}")), mistakes_of(
        f"kind: quota, {text}"
    )
