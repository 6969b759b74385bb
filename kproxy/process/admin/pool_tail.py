"""`GET /api/tail` over all workers: their lines, one worker's in the order in which they came.

Strategy: each worker keeps a tail of its own for the listener and is asked for more when its lines are on their way, so
that one who does not read stops the asking, and the workers drop and count. Workers that begin later are listened to
from then on.
"""

from __future__ import annotations

import math
from contextlib import suppress

import trio
from starlette.responses import StreamingResponse
from starlette.types import Send

from kproxy.admin.tail import ALIVE, NDJSON, line, write
from kproxy.observe.filter.filter import Filter
from kproxy.process.workers.broadcast import Recipient
from kproxy.process.workers.channel import Channel, Unanswered

from .messages import BeginTail, EndTail, NextLines
from .pool_backend import PATIENCE, PoolBackend

LOOK = 0.25
"""Seconds between two looks for workers that have begun."""


class PoolTail(StreamingResponse):
    """Response that streams lines of all workers, as `admin.tail.Tail` those of one process."""

    def __init__(self, backend: PoolBackend, text: str, wanted: Filter) -> None:
        self.backend, self.text, self.wanted = backend, text, wanted
        self.log = backend.log.bind(filter=str(wanted))
        self.number = next(backend.numbers)
        self.heard: dict[int, Channel] = {}
        super().__init__(iter(()), media_type=NDJSON)

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
            for channel in self.heard.values():
                channel.tell(EndTail(self.number))
            self.log.info("tail ends")

    async def look(self, nursery: trio.Nursery, into: trio.MemorySendChannel[bytes]) -> None:
        while True:
            await trio.sleep(LOOK)
            await self.begin(nursery, into)

    async def begin(self, nursery: trio.Nursery, into: trio.MemorySendChannel[bytes]) -> None:
        """Listen to all workers that are not listened to yet."""
        for worker in self.backend.pool.workers:
            channel = worker.channel
            if worker.ready and channel is not None and self.heard.get(worker.index) is not channel:
                self.heard[worker.index] = channel
                await nursery.start(self.listen, worker, channel, into)

    async def listen(
        self, worker: Recipient, channel: Channel, into: trio.MemorySendChannel[bytes], *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:  # fmt: skip
        """Listen to one worker, until it ends."""
        try:
            await channel.ask(BeginTail(self.number, self.text), PATIENCE)
        except Unanswered as error:
            self.log.warning("tail misses a worker", of_worker=worker.index, reason=str(error))
        finally:
            task_status.started()
        with suppress(Unanswered):
            while True:
                more = await channel.ask(NextLines(self.number), math.inf)
                if more.text:
                    await into.send(more.text)
