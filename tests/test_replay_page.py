"""The part of docs/captures.md on replays: its commands, on a capture of five requests and a mock cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol import Message, encode
from kproxy.protocol.records import Producer, Record, encode_batch
from kproxy.protocol.table import layout, schema
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.testing.cluster import MockCluster
from kproxy.tools.replay.compare import groups_table

pytestmark = pytest.mark.process
PAGE = (Path(__file__).parent.parent / "docs" / "captures.md").read_text().partition("\n## Replay\n")[2]

BATCH = encode_batch([Record(n, 1000, None, f"v{n}".encode()) for n in range(3)], producer=Producer(7, 0, 0))
LED = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1],
       "offline_replicas": []}  # fmt: skip
WRITTEN = {"index": 0, "error_code": 0, "base_offset": 0}
ASKED = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
READ = {"partition_index": 0, "error_code": 0, "high_watermark": 3, "aborted_transactions": None, "records": BATCH}


def exchanges() -> list[ObservedExchange]:
    """A topic is looked up, three records are written to it and read again on another connection."""
    broker = {"node_id": 1, "host": "b1", "port": 9092, "rack": None}
    topic = {"error_code": 0, "name": "orders", "is_internal": False, "partitions": [LED]}
    parts = [{"index": 0, "records": BATCH}]
    return [
        seen(0, 1, 3, 9, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False},
             {"brokers": [broker], "topics": [topic], "cluster_id": "recorded", "controller_id": 1}),
        seen(1, 1, 22, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_epoch": -1},
             {"producer_id": 7, "producer_epoch": 0}),
        seen(2, 1, 0, 7, {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": parts}]},
             {"responses": [{"name": "orders", "partition_responses": [WRITTEN | {"log_start_offset": 0}]}]}),
        seen(3, 2, 1, 11, {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1_000_000,
                           "topics": [{"topic": "orders", "partitions": [ASKED]}]},
             {"responses": [{"topic": "orders", "partitions": [READ | {"log_start_offset": 0}]}]}),
        seen(4, 2, 36, 1, {"auth_bytes": b""}, {}),
    ]  # fmt: skip


def seen(
    number: int, connection: int, key: int, version: int, asked: dict[str, Any], answered: dict[str, Any]
) -> ObservedExchange:
    """The exchange that began so many tenths of a second after the first one."""
    at = number / 10
    one = ObservedExchange(PEOPLE[connection], number, key, version, number, "page", None)
    header = {"request_api_key": key, "request_api_version": version, "client_id": "page"}
    one.request = framed(at, key, version, "request", asked, {"correlation_id": number, **header})
    one.response = framed(at + 0.001, key, version, "response", answered, {"correlation_id": number})
    one.outcome = "answered"
    return one


def framed(at: float, key: int, version: int, direction: str, fields: dict[str, Any], header: dict[str, Any]) -> Frame:
    struct = layout.body(key, version, direction)
    body = struct.defaults() | fields
    data = encode(Message(schema.load(key), version, header, body))
    return Frame(len(data) + 4, at, at, data, Form.WHOLE)


class Somebody:
    """A connection."""

    cluster = listener = node = broker = principal = software_name = software_version = None
    client_address = "127.0.0.1"

    def __init__(self, number: int) -> None:
        self.number, self.client_port = number, 40_000 + number


PEOPLE = {number: Somebody(number) for number in (1, 2)}


def examples() -> list[tuple[str, str]]:
    """Commands and what stands below them."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = example.partition("\n")
            found.append((command, expected))
    return found


@pytest.mark.deep
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """They print what it shows; … stands for anything, and blanks are alike."""
    with (tmp_path / "traffic.pcapng").open("wb") as file:
        writer = CaptureWriter(file, Policy("full"))
        for one in exchanges():
            writer.write(one, ("127.0.0.1", 9092))
        writer.finish(time.time(), "asked")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", partitions=1)
        for command, expected in examples():
            ran = subprocess.run(
                ["bash", "-c", command.replace("127.0.0.1:9092", cluster.bootstrap)],
                cwd=tmp_path, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=60, check=False,
            )  # fmt: skip
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))

            assert re.fullmatch(pattern, " ".join(ran.stdout.split())), f"{command}\n{ran.stdout}"
            assert ran.returncode == (1 if "--fail-on-difference" in command and "ignore" not in command else 0)
    assert len(examples()) == 4


def test_the_groups_of_the_page_are_those_of_the_table() -> None:
    """All of them, with what is done with each."""
    assert groups_table() in PAGE
