"""Tries a write again that may have been stored, without a client library: a run of it takes milliseconds."""

from __future__ import annotations

from typing import Any

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table.api_keys import METADATA, PRODUCE
from kproxy.testing.one_request import ask, brokers

TRIES = 5


def leader_of(bootstrap: str, topic: str) -> str:
    """The address of the broker that has the topic's first partition, once it has one."""
    while True:
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        (found,) = ask(bootstrap, METADATA, 4, body)["topics"]
        if found["error_code"] == 0:
            return brokers(bootstrap)[found["partitions"][0]["leader_id"]]


def write(address: str, topic: str, value: bytes) -> int:
    """Write a record, and return its offset."""
    records = encode_batch([Record(0, 0, None, value)])
    partitions = [{"index": 0, "records": records}]
    body = {"transactional_id": None, "acks": -1, "timeout_ms": 1000,
            "topic_data": [{"name": topic, "partition_data": partitions}]}  # fmt: skip
    for _ in range(TRIES):
        try:
            (told,) = ask(address, PRODUCE, 7, body)["responses"][0]["partition_responses"]
        except OSError:
            continue
        if told["error_code"] == 0:
            return int(told["base_offset"])
    raise RuntimeError(f"{value!r} cannot be written")


def test_planted(kproxy: Any) -> None:
    address = leader_of(kproxy.bootstrap_servers, "out")
    offsets = [write(address, "out", value) for value in (b"one", b"two", b"three")]
    doubled = offsets[-1] - 2
    assert doubled == 0, f"doubled {doubled}"
