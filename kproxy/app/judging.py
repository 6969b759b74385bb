"""Filters of rules, judged by what is known of a connection here. What that takes is imported for the first one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from kproxy.runtime.connection_view import ConnectionWho
from kproxy.runtime.server import Server

if TYPE_CHECKING:
    from kproxy.record.exchange import Who
    from kproxy.record.filter.judge import FilterJudge
    from kproxy.session.session_state import SessionState


class RuleFilters:
    """Filters of all rules of a server, as `HoldingDesk.judge`. `records`: whether they may ask about records."""

    def __init__(self, server: Server, records: bool = True) -> None:
        self.server, self.records = server, records

    def use(self, records: bool) -> None:
        """Let filters ask about records from now on, or no more."""
        self.records = records
        if "judge" in self.__dict__:
            self.judge.records = records

    def __call__(self, *given: Any) -> bool:
        return self.judge(*given)

    @cached_property
    def judge(self) -> FilterJudge:
        """Return the judge, which is made when it is first asked for."""
        from kproxy.admin.tail_lines import whole
        from kproxy.record.filter.judge import FilterJudge

        return FilterJudge(whole, self.who, records=self.records)

    def who(self, session: SessionState) -> Who:
        from kproxy.record.filter.judge import SessionWho

        if session.owner is None:
            return SessionWho(session)
        return ConnectionWho(session.owner, self.server.taps.fanout.picture(session.facts.cluster))
