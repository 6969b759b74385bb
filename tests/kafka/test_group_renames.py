"""Groups and transactional ids under other names upstream, on a real cluster with real clients."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import Proxies
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics

RULES: list[dict[str, Any]] = [
    {"name": "topics", "kind": "rename_topic", "topics": {"gr-*": "prod.gr-*"}},
    {"name": "groups", "kind": "rename_group", "groups": {"app": "prod.app", "team-*": "x.team-*"}},
    {"name": "ids", "kind": "rename_transactional_id", "ids": {"copier-*": "blue.copier-*"}},
]


def direct(java: JavaProgram, kafka: Kafka, *steps: list[Any]) -> list[Any]:
    return list(java("admin", config={"bootstrap.servers": kafka.bootstrap("DIRECT")}, steps=list(steps)))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_another_one_upstream(
    kafka: Kafka, kproxy_process: Proxies, java: JavaProgram, protocol: str
) -> None:
    """It consumes, commits, and is listed, described and deleted under its own name; upstream it has the other."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"), rules=RULES)
    config = {"bootstrap.servers": proxy.bootstrap}
    topic, group = f"gr-{protocol}", f"team-{protocol}"
    create_topics(kafka.bootstrap("DIRECT"), f"prod.{topic}")
    java("produce", config=config, topic=topic, tag="v", count=4)
    consumer = config | {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    rows = java("consume", config=consumer, topics=[topic], count=4, seconds=30)

    def admin(*steps: list[Any]) -> list[Any]:
        return list(java("admin", config=config, steps=list(steps)))

    assert len(rows) == 4
    listed, described, offsets = admin(["groups"], ["members", group], ["group_offsets", group])
    assert group in listed and f"x.{group}" not in listed
    assert described["type"] == {"classic": "Classic", "consumer": "Consumer"}[protocol]
    assert offsets == {f"{topic}-0": 4}
    (there,) = direct(java, kafka, ["groups"])
    assert f"x.{group}" in there and group not in there

    (reached,) = admin(["try", ["group_offsets", f"x.{group}"]])
    assert reached == {}  # a group that is not there has no offsets
    admin(["delete_group", [group]])
    assert f"x.{group}" not in direct(java, kafka, ["groups"])[0]


def test_a_pattern_works_in_a_renamed_group(kafka: Kafka, kproxy_process: Proxies, java: JavaProgram) -> None:
    """A KIP-848 member subscribes by a pattern over renamed topics."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"), rules=RULES)
    config = {"bootstrap.servers": proxy.bootstrap}
    create_topics(kafka.bootstrap("DIRECT"), "prod.gr-pattern-1", "prod.gr-pattern-2")
    for topic in ("gr-pattern-1", "gr-pattern-2"):
        java("produce", config=config, topic=topic, tag="v", count=2)
    consumer = config | {"group.id": "app", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    rows = java("consume", config=consumer, broker_pattern="gr-pattern-[12]", count=4, seconds=30)

    assert sorted({topic for topic, _, _ in rows}) == ["gr-pattern-1", "gr-pattern-2"]
    assert "prod.app" in direct(java, kafka, ["groups"])[0]


def test_a_transaction_has_another_id_upstream(kafka: Kafka, kproxy_process: Proxies, java: JavaProgram) -> None:
    """Exactly-once copying with renamed topics, group and id; the lists show the client's spelling."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"), rules=RULES)
    config = {"bootstrap.servers": proxy.bootstrap}
    create_topics(kafka.bootstrap("DIRECT"), "prod.gr-from", "prod.gr-to")
    java("produce", config=config, topic="gr-from", tag="v", count=6)
    consumer = config | {
        "group.id": "team-copy", "auto.offset.reset": "earliest", "enable.auto.commit": "false"
    }  # fmt: skip
    producer = config | {"transactional.id": "copier-1"}
    copied = java("copy", consumer=consumer, producer=producer, count=6, **{"from": "gr-from", "to": "gr-to"})
    reader = config | {"group.id": "team-read", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    rows = java("consume", config=reader, topics=["gr-to"], count=6, seconds=30)

    assert (copied["copied"], len(rows)) == (6, 6)
    everything, matching, theirs, state, foreign = java(
        "admin",
        config=config,
        steps=[
            ["transactions"], ["transactions", "copier.*"], ["transactions", "blue.*"], ["transaction", "copier-1"],
            ["try", ["transaction", "blue.copier-1"]],
        ],
    )  # fmt: skip
    assert "copier-1" in everything and "blue.copier-1" not in everything
    assert (matching, theirs) == (["copier-1"], [])
    assert (state, foreign) == ("CompleteCommit", "TransactionalIdNotFoundException")
    assert "blue.copier-1" in direct(java, kafka, ["transactions"])[0]
