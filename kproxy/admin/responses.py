"""Responses with thousands of items, and responses that stream.

Items of a long list are converted a few milliseconds at a time. The bytes stay in memory until the client has read
them, so the bytes of all long responses are counted, and new ones are refused above a limit. A response is never
truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kproxy.record.live_view.config import ViewConfig
from kproxy.runtime.io.scheduler import in_turns

from .guard import JSON
from .models import Shown
from .problem import Problem, answer

if TYPE_CHECKING:
    from .backend import Backend

MOST_HELD = 64 << 20  # Bytes of long answers that are made or sent at a time: a dozen lists of ten thousand rules
LONG = 1 << 16  # Bytes; shorter answers are not counted


@dataclass(frozen=True, slots=True)
class LongResponse:
    """Response with a long list: `shown` without the list in `field`, and the list's items."""

    shown: Shown
    field: str
    items: Iterable[Shown]

    async def response(self, status: int) -> Response:
        """Serialize the response. Raises Problem if the limit is reached."""
        check_response_room()
        text = bytearray(self.shown.model_dump_json().encode())
        assert f'"{self.field}":[]'.encode() in text, "the list is empty, and is put in here"
        at = text.index(f'"{self.field}":[]'.encode()) + len(self.field) + 4
        written = bytearray()
        try:
            await in_turns(self._write(written))
        finally:
            _held.size -= len(written)
        return CountedResponse(bytes(text[:at] + written[:-1] + text[at:]), status, media_type=JSON)

    async def values(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []

        def make() -> Iterator[None]:
            for item in self.items:
                rows.append(item.model_dump(mode="json"))
                yield

        await in_turns(make())
        return rows

    def _write(self, written: bytearray) -> Iterator[None]:
        for item in self.items:
            line = item.model_dump_json().encode() + b","
            written += line
            _held.size += len(line)
            yield


class Held:
    """Bytes of all long responses in memory."""

    def __init__(self) -> None:
        self.size = 0


_held = Held()


def check_response_room() -> None:
    """Raise Problem if the limit is reached."""
    if _held.size > MOST_HELD:
        raise Problem(429, "too_many_answers", f"answers of more than {MOST_HELD} bytes are being sent already",
                      headers={"Retry-After": "1"})  # fmt: skip


class CountedResponse(Response):
    """Response that counts towards the limit until it is sent. It checks the limit again when it is built, because
    other responses may have reached it in between."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(self.body) if len(self.body) > LONG else 0
        try:
            if size:
                check_response_room()
        except Problem as problem:
            await answer(problem)(scope, receive, send)
            return
        _held.size += size
        try:
            await super().__call__(scope, receive, send)
        finally:
            _held.size -= size


class GuardedStream(StreamingResponse):
    """Response that ends when its token, or the view config, no longer allows it. A response with a Content-Length ends
    by closing its connection. Subclasses send everything in `stream_response`."""

    def __init__(self, backend: Backend, media: str, headers: Mapping[str, str] | None = None) -> None:
        self.backend, self.why = backend, "stream ends, its token is out of force"
        super().__init__(iter(()), media_type=media, headers=headers)

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """True if the changed view config still allows this stream."""
        return True

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
