"""Real clients on a real Kafka, recorded, written into a capture, read back, and played to another Kafka.

The two clusters have different ids for everything, so whatever is not changed on the way is refused. Each test has
topics of its own; their names are the same on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.record.captures.reader import read
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.tools.replay.discovery import plain
from kproxy.tools.replay.player import Pace
from kproxy.tools.replay.routing import WAS_REFUSED
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka
WAIT = 30.0


def produced(bootstrap: str, topic: str, values: Iterable[str], **settings: Any) -> None:
    """Write these, spread over partitions by their text."""
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, key=value, value=value, headers={"h": value})
    assert producer.flush(WAIT) == 0


def consumed(bootstrap: str, topic: str, count: int, **settings: Any) -> list[tuple[int, int, str]]:
    """Partition, offset and value of so many records, in order of these."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "group.id": f"read-{topic}",
                         "enable.auto.commit": False, **settings})  # fmt: skip
    consumer.subscribe([topic])
    found, limit = [], time.monotonic() + WAIT
    while len(found) < count and time.monotonic() < limit:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append((message.partition(), message.offset(), message.value().decode()))
    if count:
        consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def written(bootstrap: str, topic: str, count: int) -> list[tuple[int, int, str]]:
    """What a reader of committed records finds, without leaving a trace under the recorded group."""
    return consumed(bootstrap, topic, count, **{"group.id": "check", "isolation.level": "read_committed"})


def recorded(tools: Any, recorder: Any, path: Path, *work: Callable[[], Any]) -> Any:
    """What passed while this was done, as a recording that went through a capture file."""
    tap = recorder.tap()
    for one in work:
        one()
    return tools.record(read(tools.capture(tap.close(), path / "traffic.pcapng")))


def test_an_idempotent_producer(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """The same records stand at the same offsets, and nothing differs. Its batches are compressed."""
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), "idempotent", partitions=3)
    values = [f"v{number}" for number in range(200)]
    settings = {"enable.idempotence": True, "compression.type": "zstd", "linger.ms": 1, "batch.num.messages": 20}
    recording = recorded(
        tools, recorder, tmp_path, lambda: produced(recorder.bootstrap, "idempotent", values, **settings)
    )
    played = tools.play(recording, fresh.bootstrap())

    assert played.report.as_json()["apis"] and not played.report.differs, played.report.as_json()
    assert played.row("Produce").sent >= 10
    assert written(fresh.bootstrap(), "idempotent", 200) == written(recorder.kafka.bootstrap(), "idempotent", 200)


@pytest.mark.deep
def test_a_replay_may_be_repeated(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """The second one writes everything once more: the target takes it for another producer. Offsets then differ."""
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), "twice")
    values = [f"v{number}" for number in range(20)]
    recording = recorded(
        tools, recorder, tmp_path,
        lambda: produced(recorder.bootstrap, "twice", values, **{"enable.idempotence": True}),
    )  # fmt: skip
    first, second = (tools.play(recording, fresh.bootstrap()) for _ in range(2))

    assert not first.report.differs
    assert [sample.difference.field for sample in second.row("Produce").samples.values()] == [
        "responses[].partition_responses[].base_offset"
    ]
    assert [value for _, _, value in written(fresh.bootstrap(), "twice", 40)] == values * 2


@pytest.mark.deep
def test_a_transactional_producer(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """What it committed is there, what it aborted is not, and offsets that it sent are committed with it."""
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), "transactional", partitions=2)

    def work() -> None:
        producer = Producer({"bootstrap.servers": recorder.bootstrap, "transactional.id": "tx-1"})
        reader = Consumer({"bootstrap.servers": recorder.bootstrap, "group.id": "tx-group"})
        producer.init_transactions(WAIT)
        for round_ in range(4):
            producer.begin_transaction()
            for number in range(5):
                producer.produce("transactional", key=str(number), value=f"{round_}-{number}")
            if round_ == 2:
                producer.abort_transaction(WAIT)
                continue
            offsets = [TopicPartition("transactional", 0, round_ + 1)]
            producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), WAIT)
            producer.commit_transaction(WAIT)
        reader.close()

    played = tools.play(recorded(tools, recorder, tmp_path, work), fresh.bootstrap())

    assert not played.report.differs, played.report.as_json()
    assert written(fresh.bootstrap(), "transactional", 15) == written(recorder.kafka.bootstrap(), "transactional", 15)
    assert committed(fresh, "tx-group", "transactional", 2)[0] == 4


def committed(kafka: Kafka, group: str, topic: str, partitions: int) -> list[int]:
    reader = Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": group})
    found = reader.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=WAIT)
    reader.close()
    return [one.offset for one in found]


@pytest.mark.deep
def test_a_consumer_group(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """It joins, reads in a fetch session, and commits: the target's records are read, its group has the offsets."""
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), "grouped", partitions=3)
    values = [f"v{number}" for number in range(100)]
    recording = recorded(
        tools, recorder, tmp_path,
        lambda: produced(recorder.bootstrap, "grouped", values),
        lambda: consumed(recorder.bootstrap, "grouped", 100, **{"group.id": "group-1"}),
    )  # fmt: skip
    played = tools.play(recording, fresh.bootstrap())

    assert not played.report.differs, played.report.as_json()
    assert played.report.reading.totals() == (100, 100)
    assert committed(fresh, "group-1", "grouped", 3) == committed(recorder.kafka, "group-1", "grouped", 3)


@pytest.mark.deep
def test_a_topic_that_is_missing_is_the_first_thing_in_the_report(
    tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path
) -> None:
    """Errors stand before other differences, with the path of the field; records that were not read are told.

    Needs a broker of its own, which makes no topics; whether it does can only be found out by waiting.
    """
    create_topics(recorder.kafka.bootstrap(), "missing")
    recording = recorded(
        tools, recorder, tmp_path,
        lambda: produced(recorder.bootstrap, "missing", ["a", "b"], **{"enable.idempotence": True}),
        lambda: consumed(recorder.bootstrap, "missing", 2, **{"group.id": "group-2"}),
    )  # fmt: skip
    target = Kafka(1, properties={"auto.create.topics.enable": "false"})
    with target:
        report = tools.play(recording, target.bootstrap(), Pace(None, patience=5)).report.as_json()
    errors = {(row["api"], one["path"], one["recorded"], one["now"]) for row in report["apis"] for one in row["samples"]
              if one["error"]}  # fmt: skip

    assert (
        "Produce",
        "responses[missing].partition_responses[0].error_code",
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ) in errors
    assert report["apis"][0]["errors"] > 0
    assert report["records_read"]["differences"] == [
        {"topic": "missing", "partition": 0, "recorded": 2, "now": 0, "missing": 2, "new": 0}
    ]


@pytest.mark.deep
def test_topics_that_the_recording_makes(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """Made again at the target, and waited for, at full speed too."""

    def work() -> None:
        create_topics(recorder.bootstrap, "made", partitions=2)
        produced(recorder.bootstrap, "made", ["a", "b", "c"])

    played = tools.play(recorded(tools, recorder, tmp_path, work), fresh.bootstrap())

    assert played.row("CreateTopics").same == 1, played.report.as_json()
    assert len(written(fresh.bootstrap(), "made", 3)) == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_clients(
    tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path, java: JavaProgram, protocol: str
) -> None:
    """They name topics by id, in Produce and in Fetch, which are other ones at the target; so do groups of KIP-848."""
    topic = f"java-{protocol}"
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), topic, partitions=2)
    config = {"bootstrap.servers": recorder.bootstrap}

    def work() -> None:
        java("produce", config=config, topic=topic, tag="j", count=50, padding=10)
        java("consume", config={**config, "group.id": f"java-{protocol}", "auto.offset.reset": "earliest",
                                "group.protocol": protocol}, topics=[topic], count=50, seconds=30)  # fmt: skip

    played = tools.play(recorded(tools, recorder, tmp_path, work), fresh.bootstrap())

    assert played.row("Produce").different == played.row("Fetch").different == 0, played.report.as_json()
    assert played.report.reading.totals() == (50, 50)
    assert len(written(fresh.bootstrap(), topic, 50)) == 50


@pytest.mark.deep
def test_connections_apart_and_in_recorded_time(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path) -> None:
    """At ten times the speed it takes about a tenth of the time, and everything is there all the same."""
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), "timed")
    recording = recorded(
        tools, recorder, tmp_path,
        lambda: produced(recorder.bootstrap, "timed", ["a", "b"]),
        lambda: consumed(recorder.bootstrap, "timed", 2, **{"group.id": "group-3"}),
    )  # fmt: skip
    began = time.monotonic()
    played = tools.play(recording, fresh.bootstrap(), Pace(10, "connection"))

    assert time.monotonic() - began >= recording.seconds / 10
    assert [value for _, _, value in written(fresh.bootstrap(), "timed", 2)] == ["a", "b"]
    assert played.row("Produce").same == played.row("Produce").sent


@pytest.mark.deep
def test_a_cluster_of_three_with_authentication(tools: Any, recorder: Any, tmp_path: Path) -> None:
    """What one broker was asked goes to the leaders and coordinators among three, each of which wants a password.

    Takes as long as three brokers need to start.
    """
    create_topics(recorder.kafka.bootstrap(), "spread", partitions=6)
    values = [f"v{number}" for number in range(60)]
    recording = recorded(
        tools, recorder, tmp_path,
        lambda: produced(recorder.bootstrap, "spread", values, **{"enable.idempotence": True}),
        lambda: consumed(recorder.bootstrap, "spread", 60, **{"group.id": "group-4"}),
    )  # fmt: skip
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    sasl = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f'{module} required user_me="secret";'}
    with Kafka(3, listeners=[KafkaListener("SASL", "SASL_PLAINTEXT", sasl)]) as target:
        create_topics(target.bootstrap(), "spread", partitions=6)
        played = tools.play(recording, target.bootstrap("SASL"), authenticate=partial(plain, "me", "secret"))
        there = written(target.bootstrap(), "spread", 60)

    assert not played.report.differs, played.report.as_json()
    assert played.report.reading.totals() == (60, 60)
    assert len(played.player.router.spread) == 1
    assert there == written(recorder.kafka.bootstrap(), "spread", 60)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_grows(tools: Any, recorder: Any, fresh: Kafka, tmp_path: Path, protocol: str) -> None:
    """A second member joins while the first reads: both are members of the target's group, in its generations.

    Which heartbeat hears of the rebalance first depends on the moment; nothing else may differ.
    """
    topic = f"grows-{protocol}"
    for each in (recorder.kafka, fresh):
        create_topics(each.bootstrap(), topic, partitions=4)

    def work() -> None:
        produced(recorder.bootstrap, topic, [f"v{number}" for number in range(40)])
        settings = {"group.protocol": protocol} | ({"heartbeat.interval.ms": 300} if protocol == "classic" else {})
        members = [
            Consumer({"bootstrap.servers": recorder.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
                      "enable.auto.commit": False, **settings})
            for _ in range(2)
        ]  # fmt: skip
        limit = time.monotonic() + WAIT
        for count, joined in ((1, members[:1]), (2, members)):
            joined[-1].subscribe([topic])
            while not all(len(member.assignment()) == 4 // count for member in joined):
                assert time.monotonic() < limit
                for member in joined:
                    member.poll(0.05)
        for member in members:
            member.close()

    report = tools.play(recorded(tools, recorder, tmp_path, work), fresh.bootstrap()).report.as_json()
    errors = {(row["api"], one["recorded"], one["now"]) for row in report["apis"] for one in row["samples"]
              if one["error"]}  # fmt: skip

    assert errors <= {
        ("Heartbeat", "REBALANCE_IN_PROGRESS", "NONE"), ("Heartbeat", "NONE", "REBALANCE_IN_PROGRESS"),
    }, report  # fmt: skip
    assert all(reason.endswith(WAS_REFUSED) for reason in report["not_sent"])
