"""Kafka's own Java clients: what they produce arrives, whatever way it takes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.support.java_program import JavaError, JavaProgram

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 200


def consumer(route: Any, group: str, **more: Any) -> dict[str, Any]:
    """Settings of a consumer that starts at the beginning."""
    settings = {"bootstrap.servers": route.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return settings | {"metadata.max.age.ms": 1000} | {key.replace("_", "."): value for key, value in more.items()}


def produce(java: JavaProgram, route: Any, topic: str, tag: str, count: int = COUNT, **settings: Any) -> Any:
    """Produce `count` records; the topic names that the client was told, with the number of each."""
    config = {"bootstrap.servers": route.bootstrap, **settings}
    return java("produce", config=config, topic=topic, tag=tag, count=count, padding=100)


def values(rows: list[Any]) -> Counter[str]:
    """The values of consumed rows, without their padding."""
    return Counter(row[2].split()[0] for row in rows)


def expected(tag: str, count: int = COUNT) -> Counter[str]:
    """What produce() wrote under that tag."""
    return Counter(f"{tag}-{number}" for number in range(count))


def test_every_codec_and_acks_value_arrives_whole(java: JavaProgram, route: Any) -> None:
    """Records of every codec, with acks 0, 1 and all, idempotent or not, are consumed as many and as they were."""
    topic = route.create("codecs")
    sent: Counter[str] = Counter()
    for codec in CODECS:
        for acks in ("0", "1", "all"):
            tag = f"{codec}-{acks}"
            settings = {"compression.type": codec, "acks": acks, "enable.idempotence": acks == "all"}

            assert produce(java, route, topic, tag, 40, **settings) == {topic: 40}
            sent += expected(tag, 40)

    rows = java("consume", config=consumer(route, f"g-{topic}"), topics=[topic], count=sent.total(), seconds=30)

    assert values(rows) == sent
    assert {row[0] for row in rows} == {topic}
    assert {row[1] for row in rows} == {0, 1, 2}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_share_the_partitions_of_a_topic(java: JavaProgram, route: Any, protocol: str) -> None:
    """Two members of a group, classic or new, share the partitions, named as the client does, and get all records."""
    topic = route.create("group")
    group = f"g-{topic}"
    config = consumer(route, group, group_protocol=protocol)
    both = [
        java.start("consume", config=config, topics=[topic], count=COUNT, together=group, seconds=40) for _ in range(2)
    ]

    described = wait_for_group(java, route, group, members=2, partitions=3)
    produce(java, route, topic, "v")
    first, second = (values(member.result(60)) for member in both)

    assert described["assigned"] == [f"{topic}-{partition}" for partition in range(3)]
    assert described["type"] == ("Classic" if protocol == "classic" else "Consumer")
    assert first.total() > 0
    assert second.total() > 0
    assert first + second == expected("v")


def wait_for_group(java: JavaProgram, route: Any, group: str, members: int, partitions: int) -> dict[str, Any]:
    """The description of a group once it has that many members with that many partitions in all, each at work."""
    limit = time.monotonic() + 30
    found: dict[str, Any] = {}
    while time.monotonic() < limit:
        try:
            (found,) = java("admin", config={"bootstrap.servers": route.bootstrap}, steps=[["members", group]])
        except JavaError as error:
            if "GroupIdNotFoundException" not in str(error):  # nobody has joined yet
                raise
        else:
            if (found["members"], len(found["assigned"]), found["state"]) == (members, partitions, "Stable"):
                return found
    raise AssertionError(f"group {group} did not settle, last seen: {found}")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_regex_of_the_client_finds_topics(java: JavaProgram, route: Any, protocol: str) -> None:
    """A subscription by a pattern that the client evaluates receives from all topics it means, and no others."""
    wanted = [route.create("regex"), route.create("regex")]
    other = route.create("else")
    for topic in (*wanted, other):
        produce(java, route, topic, topic, 50)
    pattern = "|".join(f"{topic[:-1]}[{topic[-1]}]" for topic in wanted)
    config = consumer(route, f"g-{wanted[0]}", group_protocol=protocol)

    rows = java("consume", config=config, pattern=pattern, count=100, seconds=30)

    assert Counter(row[0] for row in rows) == dict.fromkeys(wanted, 50)


def test_a_regex_of_the_broker_finds_topics(java: JavaProgram, route: Any) -> None:
    """A pattern that the broker evaluates (KIP-848) means client-side names, topics made later included."""
    first = route.create("served")
    produce(java, route, first, "early", 50)
    config = consumer(route, f"g-{first}", group_protocol="consumer")
    pattern = f"{first.rsplit('-', 1)[0]}-\\d+"

    rows = java("consume", config=config, broker_pattern=pattern, count=50, seconds=30)

    assert values(rows) == expected("early", 50)
    assert {row[0] for row in rows} == {first}


def test_transactions_copy_exactly_once(java: JavaProgram, route: Any) -> None:
    """A copy in transactions, one of them aborted, has each record once for a consumer that reads committed ones."""
    source, target = route.create("source"), route.create("target")
    produce(java, route, source, "v")
    reader = consumer(route, f"copy-{source}", enable_auto_commit=False, isolation_level="read_committed")
    writer = {"bootstrap.servers": route.bootstrap, "transactional.id": f"copy-{source}"}

    done = java("copy", consumer=reader, producer=writer, **{"from": source, "to": target}, count=COUNT)
    config = consumer(route, f"g-{target}", isolation_level="read_committed")
    rows = java("consume", config=config, topics=[target], count=COUNT, seconds=30)
    dirty = consumer(route, f"dirty-{target}")
    every = java("consume", config=dirty, topics=[target], count=COUNT + done["aborted"], seconds=30)

    assert done["copied"] == COUNT
    assert done["aborted"] > 0
    assert values(rows) == expected("v")
    assert values(every).total() == COUNT + done["aborted"]


def test_share_groups_take_each_record(java: JavaProgram, route: Any) -> None:
    """A share group (KIP-932) that starts at the beginning takes every record, and is told the client's topic name."""
    topic = route.create("shared")
    produce(java, route, topic, "v")
    group = f"share-{topic}"
    begin = ["set_config", "GROUP", group, "share.auto.offset.reset", "earliest"]
    java("admin", config={"bootstrap.servers": route.bootstrap}, steps=[begin])
    config = {"bootstrap.servers": route.bootstrap, "group.id": group}

    rows = java("share", config=config, topics=[topic], count=COUNT, seconds=30)

    assert set(values(rows)) == set(expected("v"))
    assert {row[0] for row in rows} == {topic}


def test_console_tools_move_lines(java: JavaProgram, route: Any) -> None:
    """Lines given to kafka-console-producer come out of kafka-console-consumer."""
    topic = route.create("console", partitions=1)
    lines = [f"line {number}" for number in range(20)]
    to = ["--bootstrap-server", route.bootstrap, "--topic", topic]

    java("tool", **{"class": "org.apache.kafka.tools.ConsoleProducer"}, arguments=to, stdin="\n".join(lines) + "\n")
    more = [*to, "--from-beginning", "--max-messages", "20", "--timeout-ms", "20000"]
    out = java("tool", **{"class": "org.apache.kafka.tools.consumer.ConsoleConsumer"}, arguments=more)

    assert out["out"].split("\n") == [*lines, ""]
