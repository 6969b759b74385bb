"""The inbox of clients' metrics: payloads wait within bounds, and a connection's end loses none."""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kproxy.app.label_metrics import MOST_WAITING, ClientTelemetry, PushJob
from kproxy.record.metrics.client_telemetry import KAFKA, PushRead, TelemetryConfig
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.session.counters import Counters
from kproxy.session.telemetry import LONGEST_PAYLOAD, TelemetryPush, TelemetrySettings
from tests.support.otlp_metrics import counted, metrics_data, point

MADE = metrics_data(
    counted(f"{KAFKA}producer.connection.creation.total", point(2)),
    counted(f"{KAFKA}consumer.connection.creation.total", temporality=2),
)


class Work:
    """Slow work that is done when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, PushJob, Callable[[], object]]] = []

    def add(self, address: str, job: PushJob, work: Callable[[], object]) -> None:
        self.jobs.append((address, job, work))

    def do(self) -> None:
        for _, job, work in self.jobs:
            assert not job.closed
            job.computed(work())
        self.jobs.clear()


class Process:
    """The part of a process that takes clients' metrics."""

    def __init__(self) -> None:
        self.work, self.counters = Work(), Counters()
        config = TelemetryConfig(labels=[], listeners=["here"])
        self.totals = LabelTotals(MetricsConfig(), config)
        server = cast("Any", SimpleNamespace(reactor=None))
        self.telemetry = ClientTelemetry(config, server, self.counters, self.totals)
        self.telemetry.work = cast("Any", self.work)

    def push(self, payload: bytes = MADE, address: str = "10.0.0.1", client_id: str = "c") -> TelemetryPush:
        return TelemetryPush(payload, 0, UUID(int=9), False, client_id, "", "", "here", address, None, object())


def test_what_is_read_is_added_up_and_forgotten() -> None:
    """Neither the payload nor the connection is kept."""
    process, seen = Process(), list[PushRead]()
    process.telemetry.also = lambda push, read, who: seen.append(read)
    process.telemetry.who = lambda push: {}
    push = process.push()
    assert process.telemetry.put(push)
    assert not push.done
    process.work.do()

    (series,) = process.totals.tables["client_telemetry"].everything()
    assert series.values == {("producer_connection_creation_total", ""): 2}
    assert seen[0].standard == {"producer_connection_creation_total": 2}
    assert process.counters.events == {"telemetry_points_left_out": 1}
    assert (push.done, push.unreadable, push.payload, push.owner) == (True, False, b"", None)
    assert process.telemetry.waiting == 0


def test_what_came_before_events_were_wanted_has_none() -> None:
    """Nobody has noted whose connection it was: an event that does not say so would be of nobody."""
    process, seen = Process(), list[PushRead]()
    process.telemetry.record_in(lambda push, read, who: seen.append(read))
    process.telemetry.put(process.push())
    config = TelemetryConfig(labels=[], listeners=["here"], to=["metrics", "audit"])
    process.telemetry.prepare(config, process.totals)()
    process.work.do()
    assert seen == []
    process.telemetry.who = lambda push: {}
    process.telemetry.put(process.push())
    process.work.do()
    assert len(seen) == 1


def test_names_of_listeners_are_not_searched() -> None:
    """Each connection asks whether its listener is among them, and so does another config for each listener."""

    class Searched(list[str]):
        def __contains__(self, name: object) -> bool:
            raise AssertionError(f"{name} is searched for")

    process = Process()
    config = TelemetryConfig(labels=[]).model_copy(update={"listeners": Searched(["here", "there"])})
    process.telemetry.terms["here"] = terms = TelemetrySettings("auto", 1.0, (), process.telemetry.put)
    process.telemetry.prepare(config, process.totals)()
    assert terms.metrics == config.requested
    assert [process.telemetry.mode(name) for name in ("here", "there", "else")] == ["auto", "auto", ""]


def test_what_cannot_be_read_is_counted() -> None:
    """And the push says so, for the next one of its connection."""
    process = Process()
    push = process.push(b"?")
    process.telemetry.put(push)
    process.work.do()
    assert (push.done, push.unreadable) == (True, True)
    assert process.counters.events == {"telemetry_unreadable": 1}


def test_a_mistake_in_reading_costs_its_payload_only() -> None:
    """The room that it had is free again."""
    process = Process()
    push = process.push()
    process.telemetry.put(push)
    process.work.jobs[0][1].crashed(RuntimeError())
    assert (push.done, push.unreadable, process.telemetry.waiting) == (True, True, 0)


@pytest.mark.parametrize("size", [1, LONGEST_PAYLOAD])
def test_so_many_bytes_wait_at_most(size: int) -> None:
    """Also if they come one by one on any number of connections."""
    process = Process()
    taken = 0
    while process.telemetry.put(process.push(bytes(size), f"10.0.0.{taken % 5}")):
        taken += 1
    assert taken * size <= MOST_WAITING
    assert taken < 20_000
    assert process.counters.events == {"telemetry_without_room": 1}
    process.work.do()
    assert process.telemetry.put(process.push())


def test_names_that_clients_choose_count_too() -> None:
    """A client id has 32 KiB, in a payload of a byte; in memory a character has up to four."""
    process, name = Process(), "\U0001f600" * 8000
    taken = 0
    while process.telemetry.put(process.push(b"?", f"10.0.0.{taken % 5}", name)):
        taken += 1
    assert taken * getsizeof(name) <= MOST_WAITING


def test_one_address_leaves_room_for_others() -> None:
    """However much it sends, on whatever connections, and from whatever address of its network."""
    process = Process()
    while process.telemetry.put(process.push(bytes(LONGEST_PAYLOAD // 2), "2001:db8::1")):
        pass
    assert not process.telemetry.put(process.push(bytes(LONGEST_PAYLOAD // 2), "2001:db8::2"))
    assert process.telemetry.put(process.push(bytes(LONGEST_PAYLOAD), "2001:db8:1::1"))
    process.work.do()
    assert (process.telemetry.waiting, dict(process.telemetry.by_network)) == (0, {})


def test_addresses_take_turns_by_network() -> None:
    """A client that has a network of its own has one turn."""
    process = Process()
    for host in (1, 2):
        process.telemetry.put(process.push(address=f"2001:db8::{host}"))
    assert len({address for address, _, _ in process.work.jobs}) == 1


def test_other_listeners_have_none_of_it() -> None:
    process = Process()
    assert (process.telemetry.mode("here"), process.telemetry.mode("there")) == ("auto", "")
