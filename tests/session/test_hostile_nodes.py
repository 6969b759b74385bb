"""Nodes that a broker names: too many of them, and hosts and ports that no client can connect to."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.table import schema
from kproxy.session.commands import EnsureNodes
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.addresses import PLACES, carries_addresses
from kproxy.session.rewrite.context import LAST_PORT, LONGEST_HOST
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response

PRODUCE, METADATA, FIND_COORDINATOR, DESCRIBE_QUORUM, DESCRIBE_CLUSTER = 0, 3, 10, 55, 60
CASES = [
    (key, version)
    for key in PLACES
    for version in carries_addresses(key)
    if version in schema.load(key).versions and key != DESCRIBE_QUORUM
]
LISTS = [case for case in CASES if case[0] != FIND_COORDINATOR or case[1] >= 4]
HOSTS = [
    "/run/docker.sock", "/", "b1\n", "b1\x1b[2J", "b\0", "b 1", "\u202eb1", "\x85",
    "x" * (LONGEST_HOST + 1), "x" * 30_000,
]  # fmt: skip
PORTS = [0, -1, -(2**31), LAST_PORT + 1, 70_000, 2**31 - 1]


def named(key: int, version: int, nodes: list[tuple[int, str, int]]) -> dict[str, Any]:
    """The fields of a response that name these nodes."""
    if key == FIND_COORDINATOR and version < 4:
        node, host, port = nodes[0]
        return {"error_code": 0, "node_id": node, "host": host, "port": port}
    array = {METADATA: "brokers", DESCRIBE_CLUSTER: "brokers", FIND_COORDINATOR: "coordinators"}.get(
        key, "node_endpoints"
    )
    number = "broker_id" if key == DESCRIBE_CLUSTER else "node_id"
    extra: dict[str, Any] = {"rack": None} if (key, version) != (METADATA, 0) else {}
    if key == DESCRIBE_CLUSTER and version >= 2:
        extra["is_fenced"] = False
    if key == FIND_COORDINATOR:
        extra = {"key": "g", "error_code": 0, "error_message": None}
    return {array: [{number: node, "host": host, "port": port, **extra} for node, host, port in nodes]}


def answered(dialogue: Any, key: int, version: int, nodes: list[tuple[int, str, int]], **limits: int) -> Any:
    """A connection on which a response with these nodes has come."""
    talk = dialogue(ConnectionSettings(), ClusterState(**limits))
    talk.client(request(key, version, 5, **({"acks": 1} if key == PRODUCE else {})))
    return talk.broker(response(key, version, 5, **named(key, version, nodes)))


@pytest.mark.parametrize(("key", "version"), LISTS)
def test_a_response_that_names_too_many_nodes_closes_its_connection(dialogue: Any, key: int, version: int) -> None:
    """As many as the limit pass, in every list that names nodes; one more is a message that names the limit, and nobody
    is asked for ports."""
    nodes = [(node, f"b{node}", 9092) for node in range(11)]

    assert answered(dialogue, key, version, nodes[:10], max_nodes=10).closed is None
    talk = answered(dialogue, key, version, nodes, max_nodes=10)

    assert (talk.closed.cause, talk.closed.blame) == ("decode", "broker")
    assert "more than 10 nodes, expected at most 10 (limits.max_nodes)" in talk.closed.message
    assert talk.to_client == b""
    assert not [command for command in talk.log if isinstance(command, EnsureNodes)]


@pytest.mark.parametrize(("key", "version"), [case for case in LISTS if case[0] != FIND_COORDINATOR])
def test_one_node_named_again_and_again_is_too_many(dialogue: Any, key: int, version: int) -> None:
    """Each list has a node once; coordinators alone are listed by what they coordinate."""
    talk = answered(dialogue, key, version, [(1, f"b{n}", 9092) for n in range(11)], max_nodes=10)

    assert "limits.max_nodes" in talk.closed.message


def test_groups_with_the_same_coordinator_are_no_nodes(dialogue: Any) -> None:
    """A thousand of them with a limit of two nodes."""
    talk = answered(dialogue, FIND_COORDINATOR, 4, [(n % 2, "b", 9092) for n in range(1000)], max_nodes=2)

    assert talk.closed is None
    assert len(decode_response(talk.to_client[4:], FIND_COORDINATOR, 4).body["coordinators"]) == 1000


@pytest.mark.parametrize(("key", "version"), CASES)
@pytest.mark.parametrize(("host", "port"), [*((host, 9092) for host in HOSTS), *(("b1", port) for port in PORTS)])
def test_hosts_and_ports_that_are_none_are_hidden(dialogue: Any, key: int, version: int, host: str, port: int) -> None:
    """Nobody dials them, no port stands for them, and clients do not see them; a path would be a Unix socket of
    kproxy's own machine."""
    talk = answered(dialogue, key, version, [(1, host, port)])

    assert talk.closed is None
    assert not [command for command in talk.log if isinstance(command, EnsureNodes)]
    assert talk.to_client
    assert host == "b1" or host.encode() not in talk.to_client.replace(b"\0\0\0\x05", b"")


@pytest.mark.parametrize("node", [-1, -2, -(2**31)])
def test_negative_node_ids_are_hidden(dialogue: Any, node: int) -> None:
    """They would be those of controllers."""
    talk = answered(dialogue, METADATA, 9, [(node, "b1", 9092), (2, "b2", 9092)])

    body = decode_response(talk.to_client[4:], METADATA, 9).body
    assert [broker["node_id"] for broker in body["brokers"]] == [2]
