"""The frames of the bench, made by kproxy's own encoder: requests to send, and what the broker stand-in answers.

Answers name topics as brokers do where kproxy renames; a target that does not rename passes them on as they are.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from kproxy.protocol import Message, apis, encode
from kproxy.protocol.records import Record, encode_batch
from tests.lab.bench.targets import RENAMED

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
TOPIC = "load-1"
TOPIC_ID = uuid.UUID("6bb2f9b5-5f4f-4f0e-9f3e-6c0f3a1c5d11")
BATCH = 70
"""Bytes of a batch's header and its record's, about."""
BY_KEY = {api.key: api for api in apis()}


def whole(message: Message) -> bytes:
    frame = encode(message)
    return len(frame).to_bytes(4, "big") + frame


def request(key: int, version: int, body: dict[str, Any]) -> bytes:
    """With its size field and correlation id 0."""
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 0, "client_id": "load"}
    return whole(Message(BY_KEY[key], version, header, body))


def response(key: int, version: int, body: dict[str, Any]) -> bytes:
    return whole(Message(BY_KEY[key], version, {"correlation_id": 0}, body))


def batch(size: int) -> bytes:
    """One record with a value of so many bytes."""
    return encode_batch([Record(0, 1_700_000_000_000, None, bytes(size))])


def produce(version: int, size: int, topic: str = TOPIC) -> bytes:
    """A Produce request of `size` bytes in all, or some fewer, with one batch of one record.

    `topic`: RENAMED + TOPIC is what the stand-in answers; with TOPIC that is so only behind a proxy that renames.
    """

    def made(room: int) -> bytes:
        partition = {"index": 0, "records": batch(room)}
        data = [{"name": topic, "partition_data": [partition]}]
        body = {"transactional_id": None, "acks": 1, "timeout_ms": 30000, "topic_data": data}
        return request(PRODUCE, version, body)

    room = size - len(made(0))
    while len(made(room)) > size:  # the lengths of lengths
        room -= 1
    return made(room)


def fetch(version: int) -> bytes:
    partition = {
        "partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    body = {
        "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return request(FETCH, version, body)


def fetch_response(version: int, records: int) -> bytes:
    partition = {
        "partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1, "log_start_offset": 0,
        "aborted_transactions": None, "preferred_read_replica": -1, "records": batch(max(records - BATCH, 0)),
    }  # fmt: skip
    topic = {"topic_id": TOPIC_ID, "partitions": [partition]}
    return response(FETCH, version, {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": [topic]})


def produce_response(version: int) -> bytes:
    partition = {
        "index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0,
        "record_errors": [], "error_message": None,
    }  # fmt: skip
    topic = {"name": RENAMED + TOPIC, "partition_responses": [partition]}
    return response(PRODUCE, version, {"responses": [topic], "throttle_time_ms": 0})


def api_versions() -> bytes:
    return request(API_VERSIONS, 3, {"client_software_name": "load", "client_software_version": "1.0"})


def api_versions_response() -> bytes:
    """As long as a real broker's."""
    keys = [
        {"api_key": api.key, "min_version": api.versions.first, "max_version": api.versions.last}
        for api in BY_KEY.values() if api.versions
    ]  # fmt: skip
    return response(API_VERSIONS, 3, {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0})


def metadata() -> bytes:
    body = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    return request(METADATA, 12, body)


def metadata_response(port: int, topics: int, partitions: int = 10, nodes: int = 3) -> bytes:
    """The brokers are all at 127.0.0.1 and `port`."""
    brokers = [{"node_id": 1 + node, "host": "127.0.0.1", "port": port, "rack": None} for node in range(nodes)]
    replicas = {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3], "offline_replicas": []}
    body = {
        "throttle_time_ms": 0, "brokers": brokers, "cluster_id": "bench", "controller_id": 1,
        "topics": [
            {
                "error_code": 0, "name": f"{RENAMED}load-{topic:03}", "topic_id": uuid.UUID(int=topic + 1),
                "is_internal": False, "topic_authorized_operations": -2147483648,
                "partitions": [
                    {"error_code": 0, "partition_index": index, "leader_id": 1 + index % nodes, "leader_epoch": 0}
                    | replicas
                    for index in range(partitions)
                ],
            }
            for topic in range(topics)
        ],
    }  # fmt: skip
    return response(METADATA, 12, body)


def answers(port: int, records: int, topics: int = 100, nodes: int = 3) -> bytes:
    """The file for `load mock`; Fetch answers carry `records` bytes."""
    known = [
        (API_VERSIONS, 3, api_versions_response()),
        (METADATA, 12, metadata_response(port, topics, nodes=nodes)),
        (PRODUCE, 9, produce_response(9)),
        (PRODUCE, 12, produce_response(12)),
        (FETCH, 17, fetch_response(17, records)),
    ]
    return b"".join(struct.pack(">hhi", key, version, len(frame)) + frame for key, version, frame in known)
