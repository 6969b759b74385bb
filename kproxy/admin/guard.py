"""Guard of the admin address, and the handling that all HTTP servers of kproxy share.

Without a token the address is bound to loopback (the config checks this). Defences against web pages in a local
browser:

- The Host header must name this machine (DNS rebinding). With a token the token decides.

- An Origin header must be this address. No response has CORS headers, so other origins cannot read responses, and send
only what an HTML form sends.

- POST and PUT need `application/json`, even without a body, and uploads of captures `application/octet-stream`. HTML
forms send neither.

- Sec-Fetch-Site, if present, must be `same-origin` or `none`.

The read token allows all requests that change nothing. All refusals have one form, and all responses forbid sniffing,
sharing and caching.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError

from .problem import Problem, answer, problem_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Content-Security-Policy of every file."""
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"  # Content-Security-Policy of responses other than the page
SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time: a page of another version of kproxy would not fit its API
}
LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
JSON, YAML, BYTES = "application/json", "application/yaml", "application/octet-stream"
OWN_SITES = frozenset(("same-origin", "none"))
"""Values of Sec-Fetch-Site of a page of this address, and of a person who has typed it or opened a bookmark."""


@dataclass
class AdminTokens:
    """Tokens of the admin address; a reload may change them. `full`: allows everything; None: no token is required.
    `read`: allows requests that change nothing; effective only with `full`."""

    full: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)
    streams: dict[trio.CancelScope, bytes] = field(default_factory=dict, repr=False, compare=False)
    """Streams that are under way, with the Authorization header that each was asked for with."""

    def use(self, other: AdminTokens) -> None:
        """Replace the tokens, and end streams that the new tokens do not allow."""
        self.full, self.read = other.full, other.read
        for scope, given in self.streams.items():
            if not self.allows(given):
                scope.cancel()

    def allows(self, given: bytes) -> bool:
        """True if an Authorization header allows reading."""
        return self.full is None or is_bearer(given, self.full) or is_bearer(given, self.read)

    def check(self, given: bytes) -> None:
        """Raise Problem if an Authorization header does not allow reading."""
        if not self.allows(given):
            raise Problem(401, "unauthorized", "a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})

    @contextmanager
    def while_allowed(self, asked: Scope) -> Iterator[trio.CancelScope]:
        """Scope of a stream: cancelled when its token is revoked."""
        given = authorization_of(Headers(scope=asked))
        with trio.CancelScope() as scope:
            self.streams[scope] = given
            try:
                yield scope
            finally:
                del self.streams[scope]


_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")

Guard = Callable[[Request], bool]
"""Returns whether a request may change something. Raises Problem when it may not be at all."""


def make_guard(tokens: AdminTokens, host: str) -> Guard:
    """`host` is the name that the port is bound to."""

    def check(request: Request) -> bool:
        headers = request.headers
        may_write = True
        if tokens.full is not None:
            given = authorization_of(headers)
            tokens.check(given)
            may_write = is_bearer(given, tokens.full)
        else:
            check_host(request, host)
        for origin in headers.getlist("origin"):
            if origin.partition("://")[2] != headers.get("host"):
                raise Problem(403, "foreign_origin", f"origin {origin!r} is not this address")
        for site in headers.getlist("sec-fetch-site"):
            if site not in OWN_SITES:
                raise Problem(403, "foreign_site", f"a page of another site has sent this (Sec-Fetch-Site: {site!r})")
        return may_write

    return check


def authorization_of(headers: Headers) -> bytes:
    """Return the first Authorization header of a request; empty if absent."""
    return headers.get("authorization", "").encode()


def is_bearer(given: bytes, token: str | None) -> bool:
    """True if an Authorization header contains this token; compares in constant time."""
    return token is not None and hmac.compare_digest(given, f"Bearer {token}".encode())


def check_host(request: Request, host: str) -> None:
    """Raise Problem if the Host header names neither this machine nor `host`."""
    named = hostname(request.headers.get("host", ""))
    if named not in LOCAL and named != host:
        raise Problem(403, "foreign_host", f"host {named!r} is not this machine")


def hostname(header: str) -> str:
    """Return the name in a Host header without its port; the whole header if it is malformed."""
    found = _HOST.fullmatch(header)
    return found[1] if found else header


def media_type(request: Request, allowed: tuple[str, ...]) -> str:
    """Return the Content-Type of a request. Raises Problem if it is not allowed."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        media = f'"{given}"' if given else "none"
        raise Problem(
            415, "unsupported_media_type", f"the Content-Type must be {' or '.join(allowed)}, found {media}",
            headers={"Accept": ", ".join(allowed)},
        )  # fmt: skip
    return given


RequestHandler = Callable[[Request], Awaitable[Response]]


def guarded(guard: Guard, log: FilteringBoundLogger, inner: RequestHandler) -> RequestHandler:
    """Return `inner` behind the guard, with all refusals in one form."""

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
    assert isinstance(error, HTTPException), "it is registered for these"
    path = request.scope["path"]  # `request.url` is made of the Host header too, which may be anything
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return answer(Problem(405, "method_not_allowed", f"{request.method} is not for {path}, "
                              f"allowed: {allowed}", headers=error.headers))  # fmt: skip
    return answer(Problem(404, "not_found", f"there is no {path} here"))


DEFAULT_HEADERS = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {**SAFE, "Content-Security-Policy": DATA_POLICY, "Cache-Control": "no-store"}.items()
)
"""Default headers of all responses."""


class DefaultHeaders:
    """Middleware that adds default headers to all responses, refusals included: browsers must not sniff, share or cache
    them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                message["headers"] = [*headers, *(one for one in DEFAULT_HEADERS if one[0] not in given)]
            await send(message)

        await self.app(scope, receive, told)
