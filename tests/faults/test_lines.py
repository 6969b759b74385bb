"""Faults of the line: delays, slow and sliced bytes, refused, swallowed, cut and old connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kproxy.protocol import decode_response
from kproxy.testing.process import Proxy
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import METADATA as ANY_TOPICS
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import undisturbed, until, up_to

METADATA = 3

#: Each for the clients of one address of this machine.
FAULTS: dict[str, dict[str, Any]] = {
    "127.0.1.1": {"kind": "delay", "delay": "3s", "when": {"once": True}},
    "127.0.1.2": {"kind": "delay", "delay": "3s", "at": "response", "when": {"once": True}},
    "127.0.1.3": {"kind": "delay", "delay": "400ms", "at": "response"},
    "127.0.1.4": {"kind": "reorder_responses", "when": {"nth": [1, 3]}},
    "127.0.1.5": {"kind": "bandwidth", "rate": "100kB/s", "direction": "to_broker"},
    "127.0.1.6": {"kind": "slice", "bytes": 7, "every": "30ms", "direction": "to_client"},
    "127.0.1.7": {"kind": "refuse", "when": {"first": 2}},
    "127.0.1.8": {"kind": "blackhole", "when": {"once": True}},
    "127.0.1.9": {"kind": "disconnect", "after": "1kB"},
    "127.0.1.10": {"kind": "disconnect", "age": "400ms", "close_with": "rst"},
    "127.0.1.11": {"kind": "disconnect", "close_with": "half", "match": {"api": "Metadata"}},
}
NOBODY = "127.0.1.100"


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    """One that answers Metadata."""
    with FakeBroker() as fake:
        yield fake


@pytest.fixture(scope="module")
def faulty(broker: FakeBroker) -> Iterator[Proxy]:
    """All faults in one proxy."""
    rules = [
        {"name": address, **rule, "match": {**rule.get("match", {}), "client_address": address}}
        for address, rule in FAULTS.items()
    ]
    with Proxy(broker.address, rules=rules) as proxy:
        yield proxy


@pytest.fixture
def dial(faulty: Proxy) -> Iterator[Callable[..., RawClient]]:
    """Connects from an address."""
    with ExitStack() as stack:
        yield lambda source, **more: stack.enter_context(RawClient(faulty.bootstrap, source=source, **more))


def seconds(act: Callable[[], Any]) -> float:
    """How long that takes."""
    since = time.monotonic()
    act()
    return time.monotonic() - since


def ids(client: RawClient, count: int) -> list[int]:
    """The correlation ids of the next frames."""
    return [int.from_bytes(client.frame()[:4], "big") for _ in range(count)]


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.1.2"])
def test_a_delay_holds_what_follows_and_no_other_connection(address: str, dial: Any, faulty: Proxy) -> None:
    """The first request is slow, and the second one behind it; another connection is answered meanwhile."""
    slow, quick = dial(address), dial(NOBODY)
    quick.call(METADATA, 4, ANY_TOPICS)
    since = time.monotonic()
    slow.send(slow.request(METADATA, 4, ANY_TOPICS, 1) + slow.request(METADATA, 4, ANY_TOPICS, 2))
    until(lambda: faulty.metric("kproxy_rule_fired_total", rule=address) == 1)
    quick.call(METADATA, 4, ANY_TOPICS)
    slow.socket.setblocking(False)
    with pytest.raises(BlockingIOError):  # the slow one is still waiting
        slow.socket.recv(1)
    slow.socket.settimeout(60)

    assert ids(slow, 2) == [1, 2]
    assert time.monotonic() - since >= 3.0


@up_to(2)
def test_delays_of_pipelined_requests_do_not_add_up(dial: Any, most: float) -> None:
    """Each delay begins when its frame arrives."""
    client = dial("127.0.1.3")

    def ten() -> float:
        since = time.monotonic()
        client.send(b"".join(client.request(METADATA, 4, ANY_TOPICS) for _ in range(10)))
        ids(client, 10)
        took = time.monotonic() - since
        assert took <= most
        return took

    assert undisturbed(ten) >= 0.4


def test_responses_change_places(dial: Any) -> None:
    """The second leaves before the first; one that nothing follows leaves as it is."""
    client = dial("127.0.1.4")
    client.send(client.request(METADATA, 4, ANY_TOPICS, 1) + client.request(METADATA, 4, ANY_TOPICS, 2))
    assert ids(client, 2) == [2, 1]

    client.send(client.request(METADATA, 4, ANY_TOPICS, 3))
    assert ids(client, 1) == [3]


@up_to(5)
def test_bytes_flow_no_faster_than_the_rate(dial: Any, broker: FakeBroker, most: float) -> None:
    """A request of 60 kB takes its time at 100 kB/s, and is whole."""
    topics = [{"name": "x" * 200} for _ in range(300)]
    took = seconds(lambda: dial("127.0.1.5").call(METADATA, 4, {"topics": topics, "allow_auto_topic_creation": False}))

    assert 0.4 < took <= most
    assert any(len(request.body.get("topics") or ()) == 300 for request in broker.requests)


def test_pieces_are_as_long_as_it_was_said(dial: Any) -> None:
    """Seven bytes at a time reach the client, with pauses between."""
    client = dial("127.0.1.6")
    client.send(client.request(METADATA, 4, ANY_TOPICS))
    pieces: list[bytes] = []
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        pieces.append(client.socket.recv(1000))
        data += pieces[-1]

    decode_response(data[4:], METADATA, 4)
    assert sorted(map(len, pieces))[len(pieces) // 2] == 7


def test_refused_connections_are_reset(dial: Any, faulty: Proxy) -> None:
    """Only the first two, and then a client gets in."""
    for _ in range(2):
        with pytest.raises(ConnectionError):
            dial("127.0.1.7").call(METADATA, 4, ANY_TOPICS)
    dial("127.0.1.7").call(METADATA, 4, ANY_TOPICS)

    assert faulty.metric("kproxy_rule_applied_total", rule="127.0.1.7") == 2


def test_a_blackhole_swallows_from_the_first_byte(dial: Any, broker: FakeBroker) -> None:
    """The connection is open, and nothing comes; the broker hears nothing. The next one is as usual."""
    lost, other = dial("127.0.1.8", timeout=0.5), dial("127.0.1.8")
    lost.send(lost.request(METADATA, 4, {"topics": [{"name": "lost"}], "allow_auto_topic_creation": False}))
    with pytest.raises(TimeoutError):
        lost.frame()

    other.call(METADATA, 4, ANY_TOPICS)
    assert [{"name": "lost"}] not in [request.body.get("topics") for request in broker.requests]


def test_a_connection_is_cut_after_some_bytes(dial: Any) -> None:
    """Both directions together, wherever a frame is just then."""
    client = dial("127.0.1.9")
    passed = 0
    try:
        while True:
            request = client.request(METADATA, 4, ANY_TOPICS)
            client.send(request)
            passed += len(request) + 4 + len(client.frame())
    except EndOfStream as end:
        passed += len(request) + len(end.args[0])

    assert 900 <= passed <= 1100


@up_to(1)
def test_disconnect_resets_an_idle_connection_at_its_age(dial: Any, most: float) -> None:

    def lived() -> float:
        since, client = time.monotonic(), dial("127.0.1.10")
        client.call(METADATA, 4, ANY_TOPICS)
        with pytest.raises(ConnectionResetError):
            client.rest()
        took = time.monotonic() - since
        assert took <= most
        return took

    assert undisturbed(lived) >= 0.4


def test_a_half_closed_connection_takes_what_comes(dial: Any) -> None:
    """The client gets FIN in place of the answer, and can go on writing."""
    client = dial("127.0.1.11")
    client.send(client.request(METADATA, 4, ANY_TOPICS))
    assert client.rest() == b""
    for _ in range(3):
        client.send(client.request(METADATA, 4, ANY_TOPICS))


# ---- real clients


@pytest.fixture(scope="module")
def crooked(clients: Any) -> Iterator[Proxy]:
    """In front of a real Kafka: two connections are refused, all else comes in pieces, and one client is lost."""
    rules = [
        {"name": "refuse", "kind": "refuse", "when": {"first": 2}},
        {"name": "slice", "kind": "slice", "bytes": 100, "every": "1ms"},
        {"name": "blackhole", "kind": "blackhole", "match": {"client_id": "lost"}},
    ]
    with Proxy(clients.upstream, rules=rules) as proxy:
        yield proxy


def test_a_client_gets_over_refused_connections_and_small_pieces(crooked: Proxy, clients: Any) -> None:
    """It connects again, and its frames arrive in many parts, and arrive."""
    (topic,) = clients.topics(1)

    assert clients.write(crooked.bootstrap, topic, 3).told == [None] * 3
    assert clients.read(crooked.bootstrap, topic, 3)[0] == ["value-0", "value-1", "value-2"]
    assert crooked.metric("kproxy_rule_applied_total", rule="refuse") == 2
    assert crooked.metric("kproxy_rule_applied_total", rule="slice") > 0


def test_a_blackhole_swallows_what_one_client_sends(crooked: Proxy) -> None:
    """It gets no answer, and others do."""
    found, lost = (
        Producer({"bootstrap.servers": crooked.bootstrap, "client.id": name, "log_level": 0}) for name in ("a", "lost")
    )

    assert found.list_topics(timeout=60).brokers
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        lost.list_topics(timeout=1.5)
