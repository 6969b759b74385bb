"""Live view, put together: the data that a process shows to its viewers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kproxy.runtime.connection_view import ConnectionInfo

if TYPE_CHECKING:
    from kproxy.record.exchange import ObservedExchange, Who
    from kproxy.record.filters import FilterJudge
    from kproxy.record.live_view.watch import AuditTotals, ViewWatch
    from kproxy.runtime.server import Server
    from kproxy.session.counters import ApiTally
    from kproxy.session.session_state import SessionState

    from .app import ProxyProcess

NUMBERS = 1_000_000_000
"""Numbers that one process may give to exchanges before its replacement starts."""


class ProxyTraffic:
    """Traffic of a proxy process, as the live view reads it."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self.proxy = proxy

    def tallies(self) -> Iterable[ApiTally]:
        return self.proxy.counted()

    def under_way(self, before: float) -> Iterator[Iterable[ObservedExchange]]:
        for tap in self.proxy.server.taps.open_taps():
            yield () if tap.connection.closed else tap.observer.under_way(before)

    def connections(self) -> int:
        return len(self.proxy.server.connections)

    def bytes_read(self) -> tuple[int, int]:
        return self.proxy.bytes_read()

    def held_bytes(self) -> int:
        return sum(self.proxy.held_bytes().values())

    def audit(self) -> AuditTotals | None:
        audit = self.proxy.audit
        if audit is None:
            return None
        outlets = audit.recorder.counters.values()
        return (
            sum(one.written for one in outlets), sum(one.queued for one in outlets),
            sum(one.dropped.total() for one in outlets), sum(one.failing for one in outlets), int(audit.gate.shut),
        )  # fmt: skip


def make_watch(proxy: ProxyProcess) -> ViewWatch:
    """Return the live view of a process, with viewer numbers that differ from those of its predecessor."""
    from kproxy.record.live_view.watch import ViewWatch  # a process without viewers starts without it

    watch = ViewWatch(
        proxy.server.taps.fanout, proxy.reactor, ProxyTraffic(proxy),
        kept=proxy.config.view.buffer_size, process=proxy.index, first=proxy.generation * NUMBERS + 1,
    )  # fmt: skip
    if proxy.config.view.record_from_start:
        watch.look_always()
    return watch


class RuleFilters:
    """Filters of all rules of a server, as `HeldRegistry.judge`. `records`: whether they may ask about records."""

    def __init__(self, server: Server, records: bool = True) -> None:
        self.server, self.records = server, records

    def use(self, records: bool) -> None:
        self.records = records
        if "judge" in self.__dict__:
            self.judge.records = records

    def __call__(self, *given: Any) -> bool:
        return self.judge(*given)

    @cached_property
    def judge(self) -> FilterJudge:
        """Return the judge, made at the first call."""
        from kproxy.record.audit.request_event import whole_event
        from kproxy.record.filters import FilterJudge

        return FilterJudge(whole_event, self.who, records=self.records)

    def who(self, session: SessionState) -> Who:
        from kproxy.record.exchange import SessionWho

        if session.owner is None:
            return SessionWho(session)
        return ConnectionInfo(session.owner, self.server.taps.fanout.picture(session.facts.cluster))
