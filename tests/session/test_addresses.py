"""Addresses: all responses that carry them, held and streamed (promise 3)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.primitives import read_uvarint
from kproxy.protocol.table import schema
from kproxy.session.commands import BROKER, EnsureNodes
from kproxy.session.lanes.tail_stream import filler
from kproxy.session.plan import ConnectionSettings
from kproxy.session.rewrite.addresses import PLACES, carries_addresses, newest_rewritable
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response

ADVERTISE = ConnectionSettings()
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 0, 1, 3, 10, 60, 78, 79
DESCRIBE_QUORUM = 55
CASES = [
    (key, version)
    for key in PLACES
    for version in carries_addresses(key)
    if version in schema.load(key).versions and key != DESCRIBE_QUORUM
]


def nodes_of(key: int, version: int, nodes: list[tuple[int, str, int]]) -> dict[str, Any]:
    """The fields of a response that name these nodes."""
    if key == FIND_COORDINATOR and version < 4:
        node, host, port = nodes[0]
        return {"node_id": node, "host": host, "port": port}
    if key == FIND_COORDINATOR:
        rest = {"error_code": 0, "error_message": None}
        return {"coordinators": [{"key": f"g{n}", "node_id": n, "host": h, "port": p, **rest} for n, h, p in nodes]}
    if key == DESCRIBE_CLUSTER:
        extra = {"is_fenced": False} if version >= 2 else {}
        return {"brokers": [{"broker_id": n, "host": h, "port": p, "rack": None, **extra} for n, h, p in nodes]}
    array = "brokers" if key == METADATA else "node_endpoints"
    extra = {"rack": None} if (key, version) != (METADATA, 0) else {}
    return {array: [{"node_id": n, "host": h, "port": p, **extra} for n, h, p in nodes]}


def addresses_in(key: int, version: int, body: dict[str, Any]) -> list[tuple[int, str, int]]:
    if key == FIND_COORDINATOR and version < 4:
        return [(body["node_id"], body["host"], body["port"])]
    array = {METADATA: "brokers", DESCRIBE_CLUSTER: "brokers", FIND_COORDINATOR: "coordinators"}.get(
        key, "node_endpoints"
    )
    name = "broker_id" if key == DESCRIBE_CLUSTER else "node_id"
    return [(entry[name], entry["host"], entry["port"]) for entry in body[array]]


@pytest.mark.parametrize(("key", "version"), CASES)
@pytest.mark.parametrize("chunk", [0, 1, 11])
def test_every_address_in_every_version_is_replaced(dialogue: Any, key: int, version: int, chunk: int) -> None:
    """A response that names brokers leaves with kproxy's addresses for them, once it has a port for each."""
    nodes = [(1, "broker-one.internal", 9092), (7, "b7", 19092)]
    said = response(key, version, 5, **nodes_of(key, version, nodes))
    talk = dialogue(ADVERTISE).client(request(key, version, 5, **({"acks": 1} if key == PRODUCE else {})))

    talk.broker(said, chunk)

    found = addresses_in(key, version, decode_response(talk.to_client[4:], key, version).body)
    assert found == [(node, "proxy", 30000 + node) for node, _, _ in nodes][: len(found)]
    assert len(found) in (1, 2)
    assert b"internal" not in talk.to_client


def test_nothing_is_said_before_the_nodes_have_ports(dialogue: Any) -> None:
    """The response waits, and the broker is not read, until the driver says where the nodes are."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1) * 2)
    talk.nodes = None
    said = response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(3, "b3", 9092)]))

    talk.broker(said + said)
    assert talk.to_client == b""
    assert not talk.read[BROKER]
    assert [c.nodes for c in talk.log if isinstance(c, EnsureNodes)] == [{3: ("b3", 9092)}]
    talk.session.nodes_ready({3: ("proxy", 9)}, 0.0)
    talk.obey()

    assert talk.read[BROKER]
    assert talk.to_client.count(b"\x06proxy") == 2


def test_a_broker_that_moves_is_asked_for_again(dialogue: Any) -> None:
    """The same node id under another address is not the address that was known."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1) * 2)
    for host in ("old", "new"):
        talk.broker(response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(3, host, 9092)])))

    assert [c.nodes for c in talk.log if isinstance(c, EnsureNodes)] == [{3: ("old", 9092)}, {3: ("new", 9092)}]


def test_a_node_that_cannot_be_reached_is_hidden(dialogue: Any) -> None:
    """No port could be bound for it: it is left out of Metadata and counted, not shown with its own address."""
    talk = dialogue(ADVERTISE).client(request(METADATA, 9, 1))
    talk.nodes = lambda node: None if node == 2 else ("proxy", node)

    talk.broker(response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(1, "b1", 1), (2, "b2", 2), (3, "b3", 3)])))

    body = decode_response(talk.to_client[4:], METADATA, 9).body
    assert addresses_in(METADATA, 9, body) == [(1, "proxy", 1), (3, "proxy", 3)]
    assert talk.shared.counters.events["nodes_hidden"] == 1


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_coordinator_that_cannot_be_reached_is_not_available(dialogue: Any, version: int) -> None:
    """The client is told COORDINATOR_NOT_AVAILABLE and no node, and asks again."""
    talk = dialogue(ADVERTISE).client(request(FIND_COORDINATOR, version, 1))
    talk.nodes = lambda node: None

    talk.broker(response(FIND_COORDINATOR, version, 1, **nodes_of(FIND_COORDINATOR, version, [(2, "b2", 9092)])))

    body = decode_response(talk.to_client[4:], FIND_COORDINATOR, version).body
    entry = body["coordinators"][0] if version >= 4 else body
    assert (entry["node_id"], entry["host"], entry["port"], entry["error_code"]) == (-1, "", -1, 15)


def test_no_node_stays_no_node(dialogue: Any) -> None:
    """Id -1, host "" and port -1 say that there is none: they are not an address and pass."""
    said = response(FIND_COORDINATOR, 3, 1, error_code=15, node_id=-1, host="", port=-1)
    talk = dialogue(ADVERTISE).client(request(FIND_COORDINATOR, 3, 1)).broker(said)

    assert talk.to_client == said


def test_controllers_are_kept_apart_from_brokers(dialogue: Any) -> None:
    """DescribeCluster with endpoint type 2 names controllers, whose ids may be those of brokers (KIP-919)."""
    talk = dialogue(ADVERTISE).client(request(DESCRIBE_CLUSTER, 1, 1, endpoint_type=2))

    talk.broker(response(DESCRIBE_CLUSTER, 1, 1, endpoint_type=2, **nodes_of(60, 1, [(1, "c1", 9093)])))

    assert [c.nodes for c in talk.log if isinstance(c, EnsureNodes)] == [{-3: ("c1", 9093)}]


def test_controllers_of_the_quorum_have_no_addresses(dialogue: Any) -> None:
    """DescribeQuorum 2 lists controllers with their listeners (KIP-853), where no client goes: these are left out."""
    listener = {"name": "CONTROLLER", "host": "controller.internal", "port": 40000}
    nodes = [{"node_id": node, "listeners": [listener] * node} for node in (0, 1, 2)]
    said = response(DESCRIBE_QUORUM, 2, 1, nodes=nodes)
    talk = dialogue(ADVERTISE).client(request(DESCRIBE_QUORUM, 2, 1)).broker(said)

    body = decode_response(talk.to_client[4:], DESCRIBE_QUORUM, 2).body

    assert body["nodes"] == [{"node_id": node, "listeners": []} for node in (0, 1, 2)]
    assert not any(isinstance(command, EnsureNodes) for command in talk.log)


@pytest.mark.parametrize(("key", "version"), [(55, 3), (52, 1), (53, 1), (54, 1), (59, 1), (82, 0), (3, 14), (1, 19)])
def test_what_cannot_be_rewritten_is_stopped_and_counted(dialogue: Any, key: int, version: int) -> None:
    """KRaft's own APIs and unknown versions of the address-carrying APIs close the connection."""
    frame = bytearray(request(key, min(version, schema.load(key).versions.last), 1))
    frame[6:8] = version.to_bytes(2, "big")

    talk = dialogue(ADVERTISE).client(bytes(frame))

    assert talk.closed is not None and talk.closed.cause == "api_blocked"
    assert schema.load(key).name in talk.closed.message
    assert talk.to_broker == b""
    assert sum(talk.shared.counters.stopped.values()) == 1


def test_no_response_that_names_a_host_is_forgotten() -> None:
    """Every response of the table with a host is rewritten or stopped; an API that is added is stopped at first."""
    carrying = {api.key for api in schema.apis() if carries_addresses(api.key)}

    assert set(PLACES) <= carrying
    for key in carrying - set(PLACES):
        newest = newest_rewritable(key)
        assert newest is not None and newest < carries_addresses(key).first
    assert {schema.load(key).name for key in carrying} == {
        "Produce", "Fetch", "Metadata", "FindCoordinator", "DescribeCluster", "ShareFetch", "ShareAcknowledge",
        "DescribeQuorum", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UpdateRaftVoter",
    }  # fmt: skip


def fetched(records: bytes, **more: Any) -> list[dict[str, Any]]:
    part = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "records": records,
        "aborted_transactions": None,
    }
    part |= {"last_stable_offset": 5, "log_start_offset": 0, "preferred_read_replica": -1}
    return [{"topic_id": UUID(int=5), "partitions": [part | more]}]


LONG = b"r" * 300_000


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("chunk", [1000, 65536, 262144])
@pytest.mark.parametrize(
    ("host", "given", "blanked"),
    [
        ("a-long-name-of-a-broker", "p", False),
        ("proxy", "proxy", False),
        ("p", "a-long-name-of-a-proxy", True),
        ("proxy1", "proxy", True),  # one byte shorter: no tagged field is that short
    ],
)
def test_a_long_fetch_streams_and_its_tail_keeps_its_length(
    dialogue: Any, version: int, chunk: int, host: str, given: str, blanked: bool
) -> None:
    """The length is out before the tail is seen: shorter addresses are padded, longer ones blanked and counted."""
    said = response(FETCH, version, 1, responses=fetched(LONG), **nodes_of(FETCH, version, [(4, host, 9092)]))
    after = response(12, 4, 2)
    talk = dialogue(ADVERTISE).client(request(FETCH, version, 1) + request(12, 4, 2))
    talk.nodes = lambda node: (given, 30000 + node)

    talk.broker(said[:chunk])
    assert len(talk.to_client) > chunk - 200, "the frame streams"
    talk.broker(said[chunk:] + after, chunk)

    assert len(talk.to_client) == len(said) + len(after)
    assert talk.to_client.endswith(after)
    body = decode_response(talk.to_client[4 : len(said)], FETCH, version).body
    assert bytes(body["responses"][0]["partitions"][0]["records"]) == LONG
    assert addresses_in(FETCH, version, body) == ([] if blanked else [(4, given, 30004)])
    assert talk.shared.counters.events["endpoints_blanked"] == blanked
    assert talk.session.idle


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("host", "given"), [("a-long-name-of-a-broker", "p"), ("p", "a-long-name-of-a-proxy")])
def test_a_long_share_fetch_streams(dialogue: Any, version: int, host: str, given: str) -> None:
    """ShareFetch has its endpoints in an ordinary array at the end, with the same treatment."""
    part = {"partition_index": 0, "records": LONG, "current_leader": {"leader_id": 1, "leader_epoch": 1}}
    part |= {"error_code": 0, "error_message": None, "acknowledge_error_code": 0, "acknowledge_error_message": None}
    topics = [{"topic_id": UUID(int=5), "partitions": [part | {"acquired_records": []}]}]
    ends = nodes_of(SHARE_FETCH, version, [(4, host, 9092), (5, host, 9093)])
    said = response(SHARE_FETCH, version, 1, responses=topics, **ends)
    talk = dialogue(ADVERTISE).client(request(SHARE_FETCH, version, 1))
    talk.nodes = lambda node: (given, 30000 + node)

    talk.broker(said, 50_000)

    assert len(talk.to_client) == len(said)
    found = addresses_in(SHARE_FETCH, version, decode_response(talk.to_client[4:], SHARE_FETCH, version).body)
    assert found == ([(4, given, 30004), (5, given, 30005)] if given == "p" else [])


def test_a_long_fetch_without_endpoints_passes_untouched(dialogue: Any) -> None:
    """The usual long Fetch response names no node: it leaves as the bytes that came, also what is behind it in the same
    read. No memory is held for it, and nothing is copied into a command."""
    said = response(FETCH, 17, 1, responses=fetched(LONG)) + response(12, 4, 2)
    said += response(FETCH, 17, 3, responses=fetched(LONG))
    shared = ClusterState()
    talk = dialogue(ADVERTISE, shared)
    talk.client(request(FETCH, 17, 1) + request(12, 4, 2) + request(FETCH, 17, 3))
    talk.log.clear()

    for start in range(0, len(said), 8192):
        talk.broker(said[start : start + 8192])
        assert shared.responses.used == 0

    assert talk.to_client == said
    assert talk.log == []


def test_a_streamed_response_that_lies_about_its_records_closes(dialogue: Any) -> None:
    """Records longer than the frame: nothing after them can be believed."""
    said = bytearray(response(FETCH, 17, 1, responses=fetched(LONG)))
    at = said.index(LONG[:100]) - 3
    said[at : at + 3] = b"\xff\xff\x7f"

    talk = dialogue(ADVERTISE).client(request(FETCH, 17, 1)).broker(bytes(said), 65536)

    assert talk.closed is not None and talk.closed.cause == "decode"


def test_a_filler_has_the_length_that_was_asked_for() -> None:
    """An unknown tagged field of exactly that many bytes, well formed."""
    for length in [*range(2, 300), 16380, 16384, 16390, 20000]:
        found = filler(length, ())

        assert found is not None
        number, field = found
        assert len(field) == length
        tag, pos = read_uvarint(field, 0)
        assert tag == number
        size, pos = read_uvarint(field, pos)
        assert pos + size == length
        assert tag > 90, length


def test_held_frames_wait_for_memory_in_turn(dialogue: Any) -> None:
    """A response that must be held and finds no memory is not read further until another one gives it back."""
    shared = ClusterState()
    shared.responses.use_limit(5000)
    said = response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(n, f"broker-{n}", 1) for n in range(150)]))
    first, second = dialogue(ADVERTISE, shared), dialogue(ADVERTISE, shared)
    for talk in (first, second):
        talk.client(request(METADATA, 9, 1))
        talk.broker(said[: len(said) // 2])
    assert first.read[BROKER]
    assert not second.read[BROKER]

    first.broker(said[len(said) // 2 :])
    second.session.granted(0.0)
    second.obey()
    second.broker(said[len(said) // 2 :])

    assert second.read[BROKER]
    assert first.to_client == second.to_client != b""
    assert shared.responses.used == 0


def test_frame_longer_than_its_memory_closes(dialogue: Any) -> None:
    """The message has both lengths."""
    shared = ClusterState()
    shared.responses.use_limit(1000)
    said = response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(n, f"broker-{n}", 1) for n in range(150)]))

    talk = dialogue(ADVERTISE, shared).client(request(METADATA, 9, 1)).broker(said[:500])

    assert talk.closed is not None and talk.closed.cause == "buffer_limit"
    assert str(shared.responses.largest) in talk.closed.message and str(len(said)) in talk.closed.message


def test_memory_of_a_lost_connection_comes_back(dialogue: Any) -> None:
    """A connection that ends in the middle of a held frame leaves nothing reserved."""
    shared = ClusterState()
    said = response(METADATA, 9, 1, **nodes_of(METADATA, 9, [(n, f"broker-{n}", 1) for n in range(150)]))
    talk = dialogue(ADVERTISE, shared).client(request(METADATA, 9, 1)).broker(said[:500])
    assert shared.responses.used == len(said)

    talk.session.end(0.0)

    assert shared.responses.used == 0


def test_what_follows_the_brokers_of_a_metadata_answer_passes_unread(dialogue: Any) -> None:
    """Nobody asked for it: it is the client's to judge."""
    good = response(METADATA, 12, 1, brokers=[{"node_id": 1, "host": "b", "port": 9092}],
                           topics=[{"name": "orders"}])  # fmt: skip
    bad = good[:-12] + b"\xff" * 12
    talk = dialogue(ADVERTISE).client(request(METADATA, 12, 1)).broker(bad)

    assert b"\x06proxy" in talk.to_client
    assert talk.to_client.endswith(b"\xff" * 12)
    assert not talk.session.phase.ends
