"""The client of schema registries, against a registry that may be down, slow or wrong."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from threading import Thread, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel

from kproxy.base.errors import UnusableSetting
from kproxy.rules.content import lookups
from kproxy.rules.content.schemas import Schema, SchemaKey, SchemaNeeded, framing_of, shown_value
from kproxy.runtime.config.registries import RegistryConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.upstreams import registry as clients
from kproxy.runtime.upstreams.registry import Registries, RegistryClient
from tests.support.certificates import Authority
from tests.support.schema_registry import SchemaRegistry

from .conftest import make_log

pytestmark = pytest.mark.trio

MONEY = '{"type": "record", "name": "a.Money", "fields": [{"name": "cents", "type": "int"}]}'
BILL = '{"type": "record", "name": "Bill", "namespace": "a", "fields": [{"name": "sum", "type": "Money"}]}'


@pytest.fixture
def server() -> Any:
    with SchemaRegistry() as registry:
        yield registry


@asynccontextmanager
async def client_of(server: SchemaRegistry, **settings: Any) -> AsyncIterator[RegistryClient]:
    log, entries = make_log()
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        registries = Registries(reactor)
        registries.prepare({"main": RegistryConfig(url=server.url, **settings)})()
        client = registries.clients["main"]
        client.entries, client.registries = entries, registries  # type: ignore[attr-defined]
        yield client
        client.close()
        nursery.cancel_scope.cancel()


async def look_up(client: RegistryClient, key: SchemaKey) -> Any:
    """Return what the cache has after a lookup: a schema, subjects, or None."""
    done = trio.Event()
    assert client.want(key, done.set)
    with trio.fail_after(60):
        await done.wait()
    return client.cache.schema(key) if key.lookup in ("id", "guid") else client.cache.other(key)


def reference(subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "version": version}


async def test_schemas_subjects_and_references_are_looked_up(server: SchemaRegistry) -> None:
    server.add("a/money", MONEY)
    number = server.add("bill-value", BILL, references=[reference("a/money"), reference("a/money")])
    server.add("all", BILL, references=[reference("a/money"), reference("a/money")])
    async with client_of(server) as client:
        schema = await look_up(client, SchemaKey("id", str(number)))
        assert isinstance(schema, Schema)
        assert schema.avro is not None
        assert schema.avro.decode(b"\x04") == {"sum": {"cents": 2}}
        assert (await look_up(client, SchemaKey("guid", server.schemas[number].guid))).name == "a.Bill"
        assert await look_up(client, SchemaKey("subjects", str(number))) == ("bill-value", "all")
        assert await look_up(client, SchemaKey("latest", "bill-value")) == (str(number),)
        assert await look_up(client, SchemaKey("latest", "none")) is None
        families = {family.name: family for family in client.registries.collect()}  # type: ignore[attr-defined]
        outcomes = {one.labels["outcome"]: one.value for one in families["kproxy_registry_requests"].samples}
        assert outcomes == {"ok": 4, "not_found": 1}
        assert families["kproxy_registry_cached_schemas"].samples[0].value == 2
        assert families["kproxy_registry_up"].samples[0].value == 1
    assert server.connections == 1
    assert server.requests[:2] == [f"/schemas/ids/{number}", "/subjects/a%2Fmoney/versions/1"]


LONG = json.dumps({"schema": "x" * (3 << 20)}).encode()
REPLIES: list[tuple[int, bytes, str, str]] = [
    (404, b"", "not_found", ""), (200, b"{", "invalid", "expected a response of a schema registry"),
    (200, b'{"schema": 3}', "invalid", "expected a response"),
    (200, b'{"schema": "{"}', "invalid", "expected a schema in JSON"),
    (200, LONG, "invalid", "at most 2097152 bytes"), (200, b"[" * 100_000, "invalid", "expected a response"),
    (302, b"", "refused", "expected status 200, got 302"), (401, b"", "refused", "got 401"),
    (500, b"", "refused", "got 500"), (429, b"", "refused", "got 429"),
    # producers choose ids, so these do not count as an outage
    (400, b"", "invalid", "got 400"), (422, b"", "invalid", "got 422"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "outcome", "problem"), REPLIES, ids=range(len(REPLIES)))
async def test_a_wrong_response_has_its_outcome(
    server: SchemaRegistry, status: int, body: bytes, outcome: str, problem: str
) -> None:
    server.replies["/schemas/ids/1"] = status, body
    async with client_of(server) as client:
        if outcome == "refused":
            with pytest.raises(SchemaNeeded):
                await look_up(client, SchemaKey("id", "1"))
        else:
            assert await look_up(client, SchemaKey("id", "1")) is None
        assert client.counts == Counter({("main", outcome): 1})
        assert problem in str(client.entries)  # type: ignore[attr-defined]
    assert server.requests == ["/schemas/ids/1"]


ENDLESS = {
    "informational responses": b"HTTP/1.1 100 Continue\r\n\r\n",
    "short chunks": b"1\r\nx\r\n",
}


@pytest.mark.parametrize("part", ENDLESS.values(), ids=ENDLESS)
async def test_an_endless_response_ends_at_a_limit(part: bytes) -> None:
    """Other tasks run while it is read."""
    head = b"" if b"HTTP" in part else b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    turns = 0

    def flood(listening: socket.socket) -> None:
        with listening, closing(listening.accept()[0]) as sock, suppress(OSError):
            sock.sendall(head)
            while True:
                sock.sendall(part * 10_000)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    listening = socket.create_server(("127.0.0.1", 0))
    server: Any = SimpleNamespace(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    thread = threading.Thread(target=flood, args=(listening,), daemon=True)
    thread.start()
    async with client_of(server, timeout="1s") as client, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        done = trio.Event()
        client.want(SchemaKey("id", "1"), done.set)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert turns > 10
    assert sum(client.counts.values()) == 1
    thread.join(60)


def loop(server: SchemaRegistry) -> int:
    server.add("b", '"long"', references=[reference("a")])
    return server.add("a", '"int"', references=[reference("b")])


def many(server: SchemaRegistry) -> int:
    for number in range(65):
        server.add(f"s{number}", f'"{number}"')
    return server.add("a", '"int"', references=[reference(f"s{number}") for number in range(65)])


def chain(server: SchemaRegistry, length: int = 20) -> int:
    """Add subjects of which each refers to the next one, and return the id of the first."""
    for number in range(length):
        server.add(f"s{number}", f'{{"type": "fixed", "name": "F{number}", "size": 1}}',
                   references=[reference(f"s{number + 1}")])  # fmt: skip
    server.add(f"s{length}", '"int"')
    return 1


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (loop, "expected references without a loop"),
        (chain, "at most 64 references on 16 levels"),
        (many, "at most 64 references on 16 levels"),
    ],
)
async def test_references_beyond_a_limit_are_invalid(server: SchemaRegistry, build: Any, problem: str) -> None:
    number = build(server)
    async with client_of(server) as client:
        assert await look_up(client, SchemaKey("id", str(number))) is None
        assert client.counts == Counter({("main", "invalid"): 1})
        assert problem in str(client.entries)  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_header", [False, True])
async def test_values_of_confluents_serializers_are_decoded(server: SchemaRegistry, in_header: bool) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    with SchemaRegistryClient({"url": server.url}) as own:
        schema = '{"title": "Money", "type": "object"}'
        made = {
            "avro": (AvroSerializer(own, MONEY, conf=conf), {"cents": 5}),
            "json": (JSONSerializer(schema, own, conf=conf), {"cents": 6}),
        }
        async with client_of(server) as client:
            for form, (serialize, value) in made.items():
                headers: list[tuple[str, bytes]] = []
                context = SerializationContext(form, MessageField.VALUE, headers)
                data = await trio.to_thread.run_sync(serialize, value, context)
                assert bool(headers) == in_header
                cache, done = client.cache, trio.Event()
                named = {name.encode(): [content] for name, content in headers}
                framing = framing_of(data, lambda name, named=named: named.get(name, []), "value")
                assert framing is not None
                client.want(framing.key, done.set)
                await done.wait()
                shown = shown_value(data, lambda name, named=named: named.get(name, []), cache=cache)
                assert (shown["format"], shown["value"]) == (form, value)


async def test_schemas_are_parsed_outside_the_loop(server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*given: Any) -> Schema:
        threads.append(current_thread())
        return Schema(*given)

    threads: list[Thread] = []
    monkeypatch.setattr(lookups, "Schema", parse)
    number = server.add("a/money", MONEY)
    async with client_of(server) as client:
        assert await look_up(client, SchemaKey("id", str(number))) is not None
    assert threads and current_thread() not in threads


async def test_lookups_of_one_id_share_a_request(server: SchemaRegistry) -> None:
    number = server.add("a", '"int"')
    server.gate.clear()
    ended: list[int] = []
    async with client_of(server, timeout=30) as client:
        key = SchemaKey("id", str(number))
        last = trio.Event()
        for one in (partial(ended.append, 1), partial(ended.append, 2), last.set):
            assert client.want(key, one)
        server.gate.set()
        await last.wait()
        assert ended == [1, 2]
        assert client.cache.schema(key) is not None
    assert server.requests == [f"/schemas/ids/{number}"]


async def test_a_down_registry_gets_one_request_each_interval(server: SchemaRegistry) -> None:
    server.add("a", '"int"')
    server.down()
    async with client_of(server) as client:
        for number in range(3):
            assert not client.cache.is_down
            with pytest.raises(SchemaNeeded):
                await look_up(client, SchemaKey("id", str(number)))
        with pytest.raises(SchemaNeeded) as needed:
            client.cache.schema(SchemaKey("id", "1"))
        assert needed.value.is_down
        client.retry_at = float("inf")
        assert not client.want(SchemaKey("id", "1"))
        client.retry_at = 0
        server.up()
        assert await look_up(client, SchemaKey("id", "1")) is not None
        assert not client.cache.is_down
        assert client.counts == Counter({("main", "unreachable"): 3, ("main", "ok"): 1})


async def test_a_slow_registry_is_unreachable(server: SchemaRegistry) -> None:
    server.gate.clear()
    async with client_of(server, timeout=0.05) as client:
        with pytest.raises(SchemaNeeded):
            await look_up(client, SchemaKey("id", "1"))
        assert client.counts == Counter({("main", "unreachable"): 1})
        server.gate.set()


async def test_a_closed_kept_connection_is_replaced(server: SchemaRegistry) -> None:
    server.add("a", '"int"')
    server.add("a", '"long"')
    async with client_of(server) as client:
        await look_up(client, SchemaKey("id", "1"))
        assert client.connection is not None
        client.connection.sock.shutdown(2)
        assert await look_up(client, SchemaKey("id", "2")) is not None
    assert server.connections == 2


async def test_the_number_of_pending_lookups_is_limited(
    server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_PENDING", 2)
    server.gate.clear()
    async with client_of(server, timeout=30) as client:
        assert [client.want(SchemaKey("id", str(number))) for number in range(3)] == [True, True, False]
        server.gate.set()


async def test_tls_and_a_password_reach_the_registry(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("127.0.0.1"))
    with SchemaRegistry(context, "kproxy:secret") as server:
        server.add("a", '"int"')
        for password, outcome in (("secret", "ok"), ("wrong", "refused")):
            settings = {"username": "kproxy", "password": password, "tls": {"ca": str(authority.file)}}
            async with client_of(server, **settings) as client:
                await trio.lowlevel.checkpoint()
                done = trio.Event()
                client.want(SchemaKey("id", "1"), done.set)
                await done.wait()
                assert client.counts == Counter({("main", outcome): 1})


async def test_another_config_keeps_unchanged_caches(server: SchemaRegistry, tmp_path: Path) -> None:
    server.add("a", '"int"')
    async with client_of(server) as client:
        await look_up(client, SchemaKey("id", "1"))
        registries: Registries = client.registries  # type: ignore[attr-defined]
        registries.prepare({"main": client.config, "other": RegistryConfig(url=server.url, clusters=["b"])})()
        assert registries.cache("a") is client.cache
        registries.prepare({"main": RegistryConfig(url=server.url, cache=7)})()
        assert registries.clients["main"] is not client
        ca = tmp_path / "ca.pem"
        ca.write_text("nothing")
        with pytest.raises(UnusableSetting, match="registry main"):
            registries.prepare({"main": RegistryConfig(url="https://a:1", tls={"ca": str(ca)})})
        registries.prepare({})()
        assert registries.cache("a") is None
