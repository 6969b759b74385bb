"""Handling of requests that every HTTP server of kproxy shares: each refusal has the same form, one request that fails
ends no other, and browsers are told what an answer is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError

from .assets import DATA_POLICY, SAFE
from .guard import Guard
from .problem import Problem, answer, problem_of

RequestHandler = Callable[[Request], Awaitable[Response]]


def guarded(guard: Guard, log: FilteringBoundLogger, inner: RequestHandler) -> RequestHandler:
    """Return `inner` for those who may use it, with every refusal in the same form."""

    async def handle(request: Request) -> Response:
        try:
            request.state.may_write = guard(request)
            return await inner(request)
        except Problem as problem:
            return answer(problem)
        except KproxyError as error:
            return answer(problem_of(error))
        except Exception as error:  # one request fails, whatever it was
            log.error("request failed", path=request.scope["path"], exc_info=error)
            # The error may quote a secret of the document that is being handled.
            return answer(Problem(500, "internal", f"{type(error).__name__}, see the log of kproxy"))

    return handle


async def no_route(request: Request, error: Exception) -> Response:
    """Answer paths and methods that are not there."""
    assert isinstance(error, HTTPException), "it is registered for these"
    path = request.scope["path"]  # `request.url` is made of the Host header too, which may be anything
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return answer(Problem(405, "method_not_allowed", f"{request.method} is not for {path}, "
                              f"allowed: {allowed}", headers=error.headers))  # fmt: skip
    return answer(Problem(404, "not_found", f"there is no {path} here"))


ANSWERED = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {**SAFE, "Content-Security-Policy": DATA_POLICY, "Cache-Control": "no-store"}.items()
)
"""Headers of all answers that do not say otherwise."""


class SafeAnswers:
    """Middleware that tells browsers of every answer, refusals too, that it is what its media type says and no page,
    that no other site may have it, and that it is not to be kept: it may tell what passes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                message["headers"] = [*headers, *(one for one in ANSWERED if one[0] not in given)]
            await send(message)

        await self.app(scope, receive, told)
