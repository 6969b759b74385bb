"""Runs as their tapes tell them: places of real clients, at which rules act again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.protocol.records import Batch, Record, encode_batch
from kproxy.protocol.table.api_keys import OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT
from kproxy.rules.entity import Entity
from kproxy.testing.explore.model import ExploredRun, FaultPlan, PlaceMark, PlannedFault, dumps, loads
from kproxy.testing.explore.plan import fault_table, plan_rules
from kproxy.testing.explore.runs.sandbox import (
    MOST_LINES,
    batches_in,
    describe_run,
    first_entry,
    reads_lost_offsets,
    story_of,
)
from kproxy.testing.inject import Kproxy

CONFIG = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000}


def write(kproxy: Kproxy, topic: str, **config) -> None:
    """Write three records, each alone."""
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "client.id": "writer", **config})
    for number in range(3):
        producer.produce(topic, str(number), partition=0)
        assert producer.flush(20) == 0


def describe(kproxy: Kproxy, **more) -> ExploredRun:
    return describe_run(FaultPlan(), "passed", 1.0, kproxy.exchanges(), **more)


def test_writes_reads_and_commits_have_places(kproxy: Kproxy) -> None:
    """Batches are numbered, fetches and commits have offsets, and each says what it is about and what is in it."""
    write(kproxy, "tape", **{"enable.idempotence": True})
    servers = {"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g", "client.id": "reader"}
    consumer = Consumer({**servers, **CONFIG})
    consumer.subscribe(["tape"])
    read = 0
    while read < 3:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        read += 1
        consumer.commit(message, asynchronous=False)
    consumer.close()

    run = describe(kproxy)

    writes = [place for place in run.places if place.api == "Produce" and place.partition == 0]
    assert [place.mark for place in writes] == [PlaceMark("batch", n, batch=n, again=1) for n in (1, 2, 3)]
    assert {place.topic for place in writes} == {"tape"}
    assert writes[0].client_id == "writer"
    assert writes[0].traits == {"records", "idempotent", "topic"}
    commits = [place for place in run.places if place.api == "OffsetCommit" and place.partition == 0]
    assert [place.mark.offset for place in commits] == [1, 2, 3]
    assert commits[0].group == "g"
    assert commits[0].traits == {"topic", "group", "member"}
    fetches = [place for place in run.places if place.api == "Fetch" and place.mark.offset == 0]
    assert any("records" in place.traits for place in fetches)
    assert run.patience >= 6.0
    assert any("Produce" in line for line in run.story)
    assert run.digest
    assert loads(dumps(run), ExploredRun) == run


def test_a_rule_for_a_place_acts_there(kproxy: Kproxy) -> None:
    """The faults of a plan are applied at its places, each once, and the retry is the same batch again."""
    write(kproxy, "plan")
    second = [place for place in describe(kproxy).places if place.api == "Produce" and place.partition == 0][1]
    kproxy.engine.call(kproxy.engine.tape.clear)
    wanted = "Produce: NOT_LEADER_OR_FOLLOWER, before the work"
    fault = next(one for one in fault_table().all if one.name == wanted)
    again = replace(second, mark=PlaceMark("batch", 3, batch=2, again=2))
    plan = FaultPlan((PlannedFault(second, fault), PlannedFault(again, fault)))
    rules = [kproxy.inject(rule.pop("kind"), **rule) for rule in plan_rules(plan)]

    write(kproxy, "plan")

    assert [rule.applied for rule in rules] == [1, 1]
    run = describe(kproxy)
    marks = [place.mark for place in run.places if place.api == "Produce" and place.partition == 0]
    assert [(mark.batch, mark.again) for mark in marks] == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]
    assert run.errors == ("NOT_LEADER_OR_FOLLOWER",)


def test_what_nobody_answers_says_so(kproxy: Kproxy) -> None:
    """Writes with acks 0 cannot lose an answer."""
    write(kproxy, "silent", acks=0)
    kproxy.engine.call(lambda: None)
    writes = [place for place in describe(kproxy).places if place.api == "Produce"]
    assert len(writes) >= 3
    assert all("unanswered" in place.traits for place in writes)


BATCH = encode_batch([Record(0, 0, b"k", b"v")])


@pytest.mark.parametrize(
    ("records", "number"),
    [
        (None, 0),
        (b"", 0),
        (BATCH, 1),
        (BATCH * 2, 2),
        (BATCH * 9, 2),
        (BATCH[:-1], 1),
        (b"x" * 80, 1),
        (BATCH + b"x" * 80, 1),
    ],
)
def test_batches_are_counted_up_to_two(records: bytes | None, number: int) -> None:
    """One or several: that says whether an answer can have fewer. Damaged ones are as one."""
    assert batches_in(records) == number


@pytest.mark.parametrize("records", [None, b"", b"x" * 80, BATCH[:40]])
def test_damaged_records_have_no_first_batch(records: bytes | None) -> None:
    """What a rule has spoilt is no batch, and no error of the exploration."""
    assert not isinstance(first_entry(records), Batch)
    assert isinstance(first_entry(BATCH), Batch)


class Line:
    """An exchange of which a story has a line."""

    def __init__(self, number: int) -> None:
        self.came, self.client_id = float(number), "app"

    def __str__(self) -> str:
        return "Fetch 16 (in)"


def test_stories_are_bounded() -> None:
    """Of many exchanges the first and the last have lines, and it is said how many there are between."""
    lines = list(story_of([Line(number) for number in range(1000)]))
    assert len(lines) == MOST_LINES + 1
    assert lines[0] == "    0.000 s  app  Fetch 16 (in)"
    assert lines[MOST_LINES // 2] == "… 800 others …"
    assert lines[-1].startswith("  999.000 s")
    assert list(story_of([])) == []


@pytest.mark.parametrize(
    ("requests", "reads"),
    [
        ([(TXN_OFFSET_COMMIT, "g"), (OFFSET_FETCH, "g")], True),
        ([(OFFSET_FETCH, "g"), (TXN_OFFSET_COMMIT, "g")], False),
        ([(TXN_OFFSET_COMMIT, "g"), (OFFSET_FETCH, "other")], False),
        ([(OFFSET_COMMIT, "g"), (OFFSET_FETCH, "g")], False),
    ],
)
def test_reads_lost_offsets_after_a_commit_in_a_transaction(requests: list[tuple[int, str]], reads: bool) -> None:
    made = [SimpleNamespace(key=key, entities=(Entity(group=group),)) for key, group in requests]
    assert reads_lost_offsets(made) == reads
