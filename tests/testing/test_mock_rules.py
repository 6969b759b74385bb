"""Rules in front of the mock cluster: rejoins are answered, read_committed holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from kproxy.protocol.table.api_keys import JOIN_GROUP
from kproxy.testing import mock_rules
from kproxy.testing.cluster import MockCluster
from kproxy.testing.embedded import Embedded
from kproxy.testing.inject import Kproxy
from kproxy.testing.mock_rules import SESSION_TIMEOUT_MS
from kproxy.testing.one_request import ask

QUIET = {"log_level": 0}


def member(bootstrap: str, group: str, **settings: Any) -> Consumer:
    fixed = {"group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
    consumer = Consumer({"bootstrap.servers": bootstrap, **fixed, **QUIET, **settings})
    consumer.subscribe(["orders"])
    return consumer


def transactional(kproxy: Kproxy, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "transactional.id": name, **QUIET})
    producer.init_transactions(60)
    return producer


def write(producer: Producer, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(60) == 0


def read(bootstrap: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Return the first `count` records of the partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": isolation, **QUIET}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = [message.value() or b"" for message in consumer.consume(count, 60)]
    consumer.close()
    return found


@pytest.fixture
def orders(kproxy_cluster: MockCluster) -> None:
    kproxy_cluster.create_topic("orders", partitions=1)


def test_join_after_rebalance_fault_is_answered(kproxy: Kproxy, orders: None) -> None:
    """The session timeout is Java's and librdkafka's default of 45 s, which the mock would wait."""
    consumer = member(kproxy.bootstrap_servers, "billing")
    while not consumer.assignment():
        consumer.poll(0.1)
    again = kproxy.inject("error", error="REBALANCE_IN_PROGRESS", match={"api": "Heartbeat"}, when={"once": True})
    while len(answered := [one for one in kproxy.exchanges(api="JoinGroup") if one.answered]) < 2:
        consumer.poll(0.1)
    consumer.close()

    assert again.applied == 1
    assert answered[1].errors == [] and (answered[1].seconds or 0) < 2 * SESSION_TIMEOUT_MS / 1000
    assert answered[1].request.body["session_timeout_ms"] == 45_000  # the tape has what the client sent
    assert answered[1].taken.rules == [] and kproxy.loaded == []


@pytest.mark.parametrize(("asked", "forwarded"), [(45_000, 6000), (6001, 6000), (6000, 6000), (2000, 2000)])
def test_session_timeout_is_forwarded_up_to_limit(asked: int, forwarded: int) -> None:
    message: Any = SimpleNamespace(body={"session_timeout_ms": asked})
    decision = mock_rules.shorten_session(message, message)
    assert message.body["session_timeout_ms"] == forwarded
    assert (decision is None) == (asked == forwarded)


def test_mock_rules_act_on_both_listeners(kproxy: Kproxy) -> None:
    """A consumer that judges a test rejoins as soon as others."""
    protocols = [{"name": "range", "metadata": b""}]
    body = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 1, "member_id": "", "group_instance_id": None,
            "protocol_type": "consumer", "protocols": protocols}  # fmt: skip
    running = kproxy.rule(str(mock_rules.RULES[0]["name"]))
    for number, bootstrap in enumerate((kproxy.bootstrap_servers, kproxy.own_bootstrap_servers), 1):
        ask(bootstrap, JOIN_GROUP, 5, {"group_id": f"g{number}", **body}, timeout=60)
        assert running.fired == number


def test_read_committed_skips_aborted_records(kproxy: Kproxy, orders: None) -> None:
    """For clients at both listeners; read_uncommitted gets all."""
    producer = transactional(kproxy, "t")
    write(producer, b"a")
    producer.commit_transaction(60)
    write(producer, b"lost 1", b"lost 2")
    producer.abort_transaction(60)
    write(producer, b"b")
    producer.commit_transaction(60)

    for bootstrap in (kproxy.bootstrap_servers, kproxy.own_bootstrap_servers):
        assert read(bootstrap, 2) == [b"a", b"b"]
        assert read(bootstrap, 4, "read_uncommitted") == [b"a", b"lost 1", b"lost 2", b"b"]


def test_read_committed_waits_for_open_transaction(kproxy: Kproxy, orders: None) -> None:
    """Records after the first one of an open transaction are withheld until it ends."""
    first, second = transactional(kproxy, "t1"), transactional(kproxy, "t2")
    write(first, b"a")
    write(second, b"b")
    second.commit_transaction(60)
    consumer = member(kproxy.bootstrap_servers, "billing")
    while not any(one.records == [] and one.response for one in kproxy.exchanges(api="Fetch")):
        assert consumer.poll(0.1) is None
    (fetch, *_) = [one for one in kproxy.exchanges(api="Fetch") if one.response]
    assert fetch.response is not None
    assert fetch.response.body["responses"][0]["partitions"][0]["last_stable_offset"] == 0
    first.commit_transaction(60)
    assert [message.value() for message in consumer.consume(2, 60)] == [b"a", b"b"]
    consumer.close()


def test_read_committed_skips_fenced_transaction(kproxy: Kproxy, orders: None) -> None:
    """InitProducerId of the same transactional id aborts the transaction that was open."""
    first = transactional(kproxy, "t")
    write(first, b"lost")
    second = transactional(kproxy, "t")
    write(second, b"kept")
    second.commit_transaction(60)
    assert read(kproxy.bootstrap_servers, 1) == [b"kept"]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_mock_stores_no_offsets_of_transactions(kproxy: Kproxy, orders: None, end: str) -> None:
    """Explorations refuse programs with such offsets on the mock. If this fails, the mock has learned to store them."""
    consumer = Consumer({"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g", **QUIET})
    producer = transactional(kproxy, "copier")
    write(producer, b"one")
    offset = TopicPartition("orders", 0, 1)
    producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 60)
    getattr(producer, end)(60)
    (committed,) = consumer.committed([TopicPartition("orders", 0)], 60)
    consumer.close()
    assert committed.offset == OFFSET_INVALID


def test_hooks_of_mock_are_freed(mock_cluster: MockCluster) -> None:
    def known() -> set[str]:
        return {name for name in vars(mock_rules) if name.startswith("hook_")}

    before = known()
    engine = Embedded(mock_cluster.bootstrap, mock=True)
    engine.start()
    assert len(known() - before) == len(mock_rules.RULES)
    engine.stop()
    assert known() == before


def test_other_clusters_have_no_mock_rules(mock_cluster: MockCluster) -> None:
    engine = Embedded(mock_cluster.bootstrap)
    engine.start()
    assert engine.store.stored_rules == {}
    engine.stop()
