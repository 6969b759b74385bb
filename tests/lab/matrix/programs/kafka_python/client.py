"""The scenario of tests/lab/matrix/scenario.py by kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

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
    named,
    run,
)


def produce(word: str, producer: KafkaProducer) -> list[str]:
    """`word-0` and so on to all partitions in turn; the names of the topics that were confirmed."""
    sent = [producer.send(TOPIC, f"{word}-{number}".encode(), partition=number % PARTITIONS) for number in range(COUNT)]
    producer.flush(SECONDS)
    return sorted({answer.get(SECONDS).topic for answer in sent})


def produce_alone(word: str) -> list[str]:
    with closing(KafkaProducer(bootstrap_servers=BOOTSTRAP)) as producer:
        return produce(word, producer)


def consumer(group: str, **more: Any) -> KafkaConsumer:
    """A consumer from the beginning that does not commit by itself."""
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **more}
    return KafkaConsumer(bootstrap_servers=BOOTSTRAP, session_timeout_ms=10_000, heartbeat_interval_ms=500, **settings)


def poll(members: Sequence[KafkaConsumer], enough: Callable[[list[list[Any]]], bool]) -> list[list[Any]]:
    """What each member received until it is enough."""
    limit = time.monotonic() + SECONDS
    found: list[list[Any]] = [[] for _ in members]
    while not enough(found):
        if time.monotonic() > limit:
            raise TimeoutError(f"received only {[len(one) for one in found]}")
        for member, received in zip(members, found, strict=True):
            for records in member.poll(1000).values():  # it gives up joining the group when that is over
                received.extend(records)
    return found


def values(records: Sequence[Any]) -> list[str]:
    return [record.value.decode() for record in records]


def names(records: Sequence[Any]) -> list[str]:
    return sorted({record.topic for record in records})


def produce_step() -> dict[str, Any]:
    return {"topics": produce_alone("v")}


def consume_step() -> dict[str, Any]:
    with closing(consumer(GROUP)) as member:
        member.subscribe([TOPIC])
        (found,) = poll([member], lambda found: len(found[0]) >= COUNT)
        member.commit()
    return {"topics": names(found), "values": values(found)}


def group_step() -> dict[str, Any]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(consumer(GROUP))) for _ in range(2))
        for member in (first, second):
            member.subscribe([TOPIC])
        poll([first, second], lambda _: bool(first.assignment() and second.assignment()))
        assigned = {place.topic for member in (first, second) for place in member.assignment()}
        produce_alone("w")
        shared = poll([first, second], lambda found: len(set(values(found[0] + found[1]))) >= COUNT)
        for member in (first, second):
            member.commit()
        second.close()
        poll([first], lambda _: len(first.assignment()) == PARTITIONS)  # or records would be read twice
        produce_alone("x")
        (alone,) = poll([first], lambda found: len(set(values(found[0]))) >= COUNT)
        first.commit()
        committed = [first.committed(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
    return {
        "topics": sorted({*names(shared[0] + shared[1] + alone), *assigned}),
        "shares": [len(found) for found in shared],
        "values": sorted(set(values(shared[0] + shared[1] + alone))),
        "committed": sum(committed),
    }


def transactions_step() -> dict[str, Any]:
    group = f"{GROUP}-offsets"
    with closing(KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=TRANSACTIONAL_ID)) as producer:
        producer.init_transactions()
        for word, finish in (("aborted", producer.abort_transaction), ("kept", producer.commit_transaction)):
            producer.begin_transaction()
            produce(word, producer)
            producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(7, "", -1)}, group)
            finish()
    with closing(consumer(group, isolation_level="read_committed")) as reader:
        while (committed := reader.committed(TopicPartition(TOPIC, 0))) is None:  # the commit is on its way
            time.sleep(0.1)
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        reader.assign(places)
        reader.seek_to_beginning(*places)
        (found,) = poll([reader], lambda found: sum(value.startswith("kept") for value in values(found[0])) >= COUNT)
    words = [value for value in values(found) if value.startswith(("kept", "aborted"))]
    return {"topics": names(found), "values": words, "committed": committed}


def wait_for(admin: KafkaAdminClient, there: bool) -> list[str]:
    """The names of all topics once MADE is among them or not."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        topics = sorted(admin.list_topics())
        if there == (MADE in topics):
            return topics
        time.sleep(0.1)
    raise TimeoutError(f"{MADE} {'is not there' if there else 'is still there'}")


def admin_step() -> dict[str, Any]:
    with closing(KafkaAdminClient(bootstrap_servers=BOOTSTRAP)) as admin:
        admin.create_topics([NewTopic(MADE, 2, 1)])
        listed = wait_for(admin, True)
        (described,) = admin.describe_topics([MADE])
        while not described["partitions"]:  # another broker, which has not heard of it yet
            time.sleep(0.1)
            (described,) = admin.describe_topics([MADE])
        groups = admin.list_groups()
        found = admin.describe_groups([GROUP])
        admin.delete_topics([MADE])
        wait_for(admin, False)
    ((group, about),) = found.items()
    return {
        "topics": [described["name"]],
        "listed": listed,
        "partitions": len(described["partitions"]),
        "groups": [one["group_id"] for one in groups],
        "described": group,
        "members": len(about["members"]),
    }


def brokers_step() -> dict[str, Any]:
    with closing(consumer(GROUP)) as one:
        one.topics()
        known = one._client.cluster.brokers()  # describe_cluster() fails with brokers older than 3.7
    return {"addresses": [f"{one.host}:{one.port}" for one in known]}


def write(traffic: Traffic, producer: KafkaProducer) -> None:
    """A round of records, confirmed or failed when it returns."""
    answers = []
    for value, partition in traffic.next_values():
        try:
            answers.append((value, producer.send(TOPIC, value.encode(), partition=partition)))
        except Exception as error:  # noqa: BLE001
            traffic.failed.append((value, named(error)))
    for value, answer in answers:
        try:
            place = answer.get(traffic.left())
            traffic.acknowledged.append((value, place.partition, place.offset))
        except Exception as error:  # noqa: BLE001
            traffic.failed.append((value, named(error)))


def read_until(traffic: Traffic, member: KafkaConsumer, enough: Callable[[], bool], until: float) -> None:
    while not enough() and time.monotonic() < until:
        try:
            found = member.poll(200)
        except Exception as error:  # noqa: BLE001
            traffic.note(error)
            time.sleep(0.1)
            continue
        for records in found.values():
            for record in records:
                traffic.took(record.value, record.partition, record.offset)


def traffic_consumer() -> KafkaConsumer:
    settings = {"group_id": GROUP, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    times = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 6_500}
    return KafkaConsumer(TOPIC, bootstrap_servers=BOOTSTRAP, **settings, **times)


def traffic_step() -> dict[str, Any]:
    """Write and read by turns; what fails is noted."""
    traffic = Traffic()
    times = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 20_000, "max_block_ms": 20_000}
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, **times)
    members: list[KafkaConsumer] = []
    for number in range(ROUNDS):
        write(traffic, producer)
        if number in (0, ROUNDS // 2):
            for earlier in members:
                earlier.close()
            members = [traffic_consumer()]
        read_until(traffic, members[0], traffic.all_read, traffic.round_ends())
        try:
            members[0].commit()
        except Exception as error:  # noqa: BLE001
            traffic.note(error)
        if time.monotonic() > traffic.limit:
            break
    read_until(traffic, members[0], traffic.all_read, traffic.limit)
    read_until(traffic, members[0], lambda: False, time.monotonic() + 1)
    members[0].close()
    producer.close(1)
    return traffic.told()


STEPS = (produce_step, consume_step, group_step, transactions_step, admin_step, brokers_step, traffic_step)

if __name__ == "__main__":
    run(kafka.__version__, STEPS)
