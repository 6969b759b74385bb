"""The plugin as other projects have it: suites of their own, run by a pytest of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import free_port

pytestmark = pytest.mark.process

Suite = Callable[..., Any]

FAILING = """
    from confluent_kafka import Producer

    def test_it(kproxy):
        with kproxy.inject("delay", delay="1ms", match={"api": "Produce"}, when={"probability": 0.5}):
            producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers})
            producer.produce("orders", b"1")
            assert producer.flush(20) == 0
        kproxy.inject("error", error="NOT_LEADER_OR_FOLLOWER", match={"api": "Fetch"})
        assert 1 == 2
"""


def test_a_failed_test_shows_what_there_was(suite: Suite) -> None:
    """Seed, rules with their counters, and what went through; the seed is the same in every run."""
    first, second = suite(FAILING), suite(FAILING, "-p", "no:asyncio", "-p", "no:trio", "-p", "no:xdist")

    section = first.text.partition("- kproxy -")[2]
    assert first.counts == second.counts == {"failed": 1}
    seeds = [re.findall(r"^seed (\d+) .*--kproxy-seed=\1\)$", ran.text, re.MULTILINE) for ran in (first, second)]
    assert len(seeds[0]) == 1 and seeds[0] == seeds[1]
    assert re.search(r'rule "delay 1" \(removed\): matched 1, fired ([01]), applied \1\n', section)
    assert 'rule "error 1": matched 0, fired 0, applied 0\n' in section
    assert "  inject('error', error='NOT_LEADER_OR_FOLLOWER', match={'api': 'Fetch'})\n" in section
    assert "Produce 10 (orders)" in section


def test_a_seed_can_be_given(suite: Suite) -> None:
    """Each test else has its own."""
    tests = """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_seed(kproxy, number, record_property):
            rule = kproxy.inject("delay", delay=0, when={"probability": 0.5})
            print("seed:", kproxy.seed, rule.running.seed)
    """

    own, given = suite(tests, "-s"), suite(tests, "-s", "--kproxy-seed=7")

    seeds = re.findall(r"seed: (\d+) (\d+)", own.text)
    assert len(set(seeds)) == 3 and all(one == other for one, other in seeds)
    assert re.findall(r"seed: (\d+) (\d+)", given.text) == [("7", "7")] * 3


def test_nothing_is_left_of_a_test(suite: Suite) -> None:
    """Also where one proxy serves all of them, and a client stays connected."""
    ran = suite(
        """
        import pytest
        from confluent_kafka import Producer

        @pytest.fixture(scope="session")
        def producer(kproxy_engine):
            return Producer({"bootstrap.servers": kproxy_engine.bootstrap_servers})

        @pytest.mark.parametrize("number", range(3))
        def test_it(kproxy, producer, number):
            assert kproxy.rules == [] and kproxy.exchanges(api="Produce") == []
            kproxy.inject("delay", delay="1ms", match={"api": "Produce"})
            producer.produce("orders", b"1")
            assert producer.flush(20) == 0
            kproxy.assert_applied("delay 1")
            assert [one.topics for one in kproxy.exchanges(api="Produce")] == [["orders"]]
        """,
        ini="kproxy_scope = session",
    )

    assert ran.counts == {"passed": 3}, ran.text


def test_workers_of_xdist_do_not_meet(suite: Suite) -> None:
    """Each test has its own ports and its own cluster, whichever worker runs it."""
    ran = suite(
        """
        import pytest
        from confluent_kafka import Producer

        @pytest.mark.parametrize("number", range(4))
        def test_it(kproxy, kproxy_cluster, number):
            kproxy_cluster.create_topic("orders", partitions=1)
            producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers})
            rule = kproxy.inject("error", error=6, match={"api": "Produce"}, when={"nth": 2})
            for _ in range(3):
                producer.produce("orders", b"%d" % number)
                assert producer.flush(20) == 0
            assert rule.applied == 1 and rule.matched == 4
            writes = kproxy.exchanges(api="Produce")
            assert {record.value for write in writes for record in write.records} == {b"%d" % number}
        """,
        "-n2",
    )

    assert ran.counts == {"passed": 4}, ran.text
    assert "2 workers" in ran.text


@pytest.mark.deep
@pytest.mark.parametrize("way", ["option", "ini", "fixture"])
def test_in_front_of_a_given_cluster(suite: Suite, mock_cluster: MockCluster, way: str) -> None:
    address = mock_cluster.bootstrap.partition(",")[0]
    conftest = f"import pytest\n@pytest.fixture\ndef kproxy_upstream():\n    return {address!r}\n"

    ran = suite(
        f"""
        from kproxy.testing import cluster

        def test_it(kproxy, monkeypatch):
            assert kproxy.upstream == {address!r} and cluster._library.cache_info().misses == 0
        """,
        *([f"--kproxy-upstream={address}"] if way == "option" else []),
        conftest=conftest if way == "fixture" else "",
        ini=f"kproxy_upstream = {address}" if way == "ini" else "",
    )

    assert ran.counts == {"passed": 1}, ran.text


def test_a_given_cluster_that_is_not_there(suite: Suite) -> None:
    """The test fails at once, and says what does not answer."""
    address = f"127.0.0.1:{free_port()}"

    ran = suite("def test_it(kproxy): pass", f"--kproxy-upstream={address}")

    assert ran.counts == {"error": 1}
    assert f"kproxy cannot start: no broker of the upstream {address} answers" in ran.text


def test_the_embedded_cluster_without_its_library(suite: Suite) -> None:
    """What to install, and what to do instead."""
    ran = suite("def test_it(kproxy): pass", conftest="import sys\nsys.modules['confluent_kafka'] = None\n")

    assert ran.counts == {"error": 1}
    assert "embedded cluster cannot start: confluent-kafka is not installed: pip install '.[pytest]'" in ran.text
    assert "--kproxy-upstream=HOST:PORT" in ran.text


def test_rule_files(suite: Suite, tmp_path: Path) -> None:
    """By markers, from the folder of the test or the root, and before what a test loads; one with a mistake is told."""
    for name, number in (("marked", 5), ("loaded", 6)):
        rule = {"name": name, "kind": "error", "error": number, "match": {"api": "Produce"}, "when": {"once": True}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"rules": [rule]}))

    ran = suite(
        f"""
        import pytest
        from confluent_kafka import Producer

        @pytest.mark.kproxy_rules("marked.yaml")
        def test_it(kproxy):
            kproxy.load({str(tmp_path / "loaded.yaml")!r})
            producer = Producer({{"bootstrap.servers": kproxy.bootstrap_servers, "retry.backoff.ms": 20}})
            producer.produce("orders", b"1")
            assert producer.flush(20) == 0
            assert [one.errors for one in kproxy.exchanges(api="Produce")] == [
                ["LEADER_NOT_AVAILABLE"], ["NOT_LEADER_OR_FOLLOWER"], []
            ]
            assert kproxy.rule("marked").applied == kproxy.rule("loaded").applied == 1

        @pytest.mark.kproxy_rules("none.yaml")
        def test_none(kproxy):
            pass
        """
    )

    assert ran.counts == {"passed": 1, "error": 1}, ran.text
    assert "the rules of this test cannot be loaded: " in ran.text and "none.yaml" in ran.text


def test_a_scope_that_is_none(suite: Suite) -> None:
    """What is allowed is said."""
    ran = suite("def test_it(kproxy): pass", ini="kproxy_scope = forever")

    assert "expected kproxy_scope as one of function, class, module, package, session, got 'forever'" in ran.text


def test_who_does_not_use_it_does_not_pay_for_it(suite: Suite) -> None:
    """Nothing of the proxy is imported until a fixture is asked for."""
    ran = suite(
        """
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.startswith("kproxy")}
            explore = {"kproxy.testing.explore.pytest_plugin", "kproxy.testing.explore.options"}
            plugins = {"kproxy.testing.pytest_plugin", *explore}
            assert ours == {"kproxy", "kproxy.testing", "kproxy.testing.explore"} | plugins
        """
    )

    assert ran.counts == {"passed": 1}, ran.text
