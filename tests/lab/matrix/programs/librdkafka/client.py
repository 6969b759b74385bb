"""The scenario of tests/lab/matrix/scenario.py by confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, libversion, version
from confluent_kafka.admin import AdminClient, NewTopic

from tests.lab.matrix.programs.common import (
    BOOTSTRAP,
    COUNT,
    GROUP,
    MADE,
    PARTITIONS,
    ROUNDS,
    SECONDS,
    TOPIC,
    TRANSACTIONAL_ID,
    Traffic,
    run,
)

COMMON = {"bootstrap.servers": BOOTSTRAP, "log_level": 0}


def produce(word: str, producer: Producer | None = None) -> set[str]:
    """`word-0` and so on to all partitions in turn; the names of the topics that were confirmed."""
    confirmed: set[str] = set()

    def done(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        confirmed.add(str(message.topic()))

    sender = producer or Producer(COMMON)
    for number in range(COUNT):
        sender.produce(TOPIC, f"{word}-{number}", partition=number % PARTITIONS, callback=done)
    if sender.flush(SECONDS):
        raise RuntimeError("not all was confirmed")
    return confirmed


def consumer(group: str, **more: Any) -> Consumer:
    """A consumer from the beginning that does not commit by itself."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, **more}
    return Consumer({**COMMON, "session.timeout.ms": 10_000, **settings})


def poll(members: Iterable[Consumer], enough: Callable[[list[list[Message]]], bool]) -> list[list[Message]]:
    """What each member received until it is enough."""
    members, limit = list(members), time.monotonic() + SECONDS
    found: list[list[Message]] = [[] for _ in members]
    while not enough(found):
        if time.monotonic() > limit:
            raise TimeoutError(f"received only {[len(one) for one in found]}")
        for member, received in zip(members, found, strict=True):
            message = member.poll(0.1)
            if message is not None and message.error() is None:
                received.append(message)
    return found


def values(messages: Iterable[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def names(messages: Iterable[Message]) -> list[str]:
    return sorted({str(message.topic()) for message in messages})


def produce_step() -> dict[str, Any]:
    return {"topics": sorted(produce("v"))}


def consume_step() -> dict[str, Any]:
    member = consumer(GROUP)
    member.subscribe([TOPIC])
    (found,) = poll([member], lambda found: len(found[0]) >= COUNT)
    member.commit(asynchronous=False)
    member.close()
    return {"topics": names(found), "values": values(found)}


def group_step() -> dict[str, Any]:
    first, second = consumer(GROUP), consumer(GROUP)
    for member in (first, second):
        member.subscribe([TOPIC])
    poll([first, second], lambda _: bool(first.assignment() and second.assignment()))
    assigned = {place.topic for member in (first, second) for place in member.assignment()}
    produce("w")
    shared = poll([first, second], lambda found: len({*values(found[0] + found[1])}) >= COUNT)
    for member in (first, second):
        member.commit(asynchronous=False)
    second.close()
    poll([first], lambda _: len(first.assignment()) == PARTITIONS)  # or records would be read twice
    produce("x")
    (alone,) = poll([first], lambda found: len(set(values(found[0]))) >= COUNT)
    first.commit(asynchronous=False)
    committed = first.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], SECONDS)
    first.close()
    return {
        "topics": sorted({*names(shared[0] + shared[1] + alone), *assigned, *(place.topic for place in committed)}),
        "shares": [len(found) for found in shared],
        "values": sorted({*values(shared[0] + shared[1] + alone)}),
        "committed": sum(place.offset for place in committed),
    }


def transactions_step() -> dict[str, Any]:
    producer = Producer({**COMMON, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(SECONDS)
    reader = consumer(f"{GROUP}-offsets", **{"isolation.level": "read_committed"})
    for word, finish in (("aborted", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        produce(word, producer)
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 7)], reader.consumer_group_metadata(), SECONDS)
        finish(SECONDS)
    (committed,) = reader.committed([TopicPartition(TOPIC, 0)], SECONDS)
    reader.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    (found,) = poll([reader], lambda found: sum(value.startswith("kept") for value in values(found[0])) >= COUNT)
    reader.close()
    words = [value for value in values(found) if value.startswith(("kept", "aborted"))]
    return {"topics": names(found), "values": words, "committed": committed.offset}


def wait_for(admin: AdminClient, partitions: int) -> list[str]:
    """The names of all topics once MADE has so many partitions, 0 for none."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        topics = admin.list_topics(timeout=SECONDS).topics
        if partitions == (len(topics[MADE].partitions) if MADE in topics else 0):
            return sorted(topics)
        time.sleep(0.1)
    raise TimeoutError(f"{MADE} has not got {partitions} partitions")


def admin_step() -> dict[str, Any]:
    admin = AdminClient(COMMON)
    admin.create_topics([NewTopic(MADE, num_partitions=2, replication_factor=1)])[MADE].result(SECONDS)
    listed = wait_for(admin, 2)
    groups = admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS).valid
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
    admin.delete_topics([MADE])[MADE].result(SECONDS)
    wait_for(admin, 0)
    return {
        "listed": listed,
        "partitions": 2,
        "groups": [one.group_id for one in groups],
        "described": described.group_id,
        "members": len(described.members),
    }


def brokers_step() -> dict[str, Any]:
    known = AdminClient(COMMON).list_topics(timeout=SECONDS).brokers.values()
    return {"addresses": [f"{one.host}:{one.port}" for one in known]}


def write(traffic: Traffic, producer: Producer) -> None:
    """A round of records, confirmed or failed when it returns, unless the time is up."""

    def done(error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is None:
            traffic.acknowledged.append((value, int(message.partition() or 0), int(message.offset() or 0)))
        else:
            traffic.failed.append((value, str(error)))

    for value, partition in traffic.next_values():
        producer.produce(TOPIC, value, partition=partition, callback=done)
    producer.flush(traffic.left())


def read_until(traffic: Traffic, member: Consumer, enough: Callable[[], bool], until: float) -> None:
    while not enough() and time.monotonic() < until:
        message = member.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            traffic.note(message.error())
        else:
            traffic.took(message.value(), int(message.partition() or 0), int(message.offset() or 0))


def traffic_step() -> dict[str, Any]:
    """Write and read by turns; what fails is noted."""
    traffic = Traffic()
    limits = {"request.timeout.ms": 5_000, "message.timeout.ms": 20_000}
    producer = Producer({**COMMON, **limits, "error_cb": traffic.note})
    members: list[Consumer] = []
    for number in range(ROUNDS):
        write(traffic, producer)
        if number in (0, ROUNDS // 2):
            for earlier in members:
                earlier.close()
            times = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
            members = [consumer(GROUP, **times, error_cb=traffic.note)]
            members[0].subscribe([TOPIC])
        read_until(traffic, members[0], traffic.all_read, traffic.round_ends())
        try:
            members[0].commit(asynchronous=False)
        except KafkaException as error:
            traffic.note(error)
        if time.monotonic() > traffic.limit:
            break
    read_until(traffic, members[0], traffic.all_read, traffic.limit)
    read_until(traffic, members[0], lambda: False, time.monotonic() + 1)
    members[0].close()
    return traffic.told()


def shown_version() -> str:
    """The versions of the binding and of librdkafka."""
    binding = version()
    return f"{binding[0] if isinstance(binding, tuple) else binding} ({libversion()[0]})"


STEPS = (produce_step, consume_step, group_step, transactions_step, admin_step, brokers_step, traffic_step)

if __name__ == "__main__":
    run(shown_version(), STEPS)
