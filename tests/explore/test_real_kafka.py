"""Planted programs on a real Kafka that all runs share, each with names of its own. `KPROXY_TEST_ALL=1` runs them."""

from __future__ import annotations

import os

import pytest
from confluent_kafka.admin import AdminClient

from kproxy.testing.kafka import Kafka
from tests.explore.conftest import Explorations
from tests.explore.test_planted import Planted, assert_found, is_of_client

pytestmark = pytest.mark.skipif(
    not os.environ.get("KPROXY_TEST_ALL"), reason="explorations of minutes: KPROXY_TEST_ALL=1 runs them"
)
ON_KAFKA = [
    Planted("retries_by_hand", 6, "doubled", "Produce #1", ("--faults=transient", "--first")),
    Planted("commits_first", 30, "lost", "Produce #1"),
    Planted("no_rewind", 26, "lost", "TxnOffsetCommit", ("--faults=transient", "--limit=40s")),  # librdkafka hangs, too
    Planted("nothing_is_the_end", 6, "lost", "Fetch", ("--drip", "--first")),
    Planted("looks_away", 102, "lost", "; ", ("--faults=transient", "--first")),
]


RIGHT = ["retries_by_hand", "commits_first", "commits_beyond", "no_rewind", "nothing_is_the_end"]
RUNS = 300


def conftest(kafka: Kafka) -> str:
    """A fixture for the cluster that lives as long as the session, so that it is set up once."""
    return f"""
        import pytest

        @pytest.fixture(scope="session")
        def cluster(tmp_path_factory):
            with (tmp_path_factory.getbasetemp().parent / "starts").open("a") as file:
                file.write("started\\n")
            return {kafka.bootstrap("PROXIED")!r}

        @pytest.fixture(scope="session")
        def kproxy_upstream(cluster):
            return cluster
    """


def left_topics(kafka: Kafka) -> set[str]:
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap("DIRECT")}).list_topics(timeout=20).topics
    return {name for name in topics if not name.startswith("__")}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("planted", ON_KAFKA, ids=str)
def test_it_is_found(explorations: Explorations, kafka: Kafka, planted: Planted) -> None:
    """In time; no run sees another, and no topic stays."""
    before = left_topics(kafka)
    explorations.write("conftest.py", conftest(kafka))
    assert_found(explorations, planted)
    assert left_topics(kafka) == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", RIGHT)
def test_nothing_is_found_in_what_is_right(explorations: Explorations, kafka: Kafka, file: str) -> None:
    """In so many runs of each program, put right, with one fault each, or all plans that there are; but for what
    librdkafka does, whatever a program does."""
    explorations.write("conftest.py", conftest(kafka))
    told = explorations.explore(f"{file}.py::test_right", "--for=600s", f"--runs={RUNS}", "--depth=1")
    assert [one for one in told.findings if not is_of_client(one)] == [], told.text
    (test,) = told.tests
    assert test["runs"] == RUNS or not test["left"], told.text
