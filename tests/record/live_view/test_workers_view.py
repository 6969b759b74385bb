"""A view of several processes, over HTTP: one list of all, and a worker that is killed leaves a gap and no more."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, children_of, free_port_with_room
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.process


class Page:
    """A page that reads the stream in a thread."""

    def __init__(self, admin: str, last: str = "") -> None:
        self.connection = http.client.HTTPConnection(admin, timeout=60)
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        self.connection.request("GET", "/api/view?filter=api+==+Metadata", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        self.events: list[tuple[str, Any, str]] = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        until(lambda: self.of("tick"))

    def read(self) -> None:
        fields: dict[str, str] = {}
        for line in self.answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                self.events.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
                fields = {}

    def of(self, name: str) -> list[Any]:
        return [data for event, data, _ in list(self.events) if event == name]

    @property
    def ids(self) -> list[str]:
        return [row[0] for data in self.of("rows") for row in data["rows"]]

    @property
    def place(self) -> str:
        return [place for event, _, place in list(self.events) if event == "rows"][-1]

    def close(self) -> None:
        """Go, as a page does that is closed: the reader hears of it."""
        sock = self.connection.sock
        if sock is not None:
            sock.shutdown(2)
        self.thread.join(60)
        self.connection.close()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Two workers before a broker."""
    with MockCluster(1) as cluster:
        config = {
            "clusters": {"main": {"bootstrap": cluster.bootstrap.split(",")}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(4)}", "cluster": "main"}],
            "workers": 2,
        }
        with Proxy(config=config) as proxy:
            yield proxy


def beat(proxy: Proxy, times: int) -> None:
    """So many connections, one after the other, each with one exchange; the workers take turns."""
    for _ in range(times):
        with RawClient(proxy.bootstrap) as client:
            client.brokers()


def asked(proxy: Proxy, path: str) -> Any:
    connection = http.client.HTTPConnection(proxy.admin, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return json.loads(body) if "json" in answer.headers["Content-Type"] else body


@pytest.mark.deep
def test_a_view_of_two_workers(proxy: Proxy) -> None:
    """Rows of both, each with details and frames from the process that has it; a list through both; ticks of all; and
    who comes back goes on in both."""
    with ExitStack() as stack:
        page = Page(proxy.admin)
        stack.callback(page.close)
        beat(proxy, 6)
        until(lambda: len(page.ids) == 6)
        assert {name.partition("-")[0] for name in page.ids} == {"0", "1"}
        until(lambda: sum(tick["apis"].get("Metadata", [0])[0] for tick in page.of("tick")) >= 6)
        until(lambda: sum(tick["matched"] for tick in page.of("tick")) == 6)
        assert page.of("hello")[0]["workers"] == 2

        first = asked(proxy, "/api/exchanges?filter=api+==+Metadata&limit=4")
        second = asked(proxy, f"/api/exchanges?filter=api+==+Metadata&limit=4&before={first['next']}")
        found = [row[0] for row in (*first["rows"], *second["rows"])]
        assert (len(first["rows"]), sorted(found), second["next"]) == (4, sorted(page.ids), None)
        for name in page.ids:
            details = asked(proxy, f"/api/exchanges/{name}")
            assert (details["id"], details["event"]["api"]) == (name, "Metadata")
            frame = asked(proxy, f"/api/exchanges/{name}/frame?of=request")
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4 == details["request"]["client"]["kept"]
            assert frame[4:] in asked(proxy, f"/api/exchanges/{name}/capture")
    beat(proxy, 4)
    with ExitStack() as stack:
        again = Page(proxy.admin, page.place)
        stack.callback(again.close)
        until(lambda: len(again.ids) == 4)
        assert not set(again.ids) & set(page.ids)
        assert again.of("gap") == []


def test_a_wait_counts_what_passes_in_both_workers(proxy: Proxy) -> None:
    """What is kept behind a place, and what comes; the answer is a list through both."""
    place = asked(proxy, "/api/exchanges?limit=1")["place"]
    answers: list[Any] = []
    query = f"/api/exchanges?filter=~k+metadata&wait=60s&count=6&after={place}"
    thread = threading.Thread(target=lambda: answers.append(asked(proxy, query)), daemon=True)
    thread.start()
    beat(proxy, 4)  # may be before somebody looks: then they are kept as by then somebody has looked, a moment ago
    until(lambda: beat(proxy, 1) or answers)
    thread.join(60)

    (answer,) = answers
    assert (answer["reached"], answer["gone"]) == (True, 0)
    assert len(answer["rows"]) >= 6
    assert {row[0].partition("-")[0] for row in answer["rows"]} == {"0", "1"}
    assert asked(proxy, f"/api/exchanges?wait=50ms&count=1000&after={answer['place']}")["reached"] is False


def test_why_connections_of_two_workers_ended(proxy: Proxy) -> None:
    """The newest first, a hundred of both at most, each with its reason in words."""
    beat(proxy, 104)
    ended = until(lambda: (found := asked(proxy, "/api/connections/ended")["ended"]) and len(found) == 100 and found)

    assert {one["id"] % 2 for one in ended} == {0, 1}
    assert [one["ended"] for one in ended] == sorted((one["ended"] for one in ended), reverse=True)
    assert all(one["since"] <= one["ended"] for one in ended)
    assert {(one["cause"], one["blame"]) for one in ended} == {("client_closed", "")}
    assert all("client closed" in one["reason"] for one in ended)
    assert all(one["client_bytes"] > 0 and one["listener"] == "main" for one in ended)


def test_a_worker_that_is_killed_leaves_a_gap(proxy: Proxy) -> None:
    """The rows of its successor have other ids; what it had kept is gone, and says so."""
    with ExitStack() as stack:
        page = Page(proxy.admin)
        stack.callback(page.close)
        beat(proxy, 4)
        until(lambda: len(page.ids) == 4)
        victim = children_of(proxy.pid)[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in children_of(proxy.pid) and len(children_of(proxy.pid)) == 2, seconds=60)
        before = len(page.ids)

        def goes_on() -> bool:
            beat(proxy, 2)
            return len({name.partition("-")[0] for name in page.ids[before:]}) == 2

        until(goes_on, seconds=60)
        assert len(page.ids) == len(set(page.ids))
        (gap,) = page.of("gap")
        assert (gap["why"][8:], gap["missing"]) == (" has begun anew", None)
        reborn = int(gap["why"][7])
        gone = next(name for name in page.ids[:before] if name.startswith(f"{reborn}-"))
        refused = asked(proxy, f"/api/exchanges/{gone}")
        assert refused["error"]["code"] in ("no_such_exchange", "exchange_gone")
