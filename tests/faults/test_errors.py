"""What real clients do when an error code comes, before the broker's work or after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kproxy.testing.process import Proxy

PATIENCE = 30

#: By client id. Writers send five records, each in a request of its own; readers read them.
WRITERS: dict[str, dict[str, Any]] = {
    "third-not-leader": {"error": "NOT_LEADER_OR_FOLLOWER", "match": {"api": "Produce"}, "when": {"nth": 3}},
    "timed-out": {"error": "REQUEST_TIMED_OUT", "match": {"api": "Produce"}, "when": {"nth": 2}},
    "timed-out-idempotent": {"error": "REQUEST_TIMED_OUT", "match": {"api": "Produce"}, "when": {"nth": 2}},
    "timed-out-before": {
        "error": "REQUEST_TIMED_OUT", "match": {"api": "Produce"}, "when": {"nth": 2}, "at": "request",
    },
    "too-large": {"error": "MESSAGE_TOO_LARGE", "match": {"api": "Produce"}, "when": {"nth": 2}},
    "no-acks": {"error": "NOT_LEADER_OR_FOLLOWER", "match": {"api": "Produce"}, "when": {"nth": 3}},
    "every-other": {"error": "NOT_LEADER_OR_FOLLOWER", "match": {"api": "Produce"}, "when": {"every": 2}},
    "when-it-fails": {"error": "RECORD_LIST_TOO_LARGE", "match": {"api": "Produce", "error": "MESSAGE_TOO_LARGE"}},
}  # fmt: skip
READERS: dict[str, dict[str, Any]] = {
    "session-lost": {"error": "FETCH_SESSION_ID_NOT_FOUND", "match": {"api": "Fetch"}, "when": {"nth": 1}},
    "out-of-range": {"error": "OFFSET_OUT_OF_RANGE", "match": {"api": "Fetch"}, "when": {"nth": 1}},
    "not-leader": {"error": "NOT_LEADER_OR_FOLLOWER", "match": {"api": "Fetch"}, "when": {"first": 2}},
    "crc": {"error": "CORRUPT_MESSAGE", "match": {"api": "Fetch"}, "when": {"first": 2}, "at": "response"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "no-coordinator": {
        "error": "COORDINATOR_NOT_AVAILABLE", "match": {"api": "FindCoordinator"}, "when": {"first": 2},
    },
    "rebalancing": {"error": "REBALANCE_IN_PROGRESS", "match": {"api": "Heartbeat"}, "when": {"nth": 2}},
    "unknown-member": {"error": "UNKNOWN_MEMBER_ID", "match": {"api": "Heartbeat"}, "when": {"nth": 2}},
    "commit-refused": {"error": "OFFSET_METADATA_TOO_LARGE", "match": {"api": "OffsetCommit"}},
    "policy": {"error": "POLICY_VIOLATION", "match": {"api": "CreateTopics", "topic": "*-bad"}, "message": "too many"},
    "hidden-leader": {"error": "LEADER_NOT_AVAILABLE", "match": {"api": "Metadata"}, "when": {"first": 2}},
}  # fmt: skip
FAULTS = {name: {"kind": "error", **rule} for name, rule in (WRITERS | READERS | OTHERS).items()}


def counts(proxy: Proxy, name: str) -> tuple[int, int, int]:
    """matched, fired and applied of a rule."""
    shown = json.loads(proxy.get(f"/api/rules/{name}")[1])
    return shown["matched"], shown["fired"], shown["applied"]


@pytest.fixture(scope="module")
def written(faulty: Proxy, clients: Any, all_at_once: Callable[..., Any]) -> dict[str, Future[Any]]:
    """What became of each writer's records."""

    def act(topic: str, name: str) -> Any:
        special = {"no-acks": {"acks": 0}, "timed-out-idempotent": {"enable_idempotence": True}}.get(name, {})
        settings = {"client_id": name, "batch_num_messages": 1, "retries": 5, "max_in_flight": 1} | special
        if name == "when-it-fails":
            settings["message_max_bytes"] = 3_000_000
        return clients.write(faulty.bootstrap, topic, 5, **settings)

    return all_at_once(act, WRITERS)


def test_the_third_write_is_sent_again(faulty: Proxy, written: Any) -> None:
    """The broker never saw it; the client looks for the leader again, and nothing is lost or doubled."""
    outcome = written["third-not-leader"].result()

    assert (outcome.told, outcome.stored) == ([None] * 5, 5)
    assert counts(faulty, "third-not-leader") == (6, 1, 1)


def test_a_timeout_comes_after_the_work(faulty: Proxy, written: Any) -> None:
    """The record is stored; a producer that is not idempotent writes it twice."""
    outcome = written["timed-out"].result()

    assert (outcome.told, outcome.stored) == ([None] * 5, 6)
    assert counts(faulty, "timed-out") == (6, 1, 1)


def test_an_idempotent_producer_writes_it_once(written: Any) -> None:
    """The broker knows the sequence number of what is sent again."""
    outcome = written["timed-out-idempotent"].result()

    assert (outcome.told, outcome.stored) == ([None] * 5, 5)


def test_a_timeout_can_come_before_the_work(written: Any) -> None:
    """`at: request`: then nothing was stored that could be doubled."""
    outcome = written["timed-out-before"].result()

    assert (outcome.told, outcome.stored) == ([None] * 5, 5)


def test_an_error_that_cannot_be_retried_reaches_the_user(written: Any) -> None:
    """For that record; the others are stored."""
    outcome = written["too-large"].result()

    assert (outcome.told, outcome.stored) == ([None, "MSG_SIZE_TOO_LARGE", None, None, None], 4)


def test_without_acks_the_connection_is_closed(faulty: Proxy, written: Any) -> None:
    """The record is lost, and nobody is told, as it is with a broker."""
    outcome = written["no-acks"].result()

    assert outcome.stored < 5
    assert counts(faulty, "no-acks")[1:] == (1, 1)


def test_every_other_write_fails_and_all_arrive(faulty: Proxy, written: Any) -> None:
    """Retries count as requests: 1, (2), 3, (4), 5, (6), 7, (8), 9."""
    outcome = written["every-other"].result()

    assert (outcome.told, outcome.stored) == ([None] * 5, 5)
    assert counts(faulty, "every-other") == (9, 4, 4)


def test_no_error_no_change(faulty: Proxy, written: Any) -> None:
    """A rule that selects on the broker's error waits for one."""
    assert written["when-it-fails"].result().told == [None] * 5
    assert counts(faulty, "when-it-fails") == (0, 0, 0)


@pytest.fixture(scope="module")
def read(faulty: Proxy, clients: Any, all_at_once: Callable[..., Any]) -> dict[str, Future[Any]]:
    """What each reader got of five records."""

    def act(topic: str, name: str) -> Any:
        clients.write(clients.direct, topic, 5)
        settings = {"client_id": name, "auto_offset_reset": "earliest"}
        return clients.read(faulty.bootstrap, topic, 5, **settings)

    return all_at_once(act, READERS)


@pytest.mark.parametrize("fault", READERS)
def test_readers_get_over_errors_of_fetches(fault: str, faulty: Proxy, read: Any) -> None:
    """They read all records once; the session with the broker stays whole. Of bad data the user is told."""
    values, errors = read[fault].result()

    assert values == [f"value-{number}" for number in range(5)]
    assert errors == (["INVALID_MSG"] * 2 if fault == "crc" else [])
    assert counts(faulty, fault)[2] == counts(faulty, fault)[1] >= 1


def consumer(bootstrap: str, topic: str, name: str) -> tuple[Consumer, list[int]]:
    """A member of a group, and how many partitions it was given each time."""
    assigned: list[int] = []
    made = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"g-{name}-{topic}", "client.id": name, "log_level": 0,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6000,  # for so long the broker waits for a member that was made to forget who it is
        "retry.backoff.ms": 50,
    })  # fmt: skip
    made.subscribe([topic], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    return made, assigned


def poll_until(made: Consumer, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        made.poll(0.05)


@pytest.mark.parametrize(("fault", "times"), [("no-coordinator", 1), ("rebalancing", 2), ("unknown-member", 2)])
def test_groups_get_over_errors_of_their_coordinator(fault: str, times: int, faulty: Proxy, clients: Any) -> None:
    """A coordinator that is not there is asked for again; a rebalance, or a member that is unknown, makes it rejoin."""
    (topic,) = clients.topics(1)
    made, assigned = consumer(faulty.bootstrap, topic, fault)
    poll_until(made, lambda: len(assigned) >= times)
    made.close()

    assert set(assigned) == {1}
    assert counts(faulty, fault)[2] >= 1


def test_a_commit_that_is_refused_is_told(faulty: Proxy, clients: Any) -> None:
    """To whoever commits; the broker has no offset."""
    (topic,) = clients.topics(1)
    made, assigned = consumer(faulty.bootstrap, topic, "commit-refused")
    poll_until(made, lambda: bool(assigned))
    with pytest.raises(KafkaException) as found:
        made.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    committed = made.committed([TopicPartition(topic, 0)], PATIENCE)
    made.close()

    assert found.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed[0].offset < 0


def test_one_topic_of_a_request_is_refused(faulty: Proxy, clients: Any) -> None:
    """With the text of the rule; the broker makes the others."""
    (name,) = clients.topics(1)
    admin = AdminClient({"bootstrap.servers": faulty.bootstrap, "client.id": "policy"})
    made = admin.create_topics([NewTopic(f"{name}-{word}", 1, 1) for word in ("good", "bad", "fine")])
    with pytest.raises(KafkaException, match="too many") as found:
        made[f"{name}-bad"].result(PATIENCE)
    made[f"{name}-good"].result(PATIENCE)
    made[f"{name}-fine"].result(PATIENCE)

    assert found.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_metadata_without_a_leader_is_asked_for_again(faulty: Proxy, clients: Any) -> None:
    """Until it comes."""
    (topic,) = clients.topics(1)
    done: list[Any] = []
    producer = Producer({"bootstrap.servers": faulty.bootstrap, "client.id": "hidden-leader", "log_level": 0,
                         "topic.metadata.refresh.fast.interval.ms": 50})  # fmt: skip
    producer.produce(topic, "value", callback=lambda error, _: done.append(error))

    assert producer.flush(PATIENCE) == 0
    assert done == [None]
    assert counts(faulty, "hidden-leader")[1] == 2


def story(clients: Any, topic: str) -> tuple[list[Any], bool, tuple[int, int, int]]:
    """A producer's third write is refused: what it was told, whether it asked for metadata then, and the counts."""
    rules = [
        {"name": "third", "kind": "error", "match": {"api": "Produce", "topic": topic}, "when": {"nth": 3},
         "error": "NOT_LEADER_OR_FOLLOWER"},
        {"name": "asks", "kind": "delay", "match": {"api": "Metadata"}, "delay": "0s", "mode": "dry_run"},
    ]  # fmt: skip
    with Proxy(clients.upstream, rules=rules) as proxy:
        done: list[Any] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "linger.ms": 0, "retry.backoff.ms": 50,
                             "log_level": 0, "topic.metadata.refresh.interval.ms": -1})  # fmt: skip
        asked = []
        for number in range(4):
            producer.produce(topic, f"{number}", callback=lambda error, _: done.append(error))
            assert producer.flush(PATIENCE) == 0
            asked.append(counts(proxy, "asks")[1])
        return done, asked[2] > asked[1], counts(proxy, "third")


def test_not_leader_makes_the_client_refresh_its_metadata_the_same_every_run(clients: Any) -> None:
    """The third produce fails, the client asks for metadata and tries again; twice the same."""
    (topic,) = clients.topics(1)

    assert [story(clients, topic) for _ in range(2)] == [([None] * 4, True, (5, 1, 1))] * 2
    assert clients.stored(topic) == 8
