"""aiokafka, which speaks old versions of the protocol: what it produces arrives, whatever way it takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

CODECS = [None, "gzip", "lz4", "snappy", "zstd"]
SECONDS = 40


def run(scenario: Any) -> Any:
    """Run a coroutine for a limited time."""
    return asyncio.run(asyncio.wait_for(scenario, SECONDS))


async def consume(route: Any, topic: str, count: int, **settings: Any) -> Counter[tuple[str, str]]:
    """(topic, value) of so many records, by a group that starts at the beginning."""
    config = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"} | settings
    found: Counter[tuple[str, str]] = Counter()
    async with AIOKafkaConsumer(topic, bootstrap_servers=route.bootstrap, **config) as consumer:
        while found.total() < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found.update((record.topic, record.value.decode()) for record in records)
    return found


def test_every_codec_and_acks_value_arrives_whole(route: Any) -> None:
    """Records of every codec, with acks 0, 1 and all, idempotent or not, are consumed as many and as they were."""
    topic = route.create("aio-codecs")
    sent: Counter[tuple[str, str]] = Counter()

    async def scenario() -> Counter[tuple[str, str]]:
        for codec in CODECS:
            for acks in (0, 1, "all"):
                settings = {"compression_type": codec, "acks": acks, "enable_idempotence": acks == "all"}
                async with AIOKafkaProducer(bootstrap_servers=route.bootstrap, **settings) as producer:
                    for number in range(20):
                        await producer.send(topic, f"{codec}-{acks}-{number}".encode())
                sent.update((topic, f"{codec}-{acks}-{number}") for number in range(20))
        return await consume(route, topic, sent.total())

    assert run(scenario()) == sent


def test_transactions_copy_exactly_once(route: Any) -> None:
    """What an aborted transaction wrote is not read; what a committed one wrote is; the offsets are part of it."""
    source, target = route.create("aio-source", partitions=1), route.create("aio-target")
    group = f"copy-{source}"

    async def scenario() -> Counter[tuple[str, str]]:
        async with AIOKafkaProducer(bootstrap_servers=route.bootstrap, transactional_id=group) as producer:
            for word in ("aborted", "kept"):
                await producer.begin_transaction()
                for number in range(10):
                    await producer.send(target, f"{word}-{number}".encode())
                await producer.send_offsets_to_transaction({TopicPartition(source, 0): 7}, group)
                await (producer.abort_transaction() if word == "aborted" else producer.commit_transaction())
        return await consume(route, target, 10, isolation_level="read_committed")

    async def committed() -> int | None:
        async with AIOKafkaConsumer(bootstrap_servers=route.bootstrap, group_id=group) as consumer:
            offset: int | None = await consumer.committed(TopicPartition(source, 0))
            return offset

    assert run(scenario()) == Counter((target, f"kept-{number}") for number in range(10))
    assert run(committed()) == 7
