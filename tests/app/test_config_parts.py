"""Parts of the config that change while kproxy runs: metrics by label, clients' own metrics, the export, the view."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.app import otlp as exporting
from kproxy.protocol.table.errors import error_name
from kproxy.record.metrics import totals
from kproxy.record.metrics.client_telemetry import KAFKA
from kproxy.rules.select.match import text_test
from kproxy.testing.process import free_port
from tests.support.live_proxy import LiveProxy, NamedBroker
from tests.support.otlp_collector import Collector
from tests.support.otlp_metrics import counted, metrics_data, point
from tests.support.raw_client import RawClient
from tests.support.wait import until

GET, PUSH = 71, 72
ME = UUID(int=8)
Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Changing:
    """A proxy with one listener and an admin address, of whose config other parts change."""

    def __init__(self, stack: ExitStack, **parts: Any) -> None:
        self.stack = stack
        broker = stack.enter_context(NamedBroker("one"))
        self.port, self.admin = free_port(), free_port()
        self.base: dict[str, Any] = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "a", "bind": f"127.0.0.1:{self.port}", "cluster": "main"}],
            "admin": {"bind": f"127.0.0.1:{self.admin}"},
        }
        self.live = stack.enter_context(LiveProxy(self.base | parts))
        self.seen: Numbers = {}

    def use(self, **parts: Any) -> list[str]:
        """Apply a config with these parts; return the names of the steps."""
        return [one.step.name for one in self.live.apply(self.base | parts).steps]

    def connect(self, client_id: str = "raw") -> RawClient:
        return RawClient(f"127.0.0.1:{self.port}", client_id=client_id)

    def numbers(self, begins: str) -> Numbers:
        """What a scrape says of metrics whose names begin so. Those that grow are never less than before."""
        text = self.live.call(lambda: b"".join(self.live.proxy.measure().scraped())).decode()
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(begins)
        }
        grows = {key: value for key, value in found.items() if key[0].endswith(("_total", "_sum", "_count"))}
        assert {key: value for key, value in grows.items() if value < self.seen.get(key, 0.0)} == {}
        self.seen |= grows
        return found

    def get(self, path: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.admin, timeout=60)
        self.stack.callback(connection.close)
        connection.request("GET", path)
        return self.stack.enter_context(connection.getresponse())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


# ---- metrics


def clients(proxy: Changing) -> dict[str, float]:
    """Requests by client id."""
    return {
        dict(labels)["client_id"]: value
        for (name, labels), value in proxy.numbers("kproxy_").items()
        if name == "kproxy_client_requests_total"
    }


@pytest.mark.parametrize("audited", [False, True])
def test_labels_come_and_go_and_no_counter_falls(audited: bool, stack: ExitStack, tmp_path: Path) -> None:
    """On connections that were open before, too, with an audit that counts in the same summaries and without."""
    more = {"audit": {"dir": str(tmp_path)}} if audited else {}
    proxy = Changing(stack, **more)
    one, two = (stack.enter_context(proxy.connect(name)) for name in ("one", "two"))

    def talk(times: int) -> None:
        for _ in range(times):
            one.brokers()
            two.brokers()

    talk(3)
    assert clients(proxy) == {}
    assert proxy.use(metrics={"by": ["client_id"]}, **more) == ["metrics.by"]
    before = clients(proxy)  # with an audit, what was counted in this minute
    talk(2)
    assert clients(proxy) == {name: before.get(name, 0) + 2 for name in ("one", "two")}
    proxy.use(metrics={"by": ["client_id"], "only": {"client_id": ["o*"]}}, **more)
    talk(3)
    found = clients(proxy)
    assert found == {"one": before.get("one", 0) + 5, "other": 3}
    proxy.use(metrics={"by": ["topic"]}, **more)
    talk(1)
    assert clients(proxy) == {}
    proxy.use(**more)
    talk(1)
    assert proxy.numbers("kproxy_label_") == {}
    proxy.use(metrics={"by": ["client_id", "principal"]}, **more)
    again = clients(proxy)
    talk(2)
    assert clients(proxy) == {name: again[name] + 2 for name in ("one", "two")} | {"other": again["other"]}
    assert again["two"] >= before.get("two", 0) + 2
    proxy.use(metrics={"by": ["client_id"], "series": 1}, **more)
    left = clients(proxy)
    assert len(left) == 2
    talk(1)
    assert clients(proxy)["other"] == left["other"] + 1
    assert live_sinks(proxy) == 1 + audited


def live_sinks(proxy: Changing) -> int:
    return proxy.live.call(lambda: len(proxy.live.proxy.server.taps.fanout.steady))


def test_expressions_are_compiled_and_asked_beside_the_loop(
    stack: ExitStack, collectors: tuple[Collector, Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of parts that come anew as well: there may be thousands, and each may be long."""
    threads: set[int] = set()

    def noted(pattern: str) -> Callable[[str], bool]:
        test = text_test(pattern)
        threads.add(threading.get_ident())

        def asked(name: str) -> bool:
            threads.add(threading.get_ident())
            return test(name)

        return asked

    proxy = Changing(stack, metrics={"by": ["client_id"]})
    with proxy.connect("one") as client:
        client.brokers()
    assert clients(proxy) == {"one": 1}
    proxy.use()
    for module in (exporting, totals):
        monkeypatch.setattr(module, "text_test", noted)
    otlp = {"endpoint": collectors[0].endpoint, "traces": {"topics": ["/a+/"]}}
    proxy.use(metrics={"by": ["client_id"], "only": {"client_id": ["/o.e/"]}}, otlp=otlp)
    assert clients(proxy) == {"one": 1}
    assert threads
    assert proxy.live.thread.ident not in threads
    proxy.use()
    until(lambda: senders() == [])


def test_nobody_is_watched_once_no_label_is_left(stack: ExitStack) -> None:
    proxy = Changing(stack, metrics={"by": ["client_id", "group"]})
    with proxy.connect() as client:
        client.brokers()
        for _ in range(3):
            proxy.use()
            assert live_sinks(proxy) == 0
            until(lambda: proxy.live.call(lambda: len(proxy.live.proxy.server.taps.by_connection)) == 0)
            client.brokers()
            proxy.use(metrics={"by": ["client_id", "group"]})
            client.brokers()
            clients(proxy)  # what was counted since the last look goes with the labels
        assert clients(proxy) == {"raw": 3}
        sink = proxy.live.proxy.parts.label_metrics and proxy.live.proxy.parts.label_metrics.sink
        assert sink is not None
        assert proxy.live.call(lambda: len(sink.summaries)) == 1


# ---- telemetry

COUNTER = f"{KAFKA}producer.connection.creation.total"


class Teller:
    """A client that tells its own metrics."""

    def __init__(self, client: RawClient) -> None:
        self.client, self.subscription, self.asked = client, 0, list[str]()

    def ask(self) -> str:
        """Ask for the subscription; return the error."""
        body = self.client.call(GET, 0, {"client_instance_id": ME})
        if not body["error_code"]:
            self.subscription, self.asked = body["subscription_id"], body["requested_metrics"]
        return error_name(body["error_code"]) if body["error_code"] else ""

    def push(self) -> str:
        body = {"client_instance_id": ME, "subscription_id": self.subscription, "terminating": False,
                "compression_type": 0, "metrics": metrics_data(counted(COUNTER, point(2)))}  # fmt: skip
        code = self.client.call(PUSH, 0, body)["error_code"]
        return error_name(code) if code else ""


def told(proxy: Changing) -> dict[tuple[tuple[str, str], ...], float]:
    """The sums of what clients have told, by labels."""
    name = "kproxy_client_telemetry_producer_connection_creation_total"
    return {labels: value for (found, labels), value in proxy.numbers("kproxy_").items() if found == name}


def test_clients_are_told_of_another_subscription(stack: ExitStack) -> None:
    """When they push next, however soon that is, and once only; on connections that were open before."""
    proxy = Changing(stack)
    proxy.use(telemetry={"labels": ["client_id"]})
    client = stack.enter_context(proxy.connect("t"))
    teller = Teller(client)
    assert teller.ask() == ""
    first = teller.subscription
    assert teller.push() == ""
    until(lambda: told(proxy) == {(("client_id", "t"),): 2})

    proxy.use(telemetry={"labels": ["client_id"], "metrics": [f"{KAFKA}producer."], "interval": "2m"})
    assert teller.push() == "UNKNOWN_SUBSCRIPTION_ID"
    assert teller.push() == "THROTTLING_QUOTA_EXCEEDED"
    assert teller.ask() == ""
    assert (teller.asked, teller.subscription != first) == ([f"{KAFKA}producer."], True)
    assert teller.push() == ""
    until(lambda: told(proxy) == {(("client_id", "t"),): 4})
    assert teller.ask() == "THROTTLING_QUOTA_EXCEEDED"

    proxy.use(telemetry={"labels": ["client_id", "listener"]})
    assert teller.push() == "UNKNOWN_SUBSCRIPTION_ID"
    assert (teller.ask(), teller.subscription) == ("", first)
    assert teller.push() == ""
    until(lambda: told(proxy) == {(("client_id", "t"), ("listener", "a")): 2})
    proxy.use(telemetry={"labels": ["client_id"]})
    assert told(proxy) == {(("client_id", "t"),): 4}


def test_clients_that_are_asked_no_more_are_told_so(stack: ExitStack) -> None:
    """No connection is cut for it, also when rules change behind that; where they are asked again, all is as before."""
    proxy = Changing(stack, telemetry={})
    teller = Teller(stack.enter_context(proxy.connect("t")))
    teller.ask()
    first = teller.subscription
    for parts in ({}, {"telemetry": {"listeners": []}}, {"telemetry": {"serve": "never"}}):
        proxy.use(**parts)
        assert teller.push() == "UNKNOWN_SUBSCRIPTION_ID"
        assert (teller.ask(), teller.asked) == ("", [])
        assert teller.push() == ""
        proxy.live.call(lambda: list(proxy.live.proxy.swap(proxy.live.proxy.rules)))
        assert teller.ask() == "THROTTLING_QUOTA_EXCEEDED"
        proxy.use(telemetry={})
        assert (teller.ask(), teller.subscription) == ("", first)
    assert told(proxy) == {}
    with proxy.connect("new") as client:
        assert Teller(client).ask() == ""
    assert proxy.live.call(lambda: len(proxy.live.proxy.parts.telemetry.terms)) == 1


# ---- otlp


@pytest.fixture
def collectors() -> Iterator[tuple[Collector, Collector]]:
    made = Collector(), Collector()
    yield made
    for one in made:
        one.down()
        assert one.wrong == []


def senders() -> list[str]:
    """The threads that export something."""
    return sorted(thread.name for thread in threading.enumerate() if "otlp" in thread.name)


def test_exports_go_elsewhere_and_end(stack: ExitStack, collectors: tuple[Collector, Collector]) -> None:
    """Numbers go on, where they are exported again after a while, too; no thread is left."""
    one, two = collectors
    proxy = Changing(stack)
    assert senders() == []
    assert proxy.use(otlp={"endpoint": one.endpoint, "metrics": "1s", "traces": {"topics": ["a"]}}) == ["otlp"]
    until(one.metrics)
    assert senders() == ["otlp metrics", "otlp records", "otlp traces"]
    proxy.use(otlp={"endpoint": two.endpoint, "metrics": "1s", "headers": {"authorization": "Bearer x"}})
    until(two.metrics)
    assert {headers.get("authorization") for headers in two.headers} == {"Bearer x"}
    until(lambda: senders() == ["otlp metrics"])
    began = start_of(one)
    assert start_of(two) == began
    two.replies[:] = []
    changed = proxy.use(otlp={"endpoint": two.endpoint, "metrics": "1h", "encoding": "protobuf", "semconv": "1.44"})
    assert changed == ["otlp.headers", "otlp.encoding", "otlp.semconv", "otlp.metrics"]
    proxy.use(otlp={"endpoint": two.endpoint, "metrics": "1h", "traces": {"topics": ["b"]}})
    exports = len(two.paths)
    proxy.use()
    until(lambda: len(two.paths) > exports)  # all numbers, for the last time
    until(lambda: senders() == [])
    proxy.use(otlp={"endpoint": one.endpoint, "metrics": "1s"})
    count = len(one.taken)
    until(lambda: len(one.taken) > count)
    assert start_of(one) == began
    counted = proxy.numbers("kproxy_otlp_")
    assert counted["kproxy_otlp_exports_total", (("outcome", "ok"), ("signal", "metrics"))] >= 3
    proxy.use()
    until(lambda: senders() == [])


@pytest.mark.parametrize("lacks", ["otlp records", "otlp traces", "otlp metrics"])
def test_a_config_is_in_force_whole_where_no_thread_can_be_started(
    lacks: str, stack: ExitStack, collectors: tuple[Collector, Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says besides the export is followed, the log says what is not, and the next config tries again."""
    start, otlp = (
        threading.Thread.start,
        {"endpoint": collectors[0].endpoint, "metrics": "1s", "traces": {"topics": ["a"]}},
    )

    def start_some(thread: threading.Thread) -> None:
        if thread.name == lacks:
            raise RuntimeError("can't start new thread")
        start(thread)

    proxy = Changing(stack)
    before = proxy.live.keeper.version
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_some)
        proxy.use(otlp=otlp, view={"enabled": False})
    assert proxy.live.keeper.version != before
    assert proxy.get("/api/exchanges").status == 403
    assert any("a thread cannot be started" in line for line in proxy.live.said.lines)
    wanted = ["otlp metrics"] if lacks != "otlp metrics" else ["otlp records", "otlp traces"]
    until(lambda: senders() == wanted)
    proxy.use(otlp=otlp)
    until(lambda: senders() == ["otlp metrics", "otlp records", "otlp traces"])
    until(collectors[0].metrics)
    proxy.use()
    until(lambda: senders() == [])


def start_of(collector: Collector) -> int:
    """Since when what came last was counted."""
    (point,) = collector.metrics()["kproxy.log.lines.lost"].sum.data_points
    return int(point.start_time_unix_nano)


def test_what_waits_goes_to_the_new_collector(collectors: tuple[Collector, Collector], stack: ExitStack) -> None:
    """Events of the audit are numbered without gaps over both, also while the old one takes nothing."""
    one, two = collectors
    audit: dict[str, Any] = {"audit": {"level": "requests", "flush": "10ms"}}

    def otlp(collector: Collector) -> dict[str, Any]:
        return {"otlp": {"endpoint": collector.endpoint, "logs": "audit", "timeout": "1s"}}

    def arrived() -> dict[int, str]:
        """Types by number: a batch whose answer was lost comes twice."""
        return {int(line["id"]): line["type"] for collector in collectors for line in collector.log_lines()}

    proxy = Changing(stack, **audit, **otlp(one))
    recording = proxy.live.proxy.audit
    assert recording is not None
    with proxy.connect() as client:
        client.brokers()
        until(one.log_lines)
        one.down()
        for _ in range(5):
            client.brokers()
        until(lambda: recording.recorder.counters["otlp"].failing)
        proxy.use(**audit, **otlp(two))
        client.brokers()
        until(lambda: sum("request" in name for name in arrived().values()) == 7)
    assert sorted(arrived()) == list(range(1, len(arrived()) + 1))
    assert two.log_lines()


def test_nothing_changes_with_a_part_that_cannot_be_used(
    stack: ExitStack, collectors: tuple[Collector, Collector]
) -> None:
    """A file of certificates that is not there is found out before anything else changes."""
    proxy = Changing(stack)
    proxy.use(metrics={"by": ["client_id"]})
    version = proxy.live.keeper.version
    otlp = {"endpoint": "https://127.0.0.1:4318", "metrics": "1s", "tls": {"ca": "/nothing/here.pem"}}
    config = proxy.base | {"otlp": otlp, "metrics": {"by": ["topic"]}, "telemetry": {}, "view": {"enabled": False}}
    (mistake,) = proxy.live.mistakes(config)
    assert "/nothing/here.pem" in mistake
    assert proxy.live.keeper.version == version
    with proxy.connect() as client:
        client.brokers()
        assert clients(proxy) == {"raw": 1}
    assert proxy.get("/api/exchanges").status == 200
    assert (proxy.live.proxy.otlp, proxy.live.proxy.telemetry, senders()) == (None, None, [])


# ---- view


def test_what_may_be_seen_changes_with_the_next_request(stack: ExitStack) -> None:
    """Streams end that have said something else of the view, and begin again where they may."""
    proxy = Changing(stack)

    def hello() -> tuple[HTTPResponse, dict[str, Any]]:
        stream = proxy.get("/api/view")
        lines = [stream.readline() for _ in range(2)]
        return stream, json.loads(lines[1].removeprefix(b"data: "))

    stream, said = hello()
    assert (said["may_write"], said["records"]) == (True, True)
    assert proxy.use(view={"buffer_size": "1MiB"}) == ["view.buffer_size"]
    proxy.use(view={"write": False, "records": False, "buffer_size": "1MiB"})
    while stream.readline():
        """It ends."""
    stream, said = hello()
    assert (said["may_write"], said["records"]) == (False, False)
    member = proxy.live.proxy.member
    assert member is not None
    assert (member.records, member.held_frames.records, member.kept_exchanges.records) == (False, False, False)
    assert proxy.live.call(lambda: member.kept_exchanges.watch.ring.most_bytes) == 1 << 20
    assert proxy.get("/api/exchanges?filter=~b%20x").status == 422
    assert proxy.get("/view/").status == 200
    proxy.use(view={"enabled": False})
    while stream.readline():
        """It ends."""
    assert [proxy.get(path).status for path in ("/api/view", "/api/exchanges", "/view/")] == [403, 403, 404]
    proxy.use()
    assert hello()[1]["records"] is True
    assert proxy.get("/view/").status == 200
