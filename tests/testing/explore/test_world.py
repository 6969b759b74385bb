"""The world of a run: what is told of it at its end, and what is proved."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kproxy.testing.cluster import MockCluster
from kproxy.testing.embedded import Embedded
from kproxy.testing.explore.model import ExchangePlace, FaultPlan, PlaceMark, PlannedFault
from kproxy.testing.explore.plan import fault_table
from kproxy.testing.explore.runs.child import RunJob
from kproxy.testing.explore.runs.sandbox import RunWorld, imported_clients
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


def test_rules_are_in_force_before_the_test_has_its_view(
    kproxy_engine: Embedded, kproxy_cluster: MockCluster, tmp_path: Path
) -> None:
    """Fixtures of a module connect before; whatever the test loads and clears, the plan and the names stay, and the
    ordinals go on."""
    lost = next(fault for fault in fault_table().all if fault.name == "Produce: answer lost")
    plan = FaultPlan((PlannedFault(ExchangePlace("Produce", mark=PlaceMark("ordinal", 2)), lost),))
    world = RunWorld(Kproxy(kproxy_engine), RunJob(1, 10.0, plan, prefix="x1-1."), shared=True)
    world.begin()
    settings = {"bootstrap.servers": kproxy_engine.bootstrap_servers, "linger.ms": 0, "log_level": 0}
    producer = Producer(settings | {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50})
    producer.produce("in", b"of a fixture", partition=0)
    assert producer.flush(20) == 0

    view = Kproxy(kproxy_engine)
    view.have_own_names("test_it")
    world.show(view)
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n- {name: slow, kind: delay, delay: 1ms, match: {api: Produce}}\n")
    view.load(rules)
    producer.produce("in", b"of the test", partition=0)
    assert producer.flush(20) == 0
    view.delete_own_topics()
    view.clear()

    assert view.faults.transient and view.prefix == "x1-1."
    assert world.answer("passed", 1.0).run.exercised
    (topic,) = AdminClient({"bootstrap.servers": kproxy_cluster.bootstrap}).list_topics(timeout=60).topics
    assert topic == "x1-1.in"


def test_what_cannot_be_verified_is_broken(kproxy: Kproxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of kproxy's own is told as one, and no run counts as passed that was not judged."""
    world = world_of(kproxy)
    monkeypatch.setattr(kproxy, "findings", lambda **asked: 1 / 0)

    run = world.answer("passed", 1.0).run

    assert run.ended == "broken" and "cannot be verified: ZeroDivisionError" in run.problem


def test_world_names_imported_libraries_that_send_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "aiokafka", raising=False)
    assert imported_clients() == []
    monkeypatch.setitem(sys.modules, "aiokafka", SimpleNamespace(__version__="0.14.0"))
    assert imported_clients() == ["aiokafka-0.14.0"]
