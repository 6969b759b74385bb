"""Another config with two workers: all have it or none, and no connection is cut but those of what was removed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kproxy.base.errors import DocumentError
from kproxy.cli.admin_client import Admin, Refused
from kproxy.protocol.table.errors import error_name
from kproxy.testing.process import Proxy, free_port
from tests.support.live_proxy import NamedBroker
from tests.support.otlp_collector import Collector
from tests.support.raw_client import EndOfStream, RawClient
from tests.support.wait import until


class Two:
    """A proxy with two workers, whose config file changes, and its API."""

    def __init__(self, folder: Path, broker: NamedBroker, other: NamedBroker) -> None:
        self.folder, self.broker, self.other = folder, broker, other
        self.ports = {name: free_port() for name in "abc"}
        self.proxy = Proxy(config=self.config("a"))

    def config(self, *names: str, bootstrap: str | None = None, **more: Any) -> dict[str, Any]:
        """A config with these listeners; of one of them more is said by its name."""
        listeners = [
            {"name": name, "bind": f"127.0.0.1:{self.ports[name]}", "cluster": "main"} | more.pop(name, {})
            for name in names
        ]
        clusters = {"main": {"bootstrap": [bootstrap or self.broker.address]}}
        return {"clusters": clusters, "listeners": listeners, "workers": 2, "seed": 7} | more

    def begun(self) -> None:
        self.proxy.start()
        self.admin = Admin(f"http://{self.proxy.admin}")
        self.file = Path(self.proxy.said("kproxy starts")[0]["config"])
        self.rest = {name: one for name, one in json.loads(self.file.read_text()).items() if name in ("admin", "log")}

    def write(self, config: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(self.rest | config))

    def apply(self, config: dict[str, Any], **query: str) -> list[str]:
        """The names of the steps. Raises what the command shows."""
        self.write(config)
        found = self.admin("POST", "/api/config", b"", kind="application/yaml", query=query)
        return [one["name"] for one in found["steps"]]

    def connect(self, name: str) -> RawClient:
        return RawClient(f"127.0.0.1:{self.ports[name]}")

    def told(self, name: str) -> dict[int, str]:
        """What a new client of the listener hears."""
        with self.connect(name) as client:
            return client.brokers()

    def served(self, name: str) -> bool:
        """Return True if a new client of the listener is let in."""
        try:
            return bool(self.told(name))
        except (EndOfStream, ConnectionError):
            return False

    def opened(self, stack: ExitStack, name: str, count: int = 4) -> list[RawClient]:
        """Clients that have been served, half of them by each worker."""
        clients = [stack.enter_context(self.connect(name)) for _ in range(count)]
        assert all(client.brokers() for client in clients)
        return clients

    def at(self, name: str) -> dict[int, str]:
        return {1: f"127.0.0.1:{self.ports[name] + 2}"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """For all tests here: it takes seconds to start."""
    with NamedBroker("one") as broker, NamedBroker("two") as other:
        two = Two(tmp_path_factory.mktemp("two"), broker, other)
        try:
            two.begun()
            yield two
        finally:
            two.proxy.stop()


@pytest.fixture
def two(running: Two) -> Two:
    """With one listener."""
    running.apply(running.config("a"), allow_cluster_change="true")
    return running


@pytest.mark.deep
def test_a_listener_comes_and_goes_in_all_workers(two: Two) -> None:
    """Connections of others notice nothing; those of the one that goes end, and so do its ports and its brokers'."""
    with ExitStack() as stack:
        stay = two.opened(stack, "a")
        assert two.apply(two.config("a", "b")) == ["listeners.b"]
        come = two.opened(stack, "b")
        assert [client.brokers() for client in come] == [two.at("b")] * 4
        with RawClient(two.at("b")[1]) as node:
            assert node.brokers() == two.at("b")
        assert {one["id"] % 2 for one in two.admin("GET", "/api/connections")["connections"]} == {0, 1}
        assert two.apply(two.config("a")) == ["listeners.b"]
        for client in come:
            with pytest.raises((EndOfStream, ConnectionError)):
                client.frame()
        for port in (two.ports["b"], two.ports["b"] + 2):
            with pytest.raises(ConnectionRefusedError):
                RawClient(f"127.0.0.1:{port}")
        assert [client.brokers() for client in stay] == [two.at("a")] * 4
    until(lambda: two.proxy.metric("kproxy_connections_closed_total", cause="listener_removed") == 4)


def test_a_changed_listener_has_other_words_for_new_clients(two: Two) -> None:
    """Ports of nodes that only the old ones know of are closed when the last of these has ended, wherever it was."""
    with ExitStack() as stack:
        before = two.opened(stack, "a")
        two.apply(
            two.config("a", a={"advertise": {"host": "localhost", "ports": f"{two.ports['c']}-{two.ports['c']}"}})
        )
        assert [two.told("a") for _ in range(2)] == [{1: f"localhost:{two.ports['c']}"}] * 2
        assert [client.brokers() for client in before] == [two.at("a")] * 4
        listed = two.admin("GET", "/api/connections")["connections"]
        assert [one["outdated"] for one in listed].count(True) == 4
        RawClient(two.at("a")[1]).close()
        assert {
            line for line in map(str, two.admin("GET", "/api/config")["config"]["listeners"]) if "localhost" in line
        }
    until(lambda: refuses(two.at("a")[1]))


def refuses(address: str) -> bool:
    try:
        RawClient(address).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("way", ["a port is taken", "a certificate is bad", "a worker is gone"])
def test_nothing_changes_when_anything_cannot_be_done(way: str, two: Two) -> None:
    """Not in the process that could do it, either; the answer says which and why."""
    version = two.admin("GET", "/api/config")["version"]
    config = two.config("a", "b", "c", limits={"max_connections": 77})
    if way == "a port is taken":
        config["listeners"][2]["bind"] = two.other.address
        with pytest.raises(DocumentError, match=r"listener c cannot bind .*: Address already in use"):
            two.apply(config)
    elif way == "a certificate is bad":
        bad = two.folder / "bad.pem"
        bad.write_text("nothing")
        config["listeners"][1]["tls"] = {"cert": str(bad)}
        with pytest.raises(DocumentError, match=r"config.*:\d+:\d+: listener b, .*TLS"):
            two.apply(config)
    else:
        pid = int(two.proxy.said("ready")[0]["workers"][1])
        os.kill(pid, signal.SIGSTOP)  # it dies in the middle: nobody has asked it yet
        two.write(config)
        killed = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
        killed.start()
        with pytest.raises(Refused, match="nothing was changed: worker 1: it has ended"):
            two.apply(config)
        killed.join()
        until(lambda: two.proxy.get("/readyz")[0] == 200, seconds=60)  # later tests need both workers
    assert two.admin("GET", "/api/config")["version"] == version
    assert all(refuses(f"127.0.0.1:{two.ports[name]}") for name in "bc")
    assert two.told("a") == two.at("a")


@pytest.mark.deep
def test_a_worker_that_is_killed_comes_back_with_the_config_in_force(two: Two) -> None:
    """Not with that of the start."""
    two.apply(two.config("a", "b"))
    until(lambda: two.proxy.get("/readyz")[0] == 200, seconds=60)
    before = two.proxy.metric("kproxy_worker_restarts_total")
    for line in two.proxy.said("worker is back")[-1:] or two.proxy.said("ready")[:1]:
        os.kill(line["pid"] if "of_worker" in line else line["workers"][0], signal.SIGKILL)
    until(lambda: two.proxy.metric("kproxy_worker_restarts_total") == before + 1, seconds=60)
    until(lambda: two.proxy.get("/readyz")[0] == 200, seconds=60)
    with ExitStack() as stack:
        two.opened(stack, "b")
        assert {one["id"] % 2 for one in two.admin("GET", "/api/connections")["connections"]} == {0, 1}


def test_a_cluster_that_is_another_one_is_left_by_all(two: Two) -> None:
    """All workers or none: the supervisor refuses it first. Nothing of the old cluster is known once it is allowed."""
    with ExitStack() as stack:
        clients = two.opened(stack, "a")
        other = two.config("a", bootstrap=two.other.address)
        with pytest.raises(
            Refused, match=r"listener a leads to another cluster id \(cluster main\): expected one, got two"
        ):
            two.apply(other)
        with pytest.raises(Refused, match=r"expected one, got unknown: the ids cannot be compared"):
            two.apply(two.config("a", bootstrap=f"127.0.0.1:{free_port()}"))
        assert [client.brokers() for client in clients] == [two.at("a")] * len(clients)
        two.apply(other, allow_cluster_change="true")
        for client in clients:
            with pytest.raises((EndOfStream, ConnectionError)):
                client.frame()
        for _ in range(2):
            with RawClient(two.at("a")[1]) as node:
                assert node.brokers() == two.at("a")
        nodes = two.admin("GET", "/api/topology")["clusters"]["main"]["nodes"]
        assert [(node["host"], node["port"]) for node in nodes] == [two.other.nodes[1]]


def test_removed_listener_comes_back_to_its_cluster(two: Two) -> None:
    """The supervisor compares it with the cluster that it had before."""
    assert two.told("a") == two.at("a")
    two.apply(two.config("b"))
    with pytest.raises(Refused, match=r"main of the removed listener a and main\): expected one, got two"):
        two.apply(two.config("a", bootstrap=two.other.address))
    two.apply(two.config("a"))


def test_tokens_and_the_log_change_at_once_in_all_processes(two: Two) -> None:
    """The supervisor asks for the token; the workers' log lines about connections are debug."""
    with ExitStack() as stack:
        two.opened(stack, "a")
    assert not any(line["level"] == "debug" for line in two.proxy.said("connection closed"))
    admin, log, first = two.rest["admin"], two.rest.get("log", {}), two.admin
    try:
        two.rest["admin"] = admin | {"token": "new"}
        assert two.apply(two.config("a", log=log | {"level": "debug"})) == ["log.level", "admin.token"]
        with pytest.raises(Refused, match="a bearer token is needed"):
            first("GET", "/api/config")
        two.admin = Admin(f"http://{two.proxy.admin}", "new")
        with ExitStack() as stack:
            two.opened(stack, "a", 8)
        until(lambda: {line.get("worker") for line in two.proxy.logged("connection closed", level="debug")} >= {0, 1})
    finally:
        two.rest["admin"] = admin
        two.apply(two.config("a", log=log))
        two.admin = first
    assert first("GET", "/api/config")["not_in_file"] == []


def test_metrics_telemetry_and_exports_change_in_all_processes(two: Two) -> None:
    """Numbers are of both workers, and none falls; a client of either is told of another subscription. What a worker
    cannot use is a mistake at its place, and a worker that comes back has what is in force."""
    collectors = Collector(), Collector()

    def otlp(number: int) -> dict[str, Any]:
        return {"otlp": {"endpoint": collectors[number].endpoint, "metrics": "1s", "traces": {"topics": ["a"]}}}

    def requests(label: str, name: str) -> float:
        return two.proxy.metric("kproxy_client_requests_total", **{label: name})

    metrics = {"metrics": {"by": ["client_id"]}, "view": {"write": False}}
    two.apply(two.config("a", **metrics, **otlp(0), telemetry={"interval": "1m"}))
    try:
        with ExitStack() as stack:
            clients = two.opened(stack, "a")
            subscriptions = [subscription(client) for client in clients]
            assert len(set(subscriptions)) == 1
            assert requests("client_id", "raw") == 8
            until(collectors[0].metrics)
            chosen = metrics | {"metrics": {"by": ["client_id"], "only": {"client_id": ["x"]}}}
            two.apply(two.config("a", **chosen, **otlp(1), telemetry={"interval": "2m"}))
            assert [push(client, subscriptions[0]) for client in clients] == ["UNKNOWN_SUBSCRIPTION_ID"] * 4
            assert {subscription(client) for client in clients}.isdisjoint(subscriptions)
            assert (requests("client_id", "raw"), requests("client_id", "other")) == (0, 8)
            until(collectors[1].metrics)
            tls = {"ca": str(two.folder / "none.pem")}
            bad = two.config("a", **metrics, otlp={"endpoint": "https://127.0.0.1:1", "metrics": "1s", "tls": tls})
            with pytest.raises(DocumentError, match=r"config.*:\d+:\d+: .*none.pem"):
                two.apply(bad)
            two.apply(two.config("a", **metrics))
            assert (requests("client_id", "raw"), requests("client_id", "other")) == (8, 8)
            for client in clients:
                client.brokers()
            assert (requests("client_id", "raw"), requests("client_id", "other")) == (12, 8)
        two.apply(two.config("a"))
        assert "kproxy_client_requests_total" not in two.proxy.get("/metrics")[1]
    finally:
        for collector in collectors:
            collector.down()
    assert [collector.wrong for collector in collectors] == [[], []]


ME = UUID(int=8)


def subscription(client: RawClient) -> int:
    """The id of what a client is asked for."""
    number: int = client.call(71, 0, {"client_instance_id": ME})["subscription_id"]
    return number


def push(client: RawClient, number: int) -> str:
    """The error of a push for this subscription."""
    body = {"client_instance_id": ME, "subscription_id": number, "terminating": False, "compression_type": 0,
            "metrics": b""}  # fmt: skip
    return error_name(client.call(72, 0, body)["error_code"])


def test_sighup_and_what_needs_a_restart(two: Two) -> None:
    """As in one process: the rest is applied, and limits of addresses hold over all workers from then on."""
    with ExitStack() as stack:
        clients = two.opened(stack, "a", 3)
        two.write(two.config("a", "b", limits={"max_connections_per_address": 3}) | {"seed": 8})
        two.proxy.child.signal(signal.SIGHUP)
        until(lambda: two.proxy.said("config has changed, a restart is needed for this"))
        until(lambda: not refuses(f"127.0.0.1:{two.ports['b']}"))
        for name in "ab":  # counted from when each worker has said which addresses it has
            until(lambda name=name: not two.served(name))
        assert two.proxy.metric("kproxy_connections_refused_total", cause="max_connections_per_address") >= 2
        clients[0].close()
        until(lambda: len(two.admin("GET", "/api/connections")["connections"]) == 2)
        assert two.told("b") == two.at("b")
