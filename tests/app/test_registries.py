"""Record conditions about values with a schema: the frame waits for the registry, and only its connection does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table.api_keys import FETCH, METADATA, PRODUCE
from kproxy.testing.process import free_port
from tests.support.fake_broker import FakeBroker
from tests.support.live_proxy import LiveProxy
from tests.support.raw_client import RawClient
from tests.support.schema_registry import SchemaRegistry
from tests.support.wait import until

ORDER = '{"type": "record", "name": "shop.Order", "fields": [{"name": "country", "type": "string"}]}'
DE, FR = b"\0\0\0\0\x01\x04DE", b"\0\0\0\0\x01\x04FR"
ASKED: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}
RULES = """\
rules:
  - name: no German orders
    kind: error
    match: {api: Produce, topic: orders, records: 'value.country == DE and subject == orders-value'}
    error: POLICY_VIOLATION
  - name: no French orders
    kind: error
    match: {api: Fetch, topic: orders, records: 'value.country == FR'}
    error: TOPIC_AUTHORIZATION_FAILED
"""


def write(broker: FakeBroker, stream: Any, request: Any) -> None:
    partition = {"index": 0, "error_code": 0, "base_offset": 0}
    broker.respond(stream, request, {"responses": [{"name": "orders", "partition_responses": [partition]}]})


def read(broker: FakeBroker, stream: Any, request: Any) -> None:
    value = FR if request.body["topics"][0]["partitions"][0]["fetch_offset"] else DE
    data = encode_batch([Record(0, 5, None, value)], codec=1)
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "records": data}
    broker.respond(stream, request, {"responses": [{"topic": "orders", "partitions": [partition]}]})


class Shop:
    """A proxy with these rules, a broker, and a registry."""

    def __init__(self, stack: ExitStack, folder: Path, timeout: str = "30s") -> None:
        self.registry = stack.enter_context(SchemaRegistry())
        self.registry.add("orders-value", ORDER)
        broker = stack.enter_context(FakeBroker(answers={PRODUCE: write, FETCH: read}))
        rules = folder / "rules.yaml"
        rules.write_text(RULES)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": self.address, "cluster": "main"}],
            "rules": [str(rules)],
            "registries": {"main": {"url": self.registry.url, "timeout": timeout}},
        }
        self.proxy = stack.enter_context(LiveProxy(self.config))
        self.stack = stack

    def client(self) -> RawClient:
        return self.stack.enter_context(RawClient(self.address))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def produce(client: RawClient, value: bytes) -> int:
    partition = {"index": 0, "records": encode_batch([Record(0, 5, None, value)])}
    body = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    answer = client.call(PRODUCE, 8, body)
    code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


def fetch(client: RawClient, offset: int) -> int:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body = {
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": "orders", "partitions": [wanted]}],
    }
    code: int = client.call(FETCH, 11, body)["responses"][0]["partitions"][0]["error_code"]
    return code


def test_conditions_read_avro_of_requests_and_responses(stack: ExitStack, tmp_path: Path) -> None:
    shop = Shop(stack, tmp_path)
    client = shop.client()
    assert [produce(client, value) for value in (DE, FR, b"\0\0\0\0\x09x", b"text")] == [44, 0, 0, 0]
    assert [fetch(client, offset) for offset in (0, 1)] == [0, 29]
    assert sorted(shop.registry.requests) == ["/schemas/ids/1", "/schemas/ids/1/versions", "/schemas/ids/9",
                                              "/schemas/ids/9/versions"]  # fmt: skip


@pytest.mark.parametrize("asks", [lambda client: produce(client, DE), lambda client: fetch(client, 1)])
def test_only_the_connection_of_the_record_waits(stack: ExitStack, tmp_path: Path, asks: Any) -> None:
    shop = Shop(stack, tmp_path)
    shop.registry.gate.clear()
    codes: list[int] = []
    waiting, other = shop.client(), shop.client()
    thread = threading.Thread(target=lambda: codes.append(asks(waiting)), daemon=True)
    thread.start()
    until(lambda: shop.registry.requests)
    other.call(METADATA, 4, ASKED)
    assert codes == []
    shop.registry.gate.set()
    thread.join(60)
    assert codes in ([44], [29])


def test_producer_retries_after_the_timeout(stack: ExitStack, tmp_path: Path) -> None:
    shop = Shop(stack, tmp_path, "50ms")
    shop.registry.gate.clear()
    client = shop.client()
    assert produce(client, DE) == 19  # NOT_ENOUGH_REPLICAS
    shop.registry.gate.set()


def test_a_registry_that_a_reload_adds_is_used(stack: ExitStack, tmp_path: Path) -> None:
    shop = Shop(stack, tmp_path)
    client = shop.client()
    shop.proxy.apply({name: part for name, part in shop.config.items() if name != "registries"})
    assert produce(client, DE) == 0
    shop.proxy.apply(shop.config)
    assert produce(client, DE) == 44
