"""`GET /api/tail`: exchanges as they complete, one JSON object per line, until the client disconnects.

{"listening": "api == Produce"}: the filter in its long form; exchanges are complete from here on

{"request": {…}}: the data of a request event

{"dropped": 12, "apis": {"Fetch": 12}}: exchanges dropped because the client reads too slowly

{"unknown": 3, "why": "…"}: exchanges that the filter could not judge

An empty line every ten seconds shows that the stream is alive.

Each member has a sink for the client and is asked for more after its last lines were sent. So a client that does not
read stops the requests, and the sinks drop and count. The lines of one member are in order. Workers that start later
are included.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from pydantic import Field
from starlette.responses import Response
from starlette.types import Send

from kproxy.base.errors import FilterError
from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig

from .models import Query, Shown
from .operation import Operation, OperationCall
from .problem import MemberGone, Problem
from .responses import GuardedStream
from .tail_lines import ALIVE, line

if TYPE_CHECKING:
    from .backend import Backend
    from .worker_api import Member, TailSource

NDJSON = "application/x-ndjson"
MOST_LISTENERS = 16  # Each listener evaluates every exchange: a faulty script must not stop traffic
LOOK = 0.25  # Seconds between two looks for processes that have begun


class TailQuery(Query):
    """Filter of a tail."""

    filter: str = Field(default="", description="in the filter language, such as `~k produce ~t orders`; empty: all")


class TailShown(Shown):
    """Line of the stream; it has one of these, or is empty."""

    listening: str | None = Field(default=None, description="the first line: the filter in its long form")
    request: dict[str, Any] | None = Field(default=None, description="the data of a request event")
    dropped: int | None = Field(default=None, description="exchanges that did not fit; the listener is too slow")
    unknown: int | None = Field(default=None, description="exchanges that the filter could not judge")
    why: str | None = Field(default=None, description="of the last of these")


class Tail(GuardedStream):
    """Response that streams the lines of all members."""

    def __init__(self, backend: Backend, text: str, wanted: Filter) -> None:
        self.text, self.wanted = text, wanted
        self.log = backend.log.bind(filter=str(wanted))
        self.number = next(backend.numbers)
        self.sources: dict[object, TailSource] = {}  # by the process that they are of
        super().__init__(backend, NDJSON)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self.backend.listeners.add(self.number)
        self.log.info("tail begins")
        try:
            async with trio.open_nursery() as nursery:
                into, lines = trio.open_memory_channel[bytes](0)
                await self.begin(nursery, into)
                nursery.start_soon(self.look, nursery, into)
                await write(send, line({"listening": str(self.wanted)}))
                while True:
                    text = b""
                    with trio.move_on_after(ALIVE):
                        text = await lines.receive()
                    await write(send, text)
        finally:
            self.backend.listeners.discard(self.number)
            for source in self.sources.values():
                source.end()
            self.log.info("tail ends", dropped=sum(source.dropped for source in self.sources.values()))

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """Return False if the filter needs records and the config no longer allows them."""
        over = self.wanted.needs_records and not after.records
        if over:
            self.why = "stream ends, its filter asks about records, and the config lets nobody see them"
        return not over

    async def look(self, nursery: trio.Nursery, into: trio.MemorySendChannel[bytes]) -> None:
        while True:
            await trio.sleep(LOOK)
            await self.begin(nursery, into)

    async def begin(self, nursery: trio.Nursery, into: trio.MemorySendChannel[bytes]) -> None:
        for member in self.backend.members:
            process = member.process
            if process is not None and process not in self.sources:
                self.sources[process] = source = member.tail(self.number, self.text)
                await nursery.start(self.listen, member, source, into)

    async def listen(
        self, member: Member, source: TailSource, into: trio.MemorySendChannel[bytes], *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        try:
            await source.begin()
        except Problem as problem:
            self.log.warning("tail misses a worker", of_worker=member.index, reason=str(problem))
            return
        finally:
            task_status.started()
        with suppress(MemberGone):
            while True:
                if text := await source.next():
                    await into.send(text)


async def write(send: Send, lines: bytes) -> None:
    """Send lines, or an empty line as a sign of life."""
    await send({"type": "http.response.body", "body": lines or b"\n", "more_body": True})


async def tail(backend: Backend, call: OperationCall) -> Response:
    """Raises Problem for an invalid filter, and if too many clients listen."""
    wanted = filter_of_query(backend, call)
    check_listeners(len(backend.listeners))
    return Tail(backend, call.query.filter, wanted)


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


def check_listeners(listeners: int) -> None:
    """Raise Problem if too many clients listen."""
    if listeners >= MOST_LISTENERS:
        raise Problem(429, "too_many_listeners", f"{listeners} listen already, at most {MOST_LISTENERS} may")


OPERATIONS = (
    Operation("GET", "/api/tail", "tail", "What passes, as it passes: one JSON object a line, without an end.",
              tail, TailShown, TailQuery, refusals=("too_many_listeners",), media=NDJSON),
)  # fmt: skip
