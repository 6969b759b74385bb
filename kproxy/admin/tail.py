"""`GET /api/tail`: exchanges as they pass, one JSON object a line until the listener goes.

    {"listening": "api == Produce"}         the filter in its long form: from now on nothing is missed
    {"request": {…}}                        the data of a request event
    {"dropped": 12}                         so many did not fit, since the listener reads too slowly
    {"unknown": 3, "why": "…"}              so many could not be judged by the filter
                                            an empty line now and then: all is well, and nothing was to be told

Strategy: a sink while somebody listens, gone with the connection. Lines are made here, some at a time, so that the loop
goes on in between; a listener who does not read stops the writing, and then the sink drops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, time
from typing import Any

import msgspec
import trio
from pydantic import Field
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from kproxy.errors import FilterError
from kproxy.observe.exchange import ObservedExchange
from kproxy.observe.filter.filter import Filter
from kproxy.observe.filter.view import EventData
from kproxy.sinks.fanout import Fanout
from kproxy.sinks.tail import TailSink

from .backend import Backend
from .models import Shown
from .operation import Operation, OperationCall
from .problem import Problem
from .queries import Query

NDJSON = "application/x-ndjson"
ALIVE = 10.0
"""Seconds between empty lines: less than a client's patience, so that both ends notice when the other is gone."""
AT_ONCE = 100
"""Events that are made before others have their turn: some milliseconds."""
MOST_LISTENERS = 16
"""Each looks at every exchange: a mistake in a script must not stop traffic."""
MOST_PARTITIONS = 100
"""Partitions of one exchange that are listed; the audit lists as many by default."""
EVERY_PARTITION = 1 << 31

_encode = msgspec.json.Encoder().encode


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


class TailLines:
    """Source of the lines for one listener, between `begin` and `end`."""

    def __init__(self, fanout: Fanout, notify: Callable[[trio.Event], None], wanted: Filter) -> None:
        self.fanout, self.notify = fanout, notify
        self.something = trio.Event()
        self.sink = TailSink(wanted, whole, self.wake)

    def wake(self) -> None:
        """Wake the task that writes: there is something to tell."""
        self.notify(self.something)

    def begin(self) -> None:
        """Add the sink: from now on nothing is missed."""
        self.fanout.add(self.sink)

    def end(self) -> None:
        self.fanout.remove(self.sink)

    async def next(self) -> bytes:
        """Return lines as soon as there are any; none after a while."""
        if not self.sink.waiting:
            with trio.move_on_after(ALIVE):
                await self.something.wait()
        self.something = trio.Event()
        lines: list[Mapping[str, Any]] = [{"request": told(seen)} for seen in self.sink.drain(AT_ONCE)]
        if missed := self.sink.missed():
            lines += [{"dropped": missed.dropped}] if missed.dropped else []
            lines += [{"unknown": missed.unknown, "why": missed.why}] if missed.unknown else []
        return b"".join(map(line, lines))


class Tail(StreamingResponse):
    """Response that streams lines; the sink is there while it is written."""

    def __init__(self, backend: Backend, wanted: Filter) -> None:
        self.log = backend.log.bind(filter=str(wanted))
        self.lines = TailLines(backend.server.taps.fanout, backend.server.reactor.notify, wanted)
        super().__init__(iter(()), media_type=NDJSON)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self.lines.begin()
        self.log.info("tail begins")
        try:
            await write(send, line({"listening": str(self.lines.sink.wanted)}))
            while True:
                await write(send, await self.lines.next())
        finally:
            self.lines.end()
            self.log.info("tail ends", dropped=self.lines.sink.dropped)


async def write(send: Send, lines: bytes) -> None:
    """Send some lines, or an empty one: all is well."""
    await send({"type": "http.response.body", "body": lines or b"\n", "more_body": True})


def line(content: Mapping[str, Any]) -> bytes:
    return _encode(content) + b"\n"


def told(seen: ObservedExchange) -> EventData:
    """Return the data of the request event of an exchange that has just passed, as the audit has it."""
    return _data(seen, MOST_PARTITIONS)


def whole(seen: ObservedExchange) -> EventData:
    """Return the data of the event with all that a filter may ask for."""
    return _data(seen, EVERY_PARTITION)


def _data(seen: ObservedExchange, most: int) -> EventData:
    from kproxy.sinks.audit.request_event import request_event  # not before somebody listens

    offset = time() - monotonic()
    return request_event(seen, lambda when: when + offset, most)


async def tail(backend: Backend, call: OperationCall) -> Response:
    """Answer with a stream. Raises Problem for a bad filter, and when too many listen already."""
    wanted = wanted_by(call)
    room_for_another(sum(isinstance(sink, TailSink) for sink in backend.server.taps.fanout.sinks))
    return Tail(backend, wanted)


def wanted_by(call: OperationCall) -> Filter:
    """Return the filter of a query. Raises Problem."""
    try:
        return Filter(call.query.filter)
    except FilterError as error:
        raise Problem(422, "invalid_query", str(error)) from None


def room_for_another(listeners: int) -> None:
    """Check that one more may listen. Raises Problem."""
    if listeners >= MOST_LISTENERS:
        raise Problem(429, "too_many_listeners", f"{listeners} listen already, at most {MOST_LISTENERS} may")


OPERATIONS = (
    Operation("GET", "/api/tail", "tail", "What passes, as it passes: one JSON object a line, without an end.",
              tail, TailShown, TailQuery, refusals=("too_many_listeners",), media=NDJSON),
)  # fmt: skip
