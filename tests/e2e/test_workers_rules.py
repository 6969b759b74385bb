"""Rules, quotas, metrics, captures and tails of a proxy with two workers are those of one proxy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.cli.admin_client import Admin, Refused
from kproxy.record.captures.reader import read
from kproxy.testing.process import Proxy, free_port
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient
from tests.support.wait import until

METADATA = 3
HOLD = {"kind": "delay", "delay": 0, "match": {"api": "Metadata"}, "when": {"hold": True}}


@dataclass
class Two:
    """A proxy of two workers, its API, and two clients of each worker."""

    proxy: Proxy
    admin: Admin
    folder: Path
    clients: list[RawClient]

    def put(self, name: str, ttl: str | None = None, **rule: Any) -> None:
        self.admin("PUT", f"/api/rules/{name}", json.dumps(rule).encode(), query={"ttl": ttl})

    def rule(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin("GET", f"/api/rules/{name}")
        return found

    def ask(self, topic: str = "t", times: int = 1) -> list[int]:
        """All clients in turn, so often; the errors of the topic in the answers."""
        return [self.error(client, topic) for _ in range(times) for client in self.clients]

    def error(self, client: RawClient, topic: str = "t") -> int:
        body = client.call(METADATA, 8, {"topics": [{"name": topic}]})
        return int(next((one["error_code"] for one in body["topics"]), 0))

    def workers(self) -> set[int]:
        """That have connections."""
        return {one["id"] % 2 for one in self.admin("GET", "/api/connections")["connections"]}

    def command(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KPROXY_ADMIN": f"http://{self.proxy.admin}"}
        return subprocess.Popen(
            [sys.executable, "-m", "kproxy", *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Path]]:
    """For all tests here: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("two")
    with FakeBroker(answers={METADATA: topics_too}) as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port()}", "cluster": "main"}],
            "captures": str(folder / "captures"),
            "workers": 2,
            "seed": 7,
        }
        proxy = Proxy(config=config)
        try:
            proxy.start()
            yield proxy, folder
        finally:
            proxy.stop()


def topics_too(broker: FakeBroker, stream: Any, request: Any) -> None:
    """A Metadata answer with the topics that were asked for."""
    nodes = [{"node_id": node, "host": host, "port": port} for node, (host, port) in broker.nodes.items()]
    named = [{"name": one["name"], "partitions": []} for one in request.body["topics"] or ()]
    broker.respond(stream, request, {"brokers": nodes, "controller_id": 0, "topics": named})


@pytest.fixture
def two(running: tuple[Proxy, Path]) -> Iterator[Two]:
    """Without rules, with four clients, of whom each worker has two."""
    proxy, folder = running
    admin = Admin(f"http://{proxy.admin}")
    until(lambda: proxy.get("/readyz")[0] == 200, seconds=60)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.bootstrap)) for _ in range(4)]
        made = Two(proxy, admin, folder, clients)
        made.ask()
        assert made.workers() == {0, 1}
        yield made
        admin("DELETE", "/api/rules")
    until(lambda: admin("GET", "/api/connections")["connections"] == [])


def test_a_rule_acts_on_the_third_request_wherever_it_comes_in(two: Two) -> None:
    """Exactly one of sixteen requests gets the error; what the API and the metrics say are sums."""
    two.put("third", kind="error", error="LEADER_NOT_AVAILABLE", match={"api": "Metadata"}, when={"nth": 3})
    errors = two.ask(times=4)

    assert errors == [0, 0, 5] + [0] * 13
    shown = two.rule("third")
    assert (shown["matched"], shown["fired"], shown["applied"], shown["problems"]) == (16, 1, 1, 0)
    assert two.proxy.metric("kproxy_rule_matched_total", rule="third") == 16
    assert two.proxy.metric("kproxy_rule_fired_total", rule="third") == 1


def test_metrics_are_added_up(two: Two) -> None:
    """Counters and histograms of both workers, exactly."""
    before = two.proxy.metric("kproxy_requests_total", api="Metadata")
    answered = two.proxy.metric("kproxy_upstream_request_duration_seconds_count", api="Metadata")
    two.ask(times=5)

    assert two.proxy.metric("kproxy_requests_total", api="Metadata") == before + 20
    assert two.proxy.metric("kproxy_upstream_request_duration_seconds_count", api="Metadata") == answered + 20
    assert (
        two.proxy.metric("kproxy_upstream_request_duration_seconds_bucket", api="Metadata", le="+Inf") == answered + 20
    )
    assert two.proxy.metric("kproxy_connections_open", listener="main") == 4
    assert two.proxy.metric("kproxy_workers", state="ready") == 2
    assert len(two.proxy.samples("kproxy_rules_info")) == 1


def test_a_bad_set_changes_nothing_and_reset_counts_anew(two: Two) -> None:
    """Mistakes are answered as ever; after a reset `first` lets two requests of all be the first again."""
    two.put("first", kind="error", error="LEADER_NOT_AVAILABLE", match={"api": "Metadata"}, when={"first": 2})
    version = two.admin("GET", "/api/version")["rules"]
    with pytest.raises(DocumentError, match="unknown key"):
        two.put("first", kind="error", eror="LEADER_NOT_AVAILABLE")

    assert two.admin("GET", "/api/version")["rules"] == version
    assert sum(map(bool, two.ask(times=2))) == 2
    two.admin("POST", "/api/rules/first/reset")
    assert sum(map(bool, two.ask(times=2))) == 2
    assert two.rule("first")["matched"] == 8
    two.admin("POST", "/api/rules/first/disable")
    assert two.ask() == [0] * 4
    two.admin("POST", "/api/faults/disable")
    two.admin("POST", "/api/faults/enable")


def test_a_rule_goes_when_its_time_is_over(two: Two) -> None:
    """In both workers."""
    two.put("short", ttl="300ms", kind="error", error="LEADER_NOT_AVAILABLE", match={"api": "Metadata"})
    until(lambda: "short" not in [one["name"] for one in two.admin("GET", "/api/rules")["rules"]])

    assert two.ask() == [0] * 4


def test_held_requests_of_all_workers_are_seen_and_released(two: Two) -> None:
    """`wait` says when all are there, `resume` resumes all of them."""
    two.put("gate", **HOLD)
    waiting = [threading.Thread(target=two.error, args=(client,)) for client in two.clients]
    for one in waiting:
        one.start()
    found = two.admin("POST", "/api/rules/gate/wait", query={"hits": 4, "timeout": "20s"}, wait=20)
    held = two.rule("gate")["held"]
    released = two.admin("POST", "/api/rules/gate/resume")
    for one in waiting:
        one.join(60)

    assert (found["reached"], held, released) == (True, 4, {"resumed": 4})
    assert not any(one.is_alive() for one in waiting)
    assert two.rule("gate")["held"] == 0


def test_a_quota_is_one_quota(two: Two) -> None:
    """All connections together get no more requests through than the limit says, within 5 %, and not half of it, as
    they would if each worker had its part. (What they get exactly is tried without a clock in test_quota_workers.py.)
    """
    two.put("slow", kind="quota", requests="50/s", burst="0.1s")
    measured = [hammered(two, 2.0)]
    while measured[-1][0] <= 50 and len(measured) < 4:  # the machine has had other things to do
        measured.append(hammered(two, 2.0))

    assert measured[-1][0] > 50
    assert all(count <= 1.05 * 50 * took + 5 + len(two.clients) for count, took in measured), measured


def hammered(two: Two, seconds: float) -> tuple[int, float]:
    """How many requests of all clients were answered in so many seconds, and in how many it really was."""
    began, done = time.monotonic(), [0] * len(two.clients)

    def hammer(number: int) -> None:
        while time.monotonic() < began + seconds:
            two.error(two.clients[number])
            done[number] += 1

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(len(done))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return sum(done), time.monotonic() - began


def test_connections_are_found_where_they_are(two: Two) -> None:
    """Listed, closed and recycled by number, whichever worker has them; topology counts all, and knows each port."""
    given = two.clients[0].brokers()
    nodes = two.admin("GET", "/api/topology")["clusters"]["main"]["nodes"]
    assert {node["id"]: node["addresses"]["main"] for node in nodes} == given
    listed = two.admin("GET", "/api/connections")["connections"]
    assert len(listed) == 4
    assert two.admin("GET", "/api/topology")["listeners"]["main"]["connections"] == 4
    for one in (listed[0], next(each for each in listed if each["id"] % 2 != listed[0]["id"] % 2)):
        assert two.admin("DELETE", f"/api/connections/{one['id']}")["client"] == one["client"]
    until(lambda: len(two.admin("GET", "/api/connections")["connections"]) == 2)
    with pytest.raises(Refused, match="no connection"):
        two.admin("DELETE", f"/api/connections/{listed[0]['id']}")
    assert two.admin("POST", "/api/connections/recycle?which=all") == {"connections": 2}


def test_one_capture_has_what_passed_through_all_workers(two: Two) -> None:
    """One file, each exchange in it once, and it ends exactly where it should."""
    started = two.admin("POST", "/api/captures", query={"file": "all", "payload": "full", "filter": "~k metadata"})
    two.ask("captured", times=3)
    until(lambda: two.admin("GET", "/api/captures/all")["exchanges"] == 12)
    shown = two.admin("DELETE", "/api/captures/all")
    found = list(read(Path(started["file"])))

    assert (shown["state"], shown["stopped"], shown["exchanges"], shown["dropped"]) == ("stopped", "asked", 12, 0)
    assert shown["size"] == Path(started["file"]).stat().st_size
    assert shown["connections"] == 4
    assert len([one for one in found if one.key == METADATA]) == 12
    two.admin("POST", "/api/captures", query={"file": "some", "max_exchanges": 5})
    two.ask(times=4)
    until(lambda: two.admin("GET", "/api/captures/some")["state"] == "stopped")
    some = two.admin("GET", "/api/captures/some")
    assert (some["stopped"], some["exchanges"]) == ("max_exchanges", 5)
    assert len(list(read(Path(some["file"])))) == 5


def test_a_tail_has_the_lines_of_all_workers(two: Two) -> None:
    """From when it says that it listens, nothing is missed; connections of one worker stay in order."""
    lines = two.admin.stream("/api/tail", {"filter": "~t tailed"})
    first = json.loads(next(lines))
    two.ask("tailed", times=3)
    found = [json.loads(next(lines))["request"] for _ in range(12)]
    lines.close()

    assert first["listening"]
    by_client: dict[str, list[int]] = {}
    for one in found:
        by_client.setdefault(str(one["client_port"]), []).append(one["correlation_id"])
    assert len(by_client) == 4
    assert all(numbers == sorted(numbers) and len(numbers) == 3 for numbers in by_client.values())


@pytest.mark.deep
def test_a_worker_that_is_killed_comes_back_with_the_rules(two: Two) -> None:
    """Counters do not go back, `nth` counts on, the others have noticed nothing, and readiness says what is missing."""
    two.put("fifth", kind="error", error="LEADER_NOT_AVAILABLE", match={"api": "Metadata"}, when={"nth": 5})
    two.ask()
    until(lambda: two.rule("fifth")["matched"] == 4)
    requests = two.proxy.metric("kproxy_requests_total", api="Metadata")
    victim = int(two.proxy.said("ready")[0]["workers"][0])
    os.kill(victim, signal.SIGKILL)
    until(lambda: two.proxy.get("/readyz")[0] == 503, seconds=60)
    why = json.loads(two.proxy.get("/readyz")[1])["waiting_for"]
    until(lambda: two.proxy.get("/readyz")[0] == 200, seconds=60)
    with ExitStack() as stack:
        fresh = [stack.enter_context(RawClient(two.proxy.bootstrap)) for _ in range(2)]
        errors = [two.error(client) for client in fresh]

    assert why
    assert all(one.startswith("worker 0: ") for one in why)
    assert errors == [5, 0]
    assert two.rule("fifth")["matched"] == 6
    assert two.rule("fifth")["fired"] == 1
    assert two.proxy.metric("kproxy_requests_total", api="Metadata") == requests + 2
    assert two.proxy.metric("kproxy_worker_restarts_total") == 1
