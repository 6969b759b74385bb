"""SIGTERM: nothing new is taken, what was asked is answered, then exit code 0 in a limited time."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.protocol import Message, decode_response
from tests.selection import WORKERS
from tests.support.fake_broker import FakeBroker, silence
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

FETCH, OFFSET_COMMIT, HEARTBEAT = 1, 8, 12
BODY = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0, "topics": []}


class LongPoll:
    """Answers a Fetch once `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        assert self.go.wait(60)
        broker.respond(stream, request, {"throttle_time_ms": 7, "responses": []})


def asked(broker: FakeBroker) -> bool:
    """Whether a Fetch has reached it."""
    return any(request.api.key == FETCH for request in broker.requests)


def test_requests_in_flight_are_answered(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """A long poll that began before the signal ends in its answer; an idle client gets the end at once; new clients
    are refused; a request after the signal is not taken; exit code 0."""
    poll = LongPoll()
    broker = fake(answers={FETCH: poll})
    proxy = proxy_with(broker.address)
    with RawClient(proxy.bootstrap) as client, RawClient(proxy.bootstrap) as idle:
        places = idle.brokers()
        client.send(client.request(FETCH, 4, BODY))
        until(lambda: asked(broker))
        proxy.child.signal(signal.SIGTERM)

        assert idle.rest() == b""
        idle.close()
        for address in (proxy.bootstrap, *places.values()):
            with pytest.raises(ConnectionRefusedError):
                RawClient(address)
        client.send(client.request(3, 4, {"topics": [], "allow_auto_topic_creation": False}))
        poll.go.set()
        assert decode_response(client.frame(), FETCH, 4).body["throttle_time_ms"] == 7
        with pytest.raises(EndOfStream):
            client.frame()
    assert proxy.child.wait(60) == 0
    assert [request.api.key for request in broker.requests].count(3) == 1
    assert proxy.said("draining", connections=2, timeout=30.0)
    (line,) = proxy.said("drained")
    assert (line["ended"], line["cut"]) == (2, 0)


def test_answers_that_do_not_come_are_not_waited_for(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """After drain_timeout it ends all the same, with exit code 0 and the reason for each connection."""
    broker = fake(answers={FETCH: silence})
    proxy = proxy_with(broker.address, limits={"drain_timeout": 0.2})
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(FETCH, 4, BODY))
        until(lambda: asked(broker))
        proxy.child.signal(signal.SIGTERM)

        assert client.rest() == b""
    assert proxy.child.wait(60) == 0
    (line,) = proxy.said("connection closed")
    assert (line["cause"], line["reason"]) == ("drain_timeout", "answers did not come within 0.2 s")
    (line,) = proxy.said("drained")
    assert (line["ended"], line["cut"]) == (0, 1)
    assert 0.2 <= line["seconds"] < 10
    (line,) = proxy.said("drain waits for answers")
    assert (line["connections"], line["waiting"][0]["oldest"], line["waiting"][0]["requests"]) == (1, "Fetch v4", 1)


UNANSWERED = [
    (api, waits, workers)
    for api, waits in ((FETCH, False), (HEARTBEAT, False), (OFFSET_COMMIT, True))
    for workers in (1, 2)
]
"""All of them take seconds each, which nobody can shorten: by default a Fetch with workers, and a commit without."""


@pytest.mark.parametrize(
    ("api", "waits", "workers"),
    UNANSWERED if os.environ.get("KPROXY_TEST_ALL") else [(FETCH, False, 2), (OFFSET_COMMIT, True, 1)],
)
def test_what_can_be_asked_elsewhere_is_not_waited_for_long(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], api: int, waits: bool, workers: int
) -> None:
    """A broker that never answers a Fetch holds the end up for five seconds, not for drain_timeout; an answer that says
    whether something was stored is waited for."""
    broker = fake(answers={FETCH: silence, HEARTBEAT: silence, OFFSET_COMMIT: silence})
    proxy = proxy_with(broker.address, limits={"drain_timeout": 6}, workers=workers)
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(api, 4 if api == FETCH else 0, BODY if api == FETCH else {"group_id": "g"}))
        until(lambda: any(request.api.key == api for request in broker.requests))
        proxy.child.signal(signal.SIGTERM)
        assert client.rest() == b""
    assert proxy.child.wait(60) == 0
    (line,) = proxy.said("connection closed")
    assert line["cause"] == "drain_timeout"
    assert ("within 6 s" in line["reason"]) is waits
    assert proxy.said("drained", cut=1)
    if workers > 1:
        assert proxy.said("workers have ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], number: signal.Signals
) -> None:
    """Whoever asks twice does not wait for answers; the reason says so."""
    broker = fake(answers={FETCH: silence})
    proxy = proxy_with(broker.address)
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(FETCH, 4, BODY))
        until(lambda: asked(broker))
        proxy.child.signal(number)
        until(lambda: proxy.said("draining"))
        proxy.child.signal(number)

        assert client.rest() == b""
    assert proxy.child.wait(60) == 0
    (line,) = proxy.said("connection closed")
    assert line["cause"] == "shutdown"
    assert line["reason"] == "kproxy received a second stop signal"


@pytest.mark.parametrize("workers", WORKERS)
def test_readiness_turns_before_ports_close(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], workers: int
) -> None:
    """With shutdown_delay: after the signal /readyz says no, for each cluster too, and clients are served, new ones
    too; a second signal begins the drain, as the end of the delay would."""
    proxy = proxy_with(fake().address, limits={"shutdown_delay": 1000}, workers=workers)
    with RawClient(proxy.bootstrap) as before:
        places = before.brokers()
        proxy.child.signal(signal.SIGTERM)
        until(lambda: proxy.get("/readyz")[0] == 503)
        assert "it is going to end" in proxy.get("/readyz")[1]
        assert "it is going to end" in proxy.get("/readyz/main")[1]
        assert proxy.get("/livez")[0] == 200
        assert proxy.metric("kproxy_ready") == 0
        for address in (proxy.bootstrap, *places.values()):
            with RawClient(address) as new:
                assert new.brokers() == places
        assert before.brokers() == places
        assert proxy.said("not ready any more, the drain begins later", shutdown_delay=1000)
        assert not proxy.said("draining")

        proxy.child.signal(signal.SIGTERM)
        assert before.rest() == b""
    assert proxy.child.wait(60) == 0
    assert proxy.said("draining")
    assert not proxy.said("not ready")  # the lines about the end say it better
    assert len(proxy.said("signal", name="SIGTERM")) == 2


@pytest.mark.parametrize("workers", WORKERS)
def test_the_drain_begins_when_the_delay_is_over(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], workers: int
) -> None:
    """By itself; a second signal is one during the drain then, and ends it at once."""
    broker = fake(answers={FETCH: silence})
    proxy = proxy_with(broker.address, limits={"shutdown_delay": 0.2}, workers=workers)
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(FETCH, 4, BODY))
        until(lambda: asked(broker))
        proxy.child.signal(signal.SIGTERM)
        until(lambda: proxy.said("draining"))
        proxy.child.signal(signal.SIGTERM)
        assert client.rest() == b""
    assert proxy.child.wait(60) == 0
    (line,) = proxy.said("connection closed")
    assert line["cause"] == "shutdown"


def test_a_client_that_does_not_read_is_not_waited_for(
    fake: Callable[..., Any], proxy_with: Callable[..., Any]
) -> None:
    """An answer that its client does not take holds the drain up for drain_timeout at most."""

    def large(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        size = 40_000_000
        stream.sendall(size.to_bytes(4, "big") + int(request.header["correlation_id"]).to_bytes(4, "big"))
        stream.sendall(bytes(size - 4))

    proxy = proxy_with(fake(answers={FETCH: large}).address, limits={"drain_timeout": 0.3})
    with RawClient(proxy.bootstrap) as client:
        client.send(client.request(FETCH, 4, BODY))
        until(lambda: proxy.metric("kproxy_read_bytes_total", side="broker") > 100_000)
        proxy.child.signal(signal.SIGTERM)
        assert proxy.child.wait(60) == 0


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "delay", "delay": "1h", "match": {"api": "Fetch"}},
        {"kind": "quota", "requests": "1/h"},
        {"kind": "intercept", "match": {"api": "Fetch"}},
    ],
)
def test_drain_with_requests_held_by_a_rule_cuts_none(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], rule: dict[str, Any], tmp_path: Path
) -> None:
    """The broker has not seen them; their connections end before the drain is logged as waiting."""
    poll = LongPoll()
    poll.go.set()
    broker = fake(answers={FETCH: poll})
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"name": "holds", **rule}]}))
    proxy = proxy_with(broker.address, rules=[str(rules)])
    with RawClient(proxy.bootstrap) as client:
        client.send(b"".join(client.request(FETCH, 4, BODY) for _ in range(4)))
        until(lambda: (proxy.metric("kproxy_rule_matched_total", rule="holds") or 0) >= 1)
        seen = len(client.frame()) if rule["kind"] == "quota" else 0
        proxy.child.signal(signal.SIGTERM)
        rest = client.rest()
    assert proxy.child.wait(60) == 0
    assert seen or rest == b""
    (line,) = proxy.said("drained")
    assert (line["ended"], line["cut"]) == (1, 0)
    assert not proxy.said("drain waits for answers")
