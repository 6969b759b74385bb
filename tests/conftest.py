"""What tests on real clients and brokers share: three ways to the same Kafka, and a JVM with Kafka's Java clients."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import trio
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, settings

from kproxy.testing import one_request, process
from kproxy.testing.kafka import Kafka, kafka_libs
from kproxy.testing.process import Proxy
from tests.support.connection_watch import ConnectionWatch
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics
from tests.support.wait import until

from .preloaded import Forks
from .selection import MARKERS, Selection

pytest_plugins = ["kproxy.testing.plugin"]

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
settings.register_profile(
    "same examples",
    max_examples=100 if EVERYTHING else 40,
    deadline=None,  # a slow example may be due to other work of the machine
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EVERYTHING,
)
settings.load_profile("same examples")

#: Client side: broker side. The names of tests begin with `ren-` where they go through the renaming proxy.
RENAME = {"name": "other names upstream", "kind": "rename_topic", "topics": {"ren-*": "prod.ren-*"}}
#: Groups and transactional ids, whose names tests choose freely, all have others upstream there.
RENAMES: list[dict[str, object]] = [
    RENAME,
    {"name": "other groups upstream", "kind": "rename_group", "groups": {"*": "prod.*"}},
    {"name": "other transactional ids upstream", "kind": "rename_transactional_id", "ids": {"*": "prod.*"}},
]
PREFIX = {"direct": "", "proxy": "", "renamed": "ren-"}
ROUTES = list(PREFIX) if os.environ.get("KPROXY_TEST_ALL") else ["proxy", "renamed"]
"""By default not `direct`, which shows that the tests are right about Kafka, and nothing of kproxy."""

OBJECTS = 20_000
"""Objects made, less those freed, from one garbage collection to the next."""

FALSE_CLOCKS = frozenset(("autojump_clock", "mock_clock"))
"""Fixtures whose seconds are not those of a clock on the wall."""

_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave out tests that are `deep` or `measured`, unless `-m` or KPROXY_TEST_ALL asks for them."""
    if hasattr(config, "workerinput"):
        gc.disable()  # hardly anything that a worker collects is garbage
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if not config.option.markexpr:
        config.option.markexpr = "not measured" + ("" if os.environ.get("KPROXY_TEST_ALL") else " and not deep")
    config.pluginmanager.register(Selection(), "selection")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave the tests themselves, and all that was imported for them, out of a worker's garbage collections: they are a
    million objects that stay."""
    if hasattr(session.config, "workerinput"):
        gc.freeze()
        gc.set_threshold(OBJECTS)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-trio makes a run of it
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let an async test that waits for ever end by itself. pytest-timeout's way out would leave its run of trio
    unfinished, and with it all later async tests of the process would fail. A false clock's seconds are no such."""
    if not isinstance(item, pytest.Function) or not iscoroutinefunction(item.obj):
        return
    if item.get_closest_marker("trio") is None:  # of another library
        return
    if not FALSE_CLOCKS.isdisjoint(item.fixturenames):
        return
    marker = item.get_closest_marker("timeout")
    given = marker.args[0] if marker and marker.args else item.config.getini("timeout")
    item.obj = in_time(item.obj, float(given) * 0.9)


def in_time(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    """Return the test as one that raises trio.TooSlowError after so many seconds."""

    @wraps(test)
    async def limited(*arguments: Any, **named: Any) -> None:
        with trio.fail_after(seconds):
            await test(*arguments, **named)

    return limited


# A shell ignores Ctrl-C for what it starts in the background, nohup ignores SIGHUP. Processes of tests inherit both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    """kproxies that tests start are forked from one process that has imported kproxy (preloaded.py)."""
    if os.environ.get("KPROXY_TEST_ALL"):
        yield
        return
    forks, begin = Forks(), process.begin

    def fork(command: Sequence[str], output: BinaryIO, env: Mapping[str, str], cwd: Path | None) -> Any:
        return (forks.start if forks.can(command, env) else begin)(command, output, env, cwd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "begin", fork)
        yield
    forks.close()


@dataclass
class Route:
    """A way to the cluster `kafka`: direct, through a proxy without rules, or through one that renames."""

    name: str
    kafka: Kafka
    proxy: Proxy | None
    watch: ConnectionWatch

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        return self.proxy.bootstrap if self.proxy else self.kafka.bootstrap("DIRECT")

    def topic(self, word: str) -> str:
        """A topic name, as the client says it, that no other test uses."""
        return f"{PREFIX[self.name]}{word}-{self.name}-{next(_numbers)}"

    def upstream_name(self, topic: str) -> str:
        """The broker's name for it."""
        return f"prod.{topic}" if self.name == "renamed" else topic

    def create(self, word: str, partitions: int = 3, replicas: int = 1) -> str:
        """Make a topic past the proxy, under the broker's name; the client's name for it."""
        topic = self.topic(word)
        create_topics(",".join(self.running()), self.upstream_name(topic), partitions=partitions, replicas=replicas)
        return topic

    def settled(self, topic: str, partitions: int) -> None:
        """Return once every broker knows so many partitions of the topic; 0: once none knows it."""
        name = self.upstream_name(topic)
        for address in self.running():
            until(lambda address=address: one_request.topics(address, [name]).get(name, 0) == partitions)

    def running(self) -> list[str]:
        """`host:port` of each broker that runs, past the proxy."""
        brokers = self.kafka.brokers.values()
        return [f"127.0.0.1:{broker.ports['DIRECT']}" for broker in brokers if broker.child is not None]

    def names_at_broker(self) -> set[str]:
        return set(one_request.topics(self.kafka.bootstrap("DIRECT").partition(",")[0]))

    def logs(self) -> str:
        """The last lines of the brokers and the proxy."""
        return self.kafka.logs() + ("\nkproxy:\n" + self.proxy.logs() if self.proxy else "")

    @cached_property
    def direct(self) -> AdminClient:
        """An administrator who does not come through the proxy."""
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap("DIRECT")})


@pytest.fixture(scope="session")
def watch(kafka3: Kafka) -> Iterator[ConnectionWatch]:
    """Looks who connects to the brokers' own ports, which only the proxies may."""
    with ConnectionWatch(kafka3.ports("PROXIED"), []) as watch:
        yield watch


@pytest.fixture(scope="session")
def plain_proxy(kafka3: Kafka, watch: ConnectionWatch) -> Iterator[Proxy]:
    yield from watched(Proxy(kafka3.bootstrap("PROXIED")), watch)


@pytest.fixture(scope="session")
def renaming_proxy(kafka3: Kafka, watch: ConnectionWatch) -> Iterator[Proxy]:
    """A proxy that gives topics, groups and transactional ids other names upstream."""
    yield from watched(Proxy(kafka3.bootstrap("PROXIED"), rules=RENAMES), watch)


def watched(proxy: Proxy, watch: ConnectionWatch) -> Iterator[Proxy]:
    """Start a proxy as one that may connect to the brokers, which it does before it is ready."""
    watch.allowed.add(proxy.launch())
    with proxy:
        yield proxy
        assert_clean(proxy)


def assert_clean(proxy: Proxy) -> None:
    """Whatever went through a proxy: it stopped no frame, logged no error, and ends on SIGTERM with 0."""
    stopped, log = proxy.samples("kproxy_requests_blocked_total"), proxy.logs(100_000)
    errors = [line for line in log.splitlines() if '"level": "error"' in line or "Traceback" in line]

    assert ([], []) == (stopped, errors)
    assert proxy.child is not None
    assert proxy.child.stop(30) == 0


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, kafka3: Kafka, watch: ConnectionWatch) -> Iterator[Route]:
    """Each way to the same cluster. After the test nobody but the proxies may have connected to the brokers' ports."""
    fixture = {"proxy": "plain_proxy", "renamed": "renaming_proxy"}.get(request.param)
    proxy = request.getfixturevalue(fixture) if fixture else None
    yield Route(request.param, kafka3, proxy, watch)
    watch.look()
    assert watch.strangers == set(), f"a client went past the proxy to ports {sorted(watch.strangers)}"


@pytest.fixture
def kafka_python() -> Iterator[None]:
    """Sockets that kafka-python leaves to the garbage collector fail neither this test nor a later one.

    A client of 3.0 that is closed while it connects, as it also does beside its work, forgets that socket.
    """
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)  # until this test ends, by pytest
    yield
    gc.collect()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaProgram]:
    """Kafka's Java clients: java("produce", config={…}, topic=…) and so on, see clients/java/Clients.java."""
    with JavaProgram(Path(__file__).parent / "clients" / "java", "Clients", kafka_libs()) as program:
        yield program
