"""When it says that it is ready: of the whole, of each cluster, in the log, and how soon it is not any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kproxy.runtime import readiness
from kproxy.testing.process import free_port, free_ports
from tests.support.fake_broker import FakeBroker, answer_versions, silence
from tests.support.raw_client import RawClient
from tests.support.wait import until

VERSIONS = 18


def test_a_hung_broker_is_noticed_within_ten_seconds() -> None:
    """As the page says: the longest that it can take, on a connection that is kept and on a second one."""
    assert readiness.CONFIRM + 2 * readiness.PATIENCE < 10


def test_a_broker_that_hangs(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """It takes connections and answers nothing any more: not ready, with the reason; ready again when it answers."""
    hangs = [False]

    def versions(broker: FakeBroker, stream: Any, request: Any) -> None:
        (silence if hangs[0] else answer_versions)(broker, stream, request)

    broker = fake(answers={VERSIONS: versions})
    proxy = proxy_with(broker.address)
    hangs[0] = True
    until(lambda: proxy.get("/readyz")[0] == 503)
    asked = [request for request in broker.requests if request.header["client_id"] == "kproxy"]
    assert "no answer in 3.5 s" in proxy.get("/readyz")[1]
    assert len(asked) < 20
    until(lambda: proxy.said("not ready"))
    hangs[0] = False
    until(lambda: proxy.get("/readyz")[0] == 200, seconds=60)
    until(lambda: len(proxy.said("ready")) == 2)


@pytest.mark.deep
def test_health_checks_keep_their_connection(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Many questions, one connection (of each worker)."""
    broker = fake()
    proxy = proxy_with(broker.address)
    until(lambda: len(broker.requests) >= 8, seconds=60)
    assert broker.accepted <= 2
    assert proxy.get("/readyz")[0] == 200


@pytest.mark.deep
def test_a_connection_that_ends_is_no_lost_cluster(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Another one is tried at once, and readiness does not turn."""
    broker = fake()
    proxy = proxy_with(broker.address)
    for _ in range(3):
        before = broker.accepted
        for stream in list(broker.connections):
            stream.close() if stream.fileno() < 0 else stream.shutdown(2)
        until(lambda before=before: broker.accepted > before, seconds=60)
        assert proxy.get("/readyz")[0] == 200
    assert not proxy.said("not ready") and not proxy.said("upstream does not answer")


@pytest.mark.parametrize("need", ["any", "all", None])
def test_one_cluster_of_two_is_dead(
    fake: Callable[..., Any], kproxy_process: Callable[..., Any], need: str | None
) -> None:
    """Its clients are told so; with `any`, which is the default, the clients of the other keep the pod."""
    dead, ports, admin = free_port(), free_ports(2), free_port()
    config = {
        "clusters": {"good": {"bootstrap": [fake().address]}, "dead.one": {"bootstrap": [f"127.0.0.1:{dead}"]}},
        "listeners": [
            {"name": "good", "bind": f"127.0.0.1:{ports[0]}", "cluster": "good"},
            {"name": "bad", "bind": f"127.0.0.1:{ports[1]}", "cluster": "dead.one"},
        ],
        "admin": {"bind": f"127.0.0.1:{admin}"} | ({} if need is None else {"ready": need}),
    }
    proxy = kproxy_process(config=config, brokers_answer=False)
    proxy.admin = f"127.0.0.1:{admin}"
    until(lambda: proxy.get("/readyz/good")[0] == 200)
    until(lambda: "refused" in proxy.get("/readyz/dead.one")[1])
    assert json.loads(proxy.get("/readyz/good")[1]) == {"ready": True, "waiting_for": []}
    status, text = proxy.get("/readyz/dead.one")
    reason = f"cluster dead.one: 127.0.0.1:{dead}: connection refused"
    assert (status, [one.rpartition("worker 0: ")[2] for one in json.loads(text)["waiting_for"]][:1]) == (503, [reason])
    assert proxy.get("/readyz/nobody")[0] == 404
    whole = proxy.get("/readyz")
    assert whole[0] == (503 if need == "all" else 200)
    assert {name: one["ready"] for name, one in json.loads(whole[1])["clusters"].items()} == {
        "good": True, "dead.one": False,
    }  # fmt: skip
    metrics = {name: proxy.metric("kproxy_cluster_ready", cluster=name) for name in ("good", "dead.one")}
    assert metrics == {"good": 1, "dead.one": 0}
    if need != "all":
        until(lambda: proxy.said("ready"))
    with RawClient(f"127.0.0.1:{ports[0]}") as client:
        assert len(client.brokers()) == 1
    assert need != "all" or not proxy.said("ready")
    fake(port=dead)
    until(lambda: proxy.get("/readyz")[0] == 200 and proxy.said("ready"))
    until(lambda: proxy.get("/readyz/dead.one")[0] == 200)


def test_ready_is_said_when_it_is_true(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Not when the ports are open: when a broker answers."""
    port = free_port()
    proxy = proxy_with(f"127.0.0.1:{port}", wait=False)
    assert proxy.said("serving") and not proxy.said("ready")
    until(lambda: "refused" in proxy.get("/readyz")[1])
    assert not proxy.said("ready")
    fake(port=port)
    line = until(lambda: proxy.said("ready"))[0]
    assert {"rules", "pid"} <= line.keys()
