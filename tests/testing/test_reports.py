"""What the plugin tells: mistakes by their field, why a frame cannot be read, what is slow, what is fetched."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kproxy.testing.inject import Kproxy
from kproxy.testing.rule_arguments import Misuse


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"when": {"nth": "three"}}, "when.nth: a list is wanted"),
        ({"when": {"first": -1}}, "when.first: must be at least 1"),
        ({"when": {"first": 1, "nope": 1}}, 'when.nope: unknown key "nope"'),
        ({"when": "x"}, "when: a mapping is wanted"),
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


def test_names_of_ones_own(kproxy: Kproxy, kproxy_upstream: str, produce: Callable[..., None]) -> None:
    """On the brokers they begin with a prefix, which names the test and is another one each time."""
    kproxy.have_own_names("test_x[a/b]")
    assert kproxy.prefix.startswith("test-x-a-b-") and len(kproxy.prefix) == len("test-x-a-b-") + 9
    produce(kproxy.bootstrap_servers, "orders", b"one")
    topics = Producer({"bootstrap.servers": kproxy_upstream}).list_topics(timeout=10).topics
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


@pytest.mark.parametrize(("tests", "ini"), [(MARKED, ""), (BARE, "kproxy_own_names = true\n")])
def test_one_word(suite: Callable[..., Any], tests: str, ini: str) -> None:
    """The marker, and the option for all tests."""
    ran = suite(tests, "--strict-markers", ini=ini)
    assert ran.counts == {"passed": 1}, ran.text


def test_what_is_fetched_is_told_on_the_terminal(suite: Callable[..., Any]) -> None:
    """Though pytest catches what tests print: who waits for minutes sees for what."""
    ran = suite(
        """
        from kproxy import jars

        def test_it():
            print("caught")
            jars.telling[-1]("kproxy: fetching the jars of Kafka")
        """,
        conftest='pytest_plugins = ["kproxy.testing.plugin"]',
    )
    assert ran.counts == {"passed": 1}
    assert "kproxy: fetching the jars of Kafka" in ran.text and "caught" not in ran.text
