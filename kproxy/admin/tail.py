"""`GET /api/tail`: exchanges as they complete, one JSON object per line, until the client disconnects.

{"listening": "api == Produce"}: the filter in its long form; exchanges are complete from here on

{"request": {…}}: the data of a request event; with `body=true` also the messages, as `request` and `response`

{"dropped": 12, "apis": {"Fetch": 12}}: exchanges dropped because the client reads too slowly

{"unknown": 3, "why": "…"}: exchanges that the filter could not judge

An empty line every ten seconds shows that the stream is alive.

Each member has a sink for the client and is asked for more after its last lines were sent. So a client that does not
read stops the requests, and the sinks drop and count. The lines of one member are in order. Workers that start later
are included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from pydantic import Field
from starlette.responses import Response
from starlette.types import Send

from kproxy.base.cooperative import LONG, free_after
from kproxy.base.errors import FilterError
from kproxy.record.audit.request_event import request_event, wall_clock, whole_event
from kproxy.record.exchange import Depth, ObservedExchange
from kproxy.record.fanout import TailSink
from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.live_view.masks import ViewerMasks
from kproxy.record.live_view.messages import messages_of
from kproxy.runtime.io.scheduler import in_a_turn

from .kept import VIEW_NETWORK
from .models import Query, Shown
from .operation import Operation, OperationCall
from .problem import Problem
from .responses import MemberStream, check_listeners

if TYPE_CHECKING:
    from kproxy.runtime.server import Server

    from .backend import Backend
    from .worker_api import Member

NDJSON = "application/x-ndjson"
ALIVE = 10.0
"""Seconds between empty lines: less than a client's patience, so that both ends notice when the other is gone."""
AT_ONCE = 100  # events that are encoded before other tasks run: some milliseconds
FEW_BODIES = 8  # exchanges of one part with their messages: each may have some MB

_encode = msgspec.json.Encoder().encode


class TailQuery(Query):
    """Filter of a tail."""

    filter: str = Field(default="", description="in the filter language, such as `~k produce ~t orders`; empty: all")
    body: bool = Field(default=False, description="add request and response with all fields and decoded records")


class TailShown(Shown):
    """Line of the stream; it has one of these, or is empty."""

    listening: str | None = Field(default=None, description="the first line: the filter in its long form")
    request: dict[str, Any] | None = Field(default=None, description="the data of a request event")
    dropped: int | None = Field(default=None, description="exchanges that did not fit; the listener is too slow")
    unknown: int | None = Field(default=None, description="exchanges that the filter could not judge")
    why: str | None = Field(default=None, description="of the last of these")


class Tail(MemberStream):
    """Response that streams the lines of all members."""

    name = "tail"

    def __init__(self, backend: Backend, query: TailQuery, wanted: Filter, unmasked: bool) -> None:
        self.query, self.unmasked = query, unmasked
        self.into, self.lines = trio.open_memory_channel[bytes](0)
        self.dropped: dict[TailLines, int] = {}
        super().__init__(backend, wanted, NDJSON)

    def source_of(self, member: Member) -> TailLines:
        return member.tail(self.query.filter, self.query.body, self.unmasked)

    async def take(self, member: Member, source: TailLines, part: Lines) -> None:
        self.dropped[source] = part.dropped
        if part.text:
            await self.into.send(part.text)

    async def write_parts(self, send: Send, nursery: trio.Nursery) -> None:
        await self.find_members(nursery)
        nursery.start_soon(self.find_later_members, nursery)
        await write(send, line({"listening": str(self.wanted)}))
        while True:
            text = b""
            with trio.move_on_after(ALIVE):
                text = await self.lines.receive()
            await write(send, text)

    def summary(self) -> dict[str, int]:
        return {"dropped": sum(self.dropped.values())}

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """Return False if the filter needs records and the config no longer allows them."""
        if self.unmasked and not after.unmasked:
            self.why = "stream ends, as the config no longer has `view: {unmasked: true}`"
            return False
        over = (self.wanted.needs_records or self.query.body) and not after.records
        if over:
            self.why = "stream ends, as it needs records, and the config has `view: {records: false}`"
        return not over


async def write(send: Send, lines: bytes) -> None:
    """Send lines; without lines send an empty line, which shows that the stream is alive."""
    await send({"type": "http.response.body", "body": lines or b"\n", "more_body": True})


async def tail(backend: Backend, call: OperationCall) -> Response:
    """Raises Problem for an invalid filter, and if too many clients listen."""
    wanted = filter_of_query(backend, call)
    if call.query.body and not backend.view.records:
        raise Problem(422, "invalid_query", "body: it has records, and the config has `view: {records: false}`")
    check_listeners(backend)
    return Tail(backend, call.query, wanted, sees_originals(backend, call))


def sees_originals(backend: Backend, call: OperationCall) -> bool:
    """Return True if the caller sees records without masks."""
    return backend.view.unmasked and call.may_write


def same(seen: ObservedExchange) -> ObservedExchange:
    return seen


def filter_of_query(backend: Backend, call: OperationCall) -> Filter:
    """Return the filter of a query. Raises Problem if it is invalid, or needs records that the config hides: matches
    would disclose their content."""
    try:
        wanted = Filter(call.query.filter)
    except FilterError as error:
        raise Problem(422, "invalid_query", str(error)) from None
    if wanted.needs_records and not backend.view.records:
        raise Problem(
            422, "invalid_query", "filter: it asks about records, and the config has `view: {records: false}`"
        )
    return wanted


OPERATIONS = (
    Operation("GET", "/api/tail", "tail", "Stream exchanges, one JSON object a line.",
              tail, TailShown, TailQuery, refusals=("too_many_listeners",), media=NDJSON),
)  # fmt: skip


class Lines(msgspec.Struct, frozen=True):
    """Lines of a tail, with line ends; empty after a while without exchanges. `dropped`: total of exchanges that did
    not fit."""

    text: bytes
    dropped: int


class TailLines:
    """Lines of this process for one listener, between `begin` and `end`."""

    def __init__(self, server: Server, wanted: Filter, body: bool, masks: ViewerMasks | None) -> None:
        self.server, self.fanout, self.body, self.masks = server, server.taps.fanout, body, masks
        self.something = trio.Event()
        self.sink = TailSink(wanted, whole_event, self.wake, least=Depth.FULL if body else Depth.SKETCH,
                             mask=same if masks is None else masks.for_filter)  # fmt: skip

    def wake(self) -> None:
        self.server.reactor.notify(self.something)

    async def begin(self) -> None:
        """Add the sink: later exchanges are complete."""
        self.fanout.add(self.sink)

    def end(self) -> None:
        self.fanout.remove(self.sink)

    async def next(self) -> Lines:
        """Return lines once there are any; none after ALIVE seconds."""
        if not self.sink.waiting:
            with trio.move_on_after(ALIVE):
                await self.something.wait()
        self.something = trio.Event()
        lines: list[Mapping[str, Any]] = []
        for seen in self.sink.drain(FEW_BODIES if self.body else AT_ONCE):
            data = request_event(seen, wall_clock())
            lines.append({"request": {**data, **await self.messages(seen)} if self.body else data})
        if missed := self.sink.missed():
            lines += [{"dropped": missed.dropped, "apis": missed.apis}] if missed.dropped else []
            lines += [{"unknown": missed.unknown, "why": missed.why}] if missed.unknown else []
        return Lines(b"".join(map(line, lines)), self.sink.dropped)

    async def messages(self, seen: ObservedExchange) -> dict[str, Any]:
        """Return the messages of an exchange. They are decoded like the work of a client: batches may be large."""
        cache = self.server.schemas(seen.who.cluster)
        show = same if self.masks is None else self.masks.exchange
        make = lambda: messages_of(show(seen), cache)  # noqa: E731
        show = same if self.masks is None else self.masks.exchange
        make = lambda: messages_of(show(seen), cache)  # noqa: E731
        return await in_a_turn(self.server.reactor, VIEW_NETWORK, lambda: free_after(LONG, make))


def line(content: Mapping[str, Any]) -> bytes:
    return _encode(content) + b"\n"
