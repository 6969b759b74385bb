"""The audit: makes events of what observers have seen, as deep as the config wants it for each API.

Strategy. Exchanges that are told one by one become events as they end; those that are only counted are in the
connections' summaries, which become events when their minute is over or the connection is. Who calls `tick` every
second decides nothing by that: the minutes are those of the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from kproxy.protocol.breath import each, to_the_end
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.record.events.schema import CONNECTION_EVENT, REQUEST_EVENT, SUMMARY_EVENT
from kproxy.record.exchange import Depth, ObservedExchange, Who
from kproxy.record.observer.summary import Summary
from kproxy.record.observer.summary_rows import SummaryRow
from kproxy.session.sasl.principal import LoginOutcome

from .config import AuditConfig
from .event_sink import EventGate
from .request_event import request_event, summary_event
from .request_lines import RequestLines
from .state_events import LiveWho, authenticated, closed, opened

if TYPE_CHECKING:
    from kproxy.record.captures.writer import ToWallTime
    from kproxy.record.metrics.label_sink import LabelSink

SASL = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))
"""SaslHandshake and SaslAuthenticate: after their responses the client may have a principal."""
DEPTHS = {"connections": Depth.COUNT, "summary": Depth.ROWS, "requests": Depth.LINES}


class ConnectionAccount:
    """Record of an open connection that the audit keeps: its client, its summary and what was told last."""

    __slots__ = ("client_id", "outcome", "summary", "unsent_lines", "who")

    def __init__(self, who: LiveWho, summary: Summary) -> None:
        self.who, self.summary = who, summary
        self.outcome: LoginOutcome | None = None
        self.client_id: str | None = None
        self.unsent_lines: deque[SummaryRow] = deque()  # of its summary


class AuditSink:
    """Sink that makes events of exchanges and connections, and puts them through the gate."""

    broker_side = False

    def __init__(
        self, config: AuditConfig, events: EventGate, wall: ToWallTime, labels: LabelSink | None = None
    ) -> None:
        """Begin without connections. `labels`: counts in the same summaries, if there is such a sink."""
        self.config, self.events, self.wall, self.labels = config, events, wall, labels
        self.accounts: dict[int, ConnectionAccount] = {}  # by the connection's number

    # ---- what a Sink does

    def depth(self, key: int, version: int) -> Depth:
        return DEPTHS[self.config.detail_of(api_name(key))]

    def take(self, seen: ObservedExchange) -> None:
        account = self.accounts.get(seen.who.number)
        if account is not None:
            account.client_id = seen.client_id
            if seen.key in SASL:
                self.put_authentication(account, seen.request.last if seen.request is not None else 0.0)
        if seen.request is not None and self.config.detail_of(seen.api) == "requests":
            event = request_event(seen, self.wall, self.config.partitions)
            self.events.put(REQUEST_EVENT.name, self.wall(seen.request.first), event)

    def take_behind(self, seen: ObservedExchange) -> None:
        """Never called: the audit tells what the client saw."""

    def opened(self, who: Who, now: float) -> None:
        live = cast("LiveWho", who)
        if who.number not in self.accounts:
            self.account(live)
        self.events.put(CONNECTION_EVENT.name, self.wall(now), opened(live))

    def closed(self, who: Who, now: float) -> None:
        account = self.accounts.pop(who.number, None)
        if account is None:
            return
        self.put_authentication(account, now)
        with to_the_end():
            for _ in each(self.put_summaries(account, now, everything=True)):
                pass
        self.events.put(CONNECTION_EVENT.name, self.wall(now), closed(account.who, account.client_id))

    # ---- summaries

    def account(self, who: LiveWho) -> ConnectionAccount:
        """Return the connection's account, making it when it is first asked for."""
        account = self.accounts.get(who.number)
        if account is None:
            if self.labels is None:
                summary = Summary(self.counts, self.wall, who=who)
            else:
                summary = self.labels.summary_for(who, self.wall, self.counts)
            account = self.accounts[who.number] = ConnectionAccount(who, summary)
        return account

    def summary_for(self, who: Who) -> Summary:
        """Return the summary in which an observer counts what passes on this connection."""
        summary = self.account(cast("LiveWho", who)).summary
        if self.labels is not None:
            self.labels.join(who, summary, self.counts)
        return summary

    def journal_for(self, who: Who) -> RequestLines:
        """Return what writes the request events of this connection that are like others before them."""
        return RequestLines(self.account(cast("LiveWho", who)), self.events, self.wall, self.config.partitions)

    def counts(self, key: int, version: int) -> bool:
        """Return True if the requests of this API are told as a summary."""
        return self.config.detail_of(api_name(key)) == "summary"

    def tick(self, now: float) -> Iterator[None]:
        """Put the summary events of the minutes that are over, one a step; others may run between two of them."""
        for account in list(self.accounts.values()):
            self.put_authentication(account, now)
            yield from self.put_summaries(account, now, everything=False)

    # ---- inside

    def put_summaries(self, account: ConnectionAccount, now: float, *, everything: bool) -> Iterator[None]:
        """Put a connection's summary events, one a step. If the caller stops, the other events come first next time."""
        summary = account.summary
        if self.labels is not None and summary.reader is not None and (everything or now >= summary.until):
            summary.fold()
            yield from self.labels.read_cells(summary)  # else `drain` has all cells read in one step
        account.unsent_lines.extend(summary.drain(now, everything=everything))
        while account.unsent_lines:
            time, event = summary_event(account.unsent_lines.popleft(), account.who)
            self.events.put(SUMMARY_EVENT.name, time, event)
            yield

    def put_authentication(self, account: ConnectionAccount, now: float) -> None:
        """Put an event about an authentication that has come to an end."""
        outcome = account.who.outcome
        if outcome is not account.outcome and outcome is not None:
            account.outcome = outcome
            self.events.put(CONNECTION_EVENT.name, self.wall(now), authenticated(account.who, outcome))


def api_name(key: int) -> str:
    """Return the API's name in the protocol's table, or `unknown`."""
    return schema.load(key).name if key in schema.paths() else "unknown"
