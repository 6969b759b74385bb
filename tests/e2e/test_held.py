"""Frames held by a running proxy, of one process and of two workers: nobody else waits, and whoever leaves takes them
along."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.testing.process import Proxy, free_port
from tests.support.fake_broker import FakeBroker
from tests.support.held_proxy import Running
from tests.support.raw_client import RawClient
from tests.support.wait import until

METADATA = 3
ASK = {"topics": [{"name": "t"}]}
HOLD = {"kind": "intercept", "match": {"api": "Metadata", "client_id": "raw"}, "hold_for": "20s"}


@pytest.fixture(scope="module", params=[1, 2])
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """For all tests here: it takes seconds to start. Idle connections end after a second."""
    with FakeBroker() as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "limits": {"idle_timeout": "1s", "buffer_timeout": "1s"},
            "workers": request.param,
        }
        proxy = Proxy(config=config)
        try:
            proxy.start()
            yield proxy
        finally:
            proxy.stop()


@pytest.fixture
def running(proxy: Proxy) -> Iterator[Running]:
    """With a rule that holds Metadata."""
    admin = Admin(f"http://{proxy.admin}")
    until(lambda: proxy.get("/readyz")[0] == 200, seconds=60)
    admin("PUT", "/api/rules/hold", json.dumps(HOLD).encode())
    with ExitStack() as stack:
        yield Running(proxy, admin, [stack.enter_context(RawClient(proxy.bootstrap)) for _ in range(3)])
        admin("DELETE", "/api/rules")


@pytest.mark.deep
def test_one_waits_longer_than_idle_connections_live_and_nobody_else_does(running: Running) -> None:
    """All three are held; each is let go by itself, and is answered."""
    sent = [client.request(METADATA, 8, ASK) for client in running.clients]
    for client, data in zip(running.clients, sent, strict=True):
        client.send(data)
    until(lambda: len(running.held()) == 3)
    with RawClient(running.proxy.bootstrap, client_id="free") as other:
        assert other.call(METADATA, 8, ASK)["brokers"]
    began = monotonic()
    until(lambda: monotonic() - began > 1.6)
    held = running.held()
    assert len({one["id"] for one in held}) == 3
    for one in held:
        assert running.post(f"{one['id']}/resume", revision=1, who="mara")["gone"] == "resumed"
    for client in running.clients:
        client.frame()
    code, text = running.refused(f"{held[0]['id']}/resume", revision=1)
    assert (code, "was resumed by mara" in text) == ("no_such_held", True)


def test_an_edit_is_made_where_the_frame_is(running: Running) -> None:
    """Mistakes come back with their place; the answer of the broker is about what was edited."""
    client = running.clients[0]
    client.send(client.request(METADATA, 8, ASK))
    until(lambda: len(running.held()) == 1)
    number = running.held()[0]["id"]
    _, told = running.refused(f"{number}/resume", revision=1, set=[{"path": "topics[0].name", "value": 5}])
    assert "topics[0].name: expected text for topics[].name, got the number 5" in told
    shown = running.admin("GET", f"/api/held/{number}")
    assert ["topics[0].name", "value"] in [step[3:5] for step in shown["frame"]["steps"]]
    assert running.post("resume") == {"resumed": 1}
    client.frame()


def test_what_a_worker_held_is_gone_with_it(running: Running) -> None:
    """The others' frames stay, and the list goes on."""
    workers = workers_of(running.proxy.pid)
    if not workers:  # one process has none, and takes along what it holds
        return
    for client in running.clients:
        client.send(client.request(METADATA, 8, ASK))
    until(lambda: len(running.held()) == 3)
    lost = {one["id"] for one in running.held() if int(one["id"].partition("-")[0]) % 2 == 0}
    os.kill(first_worker(workers), signal.SIGKILL)
    until(lambda: not lost & {one["id"] for one in running.held()})
    code, told = running.refused(f"{min(lost)}/resume", revision=1)
    assert code in ("worker_gone", "no_such_held"), told
    assert len(running.held()) == 3 - len(lost)


def workers_of(parent: int) -> list[int]:
    """The processes that a supervisor has started to carry traffic."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if b"process.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def first_worker(workers: list[int]) -> int:
    """The process id of the worker with index 0."""
    for pid in workers:
        if b"index=0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("there is no worker 0")
