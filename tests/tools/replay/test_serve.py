"""Real clients do again what they did, against a stage and no broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kproxy.record.captures.reader import read
from kproxy.tools.replay.responder import RecordingResponder
from kproxy.tools.replay.sockets import ResponderServer
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics

pytestmark = pytest.mark.kafka
WAIT = 60.0


@contextmanager
def serving(recording: Any) -> Iterator[tuple[RecordingResponder, str]]:
    """The stage, and the `host:port` that it serves on, in a thread of its own."""
    stage, started = RecordingResponder(recording), threading.Event()
    found: dict[str, Any] = {}

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            found["port"] = await nursery.start(ResponderServer(stage, ("127.0.0.1", 0)).run)
            found["token"], found["scope"] = trio.lowlevel.current_trio_token(), nursery.cancel_scope
            started.set()

    thread = threading.Thread(target=trio.run, args=(run,), daemon=True)
    thread.start()
    assert started.wait(WAIT)
    try:
        yield stage, f"127.0.0.1:{found['port']}"
    finally:
        found["token"].run_sync_soon(found["scope"].cancel)
        thread.join(WAIT)


def produce(bootstrap: str, topic: str, count: int, **settings: Any) -> list[tuple[int, int]]:
    """Write v0, v1, …; partition and offset of each as the delivery report says."""
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    found: list[tuple[int, int]] = []
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        (failed if error else found).append(error or (message.partition(), message.offset()))

    for number in range(count):
        producer.produce(topic, key=str(number), value=f"v{number}", on_delivery=delivered)
    left = producer.flush(WAIT)

    assert (left, failed) == (0, [])
    return sorted(found)


def consume(bootstrap: str, topic: str, count: int, group: str) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of so many records; they are committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([topic])
    found, limit = [], time.monotonic() + WAIT
    while len(found) < count and time.monotonic() < limit:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append((message.partition(), message.offset(), message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def transactions(bootstrap: str, topic: str) -> None:
    """One that is committed, one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(WAIT)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, key=str(number), value=f"{end.__name__}-{number}")
        end(WAIT)


def recorded(tools: Any, recorder: Any, path: Path, *work: Any) -> Any:
    """What passed while this was done."""
    tap = recorder.tap()
    answers = [one() for one in work]
    return answers, tools.record(read(tools.capture(tap.close(), path / "traffic.pcapng")))


def test_a_producer_and_a_consumer(tools: Any, recorder: Any, tmp_path: Path) -> None:
    """They get the recorded offsets and the recorded records, and nothing that they ask is without an answer."""
    create_topics(recorder.kafka.bootstrap(), "served", partitions=3)
    settings = {"enable.idempotence": True}
    before, recording = recorded(
        tools, recorder, tmp_path,
        lambda: produce(recorder.bootstrap, "served", 100, **settings),
        lambda: consume(recorder.bootstrap, "served", 100, "served-group"),
    )  # fmt: skip
    with serving(recording) as (stage, bootstrap):
        again = [produce(bootstrap, "served", 100, **settings), consume(bootstrap, "served", 100, "served-group")]

    assert again == before
    assert stage.unmatched == {}


def test_transactions(tools: Any, recorder: Any, tmp_path: Path) -> None:
    """A transactional producer goes through its life, and a reader gets what was committed."""
    create_topics(recorder.kafka.bootstrap(), "served-tx")
    (_, before), recording = recorded(
        tools, recorder, tmp_path,
        lambda: transactions(recorder.bootstrap, "served-tx"),
        lambda: consume(recorder.bootstrap, "served-tx", 5, "served-tx-group"),
    )  # fmt: skip
    with serving(recording) as (stage, bootstrap):
        transactions(bootstrap, "served-tx")
        again = consume(bootstrap, "served-tx", 5, "served-tx-group")

    assert again == before
    assert [value for _, _, value in again] == [f"commit_transaction-{number}".encode() for number in range(5)]
    assert stage.unmatched == {}


def test_java_clients(tools: Any, recorder: Any, tmp_path: Path, java: JavaProgram) -> None:
    """With topics by id, a group of KIP-848, and as many brokers as they like at one address."""
    create_topics(recorder.kafka.bootstrap(), "served-java", partitions=2)

    def work(bootstrap: str) -> Any:
        config = {"bootstrap.servers": bootstrap}
        java("produce", config=config, topic="served-java", tag="j", count=20, padding=10)
        reader = {**config, "group.id": "served-java", "auto.offset.reset": "earliest", "group.protocol": "consumer"}
        return sorted(java("consume", config=reader, topics=["served-java"], count=20, seconds=20))

    (before,), recording = recorded(tools, recorder, tmp_path, lambda: work(recorder.bootstrap))
    with serving(recording) as (stage, bootstrap):
        again = work(bootstrap)

    assert again == before
    assert stage.unmatched == {}


def test_what_was_never_asked_gets_an_error_and_is_told(tools: Any, recorder: Any, tmp_path: Path) -> None:
    """A topic that the recording lacks does not exist, and an API that it lacks fails."""
    create_topics(recorder.kafka.bootstrap(), "served-some")
    _, recording = recorded(tools, recorder, tmp_path, lambda: produce(recorder.bootstrap, "served-some", 3))
    with serving(recording) as (stage, bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        known = admin.list_topics("served-some", timeout=WAIT).topics["served-some"]
        other = admin.list_topics("other", timeout=WAIT).topics["other"]
        with pytest.raises(KafkaException):
            admin.delete_topics(["served-some"], request_timeout=5)["served-some"].result(WAIT)

    assert (list(known.partitions), known.error) == ([0], None)
    assert other.error is not None
    assert any(text.startswith("DeleteTopics") for text in stage.unmatched)
    assert any(text.startswith("Metadata") and "other" in text for text in stage.unmatched)
