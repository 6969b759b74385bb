"""Exchanges of a capture that is open in the view: searched, and told one by one, as those are that a process keeps."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import cast

import trio

from kproxy.record.audit.request_event import request_event
from kproxy.record.captures.captured_connection import CapturedConnection
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filter.filter import Filter
from kproxy.record.filter.view import ExchangeView, ViewedEvent
from kproxy.record.live_view.detail import FrameDirection, FrameSide, detail_of, frame_bytes
from kproxy.record.live_view.ring import KeptExchange
from kproxy.record.live_view.rows import encode, exchange_id, row_of
from kproxy.record.live_view.save import saved_exchange
from kproxy.record.live_view.sources import OpenedCapture
from kproxy.record.live_view.watch import EVERY_PARTITION, LONGEST_SEARCH
from kproxy.runtime.io.turns import in_turns

from .kept import READERS, FoundExchanges
from .problem import Problem
from .sources import no_such_source


class SourceExchanges:
    """Exchanges of one source, asked for as those of a member are. Their ids have process 0, and are numbered from 1 on
    in the order of their ends. `records`: whether what users wrote may be shown."""

    index = 0

    def __init__(self, source: OpenedCapture, records: bool) -> None:
        self.source, self.records = source, records

    async def exchanges(self, text: str, before: int | None, limit: int, after: None = None) -> FoundExchanges:
        """Return those that a filter holds for, at most `limit`, with numbers below `before`, the newest first."""
        wanted = Filter(text)
        rows: list[tuple[float, int, str]] = []
        looked: list[int] = []
        steps = self.look(wanted, before, limit, rows, looked)
        try:
            if wanted.needs_records:  # one exchange may take fifty milliseconds
                await trio.to_thread.run_sync(partial(deque, steps, 0), limiter=READERS)
            else:
                await in_turns(steps)
        except OSError:  # somebody has closed it meanwhile
            raise no_such_source(self.source.id) from None
        last = looked[-1] if looked and looked[-1] > 1 else None
        return FoundExchanges(rows=rows, next=last, searched=len(looked), unknown=wanted.unknown)

    def look(
        self, wanted: Filter, before: int | None, limit: int, rows: list[tuple[float, int, str]], looked: list[int]
    ) -> Iterator[None]:
        """Look at one exchange a step, until there are enough rows or the time is over."""
        until, spool = monotonic() + LONGEST_SEARCH, self.source.spool
        for number in range(min(before or len(spool) + 1, len(spool) + 1) - 1, 0, -1):
            seen = spool.exchange(number)
            if wanted.holds(ExchangeView(seen, whole)):
                first = seen.request or seen.response
                kept = KeptExchange(number, number, seen, True)
                row = encode(row_of(kept, 0, float, changed=spool.is_changed(number)))
                rows.append((0.0 if first is None else first.first, number, row.decode()))
            looked.append(number)
            yield
            if len(rows) >= limit or monotonic() > until:
                return

    async def exchange(self, number: int, first: int) -> str:
        """Return the details of one exchange as JSON; of each frame the steps from number `first` on. Raises
        Problem."""
        seen, behind = self.get(number)

        def make() -> str:
            name, event = exchange_id(0, number), request_event(seen, float)
            shown = detail_of(name, event, seen, behind, source=self.source.id, first=first, records=self.records)
            return encode(shown).decode()

        return await trio.to_thread.run_sync(make, limiter=READERS)

    async def exchange_frame(self, number: int, of: FrameDirection, side: FrameSide) -> str:
        """Return what was kept of one frame, in base64. Raises Problem."""
        seen, behind = self.get(number)
        data = await trio.to_thread.run_sync(
            partial(frame_bytes, seen, behind, of, side, records=self.records), limiter=READERS
        )
        if data is None:
            raise Problem(404, "no_such_exchange", f"exchange {number} has no {of}")
        return b64encode(data).decode()

    async def saved_exchange(self, number: int) -> str:
        """Return one exchange as a capture of its own, in base64. Raises Problem."""
        seen, behind = self.get(number)
        who = cast("CapturedConnection", seen.who)
        make = partial(saved_exchange, seen, behind, (who.server_address, who.server_port), float, records=self.records)
        return b64encode(await trio.to_thread.run_sync(make, limiter=READERS)).decode()

    def get(self, number: int) -> tuple[ObservedExchange, ObservedExchange | None]:
        """Return the exchange of this number, and what passed at the broker. Raises Problem."""
        try:
            return self.source.spool.exchange(number), self.source.spool.behind(number)
        except IndexError:
            raise Problem(404, "no_such_exchange", f'there is no exchange {number} in "{self.source.name}"') from None
        except OSError:
            raise no_such_source(self.source.id) from None


def whole(seen: ObservedExchange) -> ViewedEvent:
    """Return the data of an exchange's event, with all that a filter may ask for."""
    return request_event(seen, float, EVERY_PARTITION)
