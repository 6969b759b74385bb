"""The scenario of tests/lab/matrix/scenario.py by aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

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


async def produce(word: str, producer: AIOKafkaProducer) -> list[str]:
    """`word-0` and so on to all partitions in turn; the names of the topics that were confirmed."""
    sent = [
        await producer.send(TOPIC, f"{word}-{number}".encode(), partition=number % PARTITIONS)
        for number in range(COUNT)
    ]
    return sorted({(await answer).topic for answer in sent})


async def produce_alone(word: str) -> list[str]:
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        return await produce(word, producer)


def consumer(group: str, *topics: str, **more: Any) -> AIOKafkaConsumer:
    """A consumer from the beginning that does not commit by itself."""
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **more}
    times = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
    return AIOKafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, **{**times, **settings})


async def poll(members: Sequence[AIOKafkaConsumer], enough: Callable[[list[list[Any]]], bool]) -> list[list[Any]]:
    """What each member received until it is enough."""
    limit = time.monotonic() + SECONDS
    found: list[list[Any]] = [[] for _ in members]
    while not enough(found):
        if time.monotonic() > limit:
            raise TimeoutError(f"received only {[len(one) for one in found]}")
        for member, received in zip(members, found, strict=True):
            for records in (await member.getmany(timeout_ms=100)).values():
                received.extend(records)
    return found


def values(records: Sequence[Any]) -> list[str]:
    return [record.value.decode() for record in records]


def names(records: Sequence[Any]) -> list[str]:
    return sorted({record.topic for record in records})


async def produce_step() -> dict[str, Any]:
    return {"topics": await produce_alone("v")}


async def consume_step() -> dict[str, Any]:
    async with consumer(GROUP, TOPIC) as member:
        (found,) = await poll([member], lambda found: len(found[0]) >= COUNT)
        await member.commit()
    return {"topics": names(found), "values": values(found)}


async def group_step() -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(consumer(GROUP, TOPIC)) for _ in range(2)]
        await poll([first, second], lambda _: bool(first.assignment() and second.assignment()))
        assigned = {place.topic for member in (first, second) for place in member.assignment()}
        await produce_alone("w")
        shared = await poll([first, second], lambda found: len(set(values(found[0] + found[1]))) >= COUNT)
        for member in (first, second):
            await member.commit()
        await second.stop()
        await poll([first], lambda _: len(first.assignment()) == PARTITIONS)  # or records would be read twice
        await produce_alone("x")
        (alone,) = await poll([first], lambda found: len(set(values(found[0]))) >= COUNT)
        await first.commit()
        committed = [await first.committed(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
    return {
        "topics": sorted({*names(shared[0] + shared[1] + alone), *assigned}),
        "shares": [len(found) for found in shared],
        "values": sorted(set(values(shared[0] + shared[1] + alone))),
        "committed": sum(committed),
    }


async def transactions_step() -> dict[str, Any]:
    group = f"{GROUP}-offsets"
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=TRANSACTIONAL_ID) as producer:
        for word, finish in (("aborted", producer.abort_transaction), ("kept", producer.commit_transaction)):
            await producer.begin_transaction()
            await produce(word, producer)
            await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 7}, group)
            await finish()
    async with consumer(group, isolation_level="read_committed") as reader:
        for _ in range(SECONDS * 10):
            if (committed := await reader.committed(TopicPartition(TOPIC, 0))) is not None:
                break
            await asyncio.sleep(0.1)  # the commit is on its way
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        reader.assign(places)
        await reader.seek_to_beginning(*places)
        (found,) = await poll(
            [reader], lambda found: sum(value.startswith("kept") for value in values(found[0])) >= COUNT
        )
    words = [value for value in values(found) if value.startswith(("kept", "aborted"))]
    return {"topics": names(found), "values": words, "committed": committed}


async def wait_for(admin: AIOKafkaAdminClient, there: bool) -> list[str]:
    """The names of all topics once MADE is among them or not."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        topics = sorted(await admin.list_topics())
        if there == (MADE in topics):
            return topics
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{MADE} {'is not there' if there else 'is still there'}")


async def admin_step() -> dict[str, Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(MADE, 2, 1)])
        listed = await wait_for(admin, True)
        (described,) = await admin.describe_topics([MADE])
        while not described["partitions"]:  # another broker, which has not heard of it yet
            await asyncio.sleep(0.1)
            (described,) = await admin.describe_topics([MADE])
        groups = await admin.list_consumer_groups()
        (answer,) = await admin.describe_consumer_groups([GROUP])
        await admin.delete_topics([MADE])
        await wait_for(admin, False)
    finally:
        await admin.close()
    (about,) = answer.groups
    return {
        "topics": [described["topic"]],
        "listed": listed,
        "partitions": len(described["partitions"]),
        "groups": [one[0] for one in groups],
        "described": about[1],
        "members": len(about[5]),
    }


async def brokers_step() -> dict[str, Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    try:
        known = (await admin.describe_cluster())["brokers"]
    finally:
        await admin.close()
    return {"addresses": [f"{one['host']}:{one['port']}" for one in known]}


async def write(traffic: Traffic, producer: AIOKafkaProducer) -> None:
    """A round of records, confirmed or failed when it returns."""

    async def one(value: str, partition: int) -> None:
        try:
            answer = await producer.send(TOPIC, value.encode(), partition=partition)
            place = await asyncio.wait_for(answer, traffic.left())
            traffic.acknowledged.append((value, place.partition, place.offset))
        except Exception as error:  # noqa: BLE001
            traffic.failed.append((value, named(error)))

    await asyncio.gather(*(one(value, partition) for value, partition in traffic.next_values()))


async def read_until(traffic: Traffic, member: AIOKafkaConsumer, enough: Callable[[], bool], until: float) -> None:
    while not enough() and time.monotonic() < until:
        try:
            found = await member.getmany(timeout_ms=200)
        except Exception as error:  # noqa: BLE001
            traffic.note(error)
            await asyncio.sleep(0.1)
            continue
        for records in found.values():
            for record in records:
                traffic.took(record.value, record.partition, record.offset)


async def noted(traffic: Traffic, doing: Awaitable[None]) -> None:
    try:
        await doing
    except Exception as error:  # noqa: BLE001
        traffic.note(error)


async def traffic_step() -> dict[str, Any]:
    """Write and read by turns; what fails is noted."""
    traffic = Traffic()
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, request_timeout_ms=5_000)
    await producer.start()
    members: list[AIOKafkaConsumer] = []
    for number in range(ROUNDS):
        await write(traffic, producer)
        if number in (0, ROUNDS // 2):
            for earlier in members:
                await noted(traffic, earlier.stop())
            members = [consumer(GROUP, TOPIC, session_timeout_ms=6_000, request_timeout_ms=5_000)]
            await noted(traffic, members[0].start())
        await read_until(traffic, members[0], traffic.all_read, traffic.round_ends())
        await noted(traffic, members[0].commit())
        if time.monotonic() > traffic.limit:
            break
    await read_until(traffic, members[0], traffic.all_read, traffic.limit)
    await read_until(traffic, members[0], lambda: False, time.monotonic() + 1)
    await noted(traffic, members[0].stop())
    await noted(traffic, producer.stop())
    return traffic.told()


STEPS = (produce_step, consume_step, group_step, transactions_step, admin_step, brokers_step, traffic_step)

if __name__ == "__main__":
    run(aiokafka.__version__, STEPS)
