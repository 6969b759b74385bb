"""The world of a run: what is told of it at its end, and what is proved."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kproxy.explore.faults import fault_table
from kproxy.explore.model import ExchangePlace, FaultPlan, PlannedFault
from kproxy.explore.runs.messages import RunJob
from kproxy.explore.runs.world import RunWorld
from kproxy.testing.inject import Kproxy

OFFSET = TopicPartition("in", 0, 5)


def world_of(kproxy: Kproxy, plan: FaultPlan = FaultPlan()) -> RunWorld:  # noqa: B008  # it is frozen
    """Begin a run in the world of this test, and write a record in it."""
    world = RunWorld(kproxy, RunJob(1, 10.0, plan), shared=False)
    world.begin()
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "linger.ms": 0})
    producer.produce("in", b"one", partition=0)
    assert producer.flush(20) == 0
    return world


def consumer(kproxy: Kproxy) -> Consumer:
    return Consumer({"bootstrap.servers": kproxy.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})


def test_what_is_proved_is_told(kproxy: Kproxy) -> None:
    """Whatever the test says: it has passed, and has committed what nobody can have read."""
    world = world_of(kproxy)
    own = consumer(kproxy)
    own.assign([TopicPartition("in", 0, 0)])
    assert own.poll(20) is not None
    own.commit(offsets=[OFFSET], asynchronous=False)

    run = world.answer("passed", 1.0).run

    assert [(one.check, one.text.partition(":")[0]) for one in run.violations] == [("commit-beyond", "group g, in[0]")]


def test_what_a_fault_has_made_is_proved_of_nobody(kproxy: Kproxy) -> None:
    """A lie about a committed offset breaks a guarantee in the eyes of the client; the brokers have kept it."""
    lie = next(fault for fault in fault_table().all if fault.name == "OffsetFetch: one back")
    world = world_of(kproxy, FaultPlan((PlannedFault(ExchangePlace("OffsetFetch"), lie),)))
    own = consumer(kproxy)
    own.commit(offsets=[TopicPartition("in", 0, 1)], asynchronous=False)
    (told,) = own.committed([OFFSET], 20)

    run = world.answer("passed", 1.0).run

    assert told.offset == 0 and run.exercised
    assert [one.check for one in kproxy.findings(level="proved")] == ["lost-commit"]
    assert run.violations == ()


def test_what_cannot_be_verified_is_broken(kproxy: Kproxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of kproxy's own is told as one, and no run counts as passed that was not judged."""
    world = world_of(kproxy)
    monkeypatch.setattr(kproxy, "findings", lambda **asked: 1 / 0)

    run = world.answer("passed", 1.0).run

    assert run.ended == "broken" and "cannot be verified: ZeroDivisionError" in run.problem
