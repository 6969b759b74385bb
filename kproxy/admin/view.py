"""`GET /api/view`: exchanges as server-sent events for a page or a terminal.

hello: the stream's id, the filter in its long form, the columns of rows

rows: exchanges, one list of values each; the event's id is a position to resume from

left: rows left out, by reason: not evaluated, rate limit, slow viewer, unknown

gap: rows are missing at this position, with the reason

tick: totals of each second, over all exchanges

held: held frames and their changes

rules, captures: a changed version; read the resource again

Each member is asked for more after its last part was sent, so a slow viewer slows the requests. A client that
reconnects sends its position in each process as `Last-Event-ID`. It first receives the missed rows, or the size of the
gap.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

import trio
from pydantic import Field
from starlette.responses import Response
from starlette.types import Send

from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig, charged
from kproxy.record.live_view.rows import COLUMNS, encode, joined
from kproxy.record.live_view.sink import Viewer
from kproxy.record.live_view.watch import UNKNOWN, ViewPart, ViewWatch
from kproxy.record.observer.summary_rows import STEP
from kproxy.runtime.io.scheduler import in_turns

from .held_news import held_changes
from .models import PageId, Query, Shown
from .operation import Operation, OperationCall
from .responses import MemberStream, check_listeners
from .tail import filter_of_query

if TYPE_CHECKING:
    from .backend import Backend
    from .worker_api import Member

PAUSE = 0.1  # Seconds between two parts: the eye takes them for one flow, and each costs a message to the page
MOST_ROWS = 2000  # Rows in a second that one who looks may have
QUIET = 1.0  # seconds between parts without rows: they carry the match count
LONGEST_PART = 1 << 16  # Bytes of rows in a part
EVENTS = "text/event-stream"
SECOND = 1.0
COMMENTS = 10  # Seconds from one comment to the next: a reader that hears nothing for longer takes the stream for lost
USUAL_ROWS = 400
LONGEST_ID = 8192  # Characters of a `Last-Event-ID`: 256 processes
_ID = re.compile(r"([0-9a-f]{8})((?:\.\d{1,4}-\d{1,18})*)")


class ViewQuery(Query):
    """Filter of a view, and how much of what fits is shown."""

    filter: str = Field(default="", description="in the filter language, such as `~k produce ~t orders`; empty: all")
    rows: int = Field(default=USUAL_ROWS, ge=1, le=MOST_ROWS, description="rows in a second at most")
    page: PageId = Field(default="", description="id of the page that reads it: rules may end with it")


class ViewShown(Shown):
    """Event of the stream: its name, and the data of the one of these that it has."""

    hello: dict[str, Any] | None = Field(default=None, description="stream, filter, workers, rows, columns, may_write")
    rows: list[list[Any]] | None = Field(default=None, description="rows, in the columns of hello")
    left: dict[str, Any] | None = Field(
        default=None, description="how many more were left out: not_looked_at, too_many, too_slow, unknown (why)"
    )
    gap: dict[str, Any] | None = Field(default=None, description="why rows are missing here, how many; null: unknown")
    tick: dict[str, Any] | None = Field(default=None, description="totals of one second; rules by name")
    held: dict[str, Any] | None = Field(default=None, description="added, changed and gone held frames")
    version: str | None = Field(default=None, description="of rules and captures: another one than before")


def event(name: str, data: Any, place: str = "") -> bytes:
    """Encode one server-sent event. JSON has no line breaks, so `data` is one line."""
    return written(name, encode(data), place)


def written(name: str, data: bytes, place: str = "") -> bytes:
    """Return one server-sent event from JSON."""
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


def places_in(last: str, stream: str) -> Mapping[int, int] | None:
    """Return the position in each process from an event's id; None if it belongs to another stream."""
    match = _ID.fullmatch(last) if len(last) <= LONGEST_ID else None
    if match is None or match[1] != stream:
        return None
    pairs = (part.split("-") for part in match[2].split(".") if part)
    return {int(process): int(place) for process, place in pairs}


def place_of(stream: str, places: Mapping[int, int]) -> str:
    """Encode a position in each process; `places_in` decodes it."""
    return ".".join([stream, *(f"{process}-{at}" for process, at in sorted(places.items()))])


def left_out(part: ViewPart, last: ViewPart) -> dict[str, Any] | None:
    """Return the rows of one process that were left out since its last part; None: no rows."""
    more = {
        "not_looked_at": 0,
        "too_many": part.too_many - last.too_many,
        "too_slow": part.too_slow - last.too_slow,
        "unknown": part.unknown - last.unknown,
        "why": part.why,
    }
    return more if any(more[name] for name in ("too_many", "too_slow", "unknown")) else None


class ViewStream(MemberStream):
    """Response that streams the rows of all members to one viewer."""

    name = "view"

    def __init__(self, backend: Backend, call: OperationCall, wanted: Filter) -> None:
        self.call = call
        self.last: dict[ViewSource, ViewPart] = {}  # last part sent, by process
        self.restarted: set[ViewSource] = set()  # processes that took the place of another one
        self.seen: set[int] = set()  # indexes of members
        self.places: dict[int, int] = {}
        self.matched = 0
        self.into, self.events = trio.open_memory_channel[tuple[int, int, bytes]](0)
        super().__init__(backend, wanted, EVENTS, {"Cache-Control": "no-store"})

    async def stream_response(self, send: Send) -> None:
        self.backend.leases.opened(self.call.query.page)
        try:
            await charged(super().stream_response(send), self.spend)
        finally:
            self.backend.leases.closed(self.call.query.page)

    def spend(self, seconds: float) -> None:
        """Charge the view's CPU budget, if this process forwards the traffic."""
        for source in self.last:
            source.spend(seconds)

    async def write_parts(self, send: Send, nursery: trio.Nursery) -> None:
        await self.write(send, self.hello() + self.beginning())
        await self.find_members(nursery)
        # Not charged: these tasks cost the same with and without traffic, and sixteen viewers' would use up the budget,
        # so that nothing was observed.
        nursery.start_soon(self.find_later_members, nursery)
        nursery.start_soon(self.count)
        nursery.start_soon(self.hold)
        async for process, place, text in self.events:
            if process >= 0:
                self.places[process] = place
            await self.write(send, text)

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """Return False if the hello event is outdated: the client reconnects."""
        self.why = "stream ends, the config says something else of the view"
        return (before.enabled, before.write, before.records) == (after.enabled, after.write, after.records)

    async def write(self, send: Send, text: bytes) -> None:
        text = text.replace(b"id: @\n", f"id: {self.place()}\n".encode(), 1)
        await send({"type": "http.response.body", "body": text, "more_body": True})

    # ---- the beginning

    def hello(self) -> bytes:
        backend = self.backend
        return event("hello", {
            "stream": backend.stream,
            "filter": str(self.wanted) if self.wanted else "",
            "workers": len(backend.members),
            "rows": self.call.query.rows,
            "may_write": backend.view.write and self.call.may_write,
            "records": backend.view.records,
            "columns": COLUMNS,
            "latency_step": STEP,
        })  # fmt: skip

    def beginning(self) -> bytes:
        """Return the first events of a client that reconnects to another stream."""
        last = self.call.last_event
        found = places_in(last, self.backend.stream) if last else {}
        self.places = dict(found or {})
        return b"" if found is not None else event("gap", {"why": "kproxy has begun anew", "missing": None})

    def place(self) -> str:
        """Return the position after the last row sent."""
        return place_of(self.backend.stream, self.places)

    def source_of(self, member: Member) -> ViewSource:
        query = self.call.query
        source = member.view(query.filter, query.rows, self.places.get(member.index))
        self.last[source] = ViewPart(0)
        if member.index in self.seen:
            self.restarted.add(source)
        self.seen.add(member.index)
        return source

    # ---- events

    async def take(self, member: Member, source: ViewSource, part: ViewPart) -> None:
        """Send the rows of one process, and which rows are missing."""
        text = b""
        if part.missing:
            missing = None if part.missing == UNKNOWN else part.missing
            again = source in self.restarted or missing is None
            why = f"worker {member.index} has begun anew" if again else "too long away"
            text += event("gap", {"why": why, "missing": missing})
        if part.rows:
            text += written("rows", b'{"rows":' + part.rows + b"}", "@")
        if left := left_out(part, self.last[source]):
            text += event("left", left)
        self.matched += part.matched - self.last[source].matched
        self.last[source] = part
        if text:
            await self.into.send((member.index, part.place, text))

    async def count(self) -> None:
        """Send totals each second."""
        keeper = self.backend.totals
        before = await keeper.latest()
        await self.send(event("rules", {"version": before.rules_version})
                        + event("captures", {"version": before.captures_version}))  # fmt: skip
        ticks = 0
        while True:
            await trio.sleep(SECOND)
            now = await keeper.latest()
            if now is before or not before.known:  # no response: asked again in a second
                before = now
                await self.send(b":\n\n")
                continue
            ticks += 1
            matched, self.matched = self.matched, 0
            text = event("tick", {**now.tick(before), "matched": matched})
            missed = now.totals.missed - before.totals.missed
            if missed > 0:
                text += event("left", {"not_looked_at": missed, "too_many": 0, "too_slow": 0, "unknown": 0, "why": ""})
            if now.rules_version != before.rules_version:
                text += event("rules", {"version": now.rules_version})
            if now.captures_version != before.captures_version:
                text += event("captures", {"version": now.captures_version})
            if ticks % COMMENTS == 0:
                text += b":\n\n"
            before = now
            await self.send(text)

    async def hold(self) -> None:
        """Send held frames and their changes."""
        async with aclosing(held_changes(self.backend)) as changes:
            async for changed in changes:
                await self.send(written("held", changed))

    async def send(self, text: bytes) -> None:
        """Send an event that belongs to no process."""
        await self.into.send((-1, 0, text))


async def view(backend: Backend, call: OperationCall) -> Response:
    """Raises Problem for an invalid filter, and if too many clients listen."""
    wanted = filter_of_query(backend, call)
    check_listeners(backend)
    return ViewStream(backend, call, wanted)


OPERATIONS = (
    Operation("GET", "/api/view", "view", "Stream rows, ticks and held frames as server-sent events.",
              view, ViewShown, ViewQuery, refusals=("too_many_listeners", "view_off"), media=EVENTS),
)  # fmt: skip


class ViewSource:
    """Rows of this process for one viewer, between `begin` and `end`. `after`: the position to resume from; None: only
    new exchanges."""

    def __init__(
        self, watch: ViewWatch, notify: Callable[[trio.Event], None], wanted: Filter, rows: int, after: int | None
    ) -> None:
        self.watch, self.notify, self.wanted, self.after = watch, notify, wanted, after
        self.something = trio.Event()
        self.viewer = Viewer(wanted, rows, watch.clock(), self.wake)
        self.backlog: deque[tuple[int, int]] = deque()
        """Positions and numbers of kept exchanges to send first. If the ring evicts one before, the viewer reports a
        gap."""
        self.missing = 0
        self.told = 0.0

    def wake(self) -> None:
        if len(self.viewer.waiting) == 1:
            self.notify(self.something)

    async def begin(self) -> None:
        """Add the viewer: later exchanges are complete."""
        self.watch.open(self.viewer)
        ring = self.watch.ring
        if self.after is None:
            return
        if ring.is_place(self.after):
            kept, self.missing = ring.behind_place(self.after)
        else:  # a place of another process that was here before
            kept, _ = ring.behind_place(ring.first - 1)
            self.missing = UNKNOWN
        self.backlog.extend((one.place, one.number) for one in kept)

    def end(self) -> None:
        self.watch.close(self.viewer)

    def spend(self, seconds: float) -> None:
        """Charge the view's CPU budget of this process."""
        self.watch.budget.spend(seconds)

    async def next(self) -> ViewPart:
        """Return the next part as soon as it has rows, or after a while."""
        return await charged(self.make_part(), self.spend)

    async def make_part(self) -> ViewPart:
        """Wait for exchanges, and make a part of them."""
        await trio.sleep(max(0.0, self.told + PAUSE - monotonic()))
        if not self.backlog and not self.viewer.waiting:
            with trio.move_on_after(QUIET):
                await self.something.wait()
        self.something = trio.Event()
        self.told = monotonic()
        rows: list[bytes] = []
        await in_turns(self.make(rows))
        viewer, missing, self.missing = self.viewer, self.missing, 0
        if viewer.waiting:  # it is woken by the first of several only
            self.something.set()
        return ViewPart(
            self.place(), joined(rows) if rows else b"", viewer.matched, viewer.too_many, viewer.too_slow,
            self.wanted.unknown, self.wanted.why, missing,
        )  # fmt: skip

    def make(self, rows: list[bytes]) -> Iterator[None]:
        """Make rows until the part is full, one exchange per step."""
        size = 0
        while size < LONGEST_PART and (self.backlog or self.viewer.waiting):
            if self.backlog:
                place, number = self.backlog.popleft()
                found = self.watch.ring.get(number)
                if found is not None and found.place != place:
                    yield
                    continue
                fits = found is not None and self.watch.fits(self.wanted, found.seen)
                self.viewer.matched += fits and found is not None and found.over
                self.missing += found is None and self.missing != UNKNOWN
            else:
                found, fits = self.viewer.take(), True
            if fits and found is not None:
                rows.append(self.watch.row(found))
                size += len(rows[-1])
            yield

    def place(self) -> int:
        """Return the position after the last row."""
        left = [*(place for place, _ in islice(self.backlog, 1)), *(kept.place for kept in self.viewer.waiting)]
        return min(left) - 1 if left else self.watch.ring.place
