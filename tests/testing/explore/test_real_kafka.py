"""Planted programs on a real Kafka that all runs share, each with names of its own. `KPROXY_TEST_ALL=1` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kproxy.base.jars import java
from kproxy.testing.kafka import Kafka, archive_options, kafka_libs
from tests.support.java_program import JVM, compile_java
from tests.testing.explore.conftest import PLANTED, Explorations
from tests.testing.explore.test_planted import Planted, assert_found, is_of_client

pytestmark = [pytest.mark.kafka, pytest.mark.deep]
ON_KAFKA = [
    Planted("retries_by_hand", 6, "doubled", "Produce #1", ("--faults=transient", "--first")),
    Planted("commits_first", 30, "lost", "Produce #1"),
    Planted("no_rewind", 26, "lost", "TxnOffsetCommit", ("--faults=transient", "--limit=40s")),  # librdkafka hangs, too
    Planted("nothing_is_the_end", 6, "lost", "Fetch", ("--one-batch-per-fetch", "--first")),
    Planted("looks_away", 102, "lost", "; ", ("--faults=transient", "--first")),
]


RIGHT = ["retries_by_hand", "commits_first", "commits_beyond", "nothing_is_the_end", "looks_away"]
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
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap("DIRECT")}).list_topics(timeout=60).topics
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
    librdkafka does, whatever a program does. The transactional one is left out: where the answer to a Produce is lost
    librdkafka hangs until the limit, and a quarter of an hour was not enough.
    """
    explorations.write("conftest.py", conftest(kafka))
    told = explorations.explore(f"{file}.py::test_right", "--for=600s", f"--runs={RUNS}", "--depth=1")
    assert [one for one in told.findings if not is_of_client(one)] == [], told.text
    (test,) = told.tests
    assert len(test["runs"]) == RUNS or not test["left"], told.text


@pytest.fixture(scope="module")
def revoked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return revoked_in(tmp_path_factory.mktemp("java"))


def revoked_in(classes: Path) -> list[str]:
    """The command of a Java consumer, compiled into a folder, that is told how it is to commit."""
    libs = kafka_libs()
    compile_java([PLANTED / "java" / "Revoked.java"], libs, classes)
    return [java(), *archive_options(libs), *JVM, "-cp", f"{libs}/*:{classes}", "Revoked"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["planted", "right"])
def test_a_java_consumer_that_commits_what_it_has_not_done(
    explorations: Explorations, kafka: Kafka, revoked: list[str], how: str
) -> None:
    """When its partition is taken away it commits as far as it has read. Put right, nothing is found."""
    told = explorations.explore_command(
        f"--upstream={kafka.bootstrap('DIRECT')}", f"--before={sys.executable} seed.py", "--jobs=2", "--depth=1",
        "--faults=transient", "--only=api=Heartbeat", "--runs=12", "--for=400s", "--first", "--", *revoked, how,
    )  # fmt: skip
    if how == "right":
        assert told.code == 0, told.text
        assert told.findings == []
        return
    assert told.code == 1, told.text
    (finding,) = told.findings
    assert "lost" in finding["signature"]["message"], told.text
    assert "Heartbeat" in finding["smallest"]["text"]
