"""The audit of a running proxy: what is in its files is what clients did, whatever the disk does meanwhile."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.protocol.records import Record, encode_batch
from kproxy.record.events.schema import BY_NAME
from kproxy.testing.cluster import MockCluster
from tests.support.event_validation import mistakes
from tests.support.raw_client import METADATA, RawClient
from tests.support.wait import until

RECORDS = 500


def events(folder: Path, type_name: str = "") -> list[dict[str, Any]]:
    """What is published, in order of the files' names; all of it is as its type declares."""
    found = []
    for path in sorted(folder.glob("dt=*/*.ndjson.gz")):
        lines = gzip.decompress(path.read_bytes()).splitlines()
        found += [json.loads(line) for line in lines]
    for one in found:
        assert mistakes(BY_NAME[one["type"]], one["data"]) == [], one
    return [one for one in found if type_name in one["type"]]


def audited(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"dir": str(folder), "flush": "100ms", **settings}


def write(bootstrap: str, topic: str, records: int) -> None:
    """So many records of 100 bytes, all acknowledged."""
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "writer", "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, b"v" * 100, partition=number % 2, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert not failed


def read(bootstrap: str, topic: str, records: int) -> int:
    """So many records, as a member of a group that commits."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": "reader", "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got = 0
    try:
        while got < records:
            message = consumer.poll(10)
            assert message is not None, f"{got} of {records} records came"
            assert message.error() is None
            got += 1
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return got


@pytest.mark.parametrize("detail", ["summary", "requests"])
def test_what_clients_counted_is_in_the_audit(proxy_with: Callable[..., Any], tmp_path: Path, detail: str) -> None:
    """Records written and read, the group's name, the offsets committed, both ends of every connection."""
    folder = tmp_path / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        details = {"Produce": detail, "Fetch": detail}
        proxy = proxy_with(mock.bootstrap, audit=audited(folder, level_by_api=details))
        write(proxy.bootstrap, "orders", RECORDS)
        assert read(proxy.bootstrap, "orders", RECORDS) == RECORDS
        assert proxy.stop() == 0

    found = events(folder)
    assert [int(one["id"]) for one in found] == list(range(1, len(found) + 1))
    assert len({one["source"] for one in found}) == 1
    written, fetched = records(found, "Produce", detail), records(found, "Fetch", detail)
    assert sum(written.values()) == RECORDS
    assert written == {("orders", 0): RECORDS // 2, ("orders", 1): RECORDS // 2}
    assert fetched == written
    connections = [one["data"] for one in found if one["type"] == "kproxy.connection.v1"]
    whats = Counter(one["action"] for one in connections)
    assert whats["open"] == whats["close"] > 2
    assert {one.get("software_name") for one in connections if one["action"] == "close"} >= {"confluent-kafka-python"}
    requests = [one["data"] for one in found if one["type"] == "kproxy.request.v1"]
    assert {one["group"] for one in requests if one["api"] == "JoinGroup"} == {"readers"}
    commits = [one for one in requests if one["api"] == "OffsetCommit"]
    last = {
        (topic["topic"], part["partition"]): part["committed_offset"]
        for one in commits
        for topic in one["topics"]
        for part in topic["partitions"]
    }
    assert last == {("orders", 0): RECORDS // 2, ("orders", 1): RECORDS // 2}


def records(found: list[dict[str, Any]], api: str, detail: str) -> dict[tuple[str, int], int]:
    """Records by topic and partition."""
    counts: Counter[tuple[str, int]] = Counter()
    for one in found:
        data = one["data"]
        if data.get("api") != api:
            continue
        if detail == "summary" and one["type"] == "kproxy.summary.v1" and "topic" in data:
            counts[data["topic"], data["partition"]] += data["records"]
        if detail == "requests" and one["type"] == "kproxy.request.v1":
            for topic in data.get("topics", ()):
                for part in topic["partitions"]:
                    counts[topic["topic"], part["partition"]] += part.get("records", 0)
    return {key: count for key, count in counts.items() if count}


def test_rules_and_topology_are_recorded(proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """Which rules there were, what they did, to which request; and which topics the cluster has."""
    folder = tmp_path / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        port = int(mock.bootstrap.rsplit(":", 1)[1])
        proxy = proxy_with(mock.bootstrap, audit=audited(folder))
        rule = {"name": "broken", "kind": "error", "match": {"api": "Heartbeat"}, "error": "NETWORK_EXCEPTION"}
        proxy.post("/api/rules", {"rules": [rule]})
        with RawClient(proxy.bootstrap) as client:
            client.call(12, 4, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None})
        until(lambda: proxy.metric("kproxy_audit_written_total") > 0)
        assert proxy.stop() == 0

    rules = [one["data"] for one in events(folder, ".rule.")]
    assert [one["action"] for one in rules] == ["loaded", "swapped", "fired"]
    assert rules[-1]["rule"] == "broken"
    assert rules[-1]["applied"] == 1
    (asked,) = [one["data"] for one in events(folder, ".request.") if one["data"]["api"] == "Heartbeat"]
    assert (asked["rules"], asked["responder"], asked["error"]) == (["broken"], "kproxy", "NETWORK_EXCEPTION")
    topology = [one["data"] for one in events(folder, ".topology.")]
    assert {topic["topic"]: topic["partitions"] for topic in topology[-1]["topics"]} == {"orders": 2}
    assert topology[-1]["nodes"][0]["port"] == port


def test_rules_are_told_of_requests_that_are_due_no_answer(proxy_with: Callable[..., Any], tmp_path: Path) -> None:
    """Produce with acks=0 is over as soon as it has come, and what rules did about it is in its event all the same."""
    folder = tmp_path / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        proxy = proxy_with(mock.bootstrap, audit=audited(folder, level="requests"))
        rules = [
            {"name": "late", "kind": "delay", "match": {"api": "Produce"}, "when": {"nth": 2}, "delay": "50ms"},
            {"name": "later", "kind": "delay", "match": {"api": "Produce"}, "when": {"nth": 3}, "delay": "1ms"},
            {"name": "groups", "kind": "rename_group", "groups": {"g": "h"}},
        ]
        proxy.post("/api/rules", {"rules": rules})
        parts = [{"index": 0, "records": encode_batch([Record(0, 1_700_000_000_000, None, b"v")])}]
        body = {"acks": 0, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": parts}]}
        with RawClient(proxy.bootstrap) as client:
            client.send(b"".join(client.request(0, 9, body) for _ in range(4)))
            client.call(3, 4, METADATA)
        assert proxy.stop() == 0

    told = [one["data"] for one in events(folder, ".request.") if one["data"]["api"] == "Produce"]
    assert told[1]["rule_ms"] >= 40
    assert [(one["outcome"], one.get("rules")) for one in told] == [
        ("no_answer_due", None), ("no_answer_due", ["late"]), ("no_answer_due", ["later"]), ("no_answer_due", None)
    ]  # fmt: skip
    opened = [one["data"] for one in events(folder, ".connection.") if one["data"]["action"] == "open"]
    assert opened[-1]["bound_rules"] == [{"rule": "groups", "kind": "rename_group"}]


def test_after_a_kill_nothing_published_is_torn_and_the_end_is_on_record(
    proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """SIGKILL in the middle of traffic; the next process finds what is left and says so."""
    folder = tmp_path / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        first = proxy_with(mock.bootstrap, audit=audited(folder))
        write(first.bootstrap, "orders", RECORDS)
        until(lambda: first.metric("kproxy_audit_written_total") > 0)
        os.kill(first.pid, signal.SIGKILL)
        second = proxy_with(mock.bootstrap, audit=audited(folder))
        until(lambda: second.metric("kproxy_audit_unclean_shutdowns_total") == 1)
        assert second.stop() == 0

    found = events(folder)
    by_source: dict[str, list[int]] = {}
    for one in found:
        by_source.setdefault(one["source"], []).append(int(one["id"]))
    assert len(by_source) == 2
    assert all(sorted(ids) == list(range(1, len(ids) + 1)) for ids in by_source.values())
    (recovered,) = [one["data"] for one in found if one["type"] == "kproxy.audit_gap.v1"]
    assert recovered["reason"] == "unclean_end"
    assert recovered["of_source"] in by_source


@pytest.fixture
def full_disk(tmp_path: Path) -> Any:
    """A folder on a file system that holds 1 MB, and what is to be done to fill and to empty it."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.fail(f"a small file system cannot be mounted, run this as root: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_a_full_disk_drops_events_and_traffic_goes_on(proxy_with: Callable[..., Any], full_disk: Path) -> None:
    """What was dropped is counted, and told once there is room again."""
    folder = full_disk / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        proxy = proxy_with(mock.bootstrap, audit=audited(folder, level="requests", queue=100))
        ballast = fill(full_disk)
        write(proxy.bootstrap, "orders", RECORDS)
        until(lambda: ask_until_dropped(proxy))
        assert proxy.get("/readyz")[0] == 200
        ballast.unlink()
        until(lambda: proxy.metric("kproxy_audit_failing") == 0)
        with RawClient(proxy.bootstrap) as client:
            client.brokers()
        assert proxy.stop() == 0

    gaps = [one["data"] for one in events(folder, ".audit_gap.") if one["data"]["reason"] == "dropped"]
    ids = {int(one["id"]) for one in events(folder)}
    missing = set(range(1, max(ids) + 1)) - ids
    assert sum(one["dropped"] for one in gaps) == len(missing) > 0


def ask_until_dropped(proxy: Any) -> bool:
    with RawClient(proxy.bootstrap) as client:
        for _ in range(50):
            client.brokers()
    return bool(proxy.metric("kproxy_audit_dropped_total"))


def test_a_full_disk_can_stop_traffic_instead(proxy_with: Callable[..., Any], full_disk: Path) -> None:
    """With `when_full: block` no event is lost: clients wait, readiness says why, and all goes on with room."""
    folder = full_disk / "audit"
    with MockCluster(1) as mock:
        mock.create_topic("orders", 2)
        proxy = proxy_with(mock.bootstrap, audit=audited(folder, level="requests", queue=100, when_full="block"))
        ballast = fill(full_disk)
        until(lambda: blocked(proxy))
        assert "audit" in proxy.get("/readyz")[1]
        ballast.unlink()
        until(lambda: proxy.get("/readyz")[0] == 200)
        write(proxy.bootstrap, "orders", RECORDS)
        assert proxy.stop() == 0

    ids = [int(one["id"]) for one in events(folder)]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    assert events(folder, ".audit_gap.") == []


def blocked(proxy: Any) -> bool:
    """Ask something, for as long as it is answered."""
    try:
        with RawClient(proxy.bootstrap, timeout=0.5) as client:
            client.brokers()
    except OSError:
        pass
    return proxy.get("/readyz")[0] != 200


@pytest.mark.deep
def test_a_start_that_fails_is_no_unclean_end(tmp_path: Path) -> None:
    """The admin port is taken: kproxy says so and ends, and leaves nothing behind for the next start to recover."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = {
            "clusters": {"main": {"bootstrap": ["127.0.0.1:9"]}},
            "listeners": [{"name": "main", "bind": "127.0.0.1:0", "cluster": "main"}],
            "admin": {"bind": f"127.0.0.1:{taken.getsockname()[1]}"},
            "audit": audited(tmp_path / "audit"),
        }
        file = tmp_path / "kproxy.yaml"
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", "kproxy", "run", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "admin cannot bind" in done.stderr
    assert list((tmp_path / "audit").glob(".*")) == []
