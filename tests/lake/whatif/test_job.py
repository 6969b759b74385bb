"""The what-if job on captures: what rules would have done, to whom; the same however the work is divided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kproxy.base.errors import DocumentError, LakeError
from kproxy.lake.whatif.job import WhatIf, whatif
from kproxy.record.captures.captured_connection import CapturedConnection, TopicIdNames
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import Form, Frame, ObservedExchange
from kproxy.tools.rehearse.dialogue import request, response

RULES = """
rules:
  - {name: names, kind: rename_topic, topics: {orders: prod.orders}}
  - name: every fourth
    kind: error
    match: {api: Produce, topic: clicks}
    when: {every: 4, count_scope: connection}
    error: NOT_LEADER_OR_FOLLOWER
  - {name: never, kind: delay, match: {api: Heartbeat}, delay: 1s}
"""
SERVER = ("10.9.9.9", 9092)
CONNECTIONS, WRITES = 6, 20
BEGAN = 1_700_000_000.0


def written(path: Path, payload: Any = "full") -> str:
    """Connections that write in turn; those with even numbers to clicks, the others to orders."""
    names = TopicIdNames()
    callers = [
        CapturedConnection(number, "client", f"10.0.0.{number}", 20000 + number, *SERVER, BEGAN, names)
        for number in range(1, CONNECTIONS + 1)
    ]
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy(payload))
        for count in range(1, WRITES + 1):
            for who in callers:
                writer.write(write(who, count), SERVER)
    return str(path)


def write(who: CapturedConnection, count: int) -> ObservedExchange:
    topic = "orders" if who.number % 2 else "clicks"
    when = BEGAN + count + who.number / 100
    parts = [{"index": 0, "records": None}]
    asked = request(0, 9, count, f"writer-{who.number}", acks=-1, topic_data=[{"name": topic, "partition_data": parts}])
    said = [{"name": topic, "partition_responses": [{"index": 0, "base_offset": count}]}]
    answer = response(0, 9, count, responses=said)
    return ObservedExchange(
        who, count, 0, 9, count, f"writer-{who.number}",
        Frame(len(asked), when, when, asked[4:], Form.WHOLE),
        Frame(len(answer), when + 0.005, when + 0.005, answer[4:], Form.WHOLE),
        outcome="answered", acks=-1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("captures") / "a.pcapng")


@pytest.fixture(scope="module")
def found(spark: SparkSession, capture: str) -> WhatIf:
    """Divided among two tasks; the rules count per connection, so that changes nothing."""
    return whatif(spark, [capture], [("r.yaml", RULES)], tasks=2)


def rules_of(found: WhatIf) -> dict[str, dict[str, Any]]:
    return {row["rule"]: row.asDict() for row in found.rules.collect()}


def test_what_each_rule_would_have_done(found: WhatIf) -> None:
    """A rename, an error, and a rule that is about nothing in the recording."""
    rules = rules_of(found)
    assert (found.exchanges, found.unfit) == (CONNECTIONS * WRITES, {})
    assert (rules["names"]["requests"], rules["names"]["changed"], rules["names"]["topics"]) == (60, 60, 1)
    fourth = rules["every fourth"]
    assert (fourth["matched"], fourth["fired"], fourth["answered"], fourth["clients"]) == (60, 15, 15, 3)
    assert fourth["approximate"] is False
    never = rules["never"]
    assert (never["matched"], never["requests"]) == (0, None)


def test_whom_it_would_have_affected(found: WhatIf) -> None:
    """Clients and topics, with the first of what was found as samples."""
    affected = {
        (row["rule"], row["client_id"], row["api"], row["topic"]): row["requests"] for row in found.affected.collect()
    }
    assert affected[("every fourth", "writer-2", "Produce", "clicks")] == 5
    assert affected[("names", "writer-1", "Produce", "orders")] == 20
    samples = [row for row in found.samples.collect() if row["rule"] == "every fourth"]
    assert [(row["client_id"], row["number"]) for row in samples] == [
        ("writer-2", 4), ("writer-4", 4), ("writer-6", 4), ("writer-2", 8), ("writer-4", 8),
    ]  # fmt: skip


@pytest.mark.deep
def test_a_rule_that_counts_over_all_connections_is_mentioned_as_approximate(spark: SparkSession, capture: str) -> None:
    """Each task has some of the connections only."""
    rule = "rules: [{name: r, kind: error, match: {topic: clicks}, when: {nth: 4}, error: NOT_LEADER_OR_FOLLOWER}]"

    assert rules_of(whatif(spark, [capture], [("r.yaml", rule)]))["r"]["approximate"] is True


def test_what_was_not_recorded_whole_is_counted_by_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    """A capture of heads has no bodies to rehearse."""
    found = whatif(spark, [written(tmp_path / "heads.pcapng", "none")], [("r.yaml", RULES)])

    assert found.exchanges == 0
    assert sum(found.unfit.values()) == CONNECTIONS * WRITES


def test_mistakes_are_told_before_any_work(spark: SparkSession, capture: str, tmp_path: Path) -> None:
    """In the rules, with their place; and when there is no capture."""
    with pytest.raises(DocumentError, match=r"r\.yaml:1:25: unknown kind"):
        whatif(spark, [capture], [("r.yaml", "rules: [{name: a, kind: dely}]")])
    with pytest.raises(LakeError, match="no capture at"):
        whatif(spark, [str(tmp_path / "*.pcapng")], [("r.yaml", RULES)])
