"""What the plugin tells: mistakes by their field, why a frame cannot be read, what is slow, what is fetched."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kproxy.protocol.table.api_keys import METADATA
from kproxy.testing.inject import Kproxy
from kproxy.testing.one_request import ask
from kproxy.testing.rule_arguments import Misuse

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"when": {"nth": "three"}}, "when.nth: expected a list"),
        ({"when": {"first": -1}}, "when.first: expected at least 1"),
        ({"when": {"first": 1, "nope": 1}}, 'when.nope: unknown key "nope"'),
        ({"when": "x"}, "when: expected a mapping"),
        ({"match": {"api": "Produce", "partition": "x"}}, "match.partition: "),
        ({"match": {}, "error": "NOPE"}, "error: "),
    ],
)
def test_mistakes_name_their_field(kproxy: Kproxy, given: dict[str, Any], said: str) -> None:
    """Also those inside of an argument."""
    with pytest.raises(Misuse) as caught:
        kproxy.inject("error", **{"error": "NOT_LEADER_OR_FOLLOWER", "match": {"api": "Produce"}, **given})
    assert f"inject('error'): {said}" in str(caught.value)


def test_a_slow_function_is_no_failure(kproxy: Kproxy, produce: Callable[..., None]) -> None:
    """It is told with a failed test, and is no warning, which may be an error."""

    def slow(exchange: Any, message: Any) -> None:
        time.sleep(0.02)

    rule = kproxy.inject("python", call=slow, match={"api": "Produce"})
    produce(kproxy.bootstrap_servers, "orders", b"one")
    assert rule.problems == []
    assert len(rule.notes) == 1 and rule.notes[0].startswith("slow, once: ")
    assert "slow, once" in kproxy.report() and "failed" not in kproxy.report()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kproxy.clear()


def test_a_function_that_raises_is_one(kproxy: Kproxy, produce: Callable[..., None]) -> None:
    """Once, in its own words."""

    def wrong(exchange: Any, message: Any) -> None:
        raise ValueError("so it is")

    rule = kproxy.inject("python", call=wrong, match={"api": "Produce"})
    produce(kproxy.bootstrap_servers, "orders", b"one")
    (problem,) = rule.problems
    assert problem.startswith("hook_failed, once: ") and "ValueError: so it is" in problem
    rule.running.effect.failed.count = 0


def test_nothing_is_called_unreadable(kproxy: Kproxy, produce: Callable[..., None]) -> None:
    """A version that the broker lacks is that; what a rule has spoilt says how."""
    produce(kproxy.bootstrap_servers, "orders", b"one")
    assert "ApiVersions 3 → UNSUPPORTED_VERSION" in kproxy.report()
    assert "unreadable" not in kproxy.report() and "cannot be read" not in kproxy.report()
    kproxy.inject("short_body", match={"api": "Metadata"}, bytes=4)
    Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0}).poll(1)
    assert "cannot be read (Metadata" in kproxy.report()


@pytest.mark.parametrize("count", [1, 40])
def test_report_rules_of_files_are_listed(
    kproxy: Kproxy, produce: Callable[..., None], tmp_path: Path, count: int
) -> None:
    """Matching rules first; a file of any length adds a bounded number of lines."""
    rules = [{"name": f"rule {n}", "kind": "delay", "delay": 0, "match": {"topic": f"t{n}"}} for n in range(count)]
    rules.append({"name": "writes", "kind": "delay", "delay": "1ms", "match": {"api": "Produce"}})
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": rules}))
    kproxy.load(tmp_path / "rules.yaml")
    produce(kproxy.bootstrap_servers, "orders", b"one")

    lines = kproxy.report().splitlines()

    assert lines[2] == 'rule "writes": matched 1, fired 1, applied 1'
    assert lines[3].startswith(f"  {tmp_path / 'rules.yaml'}:1:") and lines[3].endswith("match={'api': 'Produce'}")
    assert len([line for line in lines if line.startswith("rule ")]) == 1 + min(count, 12)
    assert ("and 28 more rules of files, which matched nothing" in lines) == (count == 40)


@pytest.mark.parametrize("at", ["request", "response"])
def test_assert_applied_client_left_is_named(kproxy: Kproxy, at: str) -> None:
    """The client closed the connection before its delayed response was sent."""
    rule = kproxy.inject("delay", delay="1h", at=at, match={"api": "Metadata"})
    body = {"topics": [], "allow_auto_topic_creation": False}
    with pytest.raises(TimeoutError):
        ask(kproxy.bootstrap_servers, METADATA, 4, body, timeout=0.2)
    kproxy.wait(rule, count="fired")
    await_true(lambda: any(one.taken.cut_by for one in kproxy.exchanges(api="Metadata")))

    with pytest.raises(AssertionError, match=r"the client closed the connection \(client_closed\) before"):
        kproxy.assert_applied(rule)


def test_assert_applied_other_close_is_named(kproxy: Kproxy) -> None:
    """Another rule closed the connection before the response was sent."""
    rule = kproxy.inject("delay", delay="1ms", match={"api": "Metadata"})
    kproxy.inject("disconnect", match={"api": "Metadata"}, at="response")
    with pytest.raises(ConnectionError):
        ask(kproxy.bootstrap_servers, METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
    await_true(lambda: any(one.taken.cut_by for one in kproxy.exchanges(api="Metadata")))
    (taken,) = [one.taken for one in kproxy.exchanges(api="Metadata")]
    assert taken.cut_by == "rule" and rule.name in taken.rules


def await_true(condition: Callable[[], bool]) -> None:
    """Poll for a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_assert_applied_held_request_is_named(kproxy: Kproxy) -> None:
    rule = kproxy.hold(match={"api": "Metadata"})
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    await_true(lambda: bool(producer.poll(0.01) or rule.fired))
    with pytest.raises(AssertionError, match="held by this rule or still unanswered, the connection is open"):
        kproxy.assert_applied(rule)


def test_assert_applied_unchanged_frame_is_named(kproxy: Kproxy, produce: Callable[..., None]) -> None:
    """The rule fired, and its requests were answered without a change."""
    rule = kproxy.inject("python", call=lambda exchange, message: None, match={"api": "Produce"})
    produce(kproxy.bootstrap_servers, "orders", b"one")
    with pytest.raises(AssertionError, match="it fired, and had nothing to change"):
        kproxy.assert_applied(rule)


def test_names_of_ones_own(kproxy: Kproxy, kproxy_upstream: str, produce: Callable[..., None]) -> None:
    """On the brokers they begin with a prefix, which names the test and is another one each time."""
    kproxy.have_own_names("test_x[a/b]")
    assert kproxy.prefix.startswith("test-x-a-b-") and len(kproxy.prefix) == len("test-x-a-b-") + 9
    produce(kproxy.bootstrap_servers, "orders", b"one")
    topics = Producer({"bootstrap.servers": kproxy_upstream}).list_topics(timeout=60).topics
    assert f"{kproxy.prefix}orders" in topics and "orders" not in topics
    before = kproxy.prefix
    kproxy.clear()
    kproxy.have_own_names("test_x[a/b]")
    assert kproxy.prefix != before


def test_topics_that_cannot_be_deleted_are_told(
    kproxy: Kproxy, produce: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock deletes none."""
    monkeypatch.setattr("kproxy.testing.inject.PATIENCE", 2.0)
    kproxy.have_own_names("t")
    produce(kproxy.bootstrap_servers, "orders", b"one")
    with pytest.warns(UserWarning, match='topics whose names begin with "t-.*" stay on '):
        kproxy.delete_own_topics()


MARKED = """
    import pytest

    @pytest.mark.kproxy_own_names
    def test_it(kproxy):
        assert kproxy.prefix
    """
BARE = """
    def test_it(kproxy):
        assert kproxy.prefix
    """


@pytest.mark.deep
@pytest.mark.parametrize(("tests", "ini"), [(MARKED, ""), (BARE, "kproxy_own_names = true\n")])
def test_one_word(suite: Callable[..., Any], tests: str, ini: str) -> None:
    """The marker, and the option for all tests."""
    ran = suite(tests, "--strict-markers", ini=ini)
    assert ran.counts == {"passed": 1}, ran.text


def test_what_is_fetched_is_told_on_the_terminal(suite: Callable[..., Any]) -> None:
    """Though pytest catches what tests print: who waits for minutes sees for what."""
    ran = suite(
        """
        from kproxy.base import jars

        def test_it():
            print("caught")
            jars.telling[-1]("kproxy: fetching the jars of Kafka")
        """,
        conftest='pytest_plugins = ["kproxy.testing.plugin"]',
    )
    assert ran.counts == {"passed": 1}
    assert "kproxy: fetching the jars of Kafka" in ran.text and "caught" not in ran.text
