"""Lines of request events of one connection that are made by templates, for exchanges that are like others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kproxy.events.schema import REQUEST_EVENT
from kproxy.observe.exchange import ObservedExchange
from kproxy.observe.journal import JournalEntry
from kproxy.observe.number_template import LearntFrame

from .connection_event import LiveWho
from .gate import EventGate
from .line_template import LineTemplate, line_template
from .text import byte_stamp

if TYPE_CHECKING:
    from kproxy.capture.writer import ToWallTime


class ClientAccount(Protocol):
    """Record of an open connection that the audit keeps."""

    who: LiveWho
    client_id: str | None


class RequestLines:
    """`watch.journal.Journal` of a connection. `most`: topics, partitions and resources, each, in an event."""

    __slots__ = ("about", "account", "events", "most", "wall", "who")

    def __init__(self, account: ClientAccount, events: EventGate, wall: ToWallTime, most: int) -> None:
        """`account`: is told the client id of the last exchange."""
        who = account.who
        self.account, self.who, self.events, self.wall, self.most = account, who, events, wall, most
        self.about = {"connection": who.number}

    @property
    def standing(self) -> object:
        return self.who.standing

    def learn(self, seen: ObservedExchange, asked: LearntFrame, answered: LearntFrame) -> LineTemplate | None:
        return line_template(seen, asked, answered, self.wall, self.most)

    def write(self, exchanges: Sequence[JournalEntry], now: float) -> None:
        wall = self.wall
        ended, last = byte_stamp(wall(now)), None
        events: list[tuple[bytes, bytes]] = []
        for line, begun, asked, answered in exchanges:
            if begun != last:
                last, came, latency = begun, byte_stamp(wall(begun)), round((now - begun) * 1000, 3)
                if latency <= 0:  # as `milliseconds` has it
                    latency = 0.0
            events.append((came, line.data(came, ended, latency, asked, answered)))
        self.account.client_id = line.client_id
        self.events.put_encoded(REQUEST_EVENT.name, events, self.about)
