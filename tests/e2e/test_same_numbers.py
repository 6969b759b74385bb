"""What tail, events and a capture of the same traffic say of it is the same, and is what the clients counted."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.cli.admin_client import Admin
from kproxy.protocol import decode_response
from kproxy.testing.cluster import MockCluster
from tests.support.raw_client import RawClient
from tests.support.wait import until

FETCH, METADATA = 1, 3
RECORDS, SIZE = 3000, 100
FOREVER = ("Fetch", "Heartbeat")
"""APIs of which some exchange may be under way when the others end."""


def stats(*files: Path) -> Any:
    command = [sys.executable, "-m", "kproxy", "stats", "-o", "json", *map(str, files)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


def work(bootstrap: str) -> None:
    """Write and read so many records in three topics, compressed and not, idempotent and not."""
    for number, options in enumerate(({}, {"compression.type": "zstd"}, {"enable.idempotence": True})):
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **options})
        for record in range(RECORDS):
            producer.produce(f"topic-{number}", b"v" * SIZE, partition=record % 2)
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([f"topic-{number}" for number in range(3)])
    got = 0
    while got < 3 * RECORDS:
        found = consumer.consume(500, 20)
        assert found
        got += len(found)
    consumer.close()


def counted(rows: Iterable[dict[str, Any]]) -> tuple[Counter[Any], Counter[Any]]:
    """Exchanges by API; (records, bytes) by API, topic and partition."""
    apis: Counter[Any] = Counter()
    parts: Counter[Any] = Counter()
    for row in rows:
        apis[row["api"]] += 1
        for topic in row.get("topics", ()) if row["api"] in ("Produce", "Fetch") else ():
            for part in topic["partitions"]:
                for what in ("records", "bytes"):
                    parts[row["api"], topic["topic"], part["partition"], what] += part.get(what, 0)
    return apis, +parts


@pytest.mark.deep
def test_tail_events_and_a_capture_agree(proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """On the number of exchanges of each API, on records and bytes of each partition, and on who wrote what."""
    with MockCluster(2) as mock:
        for number in range(3):
            mock.create_topic(f"topic-{number}", 2)
        audit = {"dir": str(tmp_path / "audit"), "flush": "100ms", "level": "requests", "level_by_api": {}}
        audit["level_by_api"] = {"Produce": "requests", "Fetch": "requests", "Metadata": "requests"}
        proxy = proxy_with(*mock.bootstrap.split(","), audit=audit, captures=str(tmp_path))
        admin = Admin(f"http://{proxy.admin}")
        admin("POST", "/api/captures", query={"file": "all", "payload": "full", "side": "client"})
        with (tmp_path / "tail").open("wb") as output:
            tail = subprocess.Popen(
                [sys.executable, "-m", "kproxy", "tail", "-o", "json"], stdout=output, stderr=subprocess.PIPE,
                env={**os.environ, "KPROXY_ADMIN": f"http://{proxy.admin}"},
            )  # fmt: skip
        until(lambda: proxy.said("tail begins"))
        work(proxy.bootstrap)
        assert proxy.stop() == 0
        assert tail.communicate(timeout=60)[1].count(b"\n") == 1
    events = tmp_path / "audit"
    lines = [
        json.loads(line) for path in events.rglob("*.gz") for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    by_audit = counted(line["data"] for line in lines if line["type"] == "kproxy.request.v1")
    by_tail = counted(json.loads(line) for line in (tmp_path / "tail").read_bytes().splitlines())
    read = subprocess.run([sys.executable, "-m", "kproxy", "tail", "-o", "json", str(tmp_path / "all.pcapng")],
                          capture_output=True, check=True, timeout=60).stdout  # fmt: skip
    by_capture = counted(map(json.loads, read.splitlines()))

    written = {key[1:3]: count for key, count in by_audit[1].items() if key[0] == "Produce" and key[3] == "records"}
    assert written == {(f"topic-{number}", part): RECORDS / 2 for number in range(3) for part in range(2)}
    assert by_audit == by_capture
    for api, count in by_audit[0].items():
        assert by_tail[0][api] == count or api in FOREVER, api
    assert by_tail[1] == by_audit[1]
    of_events, of_capture = stats(events), stats(tmp_path / "all.pcapng")
    for what in ("requests", "request_bytes", "response_bytes", "errors", "unanswered"):
        assert of_events["total"][what] == of_capture["total"][what], what
    assert of_events["topics"] == of_capture["topics"]
    assert sum(topic["written_records"] for topic in of_events["topics"]) == 3 * RECORDS
    assert {one["api"]: one["requests"] for one in of_events["apis"]} == by_audit[0]


def test_topics_read_by_id_have_their_names(proxy_with: Callable[..., Any]) -> None:
    """Also by a client that has asked for no Metadata here: it knew the id before. kproxy asks by itself."""
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(30):
            producer.produce("orders", str(number), partition=0)
        assert producer.flush(30) == 0
        asked = {"topics": [{"topic_id": UUID(int=0), "name": "orders"}], "allow_auto_topic_creation": False}
        with RawClient(cluster.bootstrap) as direct:
            direct.send(direct.request(METADATA, 12, asked))
            answer = decode_response(direct.frame(), METADATA, 12, trailing=True)  # librdkafka's mock: a byte too many
            (topic,) = answer.body["topics"]
        proxy = proxy_with(cluster.bootstrap, metrics={"by": ["topic"]})
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body = {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic_id": topic["topic_id"], "partitions": [part]}]}
        with RawClient(proxy.bootstrap) as client:
            (answered,) = client.call(FETCH, 13, body)["responses"]
            assert answered["partitions"][0]["records"]

        until(lambda: proxy.metric("kproxy_topic_records_total", direction="fetch", topic="orders") == 30)
        assert proxy.metric("kproxy_topic_records_total", direction="fetch", topic="other") == 0
