"""A viewer of `GET /api/view` that is in the same process: what it was sent, and how it goes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import trio
from starlette.types import Message

from tests.support.exchange_factory import Somebody, exchange


@dataclass(frozen=True)
class Event:
    """Server-sent event."""

    name: str
    data: Any
    place: str


class StreamReader:
    """Reads a stream, unless `reads` is taken away."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.came, self.gone, self.reads = trio.Event(), trio.Event(), trio.Event()
        self.reads.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self.came.set()

    @property
    def events(self) -> list[Event]:
        body = b"".join(message.get("body", b"") for message in self.sent)
        return [event for block in body.decode().split("\n\n") if (event := parsed(block)) is not None]

    async def until(self, name: str, count: int = 1) -> list[Event]:
        """The first so many events of this name, once they are there."""
        while len(found := [one for one in self.events if one.name == name]) < count:
            self.came = trio.Event()
            await self.came.wait()
        return found

    async def rows(self, count: int) -> list[dict[str, Any]]:
        """The first so many rows, by column, once they are there."""
        while True:
            (hello,) = [one for one in self.events if one.name == "hello"] or [Event("hello", {"columns": []}, "")]
            rows = [row for one in self.events if one.name == "rows" for row in one.data["rows"]]
            if len(rows) >= count:
                return [dict(zip(hello.data["columns"], row, strict=True)) for row in rows]
            self.came = trio.Event()
            await self.came.wait()


PATIENCE = 6000
"""Seconds, which may be those of a false clock: it jumps ahead by minutes while a thread works for milliseconds."""


def parsed(block: str) -> Event | None:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
    if not fields:
        return None
    return Event(fields["event"], json.loads(fields["data"]), fields.get("id", ""))


@asynccontextmanager
async def viewing(app: Any, query: str = "", last: str = "") -> AsyncIterator[StreamReader]:
    """A viewer, from the moment on when nothing is missed. `last`: the event that it saw last."""
    reader = StreamReader()
    headers = [(b"host", b"127.0.0.1:9190"), (b"accept", b"text/event-stream")]
    if last:
        headers.append((b"last-event-id", last.encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.1"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/api/view", "raw_path": b"/api/view", "query_string": query.encode(),
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9190),
    }  # fmt: skip
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app, scope, reader.receive, reader.send)
            await reader.until("hello")
            await reader.until("rules")
            yield reader
            reader.gone.set()
            reader.reads.set()


def produced(
    topic: str, number: int = 1, records: bytes = b"", who: Somebody | None = None, *, at: float | None = None
) -> Any:
    """An exchange that writes to a topic, now unless `at` is told."""
    request = {"acks": 1, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]}
    return exchange("Produce", 9, request, {}, at=monotonic() if at is None else at, number=number, who=who)
