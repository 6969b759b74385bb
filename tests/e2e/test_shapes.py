"""Rules about the line itself: slow, in small pieces, cut after so many bytes or so much time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kproxy.protocol import Message
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import undisturbed, up_to

FETCH = 1
SIZE = 60_000


def fetch_answer() -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "last_stable_offset": 1}
    partition |= {"aborted_transactions": None, "records": bytes(SIZE)}
    return {"throttle_time_ms": 0, "responses": [{"topic": "t", "partitions": [partition]}]}


def fetch_request() -> dict[str, Any]:
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "topics": [], "replica_id": -1}


def fetched(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    broker.respond(stream, request, fetch_answer())


@pytest.fixture
def line(fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A client's connection through a proxy with one rule."""

    def start(rule: str, tls: bool = False) -> tuple[RawClient, Any]:
        rules = tmp_path / "rules.yaml"
        rules.write_text(f"rules:\n  - {{name: line, {rule}}}\n")
        listener, context = {}, None
        if tls:
            authority = Authority(tmp_path)
            listener = {"tls": {"cert": str(authority.issue("127.0.0.1"))}}
            context = client_context(authority.file)
        broker = fake(answers={FETCH: fetched})
        proxy = proxy_with(broker.address, rules=[str(rules)], listener=listener)
        return RawClient(proxy.bootstrap, tls=context), proxy

    return start


def answer_after(client: RawClient, least: float, most: float) -> dict[str, Any]:
    """Return a response. Each takes at least `least` seconds, and one of a few takes at most `most`."""

    def timed() -> dict[str, Any]:
        since = monotonic()
        answer = ask(client)
        took.append(monotonic() - since)
        assert took[-1] <= most
        return answer

    took: list[float] = []
    found = undisturbed(timed)
    assert min(took) >= least, took
    return found


def ask(client: RawClient) -> dict[str, Any]:
    return client.call(FETCH, 4, fetch_request())


@up_to(1.1)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_bandwidth_delays_by_its_rate(line: Callable[..., Any], tls: bool, most: float) -> None:
    """60 kB at 100 kB/s come in 0.6 seconds, whole and unchanged."""
    client, proxy = line("kind: bandwidth, rate: 100kB/s, direction: to_client", tls)
    with client:
        answer = answer_after(client, 0.55, most)
    assert bytes(answer["responses"][0]["partitions"][0]["records"]) == bytes(SIZE)
    assert proxy.metric("kproxy_connections_closed_total", cause="crashed") == 0


@up_to(0.58)
def test_slice_pauses_between_pieces(line: Callable[..., Any], most: float) -> None:
    """30 kB pieces with 200 ms between them: three pieces, two pauses."""
    client, _ = line("kind: slice, bytes: 30000, every: 200ms, direction: to_client")
    with client:
        answer = answer_after(client, 0.38, most)
    assert len(answer["responses"][0]["partitions"][0]["records"]) == SIZE


def test_a_line_is_cut_after_so_many_bytes(line: Callable[..., Any]) -> None:
    """The client gets 10 kB of the answer, then the end."""
    client, proxy = line("kind: disconnect, after: 10kB")
    with client, pytest.raises(EndOfStream) as end:
        ask(client)
    assert 9_000 < len(end.value.args[0]) < 10_000
    assert proxy.metric("kproxy_connections_closed_total", cause="rule") == 1


@up_to(0.6)
def test_disconnect_resets_at_its_age(line: Callable[..., Any], most: float) -> None:
    """`age` and `close_with: rst`: the client's read ends with a reset after that time."""
    first, proxy = line("kind: disconnect, age: 300ms, close_with: rst")
    first.close()

    def lived() -> float:
        since = monotonic()
        with RawClient(proxy.bootstrap) as client:
            ask(client)
            with pytest.raises(ConnectionResetError):
                client.socket.recv(1)
        took = monotonic() - since
        assert took <= most
        return took

    assert undisturbed(lived) >= 0.3
