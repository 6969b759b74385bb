"""Long responses, and responses that stream.

Items of a long list are converted a few milliseconds at a time. The bytes stay in memory until the client has read
them, so the bytes of all long responses are counted, and new ones are refused above a limit. A response is never
truncated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kproxy.record.filters import Filter
from kproxy.record.live_view.config import ViewConfig
from kproxy.runtime.io.scheduler import in_turns

from .guard import BYTES, JSON
from .limits import RESPONSES, network_of_peer
from .models import Shown
from .problem import MemberGone, Problem

if TYPE_CHECKING:
    from .backend import Backend
    from .tail import TailLines
    from .view import ViewSource
    from .worker_api import Member

LONG = 1 << 16  # bytes; shorter responses are not counted
MOST_LISTENERS = 16  # Each listener evaluates every exchange: a faulty script must not stop traffic
FIND_EVERY = 0.25  # seconds between checks for processes that have started


@dataclass(frozen=True, slots=True)
class LongResponse:
    """Response with a long list: `shown` without the list in `field`, and the list's items."""

    shown: Shown
    field: str
    items: Iterable[Shown]

    async def response(self, status: int, network: str = "") -> Response:
        """Serialize the response for a client of this network. Raises Problem if the limit is reached."""
        RESPONSES.check(network)
        text = bytearray(self.shown.model_dump_json().encode())
        assert f'"{self.field}":[]'.encode() in text, "the list is empty, and is put in here"
        at = text.index(f'"{self.field}":[]'.encode()) + len(self.field) + 4
        written = bytearray()
        try:
            await in_turns(self._write(written, network))
        finally:
            RESPONSES.add(network, -len(written))
        return CountedResponse(bytes(text[:at] + written[:-1] + text[at:]), status, media_type=JSON)

    async def values(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []

        def make() -> Iterator[None]:
            for item in self.items:
                rows.append(item.model_dump(mode="json"))
                yield

        await in_turns(make())
        return rows

    def _write(self, written: bytearray, network: str) -> Iterator[None]:
        for item in self.items:
            line = item.model_dump_json().encode() + b","
            written += line
            RESPONSES.add(network, len(line))
            yield


class CountedResponse(Response):
    """Response that counts towards the limit until it is sent. It checks the limit again before it is sent, because
    other responses may have reached it in between."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(self.body) if len(self.body) > LONG else 0
        network = network_of_peer(Request(scope))
        if size:
            RESPONSES.check(network)
        RESPONSES.add(network, size)
        try:
            await super().__call__(scope, receive, send)
        finally:
            RESPONSES.add(network, -size)


def attachment(data: bytes, name: str) -> CountedResponse:
    """Return a response that browsers save under this name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return CountedResponse(data, media_type=BYTES, headers=headers)


class GuardedStream(StreamingResponse):
    """Response that ends when its token, or the view config, no longer allows it. A response with a Content-Length ends
    by closing its connection. Subclasses send everything in `stream_response`."""

    def __init__(self, backend: Backend, media: str, headers: Mapping[str, str] | None = None) -> None:
        self.backend, self.why = backend, "stream ends, its token is out of force"
        super().__init__(iter(()), media_type=media, headers=headers)

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """True if the changed view config still allows this stream."""
        return True

    def close(self) -> None:
        """Release what the response holds; called if it is not sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.backend.tokens.while_allowed(scope) as allowed:
            self.backend.streams[self] = allowed
            try:
                await super().__call__(scope, receive, send)
            finally:
                del self.backend.streams[self]
        if allowed.cancelled_caught:
            self.backend.log.info(self.why, path=scope["path"])
            if "content-length" not in self.headers:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


class MemberStream(GuardedStream):
    """Stream of the parts of all members to one listener. Processes that start later are included.

    Subclasses send with `write_parts`, which calls `find_members`, and receive each part in `take`.
    """

    name: ClassVar[str]

    def __init__(self, backend: Backend, wanted: Filter, media: str, headers: Mapping[str, str] | None = None) -> None:
        self.wanted, self.log = wanted, backend.log.bind(filter=str(wanted) if wanted else "")
        self.number = next(backend.numbers)
        self.sources: dict[object, Any] = {}  # by process
        super().__init__(backend, media, headers)

    def source_of(self, member: Member) -> TailLines | ViewSource:
        raise NotImplementedError

    async def write_parts(self, send: Send, nursery: trio.Nursery) -> None:
        """Send until the listener disconnects."""
        raise NotImplementedError

    async def take(self, member: Member, source: Any, part: Any) -> None:
        raise NotImplementedError

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self.backend.listeners.add(self.number)
        self.log.info("%s begins", self.name)
        try:
            async with trio.open_nursery() as nursery:
                await self.write_parts(send, nursery)
        finally:
            self.backend.listeners.discard(self.number)
            for source in self.sources.values():
                source.end()
            self.log.info("%s ends", self.name, **self.summary())

    def summary(self) -> dict[str, int]:
        """Return values for the log line at the end."""
        return {}

    async def find_members(self, nursery: trio.Nursery) -> None:
        """Read from each process that is not read yet; return once they have registered the listener."""
        for member in self.backend.members:
            process = member.process
            if process is not None and process not in self.sources:
                self.sources[process] = source = self.source_of(member)
                await nursery.start(read_parts, source, partial(self.take, member, source), self.log, self.name, member)

    async def find_later_members(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.sleep(FIND_EVERY)
            await self.find_members(nursery)


async def read_parts(
    source: Any, take: Callable[[Any], Awaitable[None]], log: FilteringBoundLogger, name: str, member: Member, *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:  # fmt: skip
    """Pass the parts of one process to `take` until the process ends. Reports once the process has registered the
    listener, or has failed to."""
    try:
        await source.begin()
    except Problem as problem:
        log.warning("%s misses a worker", name, of_worker=member.index, reason=str(problem))
        return
    finally:
        task_status.started()
    with suppress(MemberGone):
        while True:
            await take(await source.next())


def check_listeners(backend: Backend) -> None:
    """Raise Problem if no other client may listen."""
    wanted = len(backend.listeners) + 1
    if wanted > MOST_LISTENERS:
        raise Problem(429, "too_many_listeners", f"expected at most {MOST_LISTENERS} listeners, got {wanted}")
