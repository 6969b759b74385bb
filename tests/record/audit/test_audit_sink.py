"""The audit's minutes are told step by step, and nothing of a connection comes after its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.record.audit.audit_sink import AuditSink
from kproxy.record.audit.config import AuditConfig
from kproxy.record.audit.event_sink import EventGate
from kproxy.record.observer.summary_rows import WELL
from kproxy.session.sasl.principal import LoginOutcome
from tests.record.audit.exchanges import FakeWho, wall
from tests.support.hooks import hooked


class Kept:
    """An `EventSink` in memory."""

    blocked = False

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.counters: dict[str, Any] = {}

    def put(self, type_name: str, time: float, data: Mapping[str, Any]) -> None:
        self.events.append((type_name, data))

    def close(self, timeout: float) -> bool:
        return True


class LiveFake(FakeWho):
    """A connection that is open."""

    outcome: LoginOutcome | None = None


def counted(partitions: int) -> tuple[AuditSink, LiveFake, Kept]:
    """A sink with one connection, which has written to so many partitions."""
    kept, who = Kept(), LiveFake()
    sink = AuditSink(AuditConfig(dir="events"), EventGate(kept, lambda: None), wall)
    rows = [("t", at, 0, 10, 1, 1, "", False, at, None) for at in range(partitions)]
    sink.account(who).summary.count((0, 9, None, WELL, 1), 1.0, 2.0, 100, 50, 1.0, rows)
    return sink, who, kept


def test_an_event_a_step() -> None:
    """So others can run between two events; each line is told once."""
    sink, _, kept = counted(300)
    for number, _ in enumerate(sink.tick(3600.0), 1):
        assert len(kept.events) == number
    assert len(kept.events) == 301
    assert not list(sink.tick(7200.0))


def test_what_is_left_is_told_before_the_end() -> None:
    """A tick that stopped in the middle goes on after the connection has ended, and finds nothing."""
    sink, who, kept = counted(300)
    ticking = sink.tick(3600.0)
    for _ in range(10):
        next(ticking)
    looks: list[int] = []
    with hooked(lambda: looks.append(1)):
        list(sink.put_summaries(sink.account(who), 3601.0, everything=True))
    assert len(kept.events) == 301
    assert not list(ticking)
    assert len({(data.get("partition"), kind) for kind, data in kept.events}) == 301
