"""Committed offsets: lag, reset, change and deletion, by Kafka's own tool and by the admin client."""

from __future__ import annotations

from typing import Any

from tests.support.java_program import JavaProgram

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def groups_tool(java: JavaProgram, route: Any, *arguments: str) -> list[list[str]]:
    """What kafka-consumer-groups prints, as words by line."""
    words = ["--bootstrap-server", route.bootstrap, *arguments]
    done = java("tool", **{"class": TOOL}, arguments=words)
    assert done["code"] == 0, done["out"]
    return [line.split() for line in done["out"].splitlines() if line.strip()]


def read_half(java: JavaProgram, route: Any) -> tuple[str, str]:
    """A topic with one partition of 40 records, and a group that consumed and committed all of them."""
    topic = route.create("lag", partitions=1)
    group = f"g-{topic}"
    config = {"bootstrap.servers": route.bootstrap}
    java("produce", config=config, topic=topic, tag="v", count=40, padding=10)
    reader = config | {"group.id": group, "auto.offset.reset": "earliest"}
    assert len(java("consume", config=reader, topics=[topic], count=40, seconds=30)) == 40
    return topic, group


def test_the_tool_shows_and_resets_offsets(java: JavaProgram, route: Any) -> None:
    """kafka-consumer-groups names the client's topic, its offset and lag, and sets it back to where it is told."""
    topic, group = read_half(java, route)
    select = ["--group", group]

    before = groups_tool(java, route, "--describe", *select)
    reset = groups_tool(java, route, "--reset-offsets", *select, "--topic", topic, "--to-offset", "15", "--execute")
    after = groups_tool(java, route, "--describe", *select)
    listed = groups_tool(java, route, "--list")

    def columns(lines: list[list[str]]) -> list[list[str]]:
        return [line[1:6] for line in lines if line[0] == group]

    assert columns(before) == [[topic, "0", "40", "40", "0"]]
    assert [group, topic, "0", "15"] in reset
    assert columns(after) == [[topic, "0", "15", "40", "25"]]
    assert [group] in listed


def test_the_admin_client_changes_and_deletes_offsets(java: JavaProgram, route: Any) -> None:
    """Offsets are listed by the client's topic name, altered, deleted; the group, too, is deleted."""
    topic, group = read_half(java, route)
    config = {"bootstrap.servers": route.bootstrap}

    listed, _, altered, _, forgotten, groups, _, left = java(
        "admin",
        config=config,
        steps=[
            ["group_offsets", group],
            ["set_group_offset", group, topic, 0, 7],
            ["group_offsets", group],
            ["forget_group_offset", group, topic, 0],
            ["group_offsets", group],
            ["groups"],
            ["delete_group", [group]],
            ["groups"],
        ],
    )

    assert listed == {f"{topic}-0": 40}
    assert altered == {f"{topic}-0": 7}
    assert forgotten == {}
    assert group in groups
    assert group not in left
