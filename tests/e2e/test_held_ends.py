"""Frames held by a running proxy whose client, rule, time, connection or process comes to an end."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.protocol import decode_response
from kproxy.testing.process import Proxy, free_port
from tests.support.fake_broker import FakeBroker
from tests.support.held_proxy import Running
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until

PRODUCE, METADATA = 0, 3
ASK = {"topics": [{"name": "t"}]}
HOLD = {"kind": "intercept", "match": {"client_id": "raw"}, "hold_for": "60s"}
WAIT = {"kind": "delay", "match": {"client_id": "raw"}, "when": {"hold": True}, "delay": "1ms"}
SHORT = {"idle_timeout": "2s", "buffer_timeout": "2s", "header_timeout": "2s"}


def config_of(broker: FakeBroker, **more: Any) -> dict[str, Any]:
    return {
        "clusters": {"main": {"bootstrap": [broker.address]}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
        **more,
    }


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(answers={PRODUCE: lambda broker, stream, request: None}) as broker:
        yield broker


@pytest.fixture(scope="module")
def proxy(broker: FakeBroker) -> Iterator[Proxy]:
    """For all tests here that do not end it. All its limits of time are two seconds."""
    with Proxy(config=config_of(broker, limits=SHORT)) as proxy:
        yield proxy


@pytest.fixture
def running(proxy: Proxy) -> Iterator[Running]:
    """Without a rule or a client."""
    admin = Admin(f"http://{proxy.admin}")
    until(lambda: proxy.get("/readyz")[0] == 200, seconds=60)
    running = Running(proxy, admin, [])
    yield running
    admin("DELETE", "/api/rules")
    for client in running.clients:
        client.close()


def asking(running: Running, client_id: str = "raw") -> RawClient:
    """Return a new client that has asked something: before idle ones are ended."""
    client = RawClient(running.proxy.bootstrap, client_id=client_id)
    running.clients.append(client)
    client.send(client.request(METADATA, 8, ASK))
    return client


def hold(running: Running, rule: dict[str, Any] = HOLD, **more: Any) -> tuple[RawClient, dict[str, Any]]:
    """Have a rule hold a request of a client, or its response; return the client and what is held."""
    running.put("hold", **rule | more)
    return asking(running), running.one()


def answered(client: RawClient) -> bool:
    return bool(decode_response(client.frame(), METADATA, 8).body["brokers"])


def asked(broker: FakeBroker) -> int:
    """Return how many requests of clients the broker has got; others are kproxy's own."""
    return sum(one.header.get("client_id") in ("raw", "asks", "gets") for one in broker.requests)


def how_it_went(running: Running, held: dict[str, Any]) -> str:
    code, text = running.refused(f"{held['id']}/resume", revision=1)
    assert code == "no_such_held"
    return text


def let_go(running: Running, held: dict[str, Any]) -> None:
    """By whatever holds it: the rule releases what is not held by a kind that is made for it."""
    assert running.post(f"{held['id']}/resume", revision=held["revision"])["gone"] == "resumed"


# ---- the client


@pytest.mark.parametrize(("rule", "at"), [(HOLD, "request"), (HOLD, "response"), (WAIT, "request")])
def test_a_client_that_sends_nothing_more_gets_its_answer(running: Running, rule: dict[str, Any], at: str) -> None:
    """It is told that it does, and its connection ends behind the answer."""
    client, held = hold(running, rule, **({"at": at} if rule is HOLD else {}))
    assert (held["at"], held["client_ended"]) == (at, False)
    client.shut()
    until(lambda: running.one()["client_ended"])
    let_go(running, running.one())
    assert answered(client)
    assert client.rest() == b""


def test_what_a_client_wrote_before_it_left_is_written(running: Running, broker: FakeBroker) -> None:
    """With acks 0 nobody waits for an answer."""
    running.put("hold", **HOLD)
    client = RawClient(running.proxy.bootstrap)
    running.clients.append(client)
    body = {"transactional_id": None, "acks": 0, "timeout_ms": 1000, "topic_data": []}
    client.send(client.request(PRODUCE, 7, body))
    held = running.one()
    client.close()
    until(lambda: running.one()["client_ended"])
    let_go(running, held)
    until(lambda: any(one.api.key == PRODUCE for one in broker.requests))


def test_who_has_left_takes_along_what_is_held(running: Running) -> None:
    """As soon as the kernel of its machine has forgotten the connection, which takes a minute, a second here."""
    client, held = hold(running)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
    client.close()
    until(lambda: running.held() == [], seconds=60)
    assert "gone with its client" in how_it_went(running, held)


@pytest.mark.parametrize(("rule", "at"), [(HOLD, "request"), (HOLD, "response"), (WAIT, "request")])
def test_a_reset_takes_along_what_is_held_at_once(running: Running, rule: dict[str, Any], at: str) -> None:
    client, held = hold(running, rule, **({"at": at} if rule is HOLD else {}))
    client.reset()
    until(lambda: running.held() == [])
    assert "gone with its client" in how_it_went(running, held)


# ---- time


def test_no_limit_of_time_ends_a_connection_that_a_rule_holds(running: Running) -> None:
    """Neither that of idle connections, nor those of frames that are not whole: part of one lies behind requests."""
    for name, rule in {"a": HOLD, "b": HOLD | {"at": "response"}, "c": WAIT}.items():
        running.put(name, **rule | {"match": {"client_id": name}})
    clients = {name: asking(running, name) for name in "abc"}
    for name in "ac":
        clients[name].send(clients[name].request(METADATA, 8, ASK)[:6])
    until(lambda: len(running.held()) == 3)
    began = monotonic()
    until(lambda: monotonic() - began > 4)
    for held in running.held():
        let_go(running, held)
        assert answered(clients[held["rule"]])


@pytest.mark.parametrize("at", ["request", "response"])
def test_its_time_ends_as_the_rule_says(running: Running, at: str) -> None:
    """It passes, its connection is closed, or an error is the answer."""
    running.put("hold", **HOLD | {"at": at, "hold_for": "100ms"})
    assert answered(asking(running))
    running.put("hold", **HOLD | {"at": at, "hold_for": "100ms", "on_timeout": {"error": "REQUEST_TIMED_OUT"}})
    (topic,) = decode_response(asking(running).frame(), METADATA, 8).body["topics"]
    assert topic["error_code"] == 7
    running.put("hold", **HOLD | {"at": at, "hold_for": "100ms", "on_timeout": "close"})
    with pytest.raises(EndOfStream):
        asking(running).frame()


# ---- the rule


@pytest.mark.parametrize("at", ["request", "response"])
@pytest.mark.parametrize("end", ["remove", "change", "disable", "disable faults", "resume"])
def test_a_rule_that_ends_lets_go(running: Running, end: str, at: str) -> None:
    client, held = hold(running, at=at)
    match end:
        case "remove":
            running.admin("DELETE", "/api/rules/hold")
        case "change":
            running.put("hold", **HOLD | {"match": {"client_id": "somebody"}})
        case "disable faults":
            running.admin("POST", "/api/faults/disable")
        case _:
            running.admin("POST", f"/api/rules/hold/{end}")
    assert answered(client)
    assert ("was resumed" if end == "resume" else "resumed because its rule") in how_it_went(running, held)
    if end == "disable faults":
        running.admin("POST", "/api/faults/enable")


# ---- the connection


def test_a_connection_that_is_recycled_sends_no_held_request(running: Running, broker: FakeBroker) -> None:
    """The client asks again elsewhere; a response that is held is given to it."""
    client, held = hold(running)
    before = asked(broker)
    running.admin("POST", f"/api/connections/{held['exchange']['connection']}/recycle")
    assert client.rest() == b""
    assert (running.held(), asked(broker)) == ([], before)

    other, held = hold(running, at="response")
    running.admin("POST", f"/api/connections/{held['exchange']['connection']}/recycle")
    assert answered(other)
    assert other.rest() == b""


def test_two_decide_at_once_and_one_of_them_does(running: Running) -> None:
    """A decision about another revision is refused. An extension keeps the revision, and an invalid edit changes
    nothing."""
    client, held = hold(running)
    path = {"path": "topics[0].name", "value": "u"}
    refused, _ = running.refused(f"{held['id']}/resume", revision=1, set=[path, {"path": "nope", "value": 1}])
    assert refused == "invalid"
    assert running.post(f"{held['id']}/extend", by="5s")["revision"] == 1
    assert running.refused(f"{held['id']}/drop", revision=2)[0] == "held_changed"
    running.post(f"{held['id']}/resume", revision=1, set=[path], who="mara\x1b[2J")
    assert "was edited by mara?[2J" in how_it_went(running, held)
    assert answered(client)


# ---- the process


def test_files_of_rules_and_the_end_of_kproxy(broker: FakeBroker) -> None:
    """A rule that a new file has unchanged holds on; one that it lacks lets go. At the end a held request is not sent,
    and a held response is given to the client."""
    asks = {"name": "requests", **HOLD, "match": {"client_id": "asks"}}
    gets = {"name": "responses", **HOLD, "match": {"client_id": "gets"}, "at": "response"}
    with Proxy(config=config_of(broker, workers=2), rules=[asks, gets]) as proxy:
        admin, rules = Admin(f"http://{proxy.admin}"), proxy._folder / "rules.yaml"
        running = Running(proxy, admin, [])
        until(lambda: proxy.get("/readyz")[0] == 200, seconds=60)

        def load(*some: dict[str, Any]) -> None:
            loads = len(proxy.logged("rules loaded"))
            rules.write_text(json.dumps({"rules": list(some)}))
            os.kill(proxy.pid, signal.SIGHUP)
            until(lambda: len(proxy.logged("rules loaded")) > loads)

        with (
            RawClient(proxy.bootstrap, client_id="asks") as first,
            RawClient(proxy.bootstrap, client_id="gets") as second,
        ):
            first.send(first.request(METADATA, 8, ASK))
            second.send(second.request(METADATA, 8, ASK))
            until(lambda: len(running.held()) == 2)
            load(gets)
            assert answered(first)
            assert [one["rule"] for one in running.held()] == ["responses"]
            load(asks, gets)
            first.send(first.request(METADATA, 8, ASK))
            until(lambda: len(running.held()) == 2)
            before = asked(broker)
            os.kill(proxy.pid, signal.SIGTERM)
            assert answered(second)
            assert (first.rest(), second.rest()) == (b"", b"")
            assert proxy.child is not None and proxy.child.wait(60) == 0
            assert proxy.said("drained", cut=0)
            assert asked(broker) == before
