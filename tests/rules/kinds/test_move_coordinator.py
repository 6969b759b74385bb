"""move_coordinator: coordinators that are elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.table import schema
from kproxy.rules.kinds.move_coordinator import OF_GROUPS, OF_TRANSACTIONS

HEARTBEAT, FIND_COORDINATOR, END_TXN = 12, 10, 26
NOT_COORDINATOR = 16
ELSEWHERE = "kind: move_coordinator\nnode: 9\nhost: gone\nport: 1"


def beat(talk: Any, client: str = "tester", group: str = "billing") -> int:
    seen = talk.ask(HEARTBEAT, 4, client, group_id=group, member_id="m", generation_id=1)
    body = talk.answer(HEARTBEAT, 4) if seen is not None else talk.received(HEARTBEAT, 4)
    code: int = body["error_code"]
    return code


def find(talk: Any, version: int, name: str = "billing", client: str = "tester") -> tuple[int, int, str, int]:
    """Error, node, host and port that the client is told."""
    entry = {"node_id": 2, "host": "b2", "port": 9092}
    if version < 4:
        talk.ask(FIND_COORDINATOR, version, client, key=name)
        found = talk.answer(FIND_COORDINATOR, version, **entry)
    else:
        talk.ask(FIND_COORDINATOR, version, client, coordinator_keys=[name])
        (found,) = talk.answer(FIND_COORDINATOR, version, coordinators=[{"key": name, **entry}])["coordinators"]
    return found["error_code"], found["node_id"], found["host"], found["port"]


@pytest.mark.parametrize("version", schema.load(FIND_COORDINATOR).versions)
def test_until_the_client_has_asked(dialogue: Any, version: int) -> None:
    """Whoever knew the coordinator is sent away until it asks anew, and is told the truth."""
    talk = dialogue("kind: move_coordinator\nmatch: {group: billing}")
    assert find(talk, version) == (0, 2, "b2", 9092)

    assert [beat(talk), beat(talk)] == [NOT_COORDINATOR, NOT_COORDINATOR]
    assert find(talk, version) == (0, 2, "b2", 9092)
    assert [beat(talk), beat(talk)] == [0, 0]


@pytest.mark.parametrize("version", schema.load(FIND_COORDINATOR).versions)
def test_another_node_is_named(dialogue: Any, version: int) -> None:
    """To those who were sent away, and to them again and again."""
    talk = dialogue(ELSEWHERE)
    assert find(talk, version) == (0, 2, "b2", 9092)
    assert beat(talk) == NOT_COORDINATOR

    assert [find(talk, version) for _ in range(2)] == [(0, 9, "gone", 1)] * 2
    assert find(talk, version, "other") == (0, 2, "b2", 9092)


def test_clients_and_groups_move_by_themselves(dialogue: Any) -> None:
    """That one has asked does not help another client, nor another group."""
    talk = dialogue("kind: move_coordinator")
    assert [beat(talk), beat(talk, "second"), beat(talk, group="other")] == [NOT_COORDINATOR] * 3
    find(talk, 6)

    assert [beat(talk), beat(talk, "second"), beat(talk, group="other")] == [0, NOT_COORDINATOR, NOT_COORDINATOR]


def test_transactions(dialogue: Any) -> None:
    """Coordinators of transactional ids move as those of groups do."""
    talk = dialogue("kind: move_coordinator\nmatch: {transactional_id: transfers}")
    assert talk.ask(END_TXN, 3, transactional_id="transfers") is None
    assert talk.received(END_TXN, 3)["error_code"] == NOT_COORDINATOR
    talk.ask(FIND_COORDINATOR, 3, key="transfers", key_type=1)
    talk.answer(FIND_COORDINATOR, 3, node_id=1, host="b", port=1)

    assert talk.ask(END_TXN, 3, transactional_id="transfers") is not None


@pytest.mark.parametrize("key", sorted(OF_GROUPS | OF_TRANSACTIONS))
def test_every_version_of_every_api_can_say_it(dialogue: Any, key: int) -> None:
    """The broker does not see the request."""
    name = "transactional_id" if key in OF_TRANSACTIONS else "group"
    for version in schema.load(key).versions:
        talk = dialogue("kind: move_coordinator")
        values = {"transactional_id": "g", "v3_and_below_transactional_id": "g", "group_id": "g", "groups_names": ["g"]}
        values |= {"group_ids": ["g"], "groups": [{"group_id": "g"}] if key == 9 else ["g"]}
        values["transactions"] = [{"transactional_id": "g", "topics": [{"name": "t", "partitions": [0]}]}]
        values["v3_and_below_topics"] = [{"name": "t", "partitions": [0]}]
        fields = {field.name for field in schema.load(key).request if version in field.versions}
        asked = {field: value for field, value in values.items() if field in fields}
        assert asked, f"{name} is nowhere in {key} v{version}"
        assert talk.ask(key, version, **asked) is None
        assert talk.rule.applied == 1


def test_node_host_and_port_belong_together(mistakes_of: Any) -> None:
    """A node without its address is refused."""
    assert '"node", "host" and "port" together' in mistakes_of("kind: move_coordinator, node: 3")[0]
