"""Attacks of one tenant on another on a real broker, with requests that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from kproxy.protocol import decode_response
from kproxy.protocol.codec.structs import encode as encode_body
from kproxy.protocol.primitives import write_bits, write_uvarint
from kproxy.protocol.table import layout
from kproxy.protocol.table.layout import Struct
from kproxy.session.counters import Counters
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.names.topic_ids import disguise
from kproxy.testing import one_request
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import PROXIED
from kproxy.testing.process import Proxy
from tests.support.frames import message
from tests.support.topics import create_topics
from tests.support.wait import until

pytestmark = pytest.mark.kafka
PRODUCE, FETCH, METADATA, DELETE_TOPICS, SHARE_FETCH = 0, 1, 3, 20, 78
NOT_LEADER, UNKNOWN_TOPIC_ID, SESSION_NOT_FOUND = 6, 100, 70
PATIENCE = 60.0
"""Seconds until a broker leads a topic that was made just now."""
MAGIC = b"very-secret-record"


@dataclass
class Sides:
    """Where the tenants reach the broker, and the broker itself; ids of the topics `mine` (a's) and `secret` (b's)."""

    a: str
    b: str
    direct: str
    mine: UUID
    secret: UUID


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """One broker, a proxy for each of two tenants, and a record in b's topic."""
    rules = [{"name": letter, "kind": "prefix", "prefix": f"{letter}."} for letter in "ab"]
    with (
        Kafka(1, listeners=[PROXIED]) as kafka,
        Proxy(kafka.bootstrap("PROXIED"), rules=[rules[0]]) as a,
        Proxy(kafka.bootstrap("PROXIED"), rules=[rules[1]]) as b,
    ):
        create_topics(kafka.bootstrap("DIRECT"), "a.mine", "b.secret")
        through_a, through_b, direct = (
            next(iter(one_request.brokers(one).values()))
            for one in (a.bootstrap, b.bootstrap, kafka.bootstrap("DIRECT"))
        )
        ids = {one["name"]: one["topic_id"] for one in metadata(direct)["topics"]}
        end = monotonic() + PATIENCE
        while (written := produce(through_b, ids["b.secret"], MAGIC))["error_code"] == NOT_LEADER and monotonic() < end:
            sleep(0.05)  # the topic is there, and its broker may not know yet that it leads it
        assert written["error_code"] == 0
        yield Sides(through_a, through_b, direct, ids["a.mine"], ids["b.secret"])


def metadata(address: str) -> dict[str, Any]:
    asked = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    return one_request.ask(address, METADATA, 12, asked)


def records_of(value: bytes) -> bytes:
    def zigzag(number: int) -> bytes:
        return write_bits((number << 1) ^ (number >> 63))

    record = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    record = zigzag(len(record)) + record
    rest = b"\0\0" + bytes(4) + bytes(8) + bytes(8) + b"\xff" * 8 + b"\xff\xff" + b"\xff" * 4 + (1).to_bytes(4, "big")
    rest += record
    inner = b"\xff" * 4 + b"\2" + crc32c(rest).to_bytes(4, "big") + rest
    return bytes(8) + len(inner).to_bytes(4, "big") + inner


def produce(address: str, topic_id: UUID, value: bytes) -> dict[str, Any]:
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": records_of(value)}]}]
    body = {"transactional_id": None, "acks": 1, "timeout_ms": 3000, "topic_data": data}
    answer: dict[str, Any] = one_request.ask(address, PRODUCE, 13, body)["responses"][0]["partition_responses"][0]
    return answer


def part(**more: Any) -> dict[str, Any]:
    found = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    return found | {"log_start_offset": -1, "partition_max_bytes": 100_000} | more


def fetch_body(*ids: UUID, session: int = 0, epoch: int = -1, **more: Any) -> dict[str, Any]:
    topics = [{"topic_id": one, "partitions": [part()]} for one in ids]
    body = {"max_wait_ms": 100, "min_bytes": 0, "max_bytes": 100_000, "isolation_level": 0, "session_id": session}
    body |= {"session_epoch": epoch, "topics": topics, "forgotten_topics_data": [], "rack_id": "", "cluster_id": None}
    return body | {"replica_state": {"replica_id": -1, "replica_epoch": -1}} | more


def turned(topic_id: UUID) -> list[UUID]:
    """The id, and what a client may make of it in the hope that it is made into the id again."""
    number, hidden = topic_id.int, UUID(bytes=disguise(topic_id.bytes, Context(Counters(), {})))
    changes = [0xF0 << 72, 0x10 << 72, 0x80 << 72, 0xFF << 72, 1, (1 << 128) - 1]
    return [topic_id, hidden, *(UUID(int=number ^ one) for one in changes), UUID(int=hidden.int ^ 0xF0 << 72)]


def exchange(stream: socket.socket, frame: bytes) -> bytes:
    """The answer's frame; empty when the connection was closed."""
    stream.sendall(len(frame).to_bytes(4, "big") + frame)
    got = b""
    while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
        try:
            more = stream.recv(1 << 20)
        except ConnectionResetError:
            return b""
        if not more:
            return b""
        got += more
    return got[4:]


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize("version", [13, 16, 17, 18])
def test_no_id_reads_what_is_others(sides: Sides, version: int) -> None:
    """Neither the id itself nor any that might become it on the way; the owner reads it."""
    for tried in turned(sides.secret):
        body = fetch_body(tried)
        if version < 15:
            body["replica_id"] = body.pop("replica_state")["replica_id"]
        (entry,) = one_request.ask(sides.a, FETCH, version, body)["responses"]
        assert entry["topic_id"] == tried
        assert entry["partitions"][0]["error_code"] == UNKNOWN_TOPIC_ID
        assert not entry["partitions"][0]["records"]
    (entry,) = one_request.ask(sides.b, FETCH, 17, fetch_body(sides.secret))["responses"]
    assert MAGIC in bytes(entry["partitions"][0]["records"])


def test_no_id_writes_or_deletes_what_is_others(sides: Sides) -> None:
    """Produce, DeleteTopics and Metadata by whatever id: it is not there, and stays as it was."""
    for tried in turned(sides.secret):
        assert produce(sides.a, tried, b"intruder")["error_code"] == UNKNOWN_TOPIC_ID
        deleted = one_request.ask(
            sides.a, DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": tried}], "timeout_ms": 3000}
        )
        assert [(one["name"], one["topic_id"], one["error_code"]) for one in deleted["responses"]] == [
            (None, tried, UNKNOWN_TOPIC_ID)
        ]
        for name in (None, "mine"):
            asked = {"topics": [{"name": name, "topic_id": tried}], "allow_auto_topic_creation": False}
            found = one_request.ask(sides.a, METADATA, 12, asked | {"include_topic_authorized_operations": False})[
                "topics"
            ]
            assert [(one["name"], one["topic_id"], one["error_code"]) for one in found] == [
                (None, tried, UNKNOWN_TOPIC_ID)
            ]
    assert {one["name"]: one["topic_id"] for one in metadata(sides.direct)["topics"]}["b.secret"] == sides.secret
    (entry,) = one_request.ask(sides.b, FETCH, 17, fetch_body(sides.secret))["responses"]
    assert b"intruder" not in bytes(entry["partitions"][0]["records"])


def test_no_id_shares_what_is_others(sides: Sides) -> None:
    """ShareFetch of a member of the tenant's own group."""
    beat = {
        "group_id": "g",
        "member_id": "M" * 22,
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": ["mine"],
    }
    one_request.ask(sides.a, 10, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    until(lambda: one_request.ask(sides.a, 76, 1, beat)["error_code"] == 0, 60)
    for tried in turned(sides.secret):
        topics = [{"topic_id": tried, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
        body = {"group_id": "g", "member_id": "M" * 22, "share_session_epoch": 0, "max_wait_ms": 100, "min_bytes": 0,
                "max_bytes": 100_000, "max_records": 10, "batch_size": 10, "topics": topics,
                "forgotten_topics_data": []}  # fmt: skip
        with connect(sides.a) as stream:
            answer = decode_response(exchange(stream, message(SHARE_FETCH, 1, "request", body)), SHARE_FETCH, 1).body
        for entry in answer["responses"]:
            assert entry["topic_id"] == tried
            assert [one["error_code"] for one in entry["partitions"]] == [UNKNOWN_TOPIC_ID]
            assert not any(one["records"] for one in entry["partitions"])


def test_a_fetch_session_of_others_is_neither_read_nor_closed(sides: Sides) -> None:
    """A broker gives a session to whoever knows its number and epoch: a tenant's own connection only, here."""
    with connect(sides.b) as owner, connect(sides.a) as thief:
        opened = decode_response(
            exchange(owner, message(FETCH, 17, "request", fetch_body(sides.secret, epoch=0))), FETCH, 17
        ).body
        session = opened["session_id"]
        assert session and MAGIC in bytes(opened["responses"][0]["partitions"][0]["records"])
        for epoch in (1, 2):
            got = decode_response(
                exchange(thief, message(FETCH, 17, "request", fetch_body(session=session, epoch=epoch))), FETCH, 17
            ).body
            assert (got["error_code"], got["responses"], got["session_id"]) == (SESSION_NOT_FOUND, [], 0)
        for epoch in (-1, 0):
            exchange(thief, message(FETCH, 17, "request", fetch_body(session=session, epoch=epoch)))
        again = decode_response(
            exchange(owner, message(FETCH, 17, "request", fetch_body(sides.secret, session=session, epoch=1))),
            FETCH,
            17,
        ).body
        assert (again["error_code"], again["session_id"]) == (0, session)


def smuggled(own: UUID, foreign: UUID) -> bytes:
    """A Fetch 17 in which one topic hides from whoever skips a known tag by its size.

    A broker takes 16 bytes for the directory id and goes on with what lies behind them, as if the size were 16.
    """
    struct = layout.body(FETCH, 17, "request")
    topics = next(slot for slot in struct.slots if slot.name == "topics").struct
    assert topics is not None
    shown = message(FETCH, 17, "request", fetch_body(own, own))
    entry = encode_one(topics, own)
    assert shown.count(entry) == 2
    at = shown.index(entry)
    first = entry[:-2]  # without the tag buffers of the partition and of the topic
    tail = shown[at + 2 * len(entry) :]
    hidden = b"\0" + encode_one(topics, foreign) + tail  # what a broker sees behind the directory id
    tag = b"\1" + b"\0" + write_uvarint(16 + len(hidden)) + bytes(16) + hidden
    return shown[:at] + first + tag + b"\0" + shown[at + len(entry) :]


def encode_one(topics: Struct, topic_id: UUID) -> bytes:
    return bytes(encode_body(topics, {"topic_id": topic_id, "partitions": [part()]}))


def test_a_topic_hidden_behind_a_tag_reaches_nobody(sides: Sides) -> None:
    """The broker itself answers for it; through a proxy the request goes nowhere."""
    frame = smuggled(sides.mine, sides.secret)
    with connect(sides.direct) as stream:
        found = decode_response(exchange(stream, frame), FETCH, 17).body
        assert [one["topic_id"] for one in found["responses"]] == [sides.mine, sides.secret]
        assert MAGIC in bytes(found["responses"][1]["partitions"][0]["records"])
    with connect(sides.a) as stream:
        assert exchange(stream, frame) == b""


def test_a_name_that_collides_is_not_told_with_what(sides: Sides) -> None:
    """Brokers name the topic that is there, whosever it is."""
    create_topics(sides.direct, "a_hush")
    topic = {"name": "hush", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    for version in (2, 5, 7):
        body = {"topics": [topic], "timeout_ms": 3000, "validate_only": True}
        (found,) = one_request.ask(sides.a, 19, version, body)["topics"]
        assert (found["name"], found["error_code"]) == ("hush", 17)
        assert "dots and underscores" in found["error_message"] and "a_hush" not in found["error_message"]
