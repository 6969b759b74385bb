"""Frames of any length are among the exchanges, and what follows them on the connection, too."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol import Message, encode
from kproxy.session.commands import LONG
from kproxy.testing.embedded import Embedded
from kproxy.testing.exchanges import SeenExchanges
from kproxy.testing.inject import Kproxy, KproxyWarning
from tests.support.certificates import Authority, client_context, server_context
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
MB = 1 << 20
SIZES = [LONG - 100, LONG - 1, LONG, LONG + 1, LONG + 100, 2 * LONG, MB, 3 * MB + 1]


class Front(Embedded):
    """A proxy with TLS on the sides that are asked for."""

    certificate: Path
    authority: Authority
    tls: tuple[bool, bool]

    def document(self) -> dict[str, Any]:
        """With TLS."""
        made = super().document()
        if self.tls[0]:
            made["listeners"][0]["tls"] = {"cert": str(self.certificate), "key": str(self.certificate)}
        if self.tls[1]:
            made["clusters"]["test"]["tls"] = {"ca": str(self.authority.file)}
        return made


def answer_fetch(broker: FakeBroker, stream: Any, request: Message) -> None:
    """As many bytes of records as the request has for its most."""
    size = request.body["max_bytes"]
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 0, "records": b"r" * size}
    body = {"throttle_time_ms": 0, "responses": [{"topic": "t", "partitions": [part]}]}
    broker.respond(stream, request, body)


def answer_produce(broker: FakeBroker, stream: Any, request: Message) -> None:
    """Taken."""
    part = {"index": 0, "error_code": 0, "base_offset": 0}
    broker.respond(stream, request, {"responses": [{"name": "t", "partition_responses": [part]}]})


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Callable[[tuple[bool, bool]], tuple[Kproxy, ssl.SSLContext | None]]]:
    """`front((client's TLS, broker's TLS))`: a proxy with a broker behind it that answers as long as it is asked to."""
    authority = Authority(tmp_path)
    certificate = authority.issue("localhost", "127.0.0.1")
    engines: list[Embedded] = []
    brokers: list[FakeBroker] = []

    def start(tls: tuple[bool, bool]) -> tuple[Kproxy, ssl.SSLContext | None]:
        context = server_context(certificate) if tls[1] else None
        broker = FakeBroker(answers={PRODUCE: answer_produce, FETCH: answer_fetch}, tls=context)
        brokers.append(broker)
        engine = Front(broker.address)
        engine.authority, engine.certificate, engine.tls = authority, certificate, tls
        engine.start()
        engines.append(engine)
        return Kproxy(engine), client_context(authority.file) if tls[0] else None

    yield start
    for engine in engines:
        engine.stop()
    for broker in brokers:
        broker.close()


def produce(size: int) -> dict[str, Any]:
    """A write of so many bytes."""
    part = {"index": 0, "records": b"w" * size}
    return {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": [part]}]}


def fetch(size: int) -> dict[str, Any]:
    """A read of so many bytes."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": size, "isolation_level": 0}
    return {**body, "topics": [{"topic": "t", "partitions": [part]}]}


@pytest.mark.parametrize("tls", [(False, False), (True, False), (False, True), (True, True)])
def test_every_frame_both_ways(front: Any, tls: tuple[bool, bool]) -> None:
    """Pipelined, a small one behind each long one: exactly what was sent, and exactly what was answered."""
    kproxy, context = front(tls)
    with RawClient(kproxy.bootstrap_servers, tls=context) as client:
        sent, heard = [], []
        for size in SIZES:
            frames = [client.request(PRODUCE, 4, produce(size)), client.request(API_VERSIONS, 0, {}),
                      client.request(FETCH, 4, fetch(size)), client.request(API_VERSIONS, 0, {})]  # fmt: skip
            client.send(b"".join(frames))
            sent += [frame[4:] for frame in frames]
            heard += [client.frame() for _ in frames]

    taken = [one.taken for one in kproxy.exchanges()]
    requests = [one.request.data for one in taken]
    assert [len(one) for one in requests] == [len(frame) for frame in sent]
    assert requests == sent
    assert [one.seen.answer and one.seen.answer.data for one in taken] == heard


def test_a_request_that_says_nonsense(front: Any) -> None:
    """What comes behind it is not there, and that is said; else nobody would know."""
    kproxy, _ = front((False, False))
    with RawClient(kproxy.bootstrap_servers) as client:
        client.call(API_VERSIONS, 0, {})
        client.send((-7).to_bytes(4, "big", signed=True) + b"more" * 9)
        client.rest()

    with pytest.warns(KproxyWarning, match=r"connection \d+: a request says that it has -7 bytes"):
        (one,) = kproxy.exchanges()
    assert one.api == "ApiVersions"
    assert "a request says that it has -7 bytes" in kproxy.report()
    assert isinstance(kproxy._selection(), SeenExchanges)
    assert encode(one.request)
