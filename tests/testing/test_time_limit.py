"""Time limit of tests that use the fixture `kproxy`."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.testing.cluster import MockCluster
from kproxy.testing.inject import Kproxy
from kproxy.testing.pytest_plugin import time_limit
from kproxy.testing.time_limit import MOST_LINES, SLOW_JOIN, TimeLimit, acted, unanswered

pytestmark = pytest.mark.process

Suite = Callable[..., Any]

LIMITED = """
    import asyncio
    import threading

    import pytest
    import trio
    from confluent_kafka import Producer

    from kproxy.testing.pytest_plugin import LIMIT
    from kproxy.testing.time_limit import TimeLimit

    @pytest.fixture
    def waiting(kproxy, request):
        '''Start the limit once the response is lost, for any load of the machine.'''
        lost = kproxy.inject("drop", match={"api": "Produce"})
        producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
        producer.produce("orders", b"one")
        lost.wait(timeout=60, count="applied")
        limit = request.node.stash[LIMIT] = TimeLimit(kproxy, 0.05)
        limit.start()
        return producer
"""


def test_limit_blocking_client_is_interrupted(kproxy: Kproxy) -> None:
    """The message names the unanswered request and the rule that fired; connections close, new ones are refused."""
    lost = kproxy.inject("drop", match={"api": "Produce"})
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    producer.produce("orders", b"one")
    lost.wait(timeout=60, count="applied")
    limit = TimeLimit(kproxy, 0.05)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come in either call
        limit.start()
        producer.flush()
    refusal = kproxy.engine.call(lambda: kproxy.engine.store["kproxy_timeout"])
    limit.finish()

    first, request, *rules = limit.message.splitlines()
    assert first == "kproxy_timeout: expected the test to end within 0.05 s, it still runs"
    assert request.startswith("unanswered: Produce 10 (orders) on connection ")
    assert request.endswith('s; rules that fired: "drop 1"')
    assert rules[-1] == 'rule "drop 1": matched 1, fired 1, applied 1'
    assert refusal.rule.kind == "refuse" and kproxy.rules == [lost]
    assert "kproxy_timeout" not in kproxy.engine.store.stored_rules
    assert any(one.taken.cut_by == "kproxy_timeout" for one in kproxy.exchanges(api="Produce"))


def test_limit_ended_test_is_not_interrupted(kproxy: Kproxy) -> None:
    limit = TimeLimit(kproxy, 3600)
    limit.start()
    limit.finish()
    assert limit.message == ""


def test_limit_no_request_is_said(kproxy: Kproxy) -> None:
    assert unanswered(kproxy) == ["no request is unanswered: the test waits for something else"]
    assert acted(kproxy) == []


def test_limit_many_requests_are_bounded(kproxy: Kproxy) -> None:
    """Those on which rules fired come first."""
    kproxy.inject("drop", match={"api": "Metadata"})
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    while not (taken := kproxy.exchanges(api="Metadata")):
        producer.poll(0.01)
    tape = kproxy.engine.tape
    kproxy.engine.call(lambda: tape.front.taken.extendleft([taken[0].taken] * 50))
    lines = unanswered(kproxy)
    assert len(lines) == MOST_LINES + 1 and lines[-1].endswith("more unanswered requests")
    assert all('rules that fired: "drop 1"' in line for line in lines[:-1])


@pytest.mark.parametrize("mock", [True, False])
def test_limit_slow_join_of_mock_is_explained(kproxy: Kproxy, kproxy_cluster: MockCluster, mock: bool) -> None:
    """A rejoin that the mock delays; the same at other brokers, or a join that a rule holds, has no such reason."""
    kproxy.engine.mock = mock
    kproxy_cluster.create_topic("orders")
    settings = {"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g", "log_level": 0}
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe(["orders"])
    while not any(one.answered for one in kproxy.exchanges(api="SyncGroup")):
        first.poll(0.01)
    second.subscribe(["orders"])
    lines: list[str] = []
    while not any("JoinGroup" in line for line in lines):
        second.poll(0.01)
        lines = unanswered(kproxy)
    assert (SLOW_JOIN in lines) == mock


def test_limit_without_pthread_kill_interrupts(kproxy: Kproxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows lacks it: the next bytecode of the main thread raises."""
    monkeypatch.delattr("signal.pthread_kill")
    limit = TimeLimit(kproxy, 0.05)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come in any of these calls
        limit.start()
        while True:
            sleep(0.01)
    limit.finish()
    assert limit.message.startswith("kproxy_timeout: ")


def test_limit_each_kind_of_test_fails(suite: Suite) -> None:
    """Blocking C clients, asyncio, trio, a thread below trio, fixtures before and after."""
    ran = suite(
        LIMITED
        + """
    def test_blocking(waiting):
        waiting.flush()

    @pytest.mark.asyncio
    async def test_asyncio(waiting):
        await asyncio.Event().wait()

    @pytest.mark.trio
    async def test_trio(waiting):
        await trio.sleep_forever()

    @pytest.mark.trio
    async def test_trio_thread(waiting):
        await trio.to_thread.run_sync(waiting.flush, 1)
        await trio.sleep_forever()

    def test_swallowed(waiting):
        for _ in range(2):
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                pass

    def test_caught(waiting):
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass

    @pytest.fixture
    def slow(waiting):
        threading.Event().wait()

    def test_setup(slow):
        pass

    @pytest.fixture
    def never_ends(waiting):
        yield
        threading.Event().wait()

    def test_teardown(never_ends):
        pass

    def test_goes_on(kproxy):
        producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers})
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
    """
    )
    assert ran.counts == {"failed": 6, "passed": 2, "error": 2}, ran.text
    assert ran.text.count("expected the test to end within 0.05 s") == 8
    assert ran.text.count("\nunanswered: Produce 10 (orders) on connection ") == 8


@pytest.mark.deep
def test_limit_marker_precedes_option_and_ini(suite: Suite) -> None:
    ran = suite(
        """
        import threading

        import pytest

        def test_option(kproxy):
            threading.Event().wait()

        @pytest.mark.kproxy_timeout(0.3)
        def test_marker(kproxy):
            threading.Event().wait()
        """,
        "--kproxy-timeout=0.2",
        ini="kproxy_timeout = 3600",
    )
    assert ran.counts == {"failed": 2}, ran.text
    assert "to end within 0.2 s" in ran.text and "to end within 0.3 s" in ran.text


@pytest.mark.parametrize("given", ["soon", -1, float("nan"), 1e300])
def test_limit_bad_value_is_an_error(request: pytest.FixtureRequest, given: Any) -> None:
    item = SimpleNamespace(get_closest_marker=lambda name: pytest.mark.kproxy_timeout(given).mark, nodeid="x")
    with pytest.raises(pytest.UsageError, match=r"kproxy_timeout: expected seconds, 0 or more, got .* \(at x\)"):
        time_limit(request.config, item)


def test_limit_uninterruptible_test_ends_the_process(suite: Suite) -> None:
    """A call that ignores signals and closed connections: the reason and all stacks are written."""
    ran = suite(
        """
        import signal
        import time

        import pytest
        from kproxy.testing import time_limit

        @pytest.mark.kproxy_timeout(0.1)
        def test_it(kproxy, monkeypatch):
            monkeypatch.setattr(time_limit, "GRACE", 0.2)
            monkeypatch.setattr(time_limit, "AGAIN", 0.1)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            time.sleep(3600)
        """,
        "-s",
    )
    assert "expected the test to end within 0.1 s" in ran.text and "the process exits" in ran.text
    assert "test_suite.py" in ran.text.partition("the process exits")[2]
