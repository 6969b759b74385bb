"""Exchanges that this process has kept for those who look: searched, and told one by one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import trio
from pydantic import Field

from kproxy.base.cooperative import LONG, free_after, yield_now
from kproxy.record.filters import Filter
from kproxy.record.live_view.detail import FrameDirection, FrameSide, detail_of, frame_bytes, saved_exchange
from kproxy.record.live_view.rows import KeptExchange, encode, exchange_id
from kproxy.record.live_view.watch import UNKNOWN, ViewWatch
from kproxy.runtime.io.scheduler import TaskReactor, in_a_turn, in_turns

from .models import Shown
from .problem import Problem

if TYPE_CHECKING:
    from kproxy.runtime.connection_view import ConnectionWho

READERS = trio.CapacityLimiter(2)  # Details of exchanges are read in at most two threads
VIEW_NETWORK = "view"
"""Stands for the address of all who look at exchanges: their work takes turns with that of clients."""

T = TypeVar("T")


class FoundExchanges(Shown):
    """Exchanges of one process that fit, the newest first. `next`: number of the oldest that was looked at, None when
    there is none before it. `place`: up to here all that the process has kept was looked for. `gone`: how many behind
    the place that was asked for are not kept any more, UNKNOWN if nobody knows."""

    rows: list[tuple[float, int, str]] = Field(description="time, number, and the row as JSON")
    next: int | None
    searched: int
    unknown: int
    place: int = 0
    gone: int = 0


def run_yielding(steps: Iterator[object]) -> None:
    """Run all steps, and yield after each."""
    for _ in steps:
        yield_now()


class KeptExchanges:
    """Exchanges kept in this process. `records`: users' records may be shown."""

    def __init__(self, watch: ViewWatch, records: bool, reactor: TaskReactor) -> None:
        self.watch, self.records, self.reactor = watch, records, reactor

    async def find(self, text: str, before: int | None, limit: int, after: int | None = None) -> FoundExchanges:
        """Return those that a filter holds for, at most `limit`, with numbers below `before`, that have changed behind
        the place `after`; one of a process that was here before is before all places of this one."""
        watch, wanted = self.watch, Filter(text)
        place, gone = watch.ring.place, 0
        if after is not None:
            known = watch.ring.is_place(after)
            gone = max(0, watch.ring.gone_place - after) if known else UNKNOWN
            after = after if known else None
        found: list[KeptExchange] = []
        looked: list[int] = []

        def look() -> Iterator[None]:
            for number in watch.search(wanted, before, limit, found, after):
                looked.append(number)
                yield

        if wanted.needs_records:  # one exchange may take fifty milliseconds
            await self.read(lambda: run_yielding(look()))
        else:
            await in_turns(watch.paid(look()))
        rows: list[tuple[float, int, str]] = []

        def make() -> Iterator[None]:
            for kept in found:
                first = kept.seen.request or kept.seen.response
                rows.append((0.0 if first is None else first.first, kept.number, watch.row(kept).decode()))
                yield

        await in_turns(watch.paid(make()))
        last = looked[-1] if looked and looked[-1] > watch.ring.oldest else None
        return FoundExchanges(
            rows=rows, next=last, searched=len(looked), unknown=wanted.unknown, place=place, gone=gone
        )

    async def detail(self, number: int, first: int) -> str:
        """Return the details of one exchange as JSON; of each frame the steps from number `first` on. Raises
        Problem."""
        kept, watch = self.get(number), self.watch
        name, event, seen, behind = exchange_id(watch.process, number), watch.event(kept), kept.seen, kept.behind
        again_of = kept.again_of

        def make() -> str:
            shown = detail_of(name, event, seen, behind, first=first, records=self.records, again_of=again_of)
            yield_now()
            return encode(shown).decode()

        return await self.read(make)

    async def frame(self, number: int, of: FrameDirection, side: FrameSide) -> str:
        """Return the kept bytes of one frame in base64. Raises Problem."""
        kept = self.get(number)
        make = partial(frame_bytes, kept.seen, kept.behind, of, side, records=self.records)
        data = await self.read(make)
        if data is None:
            raise Problem(404, "no_such_exchange", f"exchange {number} has no {of}")
        return b64encode(data).decode()

    async def saved(self, number: int) -> str:
        """Return one exchange as a capture in base64. Raises Problem."""
        kept, watch = self.get(number), self.watch
        server = cast("ConnectionWho", kept.seen.who).server
        make = partial(saved_exchange, kept.seen, kept.behind, server, watch.wall, records=self.records)
        return b64encode(await self.read(make)).decode()

    async def read(self, make: Callable[[], T]) -> T:
        async with READERS:
            return await in_a_turn(self.reactor, VIEW_NETWORK, lambda: free_after(LONG, make))

    def get(self, number: int) -> KeptExchange:
        kept, ring = self.watch.ring.get(number), self.watch.ring
        name = exchange_id(self.watch.process, number)
        if kept is not None:
            return kept
        if ring.had(number):
            raise Problem(410, "exchange_gone", f"exchange {name} is not kept any more, others came since")
        raise Problem(404, "no_such_exchange", f"there is no exchange {name!r}")
