"""Responses that go on until whoever asked for them leaves, or may not have them any more."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kproxy.record.live_view.config import ViewConfig

from .backend import Backend


class GuardedStream(StreamingResponse):
    """Response that ends when the token that it was asked for with is no token any more, or when what it shows may not
    be seen any more: in order, or together with its connection where it has said how long it is. Subclasses send all of
    it in `stream_response`."""

    def __init__(self, backend: Backend, media: str, headers: Mapping[str, str] | None = None) -> None:
        self.backend, self.why = backend, "stream ends, its token is out of force"
        super().__init__(iter(()), media_type=media, headers=headers)

    def goes_on(self, before: ViewConfig, after: ViewConfig) -> bool:
        """Return True if the stream goes on where the config lets those who look see and do something else."""
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
