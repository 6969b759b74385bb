"""Tests of the Python kit with a fake container engine that runs kproxy as a process of this machine."""

from __future__ import annotations

import importlib.util
import io
import socket
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Child, free_port
from tests.lab.kits.suites import CLIENTS

pytestmark = pytest.mark.process
pytest.importorskip("testcontainers", reason="the library testcontainers is not installed: extra `test`")
JAVA_CONFIG = CLIENTS / "java" / "testcontainers" / "src" / "test" / "resources" / "kproxy.yaml"


class Engine:
    """Fake of Testcontainers' DockerClient. `created` has the configuration of the container."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self.name, self.admin_port = folder, host, free_port()
        self.created: dict[str, Any] = {}
        self.child: Child | None = None
        self.client = SimpleNamespace(close=lambda: None)

    def host(self) -> str:
        return self.name

    def get_connection_mode(self) -> Any:
        from testcontainers.core.config import ConnectionMode

        return ConnectionMode.docker_host

    def create(self, image: str, **configuration: Any) -> Any:
        self.created = {"image": image, **configuration}
        return SimpleNamespace(
            id="1",
            short_id="1",
            status="running",
            put_archive=self.put_archive,
            remove=self.remove,
            reload=lambda: None,
        )

    def put_archive(self, path: str, data: Any) -> bool:
        with tarfile.open(fileobj=io.BytesIO(data if isinstance(data, bytes) else data.read())) as archive:
            archive.extractall(self.folder, filter="data")
        return True

    def start(self, container: Any) -> None:
        """Run the command of the container, with the mapped port of the admin API."""
        config = self.folder / self.created["command"][-1].lstrip("/")
        config.write_text(config.read_text().replace("0.0.0.0:9190", f"127.0.0.1:{self.admin_port}"))
        command = [sys.executable, "-m", "kproxy", *self.created["command"][:-1], str(config)]
        self.child = Child(command, self.folder / "log", env=self.created["environment"])

    def port(self, container: str, port: int) -> int:
        assert port == 9190
        return self.admin_port

    def remove(self, **options: Any) -> None:
        if self.child is not None:
            self.child.stop()


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from testcontainers.core.config import testcontainers_config

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    spec = importlib.util.spec_from_file_location("kproxy_testcontainers", CLIENTS / "python/kproxy_testcontainers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine(tmp_path)
    monkeypatch.setattr("testcontainers.core.container.DockerClient", lambda **options: engine)
    yield engine
    engine.remove()


def test_container_has_the_configuration_of_kproxy(kit: ModuleType, engine: Engine, tmp_path: Path) -> None:
    """Image, command, environment, ports and wait strategy are set, and the config equals that of the Java class."""
    rules = tmp_path / "faults.yaml"
    rules.write_text("rules: []\n")
    engine.name = "engine.example"
    container = kit.KproxyContainer("example/kproxy:1.2.3", "kafka:19092, other:9092", rules=[rules])
    container._configure()
    first = container.port
    ports = range(first, first + 4)

    assert (container.image, container._command) == (
        "example/kproxy:1.2.3",
        ["run", "--config", "/etc/kproxy/kproxy.yaml"],
    )
    assert container.env == {"KPROXY_TOKEN": container.token}
    assert container.ports == {"9190": None, **{str(port): port for port in ports}}
    assert (container._wait_strategy._port, container._wait_strategy._path) == (9190, "/readyz")
    assert container.bootstrap_servers == f"engine.example:{first}"
    for port in ports:
        with socket.socket() as taken, pytest.raises(OSError, match="in use"):
            taken.bind(("", port))
    expected = JAVA_CONFIG.read_text().replace("40000", str(first)).replace("40001-40003", f"{first + 1}-{first + 3}")
    assert container.config() == expected
    container._configure()
    assert container.port == first
    container.stop()
    with socket.socket() as free:
        free.bind(("", first))


def test_ports_without_a_consecutive_range_are_an_error(kit: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "ATTEMPTS", 2)
    with pytest.raises(OSError, match="expected 70000 consecutive free ports, got none"):
        kit.reserve_ports(70_000)


def test_kit_injects_and_reads_through_a_started_kproxy(
    kit: ModuleType, engine: Engine, tmp_path: Path, mock_cluster: MockCluster
) -> None:
    """The container's files start kproxy, and each operation of the kit works with its admin API."""
    mock_cluster.create_topic("orders")
    rules = tmp_path / "faults.yaml"
    rules.write_text("rules: [{name: slow, kind: delay, match: {api: Produce}, delay: 1ms}]\n")
    container = kit.KproxyContainer("kproxy", mock_cluster.bootstrap, rules=[rules])
    container._wait_strategy.with_poll_interval(0.05)
    with (
        container,
        kit.Kproxy(container) as kproxy,
    ):
        with pytest.raises(AssertionError, match="expected an injected rule, got none"):
            kproxy.assert_applied()
        rule = kproxy.inject("{kind: error, match: {api: Produce}, when: {nth: 3}, error: NOT_LEADER_OR_FOLLOWER}")
        with pytest.raises(AssertionError, match=r"expected to fire 1 times in 0\.01 s, got Counters\(matched=0"):
            rule.wait(timeout=0.01)
        with pytest.raises(AssertionError, match="expected to be applied, got Counters"):
            kproxy.assert_applied()
        producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "retry.backoff.ms": 50})
        for value in ("one", "two", "three", "four"):
            producer.produce("orders", value)
            assert producer.flush(30) == 0
        kproxy.assert_applied(rule)
        assert rule.wait() == rule.counters() == (5, 1, 1)
        writes = kproxy.wait_for_exchanges("~k produce ~t orders", 5)
        assert [one["errors"] for one in writes] == [[], [], ["NOT_LEADER_OR_FOLLOWER"], [], []]
        assert all("slow" in one["rules"] for one in writes)
        with pytest.raises(AssertionError, match=r"expected 9 exchanges in 0\.01 s, got fewer"):
            kproxy.wait_for_exchanges("~k produce", 9, timeout=0.01)
        with pytest.raises(kit.Refusal, match='unknown error "NOPE"'):
            kproxy.inject({"kind": "error", "error": "NOPE"})
        rule.remove()
        rule.remove()
        with kit.Kproxy(container) as other:
            assert other.exchanges() == []
            added = other.inject({"kind": "delay", "delay": "1ms"})
        with pytest.raises(kit.Refusal) as gone:
            added.counters()
        assert gone.value.code == "no_such_rule"
    assert engine.child is not None and engine.child.returncode == 0
