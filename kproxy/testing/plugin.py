"""pytest fixtures: a real Kafka, librdkafka's mock cluster, and kproxy in front of either.

To use them, put `pytest_plugins = ["kproxy.testing.plugin"]` into the topmost conftest.py. When a test fails, the last
lines of the brokers and proxies that it used are shown with it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest

from kproxy.base import jars
from kproxy.testing.cluster import MockCluster
from kproxy.testing.kafka import Kafka, KafkaListener

from .process import Proxy

#: The listener that a proxy is put in front of. A client that connects to it past the proxy can be told apart there.
PROXIED = KafkaListener("PROXIED")


def pytest_configure(config: pytest.Config) -> None:
    """Show on the terminal, past pytest's capture of output, which jars are fetched."""

    def announce(text: str) -> None:
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            if reporter is None:
                jars.announce(text)
            else:
                reporter.ensure_newline()
                reporter.write_line(text)

    jars.telling.append(announce)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take back the announcement of fetched jars on pytest's terminal."""
    del jars.telling[1:]


class Proxies:
    """The proxies that one test has started; each lives until the end of the test."""

    def __init__(self) -> None:
        self._stack, self._started = ExitStack(), list[Proxy]()

    def __call__(self, upstream: str = "", **settings: Any) -> Proxy:
        """Start a proxy in front of `upstream` and return it when it runs; settings as of Proxy."""
        proxy = self._stack.enter_context(Proxy(upstream, **settings))
        self._started.append(proxy)
        return proxy

    def logs(self) -> str:
        """Return the last lines of each proxy's log."""
        return "\n".join(proxy.logs() for proxy in self._started)

    def close(self) -> None:
        """Stop all proxies that were started."""
        self._stack.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Start a real Kafka of one broker with the listeners DIRECT and PROXIED."""
    with Kafka(1, listeners=[PROXIED]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3() -> Iterator[Kafka]:
    """Start a real Kafka of three brokers, each in a separate rack, with the listeners DIRECT and PROXIED."""
    with Kafka(3, listeners=[PROXIED], racks=("zone-a", "zone-b", "zone-c")) as cluster:
        yield cluster


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """Start librdkafka's mock cluster of three brokers."""
    with MockCluster(3) as cluster:
        yield cluster


@pytest.fixture
def kproxy_process() -> Iterator[Proxies]:
    """Give a function that starts `kproxy run`: `kproxy_process(cluster.bootstrap, rules=[…])` returns a running
    Proxy."""
    proxies = Proxies()
    yield proxies
    proxies.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test the logs of the brokers and proxies that it used."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {})
        logs = {value.logs(): name for name, value in used.items() if hasattr(type(value), "logs")}
        for text, name in logs.items():
            if not any(text in other for other in logs if other != text):  # one fixture may hold another
                report.sections.append((f"log of {name}", text))
    return report
