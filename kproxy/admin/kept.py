"""Exchanges that users of the view search and read: those kept in this process, and those of an opened capture."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import trio
from pydantic import Field

from kproxy.base.cooperative import LONG, free_after, yield_now
from kproxy.record.audit.request_event import request_event, whole_event
from kproxy.record.filters import ExchangeView, Filter
from kproxy.record.live_view.detail import FrameDirection, FrameSide, detail_of, frame_bytes, saved_exchange
from kproxy.record.live_view.rows import KeptExchange, encode, exchange_id, row_of
from kproxy.record.live_view.watch import LONGEST_SEARCH, UNKNOWN, ViewWatch
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import in_a_turn, in_turns

from .models import Shown
from .problem import Problem

if TYPE_CHECKING:
    from kproxy.record.captures.captured_connection import CapturedConnection
    from kproxy.record.captures.writer import CaptureEndpoint, ToWallTime
    from kproxy.record.exchange import ObservedExchange
    from kproxy.record.live_view.masks import ViewerMasks
    from kproxy.record.live_view.reading import OpenedCapture
    from kproxy.rules.content.schemas import SchemaCache
    from kproxy.runtime.connection_view import ConnectionInfo

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


class ExchangeReader:
    """Reads the details of exchanges, live or from a capture, for users of the view.

    `records`: users' records may be shown, masked by `masks`. `source`: id of the source. `process`: first part of the
    ids of exchanges.
    `find_cache`: returns the schemas of a cluster's registry.
    """

    find_cache: Callable[[str | None], SchemaCache | None] = staticmethod(lambda cluster: None)

    def __init__(
        self, records: bool, wall: ToWallTime, masks: ViewerMasks, source: str = "live", process: int = 0
    ) -> None:
        self.records, self.wall, self.masks, self.source, self.process = records, wall, masks, source, process

    def get(self, number: int) -> KeptExchange:
        """Return the exchange with this number. Raises Problem."""
        raise NotImplementedError

    async def read(self, make: Callable[[], T]) -> T:
        """Run `make`, which may take fifty milliseconds, without blocking the loop."""
        raise NotImplementedError

    def server_of(self, kept: KeptExchange) -> CaptureEndpoint:
        """Return the address that the client was connected to."""
        raise NotImplementedError

    async def exchange(self, number: int, first: int, unmasked: bool = False) -> str:
        """Return the details of one exchange as JSON; of each frame the steps from number `first` on. `unmasked`: with
        the original records. Raises Problem."""
        kept = self.get(number)

        def make() -> str:
            event = request_event(kept.seen, self.wall)
            kept.seen.forget_bodies()
            shown = detail_of(
                exchange_id(self.process, number), event, *self.masked(kept, unmasked),
                source=self.source, first=first, records=self.records, cache=self.find_cache(kept.seen.who.cluster),
            )  # fmt: skip
            shown["again_of"] = kept.again_of or None
            yield_now()
            return encode(shown).decode()

        return await self.read(make)

    async def exchange_frame(self, number: int, of: FrameDirection, side: FrameSide, unmasked: bool = False) -> str:
        """Return the kept bytes of one frame in base64. Raises Problem."""
        kept = self.get(number)
        data = await self.read(lambda: frame_bytes(*self.masked(kept, unmasked), of, side, records=self.records))
        if data is None:
            raise Problem(404, "no_such_exchange", f"exchange {number} has no {of}")
        return b64encode(data).decode()

    async def saved_exchange(self, number: int, unmasked: bool = False) -> str:
        """Return one exchange as a capture in base64. Raises Problem."""
        kept = self.get(number)
        server = self.server_of(kept)
        make = lambda: saved_exchange(*self.masked(kept, unmasked), server, self.wall, records=self.records)  # noqa: E731
        return b64encode(await self.read(make)).decode()

    def masked(self, kept: KeptExchange, unmasked: bool) -> tuple[ObservedExchange, ObservedExchange | None]:
        """Return both sides of an exchange with masked records, or with the originals."""
        if unmasked:
            return kept.seen, kept.behind
        return self.masks.exchange(kept.seen), self.masks.broker_side(kept.behind)


class KeptExchanges(ExchangeReader):
    """Exchanges kept in this process."""

    def __init__(self, watch: ViewWatch, records: bool, reactor: Reactor, masks: ViewerMasks) -> None:
        super().__init__(records, watch.wall, masks, process=watch.process)
        self.watch, self.reactor = watch, reactor
        watch.use_masks(masks.for_filter)

    def server_of(self, kept: KeptExchange) -> CaptureEndpoint:
        return cast("ConnectionInfo", kept.seen.who).server

    async def exchanges(self, text: str, before: int | None, limit: int, after: int | None = None) -> FoundExchanges:
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

        if wanted.needs_records:
            await self.read(partial(run_yielding, look()))
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

    async def read(self, make: Callable[[], T]) -> T:
        async with READERS:
            return await in_a_turn(self.reactor, VIEW_NETWORK, lambda: free_after(LONG, make))

    def get(self, number: int) -> KeptExchange:
        kept, ring = self.watch.ring.get(number), self.watch.ring
        name = exchange_id(self.watch.process, number)
        if kept is not None:
            return kept
        if ring.had(number):
            raise Problem(410, "exchange_gone", f"exchange {name} was evicted")
        raise Problem(404, "no_such_exchange", f"expected the id of a kept exchange, got {name!r}")


class SourceExchanges(ExchangeReader):
    """Exchanges of one opened capture. Their ids have process 0, and are numbered from 1 on in the order of their
    ends."""

    index = 0

    def __init__(self, capture: OpenedCapture, records: bool, masks: ViewerMasks) -> None:
        super().__init__(records, float, masks, capture.id)
        self.capture = capture

    async def exchanges(self, text: str, before: int | None, limit: int, after: None = None) -> FoundExchanges:
        """Return matching exchanges, newest first: at most `limit`, with numbers below `before`."""
        wanted = Filter(text)
        rows: list[tuple[float, int, str]] = []
        looked: list[int] = []
        steps = self.evaluate(wanted, before, limit, rows, looked)
        try:
            if wanted.needs_records:
                await self.read(partial(deque, steps, 0))
            else:
                await in_turns(steps)
        except OSError:  # closed in between
            raise no_such_source(self.source) from None
        last = looked[-1] if looked and looked[-1] > 1 else None
        return FoundExchanges(rows=rows, next=last, searched=len(looked), unknown=wanted.unknown)

    def evaluate(
        self, wanted: Filter, before: int | None, limit: int, rows: list[tuple[float, int, str]], looked: list[int]
    ) -> Iterator[None]:
        """Evaluate one exchange per step, until a limit is reached."""
        until, spool = monotonic() + LONGEST_SEARCH, self.capture.spool
        for number in range(min(before or len(spool) + 1, len(spool) + 1) - 1, 0, -1):
            seen = spool.exchange(number)
            shown = self.masks.for_filter(seen) if wanted.needs_records else seen
            if wanted.holds(ExchangeView(shown, partial(whole_event, wall=float))):
                first = seen.request or seen.response
                kept = KeptExchange(number, number, seen, True)
                row = encode(row_of(kept, 0, float, changed=spool.is_changed(number)))
                rows.append((0.0 if first is None else first.first, number, row.decode()))
            looked.append(number)
            yield
            if len(rows) >= limit or monotonic() > until:
                return

    def server_of(self, kept: KeptExchange) -> CaptureEndpoint:
        who = cast("CapturedConnection", kept.seen.who)
        return who.server_address, who.server_port

    async def read(self, make: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(make, limiter=READERS)

    def get(self, number: int) -> KeptExchange:
        spool = self.capture.spool
        try:
            return KeptExchange(number, number, spool.exchange(number), True, behind=spool.behind(number))
        except IndexError:
            raise Problem(404, "no_such_exchange", f'exchange {number} is not in "{self.capture.name}"') from None
        except OSError:
            raise no_such_source(self.source) from None


def no_such_source(identifier: str) -> Problem:
    return Problem(404, "no_such_source", f'source "{identifier[:80]}" is closed, or its idle timeout has expired')
