"""Captures that begin and end in live traffic of librdkafka on a real Kafka, and a loss that such a capture proves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from kproxy.cli import main
from kproxy.cli.admin_client import Admin
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.process import Proxy, free_port_with_room
from tests.support.raw_client import RawClient
from tests.support.topics import create_topics
from tests.support.wait import until
from tests.tools.verify.site import PATIENCE, Site, client

pytestmark = pytest.mark.process
LIVE_CLEAN = {
    "lost-write", "watermark-behind", "offset-given-twice", "inconsistent-offset", "duplicate-sequence",
    "read-disorder", "order", "aborted-read", "read-beyond-stable", "torn-transaction",
    "commit-beyond",
}  # fmt: skip
"""Checks that a capture of live traffic decides."""
LOSS = {
    "name": "loss", "kind": "python", "at": "response", "call": "loss_hooks:lose",
    "match": {"api": "Fetch", "client_id": "lost"},
}  # fmt: skip
HOOKS = """
from kproxy.rules.exchange import Edit


def lose(exchange, message):
    for topic in message.body["responses"]:
        for partition in topic["partitions"]:
            kept, data, at = b"", bytes(partition["records"] or b""), 0
            while at < len(data):
                end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                kept += data[at:end] if int.from_bytes(data[at : at + 8], "big") != 3 else b""
                at = end
            partition["records"] = kept
    return Edit()
"""
"""Hook that loses the batch at offset 3, as a broker that has lost a segment does."""
PARK = {"name": "park", "kind": "intercept", "match": {"api": "Metadata", "client_id": "raw"}, "hold_for": "5m"}


class Traffic:
    """Clients in threads until the end of the block: an idempotent producer, a transactional producer that aborts each
    third transaction, and a group that reads both topics. Errors of threads end the test."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.address = {"bootstrap.servers": bootstrap, "client.id": name, "log_level": 0}
        self.name, self.over = name, Event()
        self.written = self.read = self.transactions = 0
        self.errors: list[BaseException] = []
        self.threads = [Thread(target=self.guarded, args=(run,)) for run in (self.write, self.transact, self.consume)]

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert self.errors == []

    def guarded(self, run: Any) -> None:
        """Run one client; keep what it raises."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001  # the test's thread reports it
            self.errors.append(error)

    def write(self) -> None:
        """Write batches without waiting for their acknowledgements, so that requests are pipelined."""
        producer = Producer(self.address | {"enable.idempotence": True, "linger.ms": 1})
        while not self.over.wait(0.01):
            for number in range(20):
                producer.produce(self.name, f"{self.written}-{number}")
                producer.poll(0)
            self.written += 20
        assert producer.flush(PATIENCE) == 0

    def transact(self) -> None:
        """Write transactions one after the other; each stays open for a while."""
        producer = Producer(self.address | {"transactional.id": self.name, "linger.ms": 1})
        producer.init_transactions(PATIENCE)
        while not self.over.is_set():
            producer.begin_transaction()
            for _ in range(5):
                producer.produce(f"{self.name}-transactions", b"x")
                producer.poll(0.02)
            assert producer.flush(PATIENCE) == 0
            if self.transactions % 3 == 2:
                producer.abort_transaction(PATIENCE)
            else:
                producer.commit_transaction(PATIENCE)
            self.transactions += 1

    def consume(self) -> None:
        """Read both topics as a group, and commit what was read."""
        consumer = Consumer(self.address | {
            "group.id": self.name, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 500,
        })  # fmt: skip
        with client(consumer):
            consumer.subscribe([self.name, f"{self.name}-transactions"])
            while not self.over.is_set():
                found = [one for one in consumer.consume(100, 0.1) if one.error() is None]
                self.read += len(found)
                if found:
                    consumer.commit(asynchronous=False)

    def goes_on(self) -> None:
        """Wait until all clients have done more."""
        read, written, transactions = self.read, self.written, self.transactions
        until(lambda: self.errors or (self.read > read + 200 and self.written > written + 200
                                      and self.transactions > transactions + 6), PATIENCE)  # fmt: skip
        assert self.errors == []


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(1, listeners=[KafkaListener("PROXIED")]) as cluster:
        yield cluster


def proxy_of(kafka: Kafka, folder: Path, **more: Any) -> Proxy:
    """Return a `kproxy run` in front of the cluster, which makes captures in a folder."""
    config = {
        "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
        "captures": str(folder),
    }
    return Proxy(config=config, **more)


def stop(proxy: Proxy, name: str) -> None:
    Admin(f"http://{proxy.admin}")("DELETE", f"/api/captures/{name}")


def verdict_of(path: Path, *options: str) -> dict[str, Any]:
    """Return what `kproxy verify -o json` prints of a capture."""
    result = CliRunner().invoke(main, ["verify", str(path), "-o", "json", *options])
    assert result.exit_code in (0, 1), result.output
    verdict: dict[str, Any] = json.loads(result.stdout)
    return verdict


def ask(bootstrap: str) -> None:
    """Request Metadata, with the client id `raw`."""
    with RawClient(bootstrap) as raw:
        raw.brokers()


@pytest.mark.timeout(300)
def test_capture_of_live_traffic_is_clean(kafka: Kafka, tmp_path: Path) -> None:
    """It begins and ends with Fetches, Produces and a transaction under way; nothing in it is suspected."""
    create_topics(kafka.bootstrap("DIRECT"), "live", "live-transactions")
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_of(kafka, tmp_path, rules=[PARK]))
        traffic = stack.enter_context(Traffic(proxy.bootstrap, "live"))
        traffic.goes_on()
        parked = Thread(target=ask, args=(proxy.bootstrap,))
        parked.start()
        until(lambda: json.loads(proxy.get("/api/held")[1])["held"], PATIENCE)
        proxy.post("/api/captures?file=live&payload=full", {})
        proxy.post("/api/held/resume", {})
        parked.join()  # its response is in the capture, its request came before it
        traffic.goes_on()
        stop(proxy, "live")
    verdict = verdict_of(tmp_path / "live.pcapng")
    assert verdict["findings"] == []
    assert LIVE_CLEAN <= set(verdict["clean"]), verdict["not_checked"]
    assert any("responses to earlier requests" in sentence for sentence in verdict["incomplete"])
    topics = verdict_of(tmp_path / "live.pcapng", "--not-compacted", "live,live-transactions")
    assert set(topics["clean"]) == {*verdict["clean"], "thinned-batch"}


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_lost_write_is_proved_from_an_ordinary_capture(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client requests configs. kproxy has recorded the topic's id and policy before and after."""
    (tmp_path / "loss_hooks.py").write_text(HOOKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    site = Site("lost", kafka, "")
    site.create()
    with proxy_of(kafka, tmp_path, rules=[LOSS]) as proxy:
        site.bootstrap = proxy.bootstrap
        proxy.post("/api/captures?file=lost&payload=sketch", {})
        producer = site.producer(linger_ms=0)
        for number in range(6):
            producer.produce("lost", f"{number}")
            assert producer.flush(PATIENCE) == 0
        site.read("group")
        stop(proxy, "lost")
    verdict = verdict_of(tmp_path / "lost.pcapng")
    found = {one["check"]: one["level"] for one in verdict["findings"]}
    assert found == {"lost-write": "proved"}, verdict["findings"]
    assert all("in flight at its end" in sentence for sentence in verdict["incomplete"])
