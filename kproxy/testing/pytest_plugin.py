"""Pytest plugin of the extra `pytest`: the fixture `kproxy`, and the fixtures that it needs.

    kproxy              one test's view: `bootstrap_servers`, `inject`, `wait`, `assert_applied`, `exchanges`
    kproxy_engine       the running proxy; its scope is the ini option `kproxy_scope` (default: one test)
    kproxy_upstream     addresses of the brokers, `host:port,…`: override it for a cluster of your own
    kproxy_cluster      librdkafka's mock cluster, the default
    kproxy_kafka        Apache Kafka, with --kproxy-upstream=kafka

pytest loads this file wherever kproxy is installed, so it imports nothing but pytest until a fixture is used.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from kproxy.testing.cluster import MockCluster
    from kproxy.testing.embedded import Embedded
    from kproxy.testing.inject import Kproxy
    from kproxy.testing.kafka import Kafka
    from kproxy.testing.time_limit import TimeLimit

pytest_plugins = ["kproxy.testing.explore.pytest_plugin"]
"""Plugin that comes with this one: it looks for the fault that breaks a test."""

OWN_NAMES = "kproxy_own_names"
RULES = "kproxy_rules"
VERIFY = "kproxy_verify"
TIMEOUT = "kproxy_timeout"
REAL = "kafka"  # value of --kproxy-upstream that starts Apache Kafka
SCOPES = ("function", "class", "module", "package", "session")
SEED_BITS = 32
MOCKS = pytest.StashKey[set[str]]()
"""Bootstrap addresses of the mock clusters of this run."""
LIMIT: pytest.StashKey[TimeLimit] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options --kproxy-upstream and --kproxy-seed, and the ini options."""
    group = parser.getgroup("kproxy")
    group.addoption("--kproxy-upstream", metavar="HOST:PORT",
                    help="Brokers behind the fixture kproxy, instead of a mock cluster; `kafka` starts Apache Kafka "
                    "(Java 17 and Maven needed).")  # fmt: skip
    group.addoption("--kproxy-seed", type=int, metavar="N",
                    help="Seed of the chances in rules; by default each test has its own, from its id.")  # fmt: skip
    group.addoption("--kproxy-rules", metavar="FILE", action="append", default=[], help="Rule file that is in force "
                    "in all tests, before rules of their own; may be given again.")  # fmt: skip
    parser.addini("kproxy_upstream", "The same as --kproxy-upstream.", default="")
    parser.addini(OWN_NAMES, "Whether each test has topics, groups and transactional ids of its own on the brokers.",
                  type="bool", default=False)  # fmt: skip
    parser.addini(VERIFY, "Whether each test that passes is verified at its end: kproxy.verify().",
                  type="bool", default=False)  # fmt: skip
    group.addoption("--kproxy-timeout", type=float, metavar="SECONDS",
                    help="Time limit of each test that uses the fixture kproxy (default: the ini option "
                    "kproxy_timeout).")  # fmt: skip
    parser.addini(TIMEOUT, "Seconds after which a test that uses the fixture kproxy fails; 0: no limit.", default="0")
    parser.addini("kproxy_scope", f"How long one proxy lives: {', '.join(SCOPES)}.", default="function")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the plugin."""
    config.addinivalue_line(
        "markers", f"{OWN_NAMES}: the test has topics, groups and transactional ids of its own on the brokers (kproxy)"
    )
    config.addinivalue_line("markers", f"{RULES}(file, ...): the test runs under these rule files (kproxy)")
    config.addinivalue_line(
        "markers", f"{VERIFY}(wanted=True, **arguments): whether kproxy.verify(**arguments) ends the test (kproxy)"
    )
    config.addinivalue_line("markers", f"{TIMEOUT}(seconds): time limit of the test; 0: no limit (kproxy)")


def scope(fixture_name: str, config: pytest.Config) -> Any:
    """Return the scope of the proxy and of the cluster behind it. Raises UsageError for an unknown one."""
    chosen = config.getini("kproxy_scope")
    if chosen not in SCOPES:
        raise pytest.UsageError(f"expected kproxy_scope as one of {', '.join(SCOPES)}, got {chosen!r}")
    return chosen


def seed_of_test(config: pytest.Config, node: pytest.Item) -> int:
    """Return the seed of a test: the same in every run, and independent of the seeds of other tests."""
    given = config.getoption("--kproxy-seed")
    if given is not None:
        return cast("int", given)
    name = node.nodeid.encode()
    return int.from_bytes(hashlib.sha256(name).digest()[: SEED_BITS // 8], "big")


def time_limit(config: pytest.Config, node: pytest.Item) -> float:
    """Return the time limit of a test in seconds, 0 for none: from its marker, the option, or the ini file. Raises
    UsageError."""
    marker, option = node.get_closest_marker(TIMEOUT), config.getoption("--kproxy-timeout")
    given = marker.args[0] if marker is not None and marker.args else option
    given = config.getini(TIMEOUT) if given is None else given
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise pytest.UsageError(f"{TIMEOUT}: expected seconds, 0 or more, got {given!r} (at {node.nodeid})")
    return seconds


def rule_files(request: pytest.FixtureRequest) -> list[Path]:
    """Return the rule files of the command line and of the test's markers. Paths in markers are looked up in the root
    folder of the tests, then in the test's folder."""
    config = request.config
    given = [Path(config.invocation_params.dir, file) for file in config.getoption("--kproxy-rules")]
    for marker in request.node.iter_markers(RULES):
        places = [[folder / str(file) for folder in (config.rootpath, request.path.parent)] for file in marker.args]
        given += [next((one for one in each if one.exists()), each[0]) for each in places]
    return given


@pytest.fixture(scope=scope)
def kproxy_cluster(request: pytest.FixtureRequest) -> Iterator[MockCluster]:
    """Start three mock brokers in this process: `bootstrap`, `create_topic`, `set_leader`, `set_down`, `set_up`."""
    from kproxy.testing.cluster import MissingMock, readable_mock

    try:
        cluster = readable_mock()
    except MissingMock as error:
        reason = str(error).replace("[demo]", "[pytest]")
        pytest.fail(
            f"kproxy's embedded cluster cannot start: {reason}, or name a cluster: --kproxy-upstream=HOST:PORT, the "
            "ini option kproxy_upstream, or a fixture kproxy_upstream of your own",
            pytrace=False,
        )
    request.config.stash.setdefault(MOCKS, set()).add(cluster.bootstrap)
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def kproxy_kafka() -> Iterator[Kafka]:
    """Start Apache Kafka, one broker for all tests, from its published jars."""
    from kproxy.base.errors import KproxyError
    from kproxy.testing.kafka import Kafka

    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Kafka(1))
        except KproxyError as error:
            pytest.fail(f"Apache Kafka cannot start: {error}", pytrace=False)
        yield cluster


@pytest.fixture(scope=scope)
def kproxy_upstream(request: pytest.FixtureRequest) -> str:
    """Return the brokers' addresses from the options; without them, those of the mock cluster."""
    given = request.config.getoption("--kproxy-upstream") or request.config.getini("kproxy_upstream")
    if given == REAL:
        return cast("str", request.getfixturevalue("kproxy_kafka").bootstrap())
    return given or cast("str", request.getfixturevalue("kproxy_cluster").bootstrap)


@pytest.fixture(scope=scope)
def kproxy_engine(request: pytest.FixtureRequest, kproxy_upstream: str) -> Iterator[Embedded]:
    """Run the proxy in its thread; `bootstrap_servers` for fixtures that live as long as it does."""
    from kproxy.base.errors import KproxyError
    from kproxy.testing.embedded import Embedded

    engine = Embedded(kproxy_upstream, mock=kproxy_upstream in request.config.stash.get(MOCKS, ()))
    try:
        engine.start()
    except KproxyError as error:
        pytest.fail(f"kproxy cannot start: {error}", pytrace=False)
    yield engine
    engine.stop()


@pytest.fixture
def kproxy(request: pytest.FixtureRequest, kproxy_engine: Embedded) -> Iterator[Kproxy]:
    """Give a test Kafka through kproxy, with faults on demand: see kproxy's page on testing."""
    from kproxy.base.errors import KproxyError
    from kproxy.rules.values.source import Source
    from kproxy.testing.inject import Kproxy

    kproxy_engine.store.seed = seed_of_test(request.config, request.node)
    used = Kproxy(kproxy_engine)
    used.alone = used.alone or used.upstream in request.config.stash.get(MOCKS, ())
    if request.node.get_closest_marker(OWN_NAMES) is not None or request.config.getini(OWN_NAMES):
        used.have_own_names(request.node.name)
    try:
        if files := rule_files(request):
            used.keep([Source.open(file) for file in files])
    except KproxyError as error:
        pytest.fail(f"the rules of this test cannot be loaded: {error}", pytrace=False)
    if seconds := time_limit(request.config, request.node):
        from kproxy.testing.time_limit import TimeLimit

        limit = request.node.stash[LIMIT] = TimeLimit(used, seconds)
        limit.start()
    yield used
    if LIMIT in request.node.stash:
        request.node.stash[LIMIT].finish()
    if used.prefix and used.upstream not in request.config.stash.get(MOCKS, ()):  # a mock goes with all that is on it
        used.delete_own_topics()
    used.clear()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the time limit to fixtures that are set up after `kproxy`."""
    return (yield from within_limit(item, ends=False))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the time limit to fixtures that end before `kproxy`."""
    if LIMIT not in item.stash:
        return (yield)
    with item.stash[LIMIT].as_failure():
        return (yield from within_limit(item, ends=True))


def within_limit(item: pytest.Item, *, ends: bool) -> Generator[None, object, object]:
    """Fail with the reason if the time limit has interrupted this phase. `ends`: no later phase belongs to the test."""
    try:
        done = yield
    except BaseException:
        fail_late(item)
        raise
    if LIMIT in item.stash and (ends or item.stash[LIMIT].message):
        item.stash[LIMIT].finish()
        fail_late(item)
    return done


def fail_late(item: pytest.Item) -> None:
    """Fail if the time limit of this test has passed. Raises pytest.fail.Exception, once."""
    limit = item.stash.get(LIMIT, None)
    if limit is not None and limit.message:
        limit.finish()
        del item.stash[LIMIT]
        raise pytest.fail.Exception(limit.message, pytrace=False) from None  # not KeyboardInterrupt, but its reason


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the time limit, then verify the exchanges of the test if its marker or the ini file asks for that."""
    done = yield from within_limit(item, ends=False)
    marker, used = item.get_closest_marker(VERIFY), getattr(item, "funcargs", {}).get("kproxy")
    wanted = bool(item.config.getini(VERIFY)) if marker is None else (*marker.args, True)[0]
    verify = getattr(used, "verify", None)
    if wanted and verify is not None:
        verify(**({} if marker is None else marker.kwargs))
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test the seed, its rules with their counters, and the exchanges."""
    report = yield
    tell = getattr(getattr(item, "funcargs", {}).get("kproxy"), "report", None)
    if report.when == "call" and report.failed and tell is not None:
        try:
            text = tell()
        except Exception as error:  # noqa: BLE001  # the test's own failure must be seen
            text = f"nothing can be told: {type(error).__name__}: {error}"
        report.sections.append(("kproxy", text))
    return report
