"""Throttled clients: told by `throttle_time_ms`, and not read from, whether they heed it or not (KIP-219)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.testing.cluster import MockCluster
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy
from tests.support.java_program import JavaProgram
from tests.support.raw_client import METADATA as NO_TOPICS
from tests.support.raw_client import RawClient
from tests.support.wait import undisturbed

PRODUCE, FETCH, METADATA = 0, 1, 3

#: Each for the clients of one address of this machine.
RULES: dict[str, dict[str, Any]] = {
    "127.0.2.1": {"requests": "5/s", "burst": "1s", "per": ["connection"]},
    "127.0.2.2": {"requests": "2/s", "burst": "500ms", "per": ["connection"]},
    "127.0.2.3": {"produce": "10kB/s", "burst": "100ms", "per": ["connection"]},
    "127.0.2.4": {"fetch": "10kB/s", "burst": "500ms", "per": ["connection"]},
    "127.0.2.5": {"connections": "2/s", "burst": "500ms", "max_throttle": "600ms"},
    "127.0.2.6": {"requests": "1/s", "burst": "1s", "mode": "dry_run"},
}


@pytest.fixture(scope="module")
def limited() -> Iterator[tuple[MockCluster, Proxy]]:
    """A mock cluster of one broker, behind a proxy with all these rules."""
    rules = [
        {"name": address, "kind": "quota", "match": {"client_address": address}, **limits}
        for address, limits in RULES.items()
    ]
    with MockCluster(1) as cluster:
        for topic in ("orders", "fetched"):
            cluster.create_topic(topic, 1)
        with Proxy(cluster.bootstrap, rules=rules) as proxy:
            yield cluster, proxy


@pytest.fixture
def dial(limited: tuple[MockCluster, Proxy]) -> Iterator[Callable[[str], RawClient]]:
    """Connects from an address."""
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(RawClient(limited[1].bootstrap, source=source))


def ask(client: RawClient) -> tuple[int, float]:
    """The throttle time in the answer to a request, in ms, and how long the answer took, in seconds."""
    since = time.monotonic()
    answer = client.call(METADATA, 4, NO_TOPICS)
    return answer["throttle_time_ms"], time.monotonic() - since


def produce(size: int, acks: int, name: str = "orders") -> dict[str, Any]:
    records = encode_batch([Record(0, 0, None, b"x" * size)])
    topic = {"name": name, "partition_data": [{"index": 0, "records": records}]}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 5000, "topic_data": [topic]}


def test_a_client_that_heeds_nothing_is_slowed(dial: Any) -> None:
    """It receives each response at once, with its throttle time. kproxy reads its next request after that time."""

    def answers() -> list[int]:
        client, since = dial("127.0.2.1"), time.monotonic()
        found = [ask(client)[0] for _ in range(9)]
        assert time.monotonic() - since >= 0.6  # on any machine: 5 requests of the burst, then 5/s
        assert found[:5] == [0] * 5
        assert all(100 <= told for told in found[5:])
        return found

    assert max(undisturbed(answers)) <= 200


def test_each_connection_has_its_own_limit(dial: Any) -> None:
    """One that is over it does not slow another."""

    def one_is_over_it() -> None:
        loud = dial("127.0.2.2")
        told = [ask(loud)[0] for _ in range(3)]
        assert told[0] == 0
        assert min(told[1:]) > 300

    undisturbed(one_is_over_it)
    assert ask(dial("127.0.2.2"))[0] == 0


def test_a_produce_request_is_stored_and_its_client_waits(dial: Any) -> None:
    """The response comes at once with the debt as its throttle time. The next request on the connection waits."""

    def answered() -> dict[str, Any]:
        client, since = dial("127.0.2.3"), time.monotonic()
        answer = client.call(PRODUCE, 7, produce(6000, acks=-1))
        assert 400 < answer["throttle_time_ms"]
        ask(client)
        assert time.monotonic() - since > 0.4
        return answer

    answer = undisturbed(answered)
    assert [part["error_code"] for topic in answer["responses"] for part in topic["partition_responses"]] == [0]
    assert answer["throttle_time_ms"] <= 600


def test_a_produce_request_with_acks_0_mutes_at_once(dial: Any, limited: Any) -> None:
    """Without a response no throttle time is reported; the next request waits."""
    client = dial("127.0.2.3")
    ask(client)
    since = time.monotonic()
    client.send(client.request(PRODUCE, 7, produce(6000, acks=0)))
    ask(client)
    assert time.monotonic() - since > 0.4


def test_a_fetch_is_answered_at_once_and_then_waits(dial: Any, limited: Any) -> None:
    """The response has the data and the throttle time. The next request on the connection waits."""
    with RawClient(limited[0].bootstrap) as direct:
        for _ in range(3):
            direct.call(PRODUCE, 7, produce(9000, acks=-1, name="fetched"))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = {
        "replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": "fetched", "partitions": [partition]}],
        "forgotten_topics_data": [],
    }  # fmt: skip

    def answered() -> dict[str, Any]:
        client, since = dial("127.0.2.4"), time.monotonic()
        answer = client.call(FETCH, 7, body)
        assert 300 < answer["throttle_time_ms"]
        ask(client)
        assert time.monotonic() - since > 0.3
        return answer

    answer = undisturbed(answered)
    assert len(answer["responses"][0]["partitions"][0]["records"]) > 9000
    assert answer["throttle_time_ms"] < 600


def test_connections_wait_for_their_turn(dial: Any, limited: Any) -> None:
    """The first is answered at once, the next after half a second; one more at the same time would have to wait too
    long. With several workers it may be either that comes first."""

    def answered(client: Any) -> bool:
        try:
            ask(client)
        except ConnectionError:
            return False
        return True

    def turns() -> None:
        since = time.monotonic()
        assert ask(dial("127.0.2.5"))[1] < 0.4
        both = [dial("127.0.2.5") for _ in range(2)]
        assert sorted(answered(client) for client in both) == [False, True]
        assert time.monotonic() - since > 0.3

    try:
        turns()
    except (AssertionError, OSError, pytest.fail.Exception):  # once more, with a limit that has come to rest
        time.sleep(2)
        turns()


def test_a_limit_that_only_observes_slows_nobody(dial: Any, limited: Any) -> None:
    """It is counted where it would."""
    client = dial("127.0.2.6")

    assert [ask(client)[0] for _ in range(5)] == [0] * 5
    assert limited[1].metric("kproxy_rule_matched_total", rule="127.0.2.6") >= 5
    assert limited[1].metric("kproxy_rule_applied_total", rule="127.0.2.6") == 0


def test_a_java_client_hears_of_its_throttle(kafka: Kafka, java: JavaProgram) -> None:
    """It waits by itself, which its records only show by the time that they take: 30 kB at 10 kB/s."""
    rule = {"name": "slow", "kind": "quota", "per": ["client_id"], "produce": "10kB/s", "burst": "100ms"}
    with Proxy(kafka.bootstrap("PROXIED"), rules=[rule]) as proxy:
        config = {"bootstrap.servers": proxy.bootstrap, "client.id": "slow", "batch.size": 0}
        java("produce", config=config | {"client.id": "other"}, topic="quota-java", tag="v", count=1)

        since = time.monotonic()
        java("produce", config=config, topic="quota-java", tag="v", count=30, padding=900)

        assert time.monotonic() - since > 2.5
