"""Filters asked of exchanges that are under way: a session has the frames, and its connection tells the rest.

What only the end of an exchange shows, such as its latency, is absent as long as there is no response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kproxy.record.exchange import Form, Frame, ObservedExchange, Who
from kproxy.record.observer.credentials import take_out
from kproxy.record.observer.records import NotKept
from kproxy.session.live.evaluation import EvaluatedExchange
from kproxy.session.session_state import SessionState

from .filter import Filter
from .view import ExchangeView, MakeData

MOST_FILTERS = 100
"""Filters that are kept compiled; there is one for each rule that has one."""


class SessionWho:
    """Description of a connection by its session alone, where there is no driver that knows more."""

    def __init__(self, session: SessionState) -> None:
        facts, self.identity = session.facts, session.identity
        self.number = session.number
        self.cluster: str | None = facts.cluster
        self.listener: str | None = facts.listener
        self.client_address, self.client_port = facts.client_address, 0
        self.node = facts.node
        self.broker: str | None = None

    @property
    def principal(self) -> str | None:
        return self.identity.principal

    @property
    def software_name(self) -> str | None:
        software = self.identity.software
        return None if software is None else software.partition("/")[0]

    @property
    def software_version(self) -> str | None:
        software = self.identity.software
        return None if software is None else software.partition("/")[2]

    def broker_topic(self, topic: str) -> str | None:
        """Return None: names at the broker are not looked up."""
        return None

    def broker_group(self, group: str) -> str | None:
        """Return None: names at the broker are not looked up."""
        return None

    def topic_of(self, topic_id: str) -> str | None:
        """Return None: no answer of the broker is known."""
        return None


class FilterJudge:
    """Judge of filters for rules, as `HoldingDesk.judge`. `make`: an exchange's data as filters see it; `who`: whoever
    knows most of a session's connection; `records`: whether anybody may ask about users' records."""

    def __init__(
        self, make: MakeData, who: Callable[[SessionState], Who] = SessionWho, *, records: bool = True
    ) -> None:
        self.make, self.who, self.records = make, who, records
        self.compiled = lru_cache(MOST_FILTERS)(Filter)

    def __call__(
        self, wanted: str, session: SessionState, exchange: EvaluatedExchange, request: bytes, response: bytes | None,
        now: float,
    ) -> bool:  # fmt: skip
        """Return True if the filter with this text holds; `request` and `response` are without their sizes. Raises
        NotKept for one that asks about what nobody may see."""
        if not self.records and self.compiled(wanted).needs_records:
            raise NotKept("the filter asks about records, and the config has `view: {records: false}`")
        key, version = exchange.api.key, exchange.version
        seen = ObservedExchange(
            self.who(session), 0, key, version, exchange.correlation_id, exchange.client_id,
            whole_frame(request, key, version, "request", exchange.came), acks=exchange.acks, depth="full",
        )  # fmt: skip
        if response is not None:
            seen.response, seen.outcome = whole_frame(response, key, version, "response", now), "answered"
        return self.compiled(wanted).holds(ExchangeView(seen, self.make))


def whole_frame(data: bytes, key: int, version: int, direction: str, when: float) -> Frame:
    """Return a frame that is all here as an observer would keep it: without credentials."""
    kept, withheld = take_out(data, key, version, direction)
    form = Form.WHOLE if len(kept) == len(data) else Form.HEAD
    return Frame(len(data) + 4, when, when, kept, form, withheld)
